// Simplification of ops that move elements about.
//
//     reshape, transpose, broadcast, slice, pad that change nothing       x
//     concat of one                                                       x
//     reshape of reshape, transpose of transpose, broadcast of broadcast  one op
//     transpose that moves only dimensions of length 1                    reshape, which is free
//     sum over dimensions of length 1                                     reshape
//     elementwise op of broadcasts of one shape                           broadcast of the op
//     elementwise op of transposes by one permutation                     transpose of the op
//     split of a transpose of what was merged                             transpose of all

#include <string.h>

#include "rewrite.h"

static Value *operand(const Op *op) {
  return op->in[0].value;
}

static Value *reshaped_like(Builder *b, Value *x, const Op *op) {
  return build_reshape(b, x, op->out[0]->type->rank, op->out[0]->type->dim);
}

// The leading dimensions are merged, what follows is transposed, and they are split again:
//
//     [2,4,16,8] -> [8,16,8] -> [8,8,16] -> [2,4,8,16]
static Value *transpose_of_merged(Builder *b, const Op *split) {
  const Op *transpose = made_by(operand(split), OP_transpose);
  const Op *merge = transpose ? made_by(operand(transpose), OP_reshape) : NULL;
  if (!merge) return NULL;
  Value *x = operand(merge);
  const Type *from = x->type, *to = split->out[0]->type, *merged = operand(transpose)->type;
  const int64_t *inner = attr_list(transpose, "perm");
  int lead = from->rank - merged->rank + 1;
  if (lead < 1 || from->rank != to->rank || merged->rank == 0 || inner[0] != 0) return NULL;
  int64_t perm[MAX_RANK];
  for (int i = 0; i < from->rank; i++) {
    if (i >= lead && from->dim[i] != merged->dim[i - lead + 1]) return NULL;
    perm[i] = i < lead ? i : inner[i - lead + 1] + lead - 1;
    if (from->dim[perm[i]] != to->dim[i]) return NULL;
  }
  return transposed(b, x, perm);
}

static Value *simplify_reshape(Builder *b, Op *op) {
  Value *x = operand(op);
  if (x->type == op->out[0]->type) return x;
  const Op *inner = made_by(x, OP_reshape);
  return inner ? reshaped_like(b, operand(inner), op) : transpose_of_merged(b, op);
}

static bool moves_only_ones(const Op *op) {
  int64_t last = -1;
  for (int i = 0; i < op->out[0]->type->rank; i++) {
    int64_t from = attr_list(op, "perm")[i];
    if (op->out[0]->type->dim[i] == 1) continue;
    if (from < last) return false;
    last = from;
  }
  return true;
}

static Value *simplify_transpose(Builder *b, Op *op) {
  Value *x = operand(op);
  if (x->type->rank == 0) return x;
  if (made_by(x, OP_transpose)) return transposed(b, x, attr_list(op, "perm"));
  return moves_only_ones(op) ? reshaped_like(b, x, op) : NULL;
}

static Value *simplify_broadcast(Builder *b, Op *op) {
  Value *x = operand(op);
  const Type *t = op->out[0]->type;
  if (x->type == t) return x;
  const Op *inner = made_by(x, OP_broadcast);
  if (inner) return build_broadcast(b, operand(inner), t->rank, t->dim);
  return type_count(x->type) == type_count(t) ? reshaped_like(b, x, op) : NULL;
}

static bool steps_are_one(const Op *op) {
  for (int i = 0; i < op->out[0]->type->rank; i++)
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
  int64_t starts[MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    starts[i] = attr_list(op, "starts")[i] + attr_list(inner, "starts")[i];
  return build(b, OP_slice, IN(operand(inner)),
               ATTRS(a_list("starts", starts, t->rank), *op_attr(op, "steps"),
                     a_list("shape", t->dim, t->rank)));
}

static Value *simplify_concat(Builder *b, Op *op) {
  (void)b;
  return op->n_in == 1 ? operand(op) : NULL;
}

static Value *simplify_pad(Builder *b, Op *op) {
  (void)b;
  for (int i = 0; i < op->out[0]->type->rank; i++)
    if (attr_list(op, "low")[i] != 0) return NULL;
  return operand(op)->type == op->out[0]->type ? operand(op) : NULL;
}

static Value *simplify_reduce(Builder *b, Op *op) {
  const Type *t = operand(op)->type;
  for (int i = 0; i < attr_n(op, "axes"); i++)
    if (t->dim[attr_list(op, "axes")[i]] != 1) return NULL;
  return reshaped_like(b, operand(op), op);
}

// The elementwise `op` on other operands.
static Value *elsewhere(Builder *b, const Op *op, Value *const *in) {
  int n;
  op_attr_specs(op->kind, &n);
  return build(b, op->kind, in, op->n_in, (Attrs){op->attrs, n});
}

static bool same_shape(const Type *x, const Type *y) {
  return x->rank == y->rank &&
         (x->rank == 0 || memcmp(x->dim, y->dim, (size_t)x->rank * sizeof *x->dim) == 0);
}

Value *broadcast_later(Builder *b, Op *op) {
  const Type *from = NULL, *t = op->out[0]->type;
  double c;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (is_fill(v, &c)) continue;
    const Op *broadcast = made_by(v, OP_broadcast);
    if (!broadcast || (from && !same_shape(from, operand(broadcast)->type))) return NULL;
    from = operand(broadcast)->type;
  }
  if (!from) return NULL;
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    in[i] =
        is_fill(v, &c) ? build_fill(b, v->type->dtype, from->rank, from->dim, c) : operand(v->def);
  }
  return build_broadcast(b, elsewhere(b, op, in), t->rank, t->dim);
}

// The one number, known or not, that `v` is everywhere; or NULL.
static Value *one_number(Value *v) {
  const Op *op = made_by(v, OP_broadcast);
  return op && type_count(operand(op)->type) == 1 ? operand(op) : NULL;
}

Value *transpose_later(Builder *b, Op *op) {
  const Op *transpose = NULL;
  double c;
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    if (is_fill(v, &c) || one_number(v)) continue;
    const Op *this = made_by(v, OP_transpose);
    if (!this || (transpose && !has_perm(this, attr_list(transpose, "perm")))) return NULL;
    transpose = this;
  }
  if (!transpose) return NULL;
  const Type *from = operand(transpose)->type;
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value, *number = one_number(v);
    if (is_fill(v, &c))
      in[i] = build_fill(b, v->type->dtype, from->rank, from->dim, c);
    else if (number)
      in[i] = build_broadcast(b, build_reshape(b, number, 0, NULL), from->rank, from->dim);
    else
      in[i] = operand(v->def);
  }
  return build_transpose(b, elsewhere(b, op, in), attr_list(transpose, "perm"));
}

const SimplifyRule shape_rules[] = {
    {OP_reshape, simplify_reshape},
    {OP_transpose, simplify_transpose},
    {OP_broadcast, simplify_broadcast},
    {OP_slice, simplify_slice},
    {OP_concat, simplify_concat},
    {OP_pad, simplify_pad},
    {OP_reduce_sum, simplify_reduce},
    {OP_reduce_max, simplify_reduce},
    {OP_reduce_min, simplify_reduce},
    {OP_reduce_prod, simplify_reduce},
    {0, NULL},
};
