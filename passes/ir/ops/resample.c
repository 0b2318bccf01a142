// Resampling along an axis: each element of the result is a weighted sum of a few adjacent elements
// of x, its taps.  A table gives, for each position along the axis, the first tap and the weights.
//
//     y[i, o, j] = sum over k of weight[o, k] * x[i, first[o] + k, j]
//
//     resample       a A c, o, o k -> a o c       nearest, linear and cubic interpolation, with or
//                                                 without antialiasing, up or down
//     resample_back  o, o k, a o c -> a A c       the adjoint: the transposed table
//
// An image of several dimensions is resampled along one axis after the other.  The frontend
// computes the tables (onnx_ops_resize.c).  A tap outside of x adds nothing, and one of weight 0 is
// not read, so that a NaN beside the taps does not spread.  Positions are independent, so `o` can
// be split; the axis of x is whole.

#include "ir/ops/einsum.h"
#include "ir/ops/reference.h"

// The letters of x, which has the axis, or of y, which has the positions in its place.
static void add_tensor(Einsum *e, int ndim, int axis, const char *letter) {
  for (int i = 0; i < ndim; i++)
    if (i == axis)
      einsum_add(e, " %s", letter);
    else
      einsum_add(e, " %c", letter_free(i));
}

bool resample_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim, axis = (int)attr_i(op, "axis");
  if (!axis_fits(op, ndim, d)) return false;
  Einsum e = {0};
  add_tensor(&e, ndim, axis, "x^");
  einsum_add(&e, ", o, o k^ ->");
  add_tensor(&e, ndim, axis, "o");
  return dims_parse(dims, op, e.text, d);
}

bool resample_back_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[2].value->type->ndim, axis = (int)attr_i(op, "axis");
  if (!axis_fits(op, ndim, d)) return false;
  if (attr_i(op, "length") < 0)
    return diag_error(d, op->loc, "resample_back: a length of %lld",
                      (long long)attr_i(op, "length"));
  Einsum e = {0};
  einsum_add(&e, "o, o k^,");
  add_tensor(&e, ndim, axis, "o");
  einsum_add(&e, "->");
  add_tensor(&e, ndim, axis, "x^");
  if (!dims_parse(dims, op, e.text, d)) return false;
  dims_size(dims, 'x', attr_i(op, "length"));
  return true;
}

// The adjoint of the weights: for each tap, the product of dy with the elements of x that it reads.
// NULL for a table of constants.
static Value *weight_adjoint(Builder *b, const Op *op, Value *x, Value *first, Value *weight,
                             Value *dy) {
  const Type *w = weight->type, *t = x->type;
  int axis = (int)attr_i(op, "axis"), n_others = 0;
  if (weight->def && (weight->def->kind == OP_constant || weight->def->kind == OP_fill))
    return NULL;
  int64_t others[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++)
    if (i != axis) others[n_others++] = i;
  Value *dw = NULL, *zero = build_fill(b, DT_i32, 1, w->dim, 0);
  Value *last = build_fill(b, DT_i32, 1, w->dim, (double)(t->dim[axis] - 1));
  for (int64_t k = 0; k < w->dim[1]; k++) {
    Value *at = build_binary(b, OP_add, first, build_fill(b, DT_i32, 1, w->dim, (double)k));
    Value *near = build_binary(b, OP_min, build_binary(b, OP_max, at, zero), last);
    Value *tap = build_op(b, OP_gather, IN(x, near), ATTRS(a_i("axis", axis)));
    Value *sum = build_cast(b, build_binary(b, OP_mul, tap, dy), w->dtype);
    sum = build_reduce_sum(b, sum, others, n_others, false);
    // A tap outside of x adds nothing.
    Value *none = build_fill(b, w->dtype, 1, w->dim, 0);
    sum = build_where(b, build_binary(b, OP_equal, at, near), sum, none);
    sum = build_reshape(b, sum, 2, (int64_t[]){w->dim[0], 1});
    dw = dw ? build_op(b, OP_concat, IN(dw, sum), ATTRS(a_i("axis", 1))) : sum;
  }
  return dw;
}

bool resample_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *first = op->in[1].value, *weight = op->in[2].value;
  int64_t length = x->type->dim[attr_i(op, "axis")];
  din[0] = build_op(b, OP_resample_back, IN(first, weight, dout[0]),
                    ATTRS(*op_attr(op, "axis"), a_i("length", length)));
  din[2] = weight_adjoint(b, op, x, first, weight, dout[0]);
  return !b->failed;
}

bool resample_back_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *first = op->in[0].value, *weight = op->in[1].value, *dy = op->in[2].value;
  din[1] = weight_adjoint(b, op, dout[0], first, weight, dy);
  din[2] = build_op(b, OP_resample, IN(dout[0], first, weight), ATTRS(*op_attr(op, "axis")));
  return !b->failed;
}

// Adds every tap's product to the element of y, or with `back` to that of x.
static bool reference(const Op *op, const Tensor *first, const Tensor *weight, const Tensor *from,
                      Tensor *out, bool back) {
  int axis = (int)attr_i(op, "axis");
  AxisView x = axis_view(back ? out->type : from->type, axis), y = x;
  y.n = weight->type->dim[0];
  int64_t taps = weight->type->dim[1];
  Arena *a = arena_new();
  double *in = tensor_doubles(a, from), *sum = arena_array(a, double, type_count(out->type));
  for (int64_t o = 0; o < y.n; o++)
    for (int64_t k = 0; k < taps; k++) {
      double w = tensor_f(weight, o * taps + k);
      int64_t at = tensor_i(first, o) + k;
      if (w == 0 || at < 0 || at >= x.n) continue;
      // The same tap of all other dimensions.
      for (int64_t i = 0; i < x.outer; i++)
        for (int64_t j = 0; j < x.inner; j++) {
          int64_t at_x = axis_at(&x, i, at, j), at_y = axis_at(&y, i, o, j);
          if (back)
            sum[at_x] += w * in[at_y];
          else
            sum[at_y] += w * in[at_x];
        }
    }
  tensor_set_doubles(out, sum);
  arena_free(a);
  return true;
}

bool resample_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  return reference(op, &in[1], &in[2], &in[0], out, false);
}

bool resample_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  return reference(op, &in[0], &in[1], &in[2], out, true);
}
