// Operators of com.microsoft, which onnxruntime's optimizers leave in files: each is several
// operators of ONNX in one.
//
//     SkipLayerNormalization  x, skip, scale, bias     layer_norm of x + skip
//     FusedConv               x, w, b, z               an activation of Conv + z
//     MultiHeadAttention      q, k, v                  Attention, with biases of q, k and v
//     DynamicQuantizeLSTM     x, w, r, b, …, scales    LSTM of w and r in 8 bits
//
// Their documentation is onnxruntime's ContribOperators.md.

#include <math.h>
#include <string.h>

#include "frontend/onnx_attention.h"
#include "frontend/onnx_walk.h"

// x + y, or x if the node lacks operand y.
static Value *plus_optional(Node *n, Value *x, Value *y) {
  return x && y ? node_add(n, x, y) : x;
}

// -- Activations -------------------------------------------------------------------------------

bool import_bias_gelu(Node *n) {
  n->out[0] = node_unary(n, OP_gelu, node_add(n, n->in[0], n->in[1]));
  return true;
}

bool import_fast_gelu(Node *n) {
  n->out[0] = node_unary(n, OP_gelu_tanh, plus_optional(n, n->in[0], node_in(n, 1)));
  return true;
}

// x sigmoid(alpha x)
bool import_quick_gelu(Node *n) {
  double alpha = node_float(n, "alpha", 1.702);
  n->out[0] = build_op(n->b, OP_swish, IN(n->in[0]), ATTRS(a_f("beta", alpha)));
  return true;
}

// The first half of the last dimension, times gelu of the second one.
bool import_bias_split_gelu(Node *n) {
  Value *x = node_add(n, n->in[0], n->in[1]);
  int last = x ? x->type->ndim - 1 : -1;
  if (last < 0 || x->type->dim[last] % 2)
    return node_fail(n, "its last dimension does not split in two");
  int64_t half = x->type->dim[last] / 2;
  Value *gate = node_unary(n, OP_gelu, node_part(n, x, last, half, half));
  n->out[0] = node_mul(n, node_part(n, x, last, 0, half), gate);
  return true;
}

// x + bias + skip
bool import_bias_add(Node *n) {
  n->out[0] = node_add(n, node_add(n, n->in[0], n->in[1]), n->in[2]);
  return true;
}

// The softmax over the dimensions from `axis` on of x + bias.  is_inner_broadcast says which
// dimensions the bias lacks, which its shape says as well.
bool import_bias_softmax(Node *n) {
  const Type *t = n->in[0]->type;
  int axis;
  if (!node_axis(n, node_int(n, "axis", 1), t->ndim, &axis)) return false;
  (void)node_int(n, "is_inner_broadcast", 1);
  Value *sum = node_add(n, n->in[0], n->in[1]);
  if (!sum) return false;
  int64_t flat[] = {product(t->dim, 0, axis), product(t->dim, axis, t->ndim)};
  sum = build_reshape(n->b, sum, 2, flat);
  Value *y = build_op(n->b, OP_softmax, IN(sum), ATTRS(a_i("axis", 1)));
  n->out[0] = build_reshape(n->b, y, t->ndim, t->dim);
  return true;
}

// -- Contractions ------------------------------------------------------------------------------

// Swaps the last two dimensions, or moves the first but one to the end (`batch`: the matrix's rows
// are the first dimension), or both.
static Value *turned(Node *n, Value *x, bool trans, bool batch) {
  int ndim = x->type->ndim;
  int64_t perm[MAX_NDIM];
  if (ndim < 2 || (!trans && !batch)) return x;
  for (int i = 0; i < ndim; i++)
    perm[i] = i;
  // (m, batch …, k) to (batch …, m, k)
  if (batch)
    for (int i = 0; i < ndim - 1; i++)
      perm[i] = i < ndim - 2 ? i + 1 : 0;
  if (trans) {
    int64_t rows = perm[ndim - 2];
    perm[ndim - 2] = perm[ndim - 1];
    perm[ndim - 1] = rows;
  }
  return build_transpose(n->b, x, perm);
}

bool import_fused_matmul(Node *n) {
  n->in[0] = turned(n, n->in[0], node_int(n, "transA", 0) != 0, node_int(n, "transBatchA", 0) != 0);
  n->in[1] = turned(n, n->in[1], node_int(n, "transB", 0) != 0, node_int(n, "transBatchB", 0) != 0);
  if (n->b->failed || !import_matmul(n)) return false;
  n->out[0] = build_scale(n->b, n->out[0], node_float(n, "alpha", 1));
  return true;
}

// Applies the activation that the attribute names, with its parameters, or the defaults of ONNX.
static bool activate(Node *n, const float *given, int n_given) {
  const char *name = node_str(n, "activation", "");
  Value *y = n->out[0];
  double a = n_given > 0 ? given[0] : 0, b = n_given > 1 ? given[1] : 0;
  if (!*name) return true;
  if (str_equal(name, "Relu"))
    y = node_unary(n, OP_relu, y);
  else if (str_equal(name, "Tanh"))
    y = node_unary(n, OP_tanh, y);
  else if (str_equal(name, "Sigmoid"))
    y = node_unary(n, OP_sigmoid, y);
  else if (str_equal(name, "LeakyRelu"))
    y = build_op(n->b, OP_leaky_relu, IN(y), ATTRS(a_f("slope", n_given > 0 ? a : 0.01)));
  else if (str_equal(name, "HardSigmoid"))
    y = build_op(n->b, OP_hard_sigmoid, IN(y),
                 ATTRS(a_f("alpha", n_given > 0 ? a : 0.2), a_f("beta", n_given > 1 ? b : 0.5)));
  else if (str_equal(name, "Clip"))
    y = build_op(
        n->b, OP_clip, IN(y),
        ATTRS(a_f("low", n_given > 0 ? a : -INFINITY), a_f("high", n_given > 1 ? b : INFINITY)));
  else
    return node_fail(n, "activation '%s' is not supported", name);
  n->out[0] = y;
  return true;
}

bool import_fused_conv(Node *n) {
  const Onnx__AttributeProto *given = node_attr(n, "activation_params");
  if (!import_conv(n)) return false;
  n->out[0] = plus_optional(n, n->out[0], node_in(n, 3));
  return activate(n, given ? given->floats : NULL, given ? (int)given->n_floats : 0);
}

bool import_fused_gemm(Node *n) {
  float given[] = {(float)node_float(n, "activation_alpha", 0),
                   (float)node_float(n, "activation_beta", 0)};
  // Both are there, or their defaults hold.
  int n_given = node_attr(n, "activation_beta") ? 2 : node_attr(n, "activation_alpha") ? 1 : 0;
  (void)node_float(n, "activation_gamma", 0);
  return import_gemm(n) && activate(n, given, n_given);
}

// -- Normalisation -----------------------------------------------------------------------------

// x normalised over its last dimension: a layer_norm, or a rms_norm without `bias`.
static Value *normalised(Node *n, Value *x, Value *scale, Value *bias, bool rms, double eps) {
  if (!x) return NULL;
  int64_t width = x->type->dim[x->type->ndim - 1];
  if (scale->type->ndim != 1 || scale->type->dim[0] != width) {
    node_fail(n, "a scale of %s for rows of %lld", type_text(n->a, scale->type), (long long)width);
    return NULL;
  }
  if (rms) return build_op(n->b, OP_rms_norm, IN(x, scale), ATTRS(a_f("eps", eps)));
  if (!bias) bias = build_fill(n->b, x->type->dtype, 1, &width, 0);
  return build_op(n->b, OP_layer_norm, IN(x, scale, bias), ATTRS(a_f("eps", eps)));
}

static bool skip_norm(Node *n, bool rms) {
  Value *x = n->in[0], *skip = n->in[1];
  if (x->type->ndim == 0) return node_fail(n, "operand 0 is a scalar");
  // The last operand is a bias of x.
  Value *sum = plus_optional(n, node_add(n, x, skip), node_in(n, rms ? 3 : 4));
  n->out[0] = normalised(n, sum, n->in[2], rms ? NULL : node_in(n, 3), rms,
                         node_float(n, "epsilon", 1e-12));
  n->out[3] = sum;
  return n->out[0] != NULL;
}

bool import_skip_layer_normalization(Node *n) {
  return skip_norm(n, false);
}

bool import_skip_simplified_layer_normalization(Node *n) {
  return skip_norm(n, true);
}

// A row for every token of a table, which is known or trained.
static Value *rows_of(Node *n, Value *table, Value *index) {
  return table && index ? build_op(n->b, OP_gather, IN(table, index), ATTRS(a_i("axis", 0))) : NULL;
}

// Operands: tokens, segments, tables of words, positions and segments, scale, bias, mask,
// positions.  Results: y, the number of tokens by the mask, the sum before the normalisation.
bool import_embed_layer_normalization(Node *n) {
  Value *tokens = n->in[0], *segments = node_in(n, 1), *positions = node_in(n, 8);
  const Type *t = tokens->type;
  if (t->ndim != 2) return node_fail(n, "tokens of %s", type_text(n->a, t));
  if (!node_in(n, 2) || !node_in(n, 3) || !node_in(n, 5) || !node_in(n, 6))
    return node_fail(n, "a table, the scale or the bias is left out");
  if (!positions) positions = node_count_up(n, t->dim[1]); // broadcast to the batch
  Value *sum = node_add(n, rows_of(n, n->in[2], tokens), rows_of(n, n->in[3], positions));
  if (segments && node_in(n, 4)) sum = node_add(n, sum, rows_of(n, node_in(n, 4), segments));
  if (!sum || n->b->failed) return false;
  n->out[0] = normalised(n, sum, n->in[5], n->in[6], false, node_float(n, "epsilon", 1e-12));
  n->out[2] = sum;
  Value *mask = node_in(n, 7);
  if (mask)
    n->out[1] = build_reduce_sum(n->b, mask, (int64_t[]){1}, 1, false);
  else
    n->out[1] = build_fill(n->b, DT_i32, 1, t->dim, 0);
  (void)node_int(n, "mask_index_type", 0); // it selects the meaning of result 1: lengths, or unused
  return n->out[0] != NULL;
}

// -- Attention ---------------------------------------------------------------------------------

// The addend of the scores of a mask with 0 for hidden keys: lengths (b), (b, s), (b, t, s), or
// (b, 1, m, m) of which the first t rows count.
static Value *padding_addend(Node *n, Value *mask, int64_t t, int64_t s, DType dtype) {
  const Type *m = mask->type;
  double hidden = node_float(n, "mask_filter_value", -10000);
  Value *visible = NULL;
  if (m->ndim == 1) {
    // The number of valid keys.
    Value *key = node_count_up(n, s);
    if (!key) return NULL;
    Value *length =
        build_reshape(n->b, build_cast(n->b, mask, DT_i64), 4, (int64_t[]){m->dim[0], 1, 1, 1});
    visible = node_binary(n, OP_less, build_reshape(n->b, key, 4, (int64_t[]){1, 1, 1, s}), length);
  } else if (m->ndim <= 3 && m->dim[m->ndim - 1] == s && (m->ndim == 2 || m->dim[1] == t)) {
    int64_t dim[] = {m->dim[0], 1, m->ndim == 3 ? t : 1, s};
    Value *four = build_reshape(n->b, mask, 4, dim);
    visible = node_binary(n, OP_greater, four, node_like(n, four, 0));
  } else {
    node_fail(n, "a mask of %s for scores of %lld by %lld", type_text(n->a, m), (long long)t,
              (long long)s);
    return NULL;
  }
  if (!visible) return NULL;
  const Type *v = visible->type;
  return build_where(n->b, visible, build_fill(n->b, dtype, v->ndim, v->dim, 0),
                     build_fill(n->b, dtype, v->ndim, v->dim, hidden));
}

// Adds both masks to the scores of q and k, and joins the heads of the result.
static bool finish_attention(Node *n, Attention *a, Value *padding, Value *bias) {
  int64_t t = a->q->type->dim[2], s = a->k->type->dim[2];
  if (padding) padding = padding_addend(n, padding, t, s, a->q->type->dtype);
  a->mask = padding && bias ? node_add(n, padding, bias) : padding ? padding : bias;
  a->left = a->right = -1;
  a->softmax = DT_f32;
  a->causal = node_int(n, "unidirectional", 0) != 0;
  a->scale = node_float(n, "scale", 0);
  if (a->scale == 0) a->scale = 1 / sqrt((double)a->q->type->dim[3]);
  if (n->b->failed) return false;
  n->out[0] = attention_join_heads(n, attention_build(n, a, NULL));
  return n->out[0] != NULL;
}

// Part i of three of the widths in the last dimension.
static Value *third(Node *n, Value *x, const int64_t width[3], int i) {
  int64_t start = 0;
  for (int k = 0; k < i; k++)
    start += width[k];
  return node_part(n, x, x->type->ndim - 1, start, width[i]);
}

// Splits (2, b, h, p, d), past keys and values.
static Value *past_part(Node *n, Value *past, int i) {
  if (!past) return NULL;
  const int64_t *d = past->type->dim;
  if (past->type->ndim != 5 || d[0] != 2) {
    node_fail(n, "past keys and values of %s", type_text(n->a, past->type));
    return NULL;
  }
  return build_reshape(n->b, node_part(n, past, 0, i, 1), 4, d + 1);
}

// x w + bias has q, k and v beside each other.
bool import_microsoft_attention(Node *n) {
  Value *x = n->in[0], *w = n->in[1], *bias = node_in(n, 2), *past = node_in(n, 4);
  int64_t heads = node_int(n, "num_heads", 0), width[3];
  Ints sizes;
  if (x->type->ndim != 3 || w->type->ndim != 2)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, x->type),
                     type_text(n->a, w->type));
  bool given = node_list(n, "qkv_hidden_sizes", &sizes) && sizes.n == 3, fits = true;
  int64_t all = w->type->dim[1], left = all;
  for (int i = 0; i < 3; i++) {
    width[i] = given ? sizes.at[i] : all / 3;
    fits = fits && width[i] >= 1 && width[i] <= left;
    left -= fits ? width[i] : 0;
  }
  if (!fits || left)
    return node_fail(n, "a weight of %s has not these parts", type_text(n->a, w->type));
  Value *qkv = build_op(n->b, OP_linear, IN(x, w), ATTRS(a_b("trans", false)));
  qkv = plus_optional(n, qkv, bias);
  if (!qkv) return false;
  Attention a = {0};
  Value **part[] = {&a.q, &a.k, &a.v};
  for (int i = 0; i < 3; i++) {
    *part[i] = attention_split_heads(n, third(n, qkv, width, i), heads);
    if (!*part[i]) return false;
  }
  a.k = attention_after_past(n, past_part(n, past, 0), a.k, &a.past);
  a.v = a.k ? attention_after_past(n, past_part(n, past, 1), a.v, &a.past) : NULL;
  if (!a.v || n->b->failed) return false;
  return finish_attention(n, &a, node_in(n, 3), node_in(n, 5));
}

// (b, s, h, parts, d) to (b, h, s, d) of part i
static Value *packed_part(Node *n, Value *x, int i) {
  const int64_t *d = x->type->dim;
  int64_t dim[] = {d[0], d[1], d[2], d[4]};
  x = build_reshape(n->b, node_part(n, x, 3, i, 1), 4, dim);
  return x ? build_transpose(n->b, x, (int64_t[]){0, 2, 1, 3}) : NULL;
}

static bool is_packed(const Value *x, int64_t parts) {
  return x->type->ndim == 5 && x->type->dim[3] == parts;
}

// Adds its part of the bias to x (b, s, h d); (b, h, s, d) has it already.
static Value *with_bias(Node *n, Value *x, Value *bias, int64_t start) {
  if (!bias || x->type->ndim != 3) return x;
  if (bias->type->ndim != 1 || start + x->type->dim[2] > bias->type->dim[0]) {
    node_fail(n, "a bias of %s", type_text(n->a, bias->type));
    return NULL;
  }
  return node_add(n, x, node_part(n, bias, 0, start, x->type->dim[2]));
}

bool import_multi_head_attention(Node *n) {
  int64_t heads = node_int(n, "num_heads", 0);
  Value *q = n->in[0], *k = node_in(n, 1), *v = node_in(n, 2), *bias = node_in(n, 3);
  Attention a = {0};
  if (!k && is_packed(q, 3)) {
    a.q = packed_part(n, q, 0);
    a.k = packed_part(n, q, 1);
    a.v = packed_part(n, q, 2);
  } else if (k && !v && is_packed(k, 2)) {
    a.q = attention_split_heads(n, with_bias(n, q, bias, 0), heads);
    a.k = packed_part(n, k, 0);
    a.v = packed_part(n, k, 1);
  } else if (k && v && q->type->ndim == 3) {
    int64_t width = q->type->dim[2];
    Value *x = with_bias(n, q, bias, 0);
    a.q = x ? attention_split_heads(n, x, heads) : NULL;
    x = a.q ? with_bias(n, k, bias, width) : NULL;
    a.k = x ? attention_split_heads(n, x, heads) : NULL;
    x = a.k ? with_bias(n, v, bias, 2 * width) : NULL;
    a.v = x ? attention_split_heads(n, x, heads) : NULL;
  } else {
    return node_fail(n, "its operands have no form that is supported");
  }
  if (!a.q || !a.k || !a.v) return false;
  a.k = attention_after_past(n, node_in(n, 6), a.k, &a.past);
  a.v = a.k ? attention_after_past(n, node_in(n, 7), a.v, &a.past) : NULL;
  if (!a.v) return false;
  n->out[1] = a.k;
  n->out[2] = a.v;
  return finish_attention(n, &a, node_in(n, 4), node_in(n, 5));
}

// x, positions, cos, sin: ONNX's RotaryEmbedding with its operands in another order, heads as wide
// as the cache says, and positions that may be the first one alone.
static Value *rotary(Node *n, Value *x, Value *positions, Value *cos, Value *sin, int64_t heads) {
  const Type *t = x->type;
  bool joined = t->ndim == 3;
  if (cos->type->ndim != 2) {
    node_fail(n, "a cache of %s", type_text(n->a, cos->type));
    return NULL;
  }
  int64_t width = 2 * cos->type->dim[1];
  if (joined && heads == 0) heads = width > 0 ? t->dim[2] / width : 0;
  x = attention_split_heads(n, x, heads);
  if (!x) return NULL;
  if (type_count(positions->type) == 1) {
    Value *first = build_reshape(n->b, positions, 2, (int64_t[]){1, 1});
    Value *count = node_count_up(n, x->type->dim[2]);
    if (!count) return NULL;
    count = build_reshape(n->b, count, 2, (int64_t[]){1, x->type->dim[2]});
    positions = node_add(n, count, build_cast(n->b, first, DT_i64));
  }
  Value *in[] = {x, cos, sin, positions}, *out[8] = {NULL};
  Node of = *n;
  of.in = in;
  of.n_in = 4;
  of.out = out;
  if (!import_rotary_embedding(&of)) return NULL;
  return joined ? attention_join_heads(n, out[0]) : out[0];
}

bool import_microsoft_rotary_embedding(Node *n) {
  if (node_float(n, "scale", 1) != 1) return node_fail(n, "a scale is not supported");
  if (node_int(n, "is_packed_batching", 0))
    return node_fail(n, "is_packed_batching is not supported");
  n->out[0] = rotary(n, n->in[0], n->in[1], n->in[2], n->in[3], node_int(n, "num_heads", 0));
  return n->out[0] != NULL;
}

// -- LSTM with quantized weights ---------------------------------------------------------------

// Operand `i` (d, in, gates h) as floats (d, gates h, in); its scale and zero point, one for each
// direction or for each of its columns, are operands `scale` and `scale` + 1.
static Value *dequantized(Node *n, int i, int scale) {
  Value *w = n->in[i], *by = n->in[scale], *zero = n->in[scale + 1];
  const Type *t = w->type, *s = by->type;
  bool fits = dtype_class[s->dtype] == 'F' && t->ndim == 3 && (s->ndim == 1 || s->ndim == 2) &&
              s->dim[0] == t->dim[0] && (s->ndim == 1 || s->dim[1] == t->dim[2]) &&
              type_same_dims(s, zero->type);
  if (!fits) {
    node_fail(n, "a scale of %s and a zero point of %s for a weight of %s", type_text(n->a, s),
              type_text(n->a, zero->type), type_text(n->a, t));
    return NULL;
  }
  node_keep(n, scale, WHY_quantizes);
  int64_t dim[3] = {s->dim[0], 1, s->ndim == 2 ? s->dim[1] : 1};
  Value *q = node_sub(n, build_cast(n->b, w, s->dtype),
                      build_cast(n->b, build_reshape(n->b, zero, 3, dim), s->dtype));
  Value *x = q ? node_mul(n, q, build_reshape(n->b, by, 3, dim)) : NULL;
  return x ? build_transpose(n->b, x, (int64_t[]){0, 2, 1}) : NULL;
}

// onnxruntime also rounds the input and the states to 8 bits, with scales that depend on the rows
// that a thread has.  That has no gradient, and is left out with a warning of the driver.
bool import_dynamic_quantize_lstm(Node *n) {
  for (int i = 8; i < 12; i++)
    if (!node_in(n, i) || !node_in(n, 1) || !node_in(n, 2))
      return node_fail(n, "a weight, a scale or a zero point is left out");
  Node of = *n;
  Value *in[8];
  Sequence const *sequences[8];
  for (int i = 0; i < 8; i++) {
    in[i] = n->in[i];
    sequences[i] = n->in_sequence[i];
  }
  in[1] = dequantized(n, 1, 8);
  in[2] = in[1] ? dequantized(n, 2, 10) : NULL;
  if (!in[2]) return false;
  of.in = in;
  of.in_sequence = sequences;
  of.n_in = 8;
  OnnxFindings *out = n->im->o->findings;
  if (out && !out->n_unrounded++) out->unrounded = loc_copy(out->arena, n->b->origin.loc);
  return import_lstm(&of);
}
