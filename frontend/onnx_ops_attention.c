// Attention (opset 23 to 25) and RotaryEmbedding (opset 23).
//
//     Attention  q (b, h, t, d), k (b, g, s, d), v (b, g, s, e)      attention
//
// or with heads and width in one dimension, (b, t, h d), which is reshaped to (b, t, h, d).  Past
// keys and values precede k and v.  All restrictions of a query's keys, the mask, `is_causal`,
// windows and lengths, becomes one addend of the scores, which is -inf for hidden keys.

#include <math.h>
#include <string.h>

#include "frontend/onnx_attention.h"
#include "frontend/onnx_walk.h"
#include "frontend/onnx_weights.h"

// (b, t, h d) to (b, h, t, d)
Value *attention_split_heads(Node *n, Value *x, int64_t heads) {
  if (!x) return NULL;
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

Value *attention_join_heads(Node *n, Value *y) {
  if (y) y = build_transpose(n->b, y, (int64_t[]){0, 2, 1, 3});
  if (!y) return NULL;
  const int64_t *d = y->type->dim;
  return build_reshape(n->b, y, 3, (int64_t[]){d[0], d[1], d[2] * d[3]});
}

// -- Masks -------------------------------------------------------------------------------------

// An addend of the scores: 0 for true, -inf for false.
static Value *addend(Node *n, Value *visible, DType dtype) {
  const Type *t = visible->type;
  Value *zero = build_fill(n->b, dtype, t->ndim, t->dim, 0);
  return build_where(n->b, visible, zero, build_fill(n->b, dtype, t->ndim, t->dim, -INFINITY));
}

// Returns the mask with four dimensions; keys beyond its last dimension are hidden.
static Value *whole_mask(Node *n, Value *mask, const int64_t scores[4]) {
  const Type *type = mask->type;
  int64_t dim[4];
  int first = 4 - type->ndim;
  bool fits = type->ndim >= 1 && type->ndim <= 4;
  // Missing leading dimensions are broadcast.
  for (int i = 0; i < 4 && fits; i++) {
    dim[i] = i < first ? 1 : type->dim[i - first];
    fits = dim[i] == scores[i] || dim[i] == 1 || (i == 3 && dim[i] < scores[i]);
  }
  if (!fits) {
    node_fail(n, "a mask of %s for scores of %lld by %lld by %lld by %lld", type_text(n->a, type),
              (long long)scores[0], (long long)scores[1], (long long)scores[2],
              (long long)scores[3]);
    return NULL;
  }
  mask = build_reshape(n->b, mask, 4, dim);
  if (dim[3] == scores[3]) return mask;
  dim[3] = scores[3] - dim[3];
  double hidden = mask->type->dtype == DT_bool ? 0 : -INFINITY;
  Value *rest = build_fill(n->b, mask->type->dtype, 4, dim, hidden);
  return build_op(n->b, OP_concat, IN(mask, rest), ATTRS(a_i("axis", 3)));
}

static Value *both(Node *n, Value *x, Value *y) {
  return !x ? y : !y ? x : node_binary(n, OP_and, x, y);
}

// Keeps the keys j of `visible`, at least (upper) or at most query's number + k.
static Value *triangle(Node *n, Value *visible, bool upper, int64_t k) {
  return build_op(n->b, OP_trilu, IN(visible), ATTRS(a_b("upper", upper), a_i("k", k)));
}

// Which keys of t x s a query sees by its position, `past` + its number; NULL: all.
static Value *visible_by_position(Node *n, const Attention *a, int64_t t, int64_t s, bool causal) {
  bool right = causal || a->right >= 0;
  if (!right && a->left < 0) return NULL;
  Value *v = build_fill(n->b, DT_bool, 4, (int64_t[]){1, 1, t, s}, 1);
  // A wider window than all keys and queries hides none.
  int64_t widest = t + s, after = a->right < widest ? a->right : widest;
  if (right) v = triangle(n, v, false, a->past + (causal ? 0 : after));
  if (a->left >= 0) v = triangle(n, v, true, a->past - (a->left < widest ? a->left : widest));
  return v;
}

// The same with lengths: a sample's last query is at its last valid key, and the others are
// hidden.
static Value *visible_by_length(Node *n, const Attention *a, int64_t t, int64_t s, bool causal) {
  Value *key = node_count_up(n, s), *query = node_count_up(n, t);
  if (!key || !query) return NULL;
  int64_t b = a->lengths->type->dim[0];
  Value *length = build_cast(n->b, a->lengths, DT_i64);
  length = build_reshape(n->b, length, 4, (int64_t[]){b, 1, 1, 1});
  key = build_reshape(n->b, key, 4, (int64_t[]){1, 1, 1, s});
  query = build_reshape(n->b, query, 4, (int64_t[]){1, 1, t, 1});
  // A key's distance from the query's position: negative before it.
  Value *at = node_binary(n, OP_add, query, length);
  at = node_binary(n, OP_sub, at, node_scalar(n, DT_i64, (double)t));
  Value *distance = node_binary(n, OP_sub, key, at);
  Value *visible = node_binary(n, OP_less, key, length);
  if (causal || a->right >= 0) {
    Value *most = node_scalar(n, DT_i64, causal ? 0 : (double)a->right);
    visible = both(n, visible, node_binary(n, OP_less_equal, distance, most));
  }
  if (a->left >= 0) {
    Value *least = node_scalar(n, DT_i64, -(double)a->left);
    visible = both(n, visible, node_binary(n, OP_greater_equal, distance, least));
  }
  return visible;
}

// Returns the addend of the scores, or NULL.  `causal`: not left to the op.
static Value *score_mask(Node *n, const Attention *a, bool causal) {
  const int64_t *q = a->q->type->dim, scores[] = {q[0], q[1], q[2], a->k->type->dim[2]};
  Value *visible = a->lengths ? visible_by_length(n, a, scores[2], scores[3], causal)
                              : visible_by_position(n, a, scores[2], scores[3], causal);
  if (n->b->failed) return NULL;
  DType dtype = a->q->type->dtype;
  Value *mask = a->mask ? whole_mask(n, a->mask, scores) : NULL;
  if (n->b->failed) return NULL;
  if (mask && mask->type->dtype == DT_bool) {
    visible = both(n, visible, mask);
    mask = NULL;
  }
  if (mask) mask = build_cast(n->b, mask, dtype);
  if (visible) visible = addend(n, visible, dtype);
  return !mask ? visible : !visible ? mask : node_binary(n, OP_add, mask, visible);
}

// -- Attention of single ops -------------------------------------------------------------------

// Repeats heads of keys or values (b, h/r, s, d) for the heads of the queries: each serves r
// consecutive ones.
Value *attention_repeat_heads(Node *n, Value *x, int64_t heads) {
  if (!x) return NULL;
  const int64_t *d = x->type->dim;
  int64_t own = d[1];
  if (own == heads || own == 0 || heads % own) return x;
  // Grouped-query attention: each head is broadcast to its group.
  int64_t dim[5] = {d[0], own, heads / own, d[2], d[3]};
  x = build_reshape(n->b, x, 5, (int64_t[]){d[0], own, 1, d[2], d[3]});
  x = build_broadcast(n->b, x, 5, dim);
  return build_reshape(n->b, x, 4, (int64_t[]){dim[0], heads, dim[3], dim[4]});
}

// The softmax of scores + mask.  A query without keys has zeros, and passes no gradient: its scores
// are replaced before.
static Value *probabilities(Node *n, Value *scores, Value *mask, DType dtype) {
  Value *sees = NULL;
  if (mask && !n->b->failed) {
    Value *highest = build_op(n->b, OP_reduce_max, IN(mask),
                              ATTRS(a_list("axes", (int64_t[]){3}, 1), a_b("keep", true)));
    Value *none = node_scalar(n, mask->type->dtype, -INFINITY);
    sees = node_binary(n, OP_greater, highest, none);
    Value *in[] = {sees, scores, node_like(n, scores, 0)};
    if (!node_broadcast(n, in, 3)) return NULL;
    scores = build_where(n->b, in[0], in[1], in[2]);
  }
  if (!scores) return NULL;
  Value *p = build_op(n->b, OP_softmax, IN(build_cast(n->b, scores, dtype)), ATTRS(a_i("axis", 3)));
  if (!p || !sees) return p;
  Value *in[] = {sees, p, node_like(n, p, 0)};
  if (!node_broadcast(n, in, 3)) return NULL;
  return build_where(n->b, in[0], in[1], in[2]);
}

// For results and settings that the op lacks: scores as a result, scores squeezed into
// -softcap..softcap before the mask is added, a softmax in another type.
static Value *by_single_ops(Node *n, const Attention *a, Value *mask, Value **out_scores) {
  DType dtype = a->q->type->dtype;
  Value *k = attention_repeat_heads(n, a->k, a->q->type->dim[1]);
  Value *v = attention_repeat_heads(n, a->v, a->q->type->dim[1]);
  Value *scores =
      build_op(n->b, OP_matmul, IN(a->q, k), ATTRS(a_b("trans_a", false), a_b("trans_b", true)));
  if (!scores) return NULL;
  scores = build_scale(n->b, scores, a->scale);
  *out_scores = scores;
  if (a->softcap > 0) {
    scores = node_unary(n, OP_tanh, build_scale(n->b, scores, 1 / a->softcap));
    scores = build_scale(n->b, scores, a->softcap);
    if (a->scores >= SCORES_capped) *out_scores = scores;
  }
  if (mask && scores) scores = node_binary(n, OP_add, scores, mask);
  if (a->scores == SCORES_masked) *out_scores = scores;
  Value *p = probabilities(n, scores, mask, a->softmax);
  if (!p) return NULL;
  p = build_cast(n->b, p, dtype);
  if (a->scores == SCORES_probabilities) *out_scores = p;
  return build_op(n->b, OP_matmul, IN(p, v), ATTRS(a_b("trans_a", false), a_b("trans_b", false)));
}

Value *attention_build(Node *n, const Attention *a, Value **out_scores) {
  int64_t t = a->q->type->dim[2], s = a->k->type->dim[2];
  DType dtype = a->q->type->dtype;
  bool single = out_scores || a->softcap > 0 || (a->softmax != dtype && a->softmax != DT_f32);
  // The op aligns the last query with the last key.
  bool own = a->causal && !single && !a->lengths && a->past == s - t;
  Value *mask = score_mask(n, a, a->causal && !own), *scores;
  if (n->b->failed) return NULL;
  if (single) return by_single_ops(n, a, mask, out_scores ? out_scores : &scores);
  Value *in[] = {a->q, a->k, a->v, mask};
  return build_op(n->b, OP_attention, in, mask ? 4 : 3,
                  ATTRS(a_f("scale", a->scale), a_b("causal", own), a_b("seq_major", false)));
}

// -- Import ------------------------------------------------------------------------------------

Value *attention_after_past(Node *n, Value *past, Value *x, int64_t *out_past) {
  if (!past || !x) return x;
  const Type *p = past->type, *t = x->type;
  if (p->ndim != 4 || p->dim[0] != t->dim[0] || p->dim[1] != t->dim[1] || p->dim[3] != t->dim[3]) {
    node_fail(n, "%s before keys or values of %s", type_text(n->a, p), type_text(n->a, t));
    return NULL;
  }
  *out_past = p->dim[2];
  return build_op(n->b, OP_concat, IN(past, x), ATTRS(a_i("axis", 2)));
}

// Reads `softmax_precision`, a type of ONNX; without it, f32, or f64 for queries of f64.
static bool softmax_type(Node *n, Attention *a) {
  int64_t type = node_int(n, "softmax_precision", 0);
  a->softmax = n->in[0]->type->dtype == DT_f64 ? DT_f64 : DT_f32;
  if (type == 0) return true;
  DType read;
  if (!onnx_dtype((int)type, &read) || dtype_class[read] != 'F' || onnx_narrow((int)type))
    return node_fail(n, "softmax_precision is %lld", (long long)type);
  a->softmax = onnx_compute_dtype(read, n->im->o->keep_f64);
  return true;
}

bool import_attention(Node *n) {
  bool joined = node_ndim(n, 0) == 3;
  int64_t q_heads = node_int(n, "q_num_heads", 0), kv_heads = node_int(n, "kv_num_heads", 0);
  Attention a = {.mask = node_in(n, 3),
                 .lengths = node_in(n, 6),
                 .causal = node_int(n, "is_causal", 0) != 0,
                 .left = node_int(n, "left_window_size", -1),
                 .right = node_int(n, "right_window_size", -1),
                 .softcap = node_float(n, "softcap", 0)};
  int64_t mode = node_int(n, "qk_matmul_output_mode", 0);
  if (mode < 0 || mode > SCORES_probabilities)
    return node_fail(n, "qk_matmul_output_mode is %lld", (long long)mode);
  a.scores = (AttentionScores)mode;
  if (a.left < -1 || a.right < -1) return node_fail(n, "a window is -1 or a number of keys");
  Value *past_k = node_in(n, 4), *past_v = node_in(n, 5);
  if (!past_k != !past_v) return node_fail(n, "past_key and past_value come together");
  if (a.lengths && past_k) return node_fail(n, "nonpad_kv_seqlen with past keys");
  if (!softmax_type(n, &a)) return false;
  a.q = attention_split_heads(n, n->in[0], q_heads);
  a.k = a.q ? attention_split_heads(n, n->in[1], kv_heads) : NULL;
  a.v = a.k ? attention_split_heads(n, n->in[2], kv_heads) : NULL;
  a.k = a.v ? attention_after_past(n, past_k, a.k, &a.past) : NULL;
  a.v = a.k ? attention_after_past(n, past_v, a.v, &a.past) : NULL;
  if (!a.v) return false;
  const Type *length = a.lengths ? a.lengths->type : NULL;
  if (length && (length->ndim != 1 || length->dim[0] != a.q->type->dim[0]))
    return node_fail(n, "nonpad_kv_seqlen is %s for a batch of %lld", type_text(n->a, length),
                     (long long)a.q->type->dim[0]);
  n->out[1] = a.k;
  n->out[2] = a.v;
  a.scale = node_float(n, "scale", 1 / sqrt((double)a.q->type->dim[3]));
  Value *y = attention_build(n, &a, node_wants(n, 3) ? &n->out[3] : NULL);
  n->out[0] = joined ? attention_join_heads(n, y) : y;
  return n->out[0] != NULL;
}

// Attention with functions of the scores and of the probabilities, graphs of the node.
bool import_flex_attention(Node *n) {
  Value *q = n->in[0], *k = n->in[1], *v = n->in[2];
  if (q->type->ndim != 4 || k->type->ndim != 4 || v->type->ndim != 4)
    return node_fail(n, "its operands have not four dimensions");
  Attention a = {.q = q};
  if (!softmax_type(n, &a)) return false;
  double scale = node_float(n, "scale", 1 / sqrt((double)q->type->dim[3]));
  k = attention_repeat_heads(n, k, q->type->dim[1]);
  v = attention_repeat_heads(n, v, q->type->dim[1]);
  Value *x =
      build_op(n->b, OP_matmul, IN(q, k), ATTRS(a_b("trans_a", false), a_b("trans_b", true)));
  if (!x) return false;
  x = build_cast(n->b, build_scale(n->b, x, scale), a.softmax);
  x = node_modified(n, "score_mod", x);
  if (!x) return false;
  x = node_modified(n, "prob_mod", build_op(n->b, OP_softmax, IN(x), ATTRS(a_i("axis", 3))));
  if (!x) return false;
  x = build_cast(n->b, x, q->type->dtype);
  n->out[0] =
      build_op(n->b, OP_matmul, IN(x, v), ATTRS(a_b("trans_a", false), a_b("trans_b", false)));
  return true;
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
  Value *x = attention_split_heads(n, n->in[0], node_int(n, "num_heads", 0));
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
  Value *x1 = build_slice_step(n->b, x, 3, 0, interleaved ? 2 : 1, half);
  Value *x2 = build_slice_step(n->b, x, 3, interleaved ? 1 : half, interleaved ? 2 : 1, half);
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
    y = build_op(n->b, OP_concat, IN(y, build_slice(n->b, x, 3, rotary, width - rotary)),
                 ATTRS(a_i("axis", 3)));
  n->out[0] = joined ? attention_join_heads(n, y) : y;
  return true;
}
