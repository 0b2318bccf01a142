// Simplification of matrix products.
//
//     %t = transpose %b perm=[0,2,1]                          %y = matmul %a, %b trans_b=true
//     %y = matmul %a, %t                             =>
//
//     %w2 = broadcast %w shape=[8,16,32]                      %y = linear %a, %w
//     %y  = matmul %a, %w2                           =>
//
// A product of a batch with one matrix is `linear`: one large product instead of many small ones,
// with a gradient that sums over the batch without storing every summand.

#include "ir/analysis/rewrite.h"

// The x of which `v` is the transpose of the last two dimensions; else NULL.
static Value *exchanged(const Value *v) {
  const Op *op = made_by(v, OP_transpose);
  if (!op) return NULL;
  int64_t perm[MAX_NDIM];
  int ndim = v->type->ndim;
  if (ndim < 2) return NULL;
  for (int i = 0; i < ndim; i++)
    perm[i] = i;
  perm[ndim - 2] = ndim - 1;
  perm[ndim - 1] = ndim - 2;
  return has_perm(op, perm) ? op->in[0].value : NULL;
}

static Value *fold_transposes(Builder *b, Op *op) {
  Value *x = exchanged(op->in[0].value), *y = exchanged(op->in[1].value);
  if (!x && !y) return NULL;
  bool trans_a = attr_i(op, "trans_a") ^ (x != NULL), trans_b = attr_i(op, "trans_b") ^ (y != NULL);
  return build_op(b, OP_matmul, IN(x ? x : op->in[0].value, y ? y : op->in[1].value),
                  ATTRS(a_b("trans_a", trans_a), a_b("trans_b", trans_b)));
}

// The matrix that `v` has in every batch, in two dimensions; or NULL.
static Value *one_matrix(Builder *b, Value *v) {
  const Op *op = made_by(v, OP_broadcast);
  if (op) v = op->in[0].value;
  int ndim = v->type->ndim;
  if (ndim < 2 || (!op && ndim > 2)) return NULL;
  for (int i = 0; i < ndim - 2; i++)
    if (v->type->dim[i] != 1) return NULL;
  // The matrices themselves must not be broadcast.
  const int64_t *dim = v->type->dim + ndim - 2;
  if (op && (dim[0] != op->out[0]->type->dim[op->out[0]->type->ndim - 2] ||
             dim[1] != op->out[0]->type->dim[op->out[0]->type->ndim - 1]))
    return NULL;
  return build_reshape(b, v, 2, dim);
}

static Value *simplify_matmul(Builder *b, Op *op) {
  Value *v = fold_transposes(b, op);
  if (v || attr_i(op, "trans_a")) return v;
  Value *w = one_matrix(b, op->in[1].value);
  if (!w) return NULL;
  return build_op(b, OP_linear, IN(op->in[0].value, w), ATTRS(a_b("trans", attr_i(op, "trans_b"))));
}

static Value *simplify_linear(Builder *b, Op *op) {
  Value *w = exchanged(op->in[1].value);
  if (!w) return NULL;
  return build_op(b, OP_linear, IN(op->in[0].value, w), ATTRS(a_b("trans", !attr_i(op, "trans"))));
}

const SimplifyRule product_rules[] = {
    {OP_matmul, simplify_matmul},
    {OP_linear, simplify_linear},
    {0, NULL},
};
