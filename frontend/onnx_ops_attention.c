// Attention (opset 23) and RotaryEmbedding (opset 23).
//
//     Attention  q (b, h, t, d), k (b, h, s, d), v (b, h, s, e)      attention
//
// or with heads and width in one dimension, (b, t, h d), which is reshaped to (b, t, h, d).  A
// boolean mask becomes an addend of the scores: 0 for true, -inf for false.

#include <math.h>
#include <string.h>

#include "frontend/onnx_node.h"

// (b, t, h d) to (b, h, t, d)
static Value *split_heads(Node *n, Value *x, int64_t heads) {
  const Type *t = x->type;
  // The heads are a dimension already.
  if (t->ndim == 4) return x;
  if (t->ndim != 3 || heads < 1 || t->dim[2] % heads) {
    node_fail(n, "%s has no %lld heads", type_text(n->a, t), (long long)heads);
    return NULL;
  }
  x = build_reshape(n->b, x, 4, (int64_t[]){t->dim[0], t->dim[1], heads, t->dim[2] / heads});
  return build_transpose(n->b, x, (int64_t[]){0, 2, 1, 3});
}

static Value *join_heads(Node *n, Value *y) {
  if (y) y = build_transpose(n->b, y, (int64_t[]){0, 2, 1, 3});
  if (!y) return NULL;
  const int64_t *d = y->type->dim;
  return build_reshape(n->b, y, 3, (int64_t[]){d[0], d[1], d[2] * d[3]});
}

// Returns the mask with four dimensions, as an addend of the scores.
static Value *score_mask(Node *n, Value *mask, DType dtype, int64_t t, int64_t s) {
  if (!mask) return NULL;
  const Type *type = mask->type;
  int64_t dim[4];
  if (type->ndim < 2 || type->ndim > 4 || type->dim[type->ndim - 1] != s ||
      (type->dim[type->ndim - 2] != t && type->dim[type->ndim - 2] != 1)) {
    node_fail(n, "a mask of %s for scores of %lld by %lld", type_text(n->a, type), (long long)t,
              (long long)s);
    return NULL;
  }
  // Missing leading dimensions are broadcast.
  for (int i = 0; i < 4; i++)
    dim[i] = i < 4 - type->ndim ? 1 : type->dim[i - (4 - type->ndim)];
  mask = build_reshape(n->b, mask, 4, dim);
  if (type->dtype != DT_bool) return build_cast(n->b, mask, dtype);
  // A boolean mask: an addend of 0 or -inf.
  Value *zero = build_fill(n->b, dtype, 4, dim, 0);
  return build_where(n->b, mask, zero, build_fill(n->b, dtype, 4, dim, -INFINITY));
}

// Repeats heads of keys or values (b, h/r, s, d) for the heads of the queries: each serves r
// consecutive ones.
static Value *repeat_heads(Node *n, Value *x, int64_t heads) {
  const int64_t *d = x->type->dim;
  int64_t own = d[1];
  if (own == heads || own == 0 || heads % own) return x;
  // Grouped-query attention: each head is broadcast to its group.
  int64_t dim[5] = {d[0], own, heads / own, d[2], d[3]};
  x = build_reshape(n->b, x, 5, (int64_t[]){d[0], own, 1, d[2], d[3]});
  x = build_broadcast(n->b, x, 5, dim);
  return build_reshape(n->b, x, 4, (int64_t[]){dim[0], heads, dim[3], dim[4]});
}

// Attention with scores squeezed into -softcap..softcap before the mask is added, which the op does
// not support: built from single ops.
static Value *capped(Node *n, Value *q, Value *k, Value *v, Value *mask, double scale,
                     double softcap) {
  k = repeat_heads(n, k, q->type->dim[1]);
  v = repeat_heads(n, v, q->type->dim[1]);
  Value *scores =
      build_op(n->b, OP_matmul, IN(q, k), ATTRS(a_b("trans_a", false), a_b("trans_b", true)));
  // softcap tanh(scores / softcap), and then the mask.
  scores = node_unary(n, OP_tanh, build_scale(n->b, scores, scale / softcap));
  scores = build_scale(n->b, scores, softcap);
  if (mask && scores) scores = node_binary(n, OP_add, scores, mask);
  Value *p = build_op(n->b, OP_softmax, IN(scores), ATTRS(a_i("axis", 3)));
  return build_op(n->b, OP_matmul, IN(p, v), ATTRS(a_b("trans_a", false), a_b("trans_b", false)));
}

bool import_attention(Node *n) {
  bool joined = node_ndim(n, 0) == 3;
  int64_t q_heads = node_int(n, "q_num_heads", 0), kv_heads = node_int(n, "kv_num_heads", 0);
  // Operands 4 and 5 are past keys and values, results 1 and 2 present ones.
  if (node_in(n, 4) || node_in(n, 5) || node_in(n, 6) || node_wants(n, 1) || node_wants(n, 2))
    return node_fail(n, "a cache of keys and values is for inference and is not supported");
  if (node_wants(n, 3)) return node_fail(n, "its result 3, the scores, is not supported");
  double softcap = node_float(n, "softcap", 0);
  Value *q = split_heads(n, n->in[0], q_heads), *mask = node_in(n, 3);
  Value *k = q ? split_heads(n, n->in[1], kv_heads) : NULL;
  Value *v = k ? split_heads(n, n->in[2], kv_heads) : NULL;
  if (!v) return false;
  int64_t t = q->type->dim[2], s = k->type->dim[2];
  DType dtype = q->type->dtype;
  bool causal = node_int(n, "is_causal", 0) != 0;
  if (mask) mask = score_mask(n, mask, dtype, t, s);
  // Position i attends to 0..i; the op's own `causal` aligns at the end, which is the same for t =
  // s only.
  if (causal && (t != s || softcap > 0)) {
    Value *all = build_fill(n->b, DT_bool, 4, (int64_t[]){1, 1, t, s}, 1);
    Value *seen = build_op(n->b, OP_trilu, IN(all), ATTRS(a_b("upper", false), a_i("k", 0)));
    Value *triangle = score_mask(n, seen, dtype, t, s);
    mask = mask ? node_binary(n, OP_add, mask, triangle) : triangle;
    causal = false;
  }
  if (n->b->failed) return false;
  double scale = node_float(n, "scale", 1 / sqrt((double)q->type->dim[3]));
  Value *in[] = {q, k, v, mask}, *y;
  // The op has no softcap.
  if (softcap > 0)
    y = capped(n, q, k, v, mask, scale, softcap);
  else
    y = build_op(n->b, OP_attention, in, mask ? 4 : 3,
                 ATTRS(a_f("scale", scale), a_b("causal", causal), a_b("seq_major", false)));
  n->out[0] = joined ? join_heads(n, y) : y;
  return true;
}

// Returns `count` elements of the last dimension from `start`, every `step`th.
static Value *last_part(Node *n, Value *x, int64_t start, int64_t step, int64_t count) {
  if (!x) return NULL;
  int ndim = x->type->ndim;
  int64_t starts[MAX_NDIM] = {0}, steps[MAX_NDIM], shape[MAX_NDIM];
  for (int i = 0; i < ndim; i++) {
    steps[i] = 1;
    shape[i] = x->type->dim[i];
  }
  // Only the last dimension is sliced.
  starts[ndim - 1] = start;
  steps[ndim - 1] = step;
  shape[ndim - 1] = count;
  return build_op(n->b, OP_slice, IN(x),
                  ATTRS(a_list("starts", starts, ndim), a_list("steps", steps, ndim),
                        a_list("shape", shape, ndim)));
}

// cos or sin as (b|1, 1, t, d/2)
static Value *angles(Node *n, Value *cache, int64_t half) {
  // Without positions the cache has a row per token.
  Value *positions = node_in(n, 3);
  if (positions) cache = build_op(n->b, OP_gather, IN(cache, positions), ATTRS(a_i("axis", 0)));
  if (!cache) return NULL;
  const Type *t = cache->type;
  if (t->ndim != 3 || t->dim[2] != half) {
    node_fail(n, "a cache of %s for %lld rotated pairs", type_text(n->a, t), (long long)half);
    return NULL;
  }
  return build_reshape(n->b, cache, 4, (int64_t[]){t->dim[0], 1, t->dim[1], half});
}

// Rotates pairs (x1, x2) of the first `rotary` elements, halves of them or neighbours, by an angle
// each: (x1 cos - x2 sin, x1 sin + x2 cos)
bool import_rotary_embedding(Node *n) {
  bool joined = node_ndim(n, 0) == 3;
  Value *x = split_heads(n, n->in[0], node_int(n, "num_heads", 0));
  if (!x) return false;
  int64_t width = x->type->dim[3], rotary = node_int(n, "rotary_embedding_dim", 0);
  // By default all elements are rotated.
  if (rotary == 0) rotary = width;
  if (rotary < 2 || rotary > width || rotary % 2)
    return node_fail(n, "rotary_embedding_dim is %lld of %lld", (long long)rotary,
                     (long long)width);
  int64_t half = rotary / 2;
  bool interleaved = node_int(n, "interleaved", 0) != 0;
  // The pairs: alternate elements, or the two halves.
  Value *x1 = last_part(n, x, 0, interleaved ? 2 : 1, half);
  Value *x2 = last_part(n, x, interleaved ? 1 : half, interleaved ? 2 : 1, half);
  Value *c = angles(n, n->in[1], half), *s = c ? angles(n, n->in[2], half) : NULL;
  if (!s) return false;
  // The rotation, on all pairs at once.
  Value *y1 = node_binary(n, OP_sub, node_binary(n, OP_mul, x1, c), node_binary(n, OP_mul, x2, s));
  Value *y2 = node_binary(n, OP_add, node_binary(n, OP_mul, x1, s), node_binary(n, OP_mul, x2, c));
  if (n->b->failed) return false;
  Value *y;
  int64_t d[5];
  memcpy(d, x->type->dim, 4 * sizeof *d);
  // Interleave the results again, or join the halves.
  if (interleaved) {
    d[3] = half;
    d[4] = 1;
    y = build_op(n->b, OP_concat, IN(build_reshape(n->b, y1, 5, d), build_reshape(n->b, y2, 5, d)),
                 ATTRS(a_i("axis", 4)));
    d[3] = rotary;
    y = build_reshape(n->b, y, 4, d);
  } else {
    y = build_op(n->b, OP_concat, IN(y1, y2), ATTRS(a_i("axis", 3)));
  }
  // The rest of the elements is not rotated.
  if (rotary < width)
    y = build_op(n->b, OP_concat, IN(y, last_part(n, x, rotary, 1, width - rotary)),
                 ATTRS(a_i("axis", 3)));
  n->out[0] = joined ? join_heads(n, y) : y;
  return true;
}
