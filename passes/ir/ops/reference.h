// Helpers of the reference functions: tensors as arrays of double, and tensors viewed as three
// dimensions around an axis.

#ifndef IR_OPS_REFERENCE_H
#define IR_OPS_REFERENCE_H

#include "ir/op.h"

// The elements of `t` as doubles, in the arena.
static inline double *tensor_doubles(Arena *a, const Tensor *t) {
  int64_t n = type_count(t->type);
  double *at = arena_array(a, double, n);
  for (int64_t i = 0; i < n; i++)
    at[i] = tensor_f(t, i);
  return at;
}

static inline void tensor_set_doubles(Tensor *t, const double *at) {
  int64_t n = type_count(t->type);
  for (int64_t i = 0; i < n; i++)
    tensor_set_f(t, i, at[i]);
}

// A tensor of doubles shaped as `like`, with `last` as its last dimension unless that is 0.
static inline Tensor tensor_of_doubles(Arena *a, const Op *op, const Type *like, int64_t last) {
  Type t = *like;
  if (last) t.dim[t.ndim - 1] = last;
  return tensor_new(a, type_new(op->graph->module, DT_f64, t.ndim, t.dim));
}

// linear.c: y = x w, and dw = x' dy.
void linear_product(const Tensor *x, const Tensor *w, bool trans, Tensor *y);
void linear_product_back_w(const Tensor *x, const Tensor *dy, bool trans, Tensor *dw);

// A tensor viewed as (outer, n, inner), with n the length of dimension `axis`: element (i, j, k) is
// at (i * n + j) * inner + k.
typedef struct AxisView {
  int64_t outer, n, inner;
} AxisView;

static inline AxisView axis_view(const Type *t, int axis) {
  AxisView v = {1, t->dim[axis], 1};
  for (int i = 0; i < axis; i++)
    v.outer *= t->dim[i];
  for (int i = axis + 1; i < t->ndim; i++)
    v.inner *= t->dim[i];
  return v;
}

static inline int64_t axis_at(const AxisView *v, int64_t outer, int64_t j, int64_t inner) {
  return (outer * v->n + j) * v->inner + inner;
}

// The start of the local shard, and the global length, along `dim`; `part` is the local type.
static inline int64_t box_start(const Box *box, int dim) {
  return box ? box->start[dim] : 0;
}
static inline int64_t box_whole(const Box *box, const Type *part, int dim) {
  return box ? box->whole[dim] : part->dim[dim];
}

// For gradients: whether the results from `first` on have no adjoint.  They are statistics for the
// gradient itself.
static inline bool only_first_results(const Builder *b, const Op *op, Value *const *dout,
                                      int first) {
  for (int i = first; i < op->n_out; i++)
    if (dout[i])
      return diag_error(b->d, op->loc, "%s: there is no gradient of result %d",
                        op_info[op->kind].name, i);
  return true;
}

#endif
