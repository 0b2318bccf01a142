// Simplification of ops that move elements.
//
//     reshape, transpose, broadcast, slice, pad that change nothing       x
//     slice_back into no more than x                                      x
//     concat of one                                                       x
//     concat of concat                                                    one op
//     sum of adjacent parts, each padded by zeros                         concat, padded by zeros
//     reshape of reshape, transpose of transpose, broadcast of broadcast  one op
//     transpose that moves only dimensions of length 1                    reshape, which is free
//     broadcast of a reshape that adds leading dimensions of length 1     without the reshape
//     sum over dimensions of length 1                                     reshape
//     gather of rows at equal distances                                   slice

#include <string.h>

#include "ir/analysis/rewrite.h"

static Value *operand(const Op *op) {
  return op->in[0].value;
}

static Value *reshaped_like(Builder *b, Value *x, const Op *op) {
  return build_reshape(b, x, op->out[0]->type->ndim, op->out[0]->type->dim);
}

static Value *simplify_reshape(Builder *b, Op *op) {
  Value *x = operand(op);
  if (x->type == op->out[0]->type) return x;
  const Op *inner = made_by(x, OP_reshape);
  return inner ? reshaped_like(b, operand(inner), op) : NULL;
}

static Value *simplify_transpose(Builder *b, Op *op) {
  Value *x = operand(op);
  if (x->type->ndim == 0) return x;
  if (made_by(x, OP_transpose)) return build_transposed(b, x, attr_list(op, "perm"));
  // A transpose that moves only dimensions of length 1 is a reshape.
  int64_t last = -1;
  bool only_ones = true;
  for (int i = 0; i < op->out[0]->type->ndim; i++) {
    int64_t from = attr_list(op, "perm")[i];
    if (op->out[0]->type->dim[i] == 1) continue;
    only_ones &= from >= last;
    last = from;
  }
  return only_ones ? reshaped_like(b, x, op) : NULL;
}

static Value *simplify_broadcast(Builder *b, Op *op) {
  Value *x = operand(op);
  const Type *t = op->out[0]->type;
  if (x->type == t) return x;
  const Op *inner = made_by(x, OP_broadcast);
  if (inner) return build_broadcast(b, operand(inner), t->ndim, t->dim);
  if (type_count(x->type) == type_count(t)) return reshaped_like(b, x, op);
  inner = made_by(x, OP_reshape);
  int ones = 0, ndim = x->type->ndim;
  while (inner && ndim - ones > operand(inner)->type->ndim && x->type->dim[ones] == 1)
    ones++;
  if (ones == 0) return NULL;
  return build_broadcast(b, build_reshape(b, x, ndim - ones, x->type->dim + ones), t->ndim, t->dim);
}

static bool steps_are_one(const Op *op) {
  for (int i = 0; i < op->out[0]->type->ndim; i++)
    if (attr_list(op, "steps")[i] != 1) return false;
  return true;
}

static Value *simplify_slice(Builder *b, Op *op) {
  Value *x = operand(op);
  const Type *t = op->out[0]->type;
  if (!steps_are_one(op)) return NULL;
  if (x->type == t) return x;
  const Op *inner = made_by(x, OP_slice);
  if (!inner || !steps_are_one(inner)) return NULL;
  int64_t starts[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++)
    starts[i] = attr_list(op, "starts")[i] + attr_list(inner, "starts")[i];
  return build_op(b, OP_slice, IN(operand(inner)),
                  ATTRS(a_list("starts", starts, t->ndim), *op_attr(op, "steps"),
                        a_list("shape", t->dim, t->ndim)));
}

static Value *simplify_slice_back(Builder *b, Op *op) {
  (void)b;
  return operand(op)->type == op->out[0]->type && steps_are_one(op) ? operand(op) : NULL;
}

// The dimension along which parts `x` and `y` of equal wholes are adjacent, `x` first; else -1.
static int side_by_side(const Op *x, const Op *y) {
  int along = -1;
  for (int i = 0; i < x->out[0]->type->ndim; i++) {
    int64_t from_x = attr_list(x, "starts")[i], from_y = attr_list(y, "starts")[i];
    int64_t n_x = operand(x)->type->dim[i], n_y = operand(y)->type->dim[i];
    if (from_x == from_y && n_x == n_y) continue;
    if (along >= 0 || from_y != from_x + n_x) return -1;
    along = i;
  }
  return along;
}

// Concatenates adjoints of slices, such as those of q, k and v, before they are padded by zeros.
static Value *simplify_parts(Builder *b, Op *op) {
  Op *x = made_by(op->in[0].value, OP_slice_back), *y = made_by(op->in[1].value, OP_slice_back);
  if (!x || !y || !steps_are_one(x) || !steps_are_one(y)) return NULL;
  int along = side_by_side(x, y);
  if (along < 0) {
    Op *other = x;
    x = y;
    y = other;
    along = side_by_side(x, y);
  }
  if (along < 0) return NULL;
  Value *both = build_op(b, OP_concat, IN(operand(x), operand(y)), ATTRS(a_i("axis", along)));
  return build_op(b, OP_slice_back, IN(both),
                  ATTRS(*op_attr(x, "starts"), *op_attr(x, "steps"), *op_attr(x, "shape")));
}

static Value *simplify_concat(Builder *b, Op *op) {
  if (op->n_in == 1) return operand(op);
  Value *in[MAX_TERMS];
  int n = 0;
  for (int i = 0; i < op->n_in; i++) {
    Op *inner = made_by(op->in[i].value, OP_concat);
    if (inner && attr_i(inner, "axis") != attr_i(op, "axis")) inner = NULL;
    int parts = inner ? inner->n_in : 1;
    if (n + parts > MAX_TERMS) return NULL;
    for (int k = 0; k < parts; k++)
      in[n++] = inner ? inner->in[k].value : op->in[i].value;
  }
  return n > op->n_in ? build_op(b, OP_concat, in, n, ATTRS(*op_attr(op, "axis"))) : NULL;
}

static Value *simplify_pad(Builder *b, Op *op) {
  (void)b;
  for (int i = 0; i < op->out[0]->type->ndim; i++)
    if (attr_list(op, "low")[i] != 0) return NULL;
  return operand(op)->type == op->out[0]->type ? operand(op) : NULL;
}

static Value *simplify_reduce(Builder *b, Op *op) {
  const Type *t = operand(op)->type;
  for (int i = 0; i < attr_n(op, "axes"); i++)
    if (t->dim[attr_list(op, "axes")[i]] != 1) return NULL;
  return reshaped_like(b, operand(op), op);
}

// Replaces a gather of rows at equal distances by a slice.
static Value *simplify_gather(Builder *b, Op *op) {
  const Type *t = operand(op)->type;
  int64_t n = type_count(op->in[1].value->type), axis = attr_i(op, "axis"), step = 1;
  Tensor index;
  if (n == 0 || n > t->dim[axis] || attr_n(op, "padding") || attr_i(op, "batch") ||
      attr_i(op, "rows"))
    return NULL;
  Arena *a = arena_new();
  bool even = constant_tensor(op->in[1].value, &index, a);
  int64_t first = even ? tensor_i(&index, 0) : 0;
  if (even && n > 1) step = tensor_i(&index, 1) - first;
  // Negative indices count from the end; they must not mix with others.
  for (int64_t i = 0; even && i < n; i++) {
    int64_t at = tensor_i(&index, i);
    even = at == first + i * step && at >= -t->dim[axis] && at < t->dim[axis];
    even = even && (at < 0) == (first < 0) && step != 0;
  }
  arena_free(a);
  if (!even) return NULL;
  int64_t starts[MAX_NDIM] = {0}, steps[MAX_NDIM], shape[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++) {
    steps[i] = i == axis ? step : 1;
    shape[i] = i == axis ? n : t->dim[i];
  }
  // The slice takes every step-th row.
  starts[axis] = first < 0 ? first + t->dim[axis] : first;
  Value *v = build_op(b, OP_slice, IN(operand(op)),
                      ATTRS(a_list("starts", starts, t->ndim), a_list("steps", steps, t->ndim),
                            a_list("shape", shape, t->ndim)));
  return reshaped_like(b, v, op);
}

const SimplifyRule shape_rules[] = {
    {OP_reshape, simplify_reshape},
    {OP_transpose, simplify_transpose},
    {OP_broadcast, simplify_broadcast},
    {OP_slice, simplify_slice},
    {OP_slice_back, simplify_slice_back},
    {OP_add, simplify_parts},
    {OP_gather, simplify_gather},
    {OP_concat, simplify_concat},
    {OP_pad, simplify_pad},
    {OP_reduce_sum, simplify_reduce},
    {OP_reduce_max, simplify_reduce},
    {OP_reduce_min, simplify_reduce},
    {OP_reduce_prod, simplify_reduce},
    {0, NULL},
};
