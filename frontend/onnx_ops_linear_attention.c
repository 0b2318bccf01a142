// Attention whose state has a fixed size: LinearAttention, and the causal convolution before it.
//
//     S[t] = exp(g[t]) S[t-1] + k[t] u[t]'         u = v, or beta (v - (exp(g) S[t-1])' k) (delta)
//     o[t] = S[t]' q[t]
//
// Tokens are computed in chunks (Yang et al., "Parallelizing Linear Transformers with the Delta
// Rule over Sequence Length", section 3; "Gated Delta Networks", section 3.3).  With G the sum of g
// from the chunk's start:
//
//     A[t,s] = sum over d of q[t,d] k[s,d] exp(G[t,d] - G[s,d])      s <= t; B the same of k and k
//     o = (q exp(G)) S + A u           u = (1 + beta B)^-1 beta (v - (k exp(G)) S)      B: s < t
//     S' = exp(G[last]) S + (k exp(G[last] - G))' u
//
// Exponents are of sums of later tokens only, so that they never overflow if decays are <= 0.

#include <math.h>
#include <string.h>

#include "frontend/onnx_attention.h"

enum {
  CHUNK = 64,      // tokens, if a head has one decay
  CHUNK_WIDE = 16, // if each dimension has its own: A needs (t, s, d) numbers
  SOLVED_AT_ONCE = 8,
};

static Value *product_of(Node *n, Value *x, Value *y, bool trans_a, bool trans_b) {
  if (!x || !y) return NULL;
  return build_op(n->b, OP_matmul, IN(x, y),
                  ATTRS(a_b("trans_a", trans_a), a_b("trans_b", trans_b)));
}

// (b, t, h d) to (b, h, t, d)
static Value *heads_of(Node *n, Value *x, int64_t heads) {
  const Type *t = x->type;
  if (t->ndim == 3 && heads > 0 && t->dim[2] % heads == 0)
    return attention_split_heads(n, x, heads);
  node_fail(n, "%s has no %lld heads", type_text(n->a, t), (long long)heads);
  return NULL;
}

// (b, h, t, t): sums of x and y over d, decayed from s to t, zero for s > t - `after`.
static Value *decayed_products(Node *n, Value *x, Value *y, Value *sums, int after) {
  Value *a;
  if (!sums || sums->type->dim[3] == 1) {
    a = product_of(n, x, y, false, true);
    if (sums) {
      // Differences of later tokens would overflow: they are hidden before the exponential.
      Value *across = build_transpose(n->b, sums, (int64_t[]){0, 1, 3, 2});
      Value *difference = node_sub(n, sums, across);
      if (!difference) return NULL;
      difference =
          build_op(n->b, OP_trilu, IN(difference), ATTRS(a_b("upper", false), a_i("k", 0)));
      a = node_mul(n, a, node_unary(n, OP_exp, difference));
    }
  } else {
    const int64_t *d = x->type->dim;
    int64_t rows[] = {d[0], d[1], d[2], 1, d[3]}, columns[] = {d[0], d[1], 1, d[2], d[3]};
    Value *difference =
        node_sub(n, build_reshape(n->b, sums, 5, rows), build_reshape(n->b, sums, 5, columns));
    if (!difference) return NULL;
    // Decays of later tokens are hidden: the least of the difference and 0 is itself if s <= t.
    difference = node_binary(n, OP_min, difference, node_scalar(n, difference->type->dtype, 0));
    Value *all = node_mul(n, build_reshape(n->b, x, 5, rows), build_reshape(n->b, y, 5, columns));
    all = node_mul(n, all, node_unary(n, OP_exp, difference));
    a = all ? build_reduce_sum(n->b, all, (int64_t[]){4}, 1, false) : NULL;
  }
  return a ? build_op(n->b, OP_trilu, IN(a), ATTRS(a_b("upper", false), a_i("k", -after))) : NULL;
}

// (1 + l)^-1 x for strictly lower l of t rows: (1 - l)(1 + l^2)(1 + l^4) … x for a few rows, of
// which powers stay small; more are solved in halves, the first one before the second.
static Value *solved(Node *n, Value *l, Value *x, int64_t t) {
  if (!l || !x) return NULL;
  if (t <= SOLVED_AT_ONCE) {
    Value *power = node_unary(n, OP_neg, l);
    for (int64_t done = 1; done < t && power && x; done *= 2) {
      x = node_add(n, x, product_of(n, power, x, false, false));
      if (2 * done < t) power = product_of(n, power, power, false, false);
    }
    return x;
  }
  int64_t half = t / 2, rest = t - half;
  Value *top = node_part(n, l, 2, 0, half), *bottom = node_part(n, l, 2, half, rest);
  if (!top || !bottom) return NULL;
  Value *first = solved(n, node_part(n, top, 3, 0, half), node_part(n, x, 2, 0, half), half);
  Value *known = product_of(n, node_part(n, bottom, 3, 0, half), first, false, false);
  Value *second = node_sub(n, node_part(n, x, 2, half, rest), known);
  second = solved(n, node_part(n, bottom, 3, half, rest), second, rest);
  if (!first || !second) return NULL;
  return build_op(n->b, OP_concat, IN(first, second), ATTRS(a_i("axis", 2)));
}

typedef struct Linear {
  Value *q, *k, *v, *g, *beta; // (b, h, t, d), k to beta of kv_heads; g and beta may be NULL
  int64_t heads;
  double scale;
  bool delta;
} Linear;

// (b, g, …) for each of h heads
static Value *for_heads(Node *n, Value *x, int64_t heads) {
  return x ? attention_repeat_heads(n, x, heads) : NULL;
}

// One chunk: returns o (b, heads, t, e), and the next state.
static Value *chunk(Node *n, const Linear *a, int64_t from, int64_t t, Value **state) {
  Value *q = node_part(n, a->q, 2, from, t), *k = node_part(n, a->k, 2, from, t);
  Value *v = node_part(n, a->v, 2, from, t), *sums = NULL, *grown = NULL, *kg = k, *qg = q;
  if (a->g) {
    sums = build_op(n->b, OP_cumsum, IN(node_part(n, a->g, 2, from, t)), ATTRS(a_i("axis", 2)));
    grown = node_unary(n, OP_exp, sums);
    kg = node_mul(n, k, grown);
    qg = node_mul(n, q, for_heads(n, grown, a->heads));
  }
  Value *u = v;
  if (a->delta) {
    Value *beta = node_part(n, a->beta, 2, from, t);
    u = node_mul(n, node_sub(n, v, product_of(n, kg, *state, false, false)), beta);
    Value *l = node_mul(n, decayed_products(n, k, k, sums, 1), beta);
    u = l ? solved(n, l, u, t) : NULL;
  }
  if (!u || n->b->failed) return NULL;
  Value *wide_k = for_heads(n, k, a->heads), *wide_sums = for_heads(n, sums, a->heads);
  Value *products = decayed_products(n, q, wide_k, wide_sums, 0);
  Value *o = node_add(n, product_of(n, qg, for_heads(n, *state, a->heads), false, false),
                      product_of(n, products, for_heads(n, u, a->heads), false, false));
  // The state after the chunk.
  Value *left = k, *kept = *state;
  if (sums) {
    Value *last = node_part(n, sums, 2, t - 1, 1);
    left = node_mul(n, k, node_unary(n, OP_exp, node_sub(n, last, sums)));
    Value *decay = node_unary(n, OP_exp, build_transpose(n->b, last, (int64_t[]){0, 1, 3, 2}));
    kept = node_mul(n, kept, decay);
  }
  *state = node_add(n, kept, product_of(n, left, u, true, false));
  return o ? build_scale(n->b, o, a->scale) : NULL;
}

bool import_linear_attention(Node *n) {
  int64_t q_heads = node_int(n, "q_num_heads", 0), kv_heads = node_int(n, "kv_num_heads", 0);
  const char *rule = node_str(n, "update_rule", "gated_delta");
  bool gated = str_equal(rule, "gated") || str_equal(rule, "gated_delta");
  bool delta = str_equal(rule, "delta") || str_equal(rule, "gated_delta");
  if (!gated && !delta && !str_equal(rule, "linear")) return node_fail(n, "update_rule '%s'", rule);
  (void)node_int(n, "chunk_size", CHUNK); // for speed only
  Linear a = {.heads = q_heads, .delta = delta};
  DType dtype = n->in[0]->type->dtype;
  a.q = heads_of(n, n->in[0], q_heads);
  a.k = a.q ? heads_of(n, n->in[1], kv_heads) : NULL;
  a.v = a.k ? heads_of(n, n->in[2], kv_heads) : NULL;
  if (!a.v) return false;
  if (kv_heads < 1 || q_heads % kv_heads)
    return node_fail(n, "%lld heads of keys for %lld", (long long)kv_heads, (long long)q_heads);
  if (gated && !node_in(n, 4)) return node_fail(n, "update_rule '%s' without decay", rule);
  if (delta && !node_in(n, 5)) return node_fail(n, "update_rule '%s' without beta", rule);
  if (gated) a.g = heads_of(n, node_in(n, 4), kv_heads);
  if (delta) {
    // One number for all heads, or one for each.
    const Type *t = node_in(n, 5)->type;
    a.beta = heads_of(n, node_in(n, 5), t->ndim == 3 && t->dim[2] == 1 ? 1 : kv_heads);
  }
  if (n->b->failed) return false;
  const int64_t *k = a.k->type->dim;
  int64_t t = k[2], e = a.v->type->dim[3], dims[] = {k[0], k[1], k[3], e};
  bool wide = a.g && a.g->type->dim[3] != 1;
  if (a.q->type->dim[3] != k[3] || (wide && a.g->type->dim[3] != k[3]))
    return node_fail(n, "its operands have heads of different widths");
  a.scale = node_float(n, "scale", 0);
  if (a.scale == 0) a.scale = 1 / sqrt((double)k[3]);
  // States are f32 at least.
  DType in = dtype == DT_f64 ? DT_f64 : DT_f32;
  Value **all[] = {&a.q, &a.k, &a.v, &a.g, &a.beta};
  for (int i = 0; i < 5; i++)
    if (*all[i]) *all[i] = build_cast(n->b, *all[i], in);
  Value *state =
      node_in(n, 3) ? build_cast(n->b, node_in(n, 3), in) : build_fill(n->b, in, 4, dims, 0);
  int64_t most = wide ? CHUNK_WIDE : CHUNK, parts = (t + most - 1) / most;
  Value **o = arena_array(n->a, Value *, parts + 1);
  for (int64_t i = 0; i < parts && !n->b->failed; i++)
    o[i] = chunk(n, &a, i * most, t - i * most < most ? t - i * most : most, &state);
  if (n->b->failed || parts == 0) return parts > 0 ? false : node_fail(n, "there are no tokens");
  Value *y = parts == 1 ? o[0] : build_op(n->b, OP_concat, o, (int)parts, ATTRS(a_i("axis", 2)));
  n->out[0] = build_cast(n->b, attention_join_heads(n, y), dtype);
  n->out[1] = node_in(n, 3) ? build_cast(n->b, state, node_in(n, 3)->type->dtype)
                            : build_cast(n->b, state, dtype);
  return !n->b->failed;
}

// A convolution of each channel with its own filter over the past: the operand follows the state.
bool import_causal_conv_with_state(Node *n) {
  Value *x = n->in[0], *w = n->in[1], *bias = node_in(n, 2), *past = node_in(n, 3);
  const Type *t = x->type, *tw = w->type;
  if (t->ndim != 3 || tw->ndim != 3 || tw->dim[0] != t->dim[1] || tw->dim[1] != 1)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, t), type_text(n->a, tw));
  int64_t channels = t->dim[1], before = tw->dim[2] - 1, one = 1;
  const char *activation = node_str(n, "activation", "none");
  bool silu = str_equal(activation, "silu") || str_equal(activation, "swish");
  if (!silu && !str_equal(activation, "none")) return node_fail(n, "activation '%s'", activation);
  if (!past) past = build_fill(n->b, t->dtype, 3, (int64_t[]){t->dim[0], channels, before}, 0);
  Value *all = before > 0 ? build_op(n->b, OP_concat, IN(past, x), ATTRS(a_i("axis", 2))) : x;
  if (!all) return false;
  Value *y = build_op(n->b, OP_conv, IN(all, w),
                      ATTRS(a_list("strides", &one, 1), a_list("pads", (int64_t[]){0, 0}, 2),
                            a_list("dilations", &one, 1), a_i("group", channels)));
  if (bias && y) y = node_add(n, y, build_reshape(n->b, bias, 3, (int64_t[]){1, channels, 1}));
  if (silu && y) y = build_op(n->b, OP_swish, IN(y), ATTRS(a_f("beta", 1)));
  n->out[0] = y;
  n->out[1] = node_part(n, all, 2, all->type->dim[2] - before, before);
  return !n->b->failed;
}
