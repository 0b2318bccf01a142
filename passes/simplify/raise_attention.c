// Attention with softmax.
//
//     %s = matmul %q, %k trans_b=true
//     %a = scale %s by=0.125
//     %m = add %a, %mask                  =>   %y, %lse = attention %q, %k, %v, %mask scale=0.125
//     %p = softmax %m axis=3
//     %y = matmul %p, %v
//
// The scale may be on q, on k, on both, or on the scores; masks may be added, or selected with
// `where`, several in sequence, before or after the scale. Exporters that handle rows of scores
// that are all -inf add `where(is_nan(p), 0, p)` after the softmax: the attention of such rows is 0
// anyway. A constant causal mask becomes the attribute `causal`. Then, if heads of k and v are
// repeated for those of q, they are read unrepeated (grouped-query attention); and if q, k and v
// are transposed from b t h d for it, seq_major reads them untransposed.

#include <math.h>

#include "raise.h"

enum { MAX_MASKS = 4 };

typedef struct Mask {
  Value *v;
  MaskKind kind;
  double by; // factor of an added mask; or the replacement of a score
} Mask;

typedef struct Scores {
  Op *product;
  double scale;
  Mask mask[MAX_MASKS];
  int n_masks;
} Scores;

// Whether `v` is a product, perhaps scaled and masked.
static bool leads_to_product(const Value *v, int depth) {
  const Op *op = v->def;
  if (!op || depth == 0) return false;
  switch ((int)op->kind) {
  case OP_matmul: return true;
  case OP_scale:
  case OP_neg: return leads_to_product(op->in[0].value, depth - 1);
  case OP_add:
    return leads_to_product(op->in[0].value, depth - 1) ||
           leads_to_product(op->in[1].value, depth - 1);
  case OP_where:
    return leads_to_product(op->in[1].value, depth - 1) ||
           leads_to_product(op->in[2].value, depth - 1);
  }
  return false;
}

static const int deep = 12;

// The operand of a mask's op that leads to the product; notes the mask.
static Value *match_mask(Scores *s, Op *op, double by) {
  if (s->n_masks == MAX_MASKS) return NULL;
  Mask *mask = &s->mask[s->n_masks++];
  if (op->kind == OP_add) {
    int scores = leads_to_product(op->in[0].value, deep) ? 0 : 1;
    *mask = (Mask){op->in[1 - scores].value, MASK_ADDS, by};
    return op->in[scores].value;
  }
  double low;
  int scores = is_fill(op->in[2].value, &low) ? 1 : 2;
  if (!is_fill(op->in[3 - scores].value, &low) || low * by > HIDDEN) return NULL;
  *mask = (Mask){op->in[0].value, scores == 1 ? MASK_KEEPS : MASK_DROPS, low * by};
  return op->in[scores].value;
}

static bool match_scores(Match *m, Value *v, Scores *s) {
  s->scale = 1;
  // Scales and masks may alternate.
  while (leads_to_product(v, deep)) {
    double by;
    v = match_scale(m, v, &by);
    s->scale *= by;
    s->product = match_op(m, v, OP_matmul);
    if (s->product) return true;
    Op *op = match_op(m, v, OP_add);
    if (!op) op = match_op(m, v, OP_where);
    if (!op) continue;
    v = match_mask(s, op, s->scale);
    if (!v) return false;
  }
  return false;
}

static Value *exchange(Builder *b, Value *v) {
  int64_t perm[MAX_NDIM];
  int ndim = v->type->ndim;
  for (int i = 0; i < ndim; i++)
    perm[i] = i;
  perm[ndim - 2] = ndim - 1;
  perm[ndim - 1] = ndim - 2;
  return build_transposed(b, v, perm);
}

// Strips a factor from q or k, also below a transpose.
static Value *take_scale(Builder *b, Match *m, Value *v, double *scale) {
  double by;
  v = match_scale(m, v, &by);
  *scale *= by;
  Op *transpose = made_by(v, OP_transpose);
  if (!transpose || !made_by(transpose->in[0].value, OP_scale)) return v;
  Match under = *m;
  match_op(&under, v, OP_transpose);
  Value *x = match_scale(&under, transpose->in[0].value, &by);
  *m = under;
  *scale *= by;
  return build_transposed(b, x, attr_list(transpose, "perm"));
}

// Reshapes to b h t d; the first of three dimensions is both b and h.
static Value *in_four(Builder *b, Value *v) {
  if (!v || v->type->ndim == 4) return v;
  const int64_t *dim = v->type->dim;
  return build_reshape(b, v, 4, (int64_t[]){dim[0], 1, dim[1], dim[2]});
}

// The values with zeros at their ends, as long as keys.
static Value *lengthened(Builder *b, Value *v, int64_t to) {
  if (!v || v->type->dim[3] == to) return v;
  const int64_t *dim = v->type->dim;
  int64_t more[4] = {dim[0], dim[1], dim[2], to - dim[3]};
  Value *zeros = build_fill(b, v->type->dtype, 4, more, 0);
  return build_op(b, OP_concat, IN(v, zeros), ATTRS(a_i("axis", 3)));
}

// The term that a mask adds to the scores, in four dimensions that broadcast to theirs.
static Value *additive(Builder *b, const Mask *mask, int ndim, DType dtype) {
  Value *v = mask->v;
  while (made_by(v, OP_broadcast))
    v = v->def->in[0].value;
  // A mask of three dimensions has no heads.
  int64_t dim[4] = {1, 1, 1, 1};
  const Type *t = v->type;
  for (int i = 0; i < t->ndim; i++) {
    int at = 4 - t->ndim + i;
    dim[ndim == 3 && at == 1 ? 0 : at] = t->dim[i];
  }
  v = build_reshape(b, v, 4, dim);
  if (mask->kind == MASK_ADDS) return build_scale(b, v, mask->by);
  // The sum of two such numbers must stay finite if one is.
  double low = isinf(mask->by) || dtype == DT_f16 || mask->by > -1e38 ? mask->by : -1e38;
  Value *keep = build_fill(b, dtype, 4, dim, 0), *drop = build_fill(b, dtype, 4, dim, low);
  if (mask->kind == MASK_DROPS) return build_where(b, v, drop, keep);
  return build_where(b, v, keep, drop);
}

// The sum of the masks' terms, with the whole last dimension; NULL for none. A causal mask only
// sets *causal.
static Value *sum_of_masks(Raise *r, const Scores *s, const Type *scores, bool *causal) {
  Builder *b = &r->b;
  Value *sum = NULL;
  int ndim = scores->ndim;
  int64_t t_len = scores->dim[ndim - 2], s_len = scores->dim[ndim - 1];
  *causal = false;
  for (int i = 0; i < s->n_masks; i++) {
    const Mask *mask = &s->mask[i];
    // A causal mask becomes an attribute. An added one must not be scaled down.
    if ((mask->kind != MASK_ADDS || mask->by >= 1) &&
        is_causal_mask(r, mask->v, t_len, s_len, mask->kind)) {
      *causal = true;
      continue;
    }
    Value *v = additive(b, mask, ndim, scores->dtype);
    if (!v) return NULL;
    int64_t dim[4];
    // Masks are broadcast to their common shape.
    for (int k = 0; k < 4; k++)
      dim[k] = sum && sum->type->dim[k] > v->type->dim[k] ? sum->type->dim[k] : v->type->dim[k];
    dim[3] = s_len;
    v = build_broadcast(b, v, 4, dim);
    sum = sum ? build_op(b, OP_add, IN(build_broadcast(b, sum, 4, dim), v), NO_ATTRS) : v;
  }
  return sum;
}

// The p of where(is_nan(p), 0, p); else `v`.
static Value *match_not_nan(Match *m, Value *v) {
  const Op *where = made_by(v, OP_where);
  double otherwise;
  if (!where || !is_fill(where->in[1].value, &otherwise) || otherwise != 0) return v;
  Value *p = where->in[2].value;
  const Op *nan = made_by(where->in[0].value, OP_is_nan);
  if (!nan || nan->in[0].value != p) return v;
  match_op(m, v, OP_where);
  match_op(m, where->in[0].value, OP_is_nan);
  return p;
}

static bool missed(Raise *r, const Op *root, const char *why) {
  Missed one = {root->loc, why};
  vec_push(r->scratch, &r->missed, one);
  return false;
}

// The op between the softmax and `root`, as a reason; NULL if there is no softmax.
static const char *between(const Raise *r, const Op *root) {
  const Value *v = root->in[0].value;
  for (int depth = 0; v->def && depth < deep; depth++) {
    const Op *op = v->def;
    if (op->kind == OP_softmax)
      return depth ? str_format(r->scratch, "there is %s between the softmax and the product",
                                op_info[root->in[0].value->def->kind].name)
                   : NULL;
    if (op->n_in == 0) return NULL;
    v = op->in[op->kind == OP_where ? 2 : 0].value;
  }
  return NULL;
}

bool raise_attention(Raise *r, Op *root) {
  Builder *b = &r->b;
  if (root->kind != OP_matmul || attr_i(root, "trans_a")) return false;
  Match m = {0};
  match_op(&m, root->out[0], OP_matmul);
  // The product of probabilities and values is the root.
  Op *softmax = match_op(&m, match_not_nan(&m, root->in[0].value), OP_softmax);
  if (!softmax) {
    const char *why = between(r, root);
    return why ? missed(r, root, why) : false;
  }
  const Type *t = softmax->out[0]->type;
  Scores s = {0};
  // Scores are [b,h,t,s], or [b,t,s] for one head.
  if (t->ndim != 3 && t->ndim != 4)
    return missed(r, root, str_format(r->scratch, "its scores have %d dimensions", t->ndim));
  if (attr_i(softmax, "axis") != t->ndim - 1)
    return missed(r, root, "its softmax is not along the last dimension");
  if (!match_scores(&m, softmax->in[0].value, &s)) {
    // The op between the scores and their softmax is neither a scale nor a mask.
    const Value *v = softmax->in[0].value;
    const char *why;
    while (leads_to_product(v, deep) && v->def->kind != OP_matmul)
      v = v->def->in[v->def->kind == OP_where ? 1 : 0].value;
    if (!v->def || v->def->kind == OP_matmul)
      why = "its mask has a form that is not known";
    else
      why = str_format(r->scratch, "there is %s before the softmax", op_info[v->def->kind].name);
    return missed(r, root, why);
  }
  if (!match_closed(&m, root))
    return missed(r, root, "its scores or probabilities are read elsewhere, too");

  // The attention op has one head length: as many columns of y as summands of the products.
  Value *q = s.product->in[0].value;
  bool trans_q = attr_i(s.product, "trans_a");
  int64_t summed = q->type->dim[t->ndim - 1 - trans_q];
  int64_t columns = root->out[0]->type->dim[t->ndim - 1];
  if (summed < columns)
    return missed(r, root,
                  str_format(r->scratch, "its keys are %lld long, and its values %lld",
                             (long long)summed, (long long)columns));
  // Operands become (b, h, t, d), with the scale as an attribute.
  Value *k = s.product->in[1].value, *v = root->in[1].value;
  q = take_scale(b, &m, trans_q ? exchange(b, q) : q, &s.scale);
  k = take_scale(b, &m, k, &s.scale);
  if (!attr_i(s.product, "trans_b")) k = exchange(b, k);
  if (attr_i(root, "trans_b")) v = exchange(b, v);
  if (b->failed) return false;
  bool causal;
  Value *mask = sum_of_masks(r, &s, t, &causal);
  Value *in[4] = {in_four(b, q), in_four(b, k), lengthened(b, in_four(b, v), summed), mask};
  Value *y = build_op(b, OP_attention, in, mask ? 4 : 3,
                      ATTRS(a_f("scale", s.scale), a_b("causal", causal)));
  if (y && columns < summed) y = build_slice(b, y, 3, 0, columns);
  if (y) y = build_reshape(b, y, root->out[0]->type->ndim, root->out[0]->type->dim);
  if (y) value_replace_uses(root->out[0], y);
  return y;
}

// The source [b,kv,1,s,d] of heads broadcast to [b,kv,r,s,d] and joined to [b,kv*r,s,d]; or NULL.
static Value *match_repeated_heads(const Value *v) {
  const Op *join = made_by(v, OP_reshape);
  const Op *wide = join ? made_by(join->in[0].value, OP_broadcast) : NULL;
  Value *x = wide ? wide->in[0].value : NULL;
  if (!x || x->type->ndim != 5 || wide->out[0]->type->ndim != 5 || v->type->ndim != 4) return NULL;
  const int64_t *dim = x->type->dim, *to = wide->out[0]->type->dim, *joined = v->type->dim;
  bool only_heads = dim[2] == 1 && dim[0] == to[0] && dim[1] == to[1] && dim[3] == to[3] &&
                    dim[4] == to[4] && joined[0] == dim[0] && joined[2] == dim[3] &&
                    joined[3] == dim[4];
  return only_heads && to[2] > 1 ? x : NULL;
}

// Rebuilds `op` with other operands or another order, and the same scale and mask.
static Value *rebuilt(Builder *b, Op *op, Value **in, bool seq_major) {
  Value *y =
      build_op(b, OP_attention, in, op->n_in,
               ATTRS(*op_attr(op, "scale"), *op_attr(op, "causal"), a_b("seq_major", seq_major)));
  if (y) value_replace_uses(op->out[1], y->def->out[1]);
  return y;
}

bool raise_grouped_heads(Raise *r, Op *op) {
  Builder *b = &r->b;
  if (op->kind != OP_attention || attr_i(op, "seq_major")) return false;
  Value *in[4];
  for (int i = 0; i < op->n_in; i++) {
    in[i] = op->in[i].value;
    if (i != 1 && i != 2) continue;
    Value *x = match_repeated_heads(in[i]);
    if (!x) return false;
    const int64_t *dim = x->type->dim;
    in[i] = build_reshape(b, x, 4, (int64_t[]){dim[0], dim[1], dim[3], dim[4]});
  }
  // Keys and values have fewer heads than queries.
  Value *y = rebuilt(b, op, in, false);
  if (y) value_replace_uses(op->out[0], y);
  return y;
}

static const int64_t heads_and_time[] = {0, 2, 1, 3};

static bool is_exchanged(const Value *v) {
  const Op *op = made_by(v, OP_transpose);
  return op && has_perm(op, heads_and_time);
}

bool raise_seq_major(Raise *r, Op *op) {
  Builder *b = &r->b;
  if (op->kind != OP_attention || attr_i(op, "seq_major")) return false;
  Value *in[4];
  for (int i = 0; i < op->n_in; i++) {
    in[i] = op->in[i].value;
    // All of q, k and v must be transposed.
    if (i == 3) continue; // the mask
    if (!is_exchanged(in[i])) return false;
    in[i] = in[i]->def->in[0].value;
  }
  Value *y = rebuilt(b, op, in, true);
  if (!y) return false;
  for (Use *u = op->out[0]->uses, *next; u; u = next) {
    next = u->next;
    if (u->user && is_exchanged(u->user->out[0])) value_replace_uses(u->user->out[0], y);
  }
  // Other readers get the result transposed.
  if (value_used(op->out[0])) value_replace_uses(op->out[0], build_transpose(b, y, heads_and_time));
  return true;
}
