// Softmax along one dimension, its logarithm, and their adjoints.
//
//     softmax      y = exp(x - lse)    dx = y (dy - sum of y dy)       lse = log(sum of exp(x))
//     log_softmax  y = x - lse         dx = dy - exp(y) (sum of dy)
//
// The adjoints read the result, not the operand.  The dimension must not be split.

#include <math.h>

#include "ir/ops/einsum.h"
#include "ir/ops/reference.h"

// "a b c^ -> a b c^" for axis 2 of three; the adjoints have two such operands.
bool softmax_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  if (!axis_fits(op, ndim, d)) return false;
  Einsum e = {0};
  for (int term = 0; term <= op->n_in; term++) {
    if (term > 0) einsum_add(&e, term < op->n_in ? ", " : " -> ");
    for (int i = 0; i < ndim; i++)
      // Only the axis is whole.
      einsum_add(&e, "%c%s ", letter_free(i), i == attr_i(op, "axis") ? "^" : "");
  }
  return dims_parse(dims, op, e.text, d);
}

bool softmax_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_op(b, OP_softmax_back, IN(op->out[0], dout[0]), ATTRS(*op_attr(op, "axis")));
  return !b->failed;
}

bool log_softmax_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_op(b, OP_log_softmax_back, IN(op->out[0], dout[0]), ATTRS(*op_attr(op, "axis")));
  return !b->failed;
}

// Computes one vector along the axis: reads x (and dy), writes y (or dx).
typedef void VectorFn(const double *x, const double *dy, double *y, int64_t n);

static void each_vector(const Op *op, const Tensor *in, Tensor *out, VectorFn *f) {
  AxisView v = axis_view(in[0].type, (int)attr_i(op, "axis"));
  Arena *a = arena_new();
  double *x = arena_array(a, double, v.n), *y = arena_array(a, double, v.n);
  double *dy = arena_array(a, double, v.n);
  for (int64_t i = 0; i < v.outer; i++) {
    for (int64_t k = 0; k < v.inner; k++) {
      // The elements of a vector are `inner` apart, so they are gathered first.
      for (int64_t j = 0; j < v.n; j++) {
        x[j] = tensor_f(&in[0], axis_at(&v, i, j, k));
        if (op->n_in > 1) dy[j] = tensor_f(&in[1], axis_at(&v, i, j, k));
      }
      f(x, dy, y, v.n);
      for (int64_t j = 0; j < v.n; j++)
        tensor_set_f(out, axis_at(&v, i, j, k), y[j]);
    }
  }
  arena_free(a);
}

// NaN if the maximum is infinite, as in PyTorch.
static double log_sum_exp(const double *x, int64_t n) {
  double max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++)
    max = fmax(max, x[j]);
  for (int64_t j = 0; j < n; j++)
    sum += exp(x[j] - max);
  return log(sum) + max;
}

static void softmax_of(const double *x, const double *dy, double *y, int64_t n) {
  (void)dy;
  double lse = log_sum_exp(x, n);
  for (int64_t j = 0; j < n; j++)
    y[j] = exp(x[j] - lse);
}

static void log_softmax_of(const double *x, const double *dy, double *y, int64_t n) {
  (void)dy;
  double lse = log_sum_exp(x, n);
  for (int64_t j = 0; j < n; j++)
    y[j] = x[j] - lse;
}

static void softmax_back_of(const double *y, const double *dy, double *dx, int64_t n) {
  double sum = 0;
  // The sum couples all elements of the vector.
  for (int64_t j = 0; j < n; j++)
    sum += y[j] * dy[j];
  for (int64_t j = 0; j < n; j++)
    dx[j] = y[j] * (dy[j] - sum);
}

static void log_softmax_back_of(const double *y, const double *dy, double *dx, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++)
    sum += dy[j];
  for (int64_t j = 0; j < n; j++)
    dx[j] = dy[j] - exp(y[j]) * sum;
}

bool softmax_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  each_vector(op, in, out, softmax_of);
  return true;
}

bool log_softmax_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  each_vector(op, in, out, log_softmax_of);
  return true;
}

bool softmax_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  each_vector(op, in, out, softmax_back_of);
  return true;
}

bool log_softmax_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  each_vector(op, in, out, log_softmax_back_of);
  return true;
}
