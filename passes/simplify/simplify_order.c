// Simplification by reordering: broadcasts and transposes go towards the results, reshapes and
// slices towards the parameters.
//
//     elementwise op of broadcasts from one shape       broadcast of the op
//     elementwise op of transposes by one permutation   transpose of the op
//     linear of a transpose that keeps the last place   transpose of linear
//     slice of a transpose                              transpose of the slice
//     reduction of a transpose                          transpose of the reduction
//     reshapes                                          simplify_reshape.c
//
// So transposes meet and compose, or meet a product that can read its operand transposed; reshapes,
// which are free, meet too; and an op of broadcast operands runs before the broadcast.

#include "ir/analysis/rewrite.h"

// -- Broadcasts ------------------------------------------------------------------------------

static Value *broadcast_later(Builder *b, Op *op) {
  const Type *from = NULL, *t = op->out[0]->type;
  double c;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (is_fill(v, &c)) continue;
    // All operands must be broadcast from one shape, or be fills.
    const Op *broadcast = made_by(v, OP_broadcast);
    if (!broadcast || (from && !same_shape(from, first_operand(broadcast)->type))) return NULL;
    from = first_operand(broadcast)->type;
  }
  if (!from) return NULL;
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    in[i] = is_fill(v, &c) ? build_fill(b, v->type->dtype, from->ndim, from->dim, c)
                           : first_operand(v->def);
  }
  return build_broadcast(b, build_on(b, op, in), t->ndim, t->dim);
}

// -- Transposes ------------------------------------------------------------------------------

// Whether any transpose of `v` is cheap: it is a fill, or a broadcast of fewer elements.
static bool is_cheap(const Value *v) {
  double c;
  const Op *op = made_by(v, OP_broadcast);
  return is_fill(v, &c) || (op && type_count(first_operand(op)->type) < type_count(v->type));
}

// The cheap value `v` before a transpose by `perm`, in the shape of `from`.
static Value *before_transpose(Builder *b, Value *v, const int64_t *perm, const Type *from) {
  double c;
  if (is_fill(v, &c)) return build_fill(b, v->type->dtype, from->ndim, from->dim, c);
  Value *x = first_operand(v->def);
  int64_t dim[MAX_NDIM], back[MAX_NDIM];
  int over = from->ndim - x->type->ndim;
  for (int i = 0; i < from->ndim; i++) {
    dim[i] = i < over ? 1 : x->type->dim[i - over];
    back[perm[i]] = i;
  }
  x = build_transposed(b, build_reshape(b, x, from->ndim, dim), back);
  return build_broadcast(b, x, from->ndim, from->dim);
}

static Value *transpose_later(Builder *b, Op *op) {
  const Op *transpose = NULL;
  for (int i = 0; i < op->n_in; i++) {
    // All operands must have one transpose, or be cheap to transpose.
    const Op *of = made_by(op->in[i].value, OP_transpose);
    if (!of && is_cheap(op->in[i].value)) continue;
    if (!of || (transpose && !has_perm(of, attr_list(transpose, "perm")))) return NULL;
    transpose = of;
  }
  if (!transpose) return NULL;
  const int64_t *perm = attr_list(transpose, "perm");
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    const Op *of = made_by(v, OP_transpose);
    in[i] = of ? first_operand(of) : before_transpose(b, v, perm, first_operand(transpose)->type);
  }
  return build_transpose(b, build_on(b, op, in), perm);
}

static Value *transpose_after_slice(Builder *b, Op *op) {
  const Op *transpose = made_by(first_operand(op), OP_transpose);
  if (!transpose) return NULL;
  const int64_t *perm = attr_list(transpose, "perm");
  int ndim = op->out[0]->type->ndim;
  int64_t starts[MAX_NDIM], steps[MAX_NDIM], shape[MAX_NDIM];
  for (int i = 0; i < ndim; i++) {
    // The slice has the order of dimensions before the transpose.
    starts[perm[i]] = attr_list(op, "starts")[i];
    steps[perm[i]] = attr_list(op, "steps")[i];
    shape[perm[i]] = attr_list(op, "shape")[i];
  }
  Value *v = build_op(b, OP_slice, IN(first_operand(transpose)),
                      ATTRS(a_list("starts", starts, ndim), a_list("steps", steps, ndim),
                            a_list("shape", shape, ndim)));
  return build_transpose(b, v, perm);
}

//     reduce_sum of (transpose x perm=[0,3,1,2]) axes=[0,2]   transpose of reduce_sum x axes=[0,1]
//
// Reductions that keep dimensions are excluded: they may be part of a norm, which raise recognises
// by its last dimension.
static Value *transpose_after_reduction(Builder *b, Op *op) {
  // The axes are renamed to those before the transpose; the other dimensions keep their order after
  // it.
  const Op *transpose = made_by(first_operand(op), OP_transpose);
  if (!transpose || attr_i(op, "keep")) return NULL;
  const int64_t *perm = attr_list(transpose, "perm");
  int ndim = first_operand(op)->type->ndim;
  bool reduced[MAX_NDIM] = {false};
  for (int i = 0; i < attr_n(op, "axes"); i++)
    reduced[perm[attr_list(op, "axes")[i]]] = true;
  int64_t axes[MAX_NDIM], place[MAX_NDIM], after[MAX_NDIM];
  int n_axes = 0, n_places = 0, n = 0;
  for (int i = 0; i < ndim; i++) {
    if (reduced[i])
      axes[n_axes++] = i;
    else
      place[i] = n_places++;
  }
  for (int i = 0; i < ndim; i++)
    if (!reduced[perm[i]]) after[n++] = place[perm[i]];
  Value *v = build_op(b, op->kind, IN(first_operand(transpose)),
                      ATTRS(a_list("axes", axes, n_axes), a_b("keep", false)));
  return build_transpose(b, v, after);
}

// -- Products --------------------------------------------------------------------------------

// Moves a transpose after a linear, also through a reshape that could not go above it. Not if the
// result is much larger than the operand, such as the logits of a language model.
static Value *transpose_after_linear(Builder *b, Op *op) {
  enum { MUCH = 4 };
  const Op *reshape = stuck_reshape(first_operand(op));
  Value *x = reshape ? first_operand(reshape) : first_operand(op);
  const Op *transpose = made_by(x, OP_transpose);
  const Type *t = op->out[0]->type;
  int last = x->type->ndim - 1;
  int64_t summed = x->type->dim[last];
  if (!transpose || attr_list(transpose, "perm")[last] != last ||
      first_operand(op)->type->dim[t->ndim - 1] != summed ||
      type_count(first_operand(op)->type) == 0 || t->dim[t->ndim - 1] > MUCH * summed)
    return NULL;
  // The last dimension, which is summed, stays last.
  Value *y =
      build_transpose(b, build_on(b, op, (Value *[]){first_operand(transpose), op->in[1].value}),
                      attr_list(transpose, "perm"));
  return build_reshape(b, y, t->ndim, t->dim);
}

static bool is_reduction(const Op *op) {
  switch ((int)op->kind) {
  case OP_reduce_sum:
  case OP_reduce_max:
  case OP_reduce_min:
  case OP_reduce_prod: return true;
  }
  return false;
}

Value *change_order(Builder *b, Op *op) {
  if (op->kind == OP_linear) return transpose_after_linear(b, op);
  if (op->kind == OP_slice) return transpose_after_slice(b, op);
  if (op->kind == OP_reshape) return reshape_earlier(b, op);
  if (is_reduction(op)) return transpose_after_reduction(b, op);
  if (!op_info[op->kind].formula) return NULL;
  Value *v = broadcast_later(b, op);
  if (!v) v = transpose_later(b, op);
  return v ? v : reshape_later(b, op);
}
