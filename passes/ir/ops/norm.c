// Layer and RMS normalisation over the last dimension (n), and their adjoints.
//
//     layer_norm  y = g (x - mean) rstd + b      rstd = 1 / sqrt(variance + eps), biased variance
//     rms_norm    y = g x rstd                   rstd = 1 / sqrt(mean of x x + eps)
//
// With h the normalised x, p = g dy and <> the mean over n:
//
//     layer_norm  dx = rstd (p - <p> - h <p h>)      dg = sum of h dy      db = sum of dy
//     rms_norm    dx = rstd (p - h <p h>)            dg = sum of h dy
//
// dg and db sum over the leading dimensions, so a rank with a shard of these has partial sums.
//
// The statistics of layer_norm have gradients, too: of the mean, 1 / n; of rstd, -rstd^2 h / n.

#include <math.h>
#include <string.h>

#include "ir/ops/reference.h"

// Returns a value for each row, in the type and shape of x.
static Value *for_each_element(Builder *b, Value *row, const Type *x) {
  int64_t dim[MAX_NDIM];
  memcpy(dim, x->dim, sizeof dim);
  dim[x->ndim - 1] = 1;
  return build_broadcast(b, build_reshape(b, build_cast(b, row, x->dtype), x->ndim, dim), x->ndim,
                         x->dim);
}

// Returns the adjoint of x of the adjoints of the statistics; either may be NULL, and so the sum.
static Value *statistics_back(Builder *b, const Op *op, Value *dmean, Value *drstd) {
  Value *x = op->in[0].value, *mean = op->out[1], *rstd = op->out[2], *sum = NULL;
  double n = (double)x->type->dim[x->type->ndim - 1];
  if (dmean) sum = build_scale(b, for_each_element(b, dmean, x->type), 1 / n);
  if (drstd) {
    // -drstd rstd^3 / n, times x - mean
    Value *cube = build_binary(b, OP_mul, build_binary(b, OP_mul, rstd, rstd), rstd);
    Value *row = build_scale(b, build_binary(b, OP_mul, drstd, cube), -1 / n);
    Value *centered = build_binary(b, OP_sub, x, for_each_element(b, mean, x->type));
    row = for_each_element(b, row, x->type);
    sum = build_add(b, sum, build_binary(b, OP_mul, row, centered));
  }
  return sum;
}

bool layer_norm_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *dx =
      build_op(b, OP_layer_norm_back,
               IN(op->in[0].value, op->in[1].value, op->out[1], op->out[2], dout[0]), NO_ATTRS);
  if (!dx) return false;
  // One op gives the adjoints of all three operands.
  for (int i = 0; i < 3; i++)
    din[i] = dx->def->out[i];
  if (dout[1] || dout[2]) din[0] = build_add(b, dx, statistics_back(b, op, dout[1], dout[2]));
  return !b->failed;
}

bool rms_norm_grad(Builder *b, Op *op, Value **dout, Value **din) {
  if (!only_first_results(b, op, dout, 1)) return false;
  Value *dx = build_op(b, OP_rms_norm_back,
                       IN(op->in[0].value, op->in[1].value, op->out[1], dout[0]), NO_ATTRS);
  if (!dx) return false;
  for (int i = 0; i < 2; i++)
    din[i] = dx->def->out[i];
  return true;
}

// A view (rows, n) of a tensor normalised over its last dimension.
static AxisView rows_of(const Type *t) {
  return axis_view(t, t->ndim - 1);
}

bool layer_norm_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  AxisView v = rows_of(in[0].type);
  double eps = attr_f(op, "eps");
  for (int64_t i = 0; i < v.outer; i++) {
    // Two passes: the variance is of the differences from the mean.
    double mean = 0, var = 0;
    for (int64_t j = 0; j < v.n; j++)
      mean += tensor_f(&in[0], i * v.n + j);
    mean /= (double)v.n;
    for (int64_t j = 0; j < v.n; j++) {
      double x = tensor_f(&in[0], i * v.n + j) - mean;
      var += x * x;
    }
    double rstd = 1 / sqrt(var / (double)v.n + eps);
    for (int64_t j = 0; j < v.n; j++) {
      double h = (tensor_f(&in[0], i * v.n + j) - mean) * rstd;
      tensor_set_f(&out[0], i * v.n + j, h * tensor_f(&in[1], j) + tensor_f(&in[2], j));
    }
    // The statistics are results, for the gradient.
    tensor_set_f(&out[1], i, mean);
    tensor_set_f(&out[2], i, rstd);
  }
  return true;
}

bool rms_norm_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  AxisView v = rows_of(in[0].type);
  double eps = attr_f(op, "eps");
  for (int64_t i = 0; i < v.outer; i++) {
    double sum = 0;
    for (int64_t j = 0; j < v.n; j++) {
      double x = tensor_f(&in[0], i * v.n + j);
      sum += x * x;
    }
    double rstd = 1 / sqrt(sum / (double)v.n + eps);
    for (int64_t j = 0; j < v.n; j++)
      tensor_set_f(&out[0], i * v.n + j,
                   tensor_f(&in[0], i * v.n + j) * rstd * tensor_f(&in[1], j));
    // The statistic is a result, for the gradient.
    tensor_set_f(&out[1], i, rstd);
  }
  return true;
}

// Both adjoints; `mean` is NULL for rms_norm, which has no <p> and no db.
static void norm_back(const Tensor *x, const Tensor *g, const Tensor *mean, const Tensor *rstd,
                      const Tensor *dy, Tensor *out) {
  AxisView v = rows_of(x->type);
  Arena *a = arena_new();
  double *dg = arena_array(a, double, v.n), *db = arena_array(a, double, v.n);
  double *h = arena_array(a, double, v.n), *p = arena_array(a, double, v.n);
  for (int64_t i = 0; i < v.outer; i++) {
    double mean_p = 0, mean_ph = 0, r = tensor_f(rstd, i);
    for (int64_t j = 0; j < v.n; j++) {
      // The row's h and p, and the means of p and p h.
      double dyj = tensor_f(dy, i * v.n + j);
      h[j] = (tensor_f(x, i * v.n + j) - (mean ? tensor_f(mean, i) : 0)) * r;
      p[j] = tensor_f(g, j) * dyj;
      dg[j] += h[j] * dyj;
      db[j] += dyj;
      if (mean) mean_p += p[j] / (double)v.n;
      mean_ph += p[j] * h[j] / (double)v.n;
    }
    // The means couple the elements of a row.
    for (int64_t j = 0; j < v.n; j++)
      tensor_set_f(&out[0], i * v.n + j, r * (p[j] - mean_p - h[j] * mean_ph));
  }
  tensor_set_doubles(&out[1], dg);
  if (mean) tensor_set_doubles(&out[2], db);
  arena_free(a);
}

bool layer_norm_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  norm_back(&in[0], &in[1], &in[2], &in[3], &in[4], out);
  return true;
}

bool rms_norm_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  norm_back(&in[0], &in[1], NULL, &in[2], &in[3], out);
  return true;
}
