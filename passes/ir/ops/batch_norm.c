// Batch normalisation, with a mean and a variance for each channel (dimension `axis`).
//
//     batch_norm        y = g (x - mean) rstd + b     rstd = 1 / sqrt(var + eps), given mean, var
//     batch_norm_train  the same with the batch's own, and an update of the running statistics
//
// Training couples the whole batch, so it cannot be split.  lower_batch_norm replaces it by steps
// that can, each a sum over a rank's shard, divided by the `count` of the whole batch:
//
//     batch_norm_mean  mean = sum of x / count
//     batch_norm_var   var = sum of (x - mean)^2 / count
//     batch_norm_sums  dg = sum of h dy, db = sum of dy           h = (x - mean) rstd
//     batch_norm_back  dx = g rstd (dy - db / count - h dg / count)
//
// With x f32[8,16,4,4] and axis=1 the terms are "a b c d" for x and "b" for a statistic of a
// channel.

#include <math.h>

#include "ir/ops/einsum.h"
#include "ir/ops/reference.h"

// Every `x` in `pattern` stands for a tensor like operand 0, every `c` for one number per channel.
// With `whole`, all of x's letters but the channel get `^`.
//     "xcccc>x" -> "a b c, b, b, b, b -> a b c"
static bool channel_rule(const Op *op, Dims *dims, const char *pattern, bool whole, Diag *d) {
  const Type *x = op->in[0].value->type;
  if (!axis_fits(op, x->ndim, d)) return false;
  int axis = (int)attr_i(op, "axis");
  Einsum e = {0};
  for (const char *p = pattern; *p; p++) {
    // A comma between two tensors, an arrow between operands and results.
    if (p > pattern) einsum_add(&e, *p == '>' ? " -> " : p[-1] == '>' ? "" : ", ");
    for (int i = 0; *p == 'x' && i < x->ndim; i++)
      einsum_add(&e, "%c%s ", letter_free(i), whole && i != axis ? "^" : "");
    if (*p == 'c') einsum_add(&e, "%c", letter_free(axis));
  }
  return dims_parse(dims, op, e.text, d);
}

static int64_t per_channel(const Type *x, int axis) {
  AxisView v = axis_view(x, axis);
  return v.outer * v.inner;
}

bool batch_norm_rule(const Op *op, Dims *dims, Diag *d) {
  return channel_rule(op, dims, "xcccc>x", false, d);
}

bool batch_norm_train_rule(const Op *op, Dims *dims, Diag *d) {
  if (!channel_rule(op, dims, "xcccc>xcccc", true, d)) return false;
  if (attr_i(op, "unbiased") && per_channel(op->in[0].value->type, (int)attr_i(op, "axis")) < 2)
    return diag_error(d, op->loc, "batch_norm_train: one element per channel has no variance");
  return true;
}

static bool counted_rule(const Op *op, Dims *dims, const char *pattern, Diag *d) {
  if (attr_i(op, "count") < 1)
    return diag_error(d, op->loc, "%s: count is %lld", op_info[op->kind].name,
                      (long long)attr_i(op, "count"));
  return channel_rule(op, dims, pattern, false, d);
}

bool batch_norm_mean_rule(const Op *op, Dims *dims, Diag *d) {
  return counted_rule(op, dims, "x>c", d);
}

bool batch_norm_var_rule(const Op *op, Dims *dims, Diag *d) {
  return counted_rule(op, dims, "xc>c", d);
}

bool batch_norm_sums_rule(const Op *op, Dims *dims, Diag *d) {
  return channel_rule(op, dims, "xccx>cc", false, d);
}

bool batch_norm_back_rule(const Op *op, Dims *dims, Diag *d) {
  return counted_rule(op, dims, "xcccxcc>x", d);
}

// With given statistics y is linear in x, so dx is the same op on dy without the offsets. d rstd /
// d var = -rstd^3 / 2 gives dvar from dg, and dmean from db.
bool batch_norm_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *g = op->in[1].value, *dy = dout[0];
  Value *mean = op->in[3].value, *var = op->in[4].value;
  Attr axis = *op_attr(op, "axis"), eps = *op_attr(op, "eps");
  Value *zero = build_fill(b, g->type->dtype, g->type->ndim, g->type->dim, 0);
  din[0] = build_op(b, OP_batch_norm, IN(dy, g, zero, zero, var), ATTRS(axis, eps));
  Value *dg = build_op(b, OP_batch_norm_sums, IN(x, mean, var, dy), ATTRS(axis, eps));
  if (!dg) return false;
  Value *db = dg->def->out[1];
  // The adjoints of the scale and of the offset.
  din[1] = dg;
  din[2] = db;
  Value *shifted = build_op(b, OP_offset, IN(var), ATTRS(a_f("by", eps.f)));
  Value *rstd = build_op(b, OP_rsqrt, IN(shifted), NO_ATTRS);
  Value *slope = build_op(b, OP_mul, IN(g, rstd), NO_ATTRS);
  // Then those of the mean and of the variance.
  din[3] = build_op(b, OP_neg, IN(build_op(b, OP_mul, IN(slope, db), NO_ATTRS)), NO_ATTRS);
  Value *half = build_op(b, OP_scale, IN(build_op(b, OP_mul, IN(slope, rstd), NO_ATTRS)),
                         ATTRS(a_f("by", -0.5)));
  din[4] = build_op(b, OP_mul, IN(half, dg), NO_ATTRS);
  return !b->failed;
}

bool batch_norm_train_grad(Builder *b, Op *op, Value **dout, Value **din) {
  if (!only_first_results(b, op, dout, 1)) return false;
  Value *x = op->in[0].value, *g = op->in[1].value, *dy = dout[0];
  Value *mean = op->out[1], *var = op->out[2];
  Attr axis = *op_attr(op, "axis"), eps = *op_attr(op, "eps");
  // The batch's own statistics depend on x, and so does the adjoint.
  Value *dg = build_op(b, OP_batch_norm_sums, IN(x, mean, var, dy), ATTRS(axis, eps));
  if (!dg) return false;
  Value *db = dg->def->out[1];
  din[0] = build_op(b, OP_batch_norm_back, IN(x, g, mean, var, dy, dg, db),
                    ATTRS(axis, eps, a_i("count", per_channel(x->type, (int)axis.i))));
  din[1] = dg;
  din[2] = db;
  return !b->failed;
}

static void normalise(const AxisView *v, double eps, const Tensor *in, const double *mean,
                      const double *var, Tensor *y) {
  for (int64_t c = 0; c < v->n; c++) {
    double rstd = 1 / sqrt(var[c] + eps), g = tensor_f(&in[1], c), b = tensor_f(&in[2], c);
    for (int64_t i = 0; i < v->outer; i++) {
      for (int64_t k = 0; k < v->inner; k++) {
        int64_t at = axis_at(v, i, c, k);
        tensor_set_f(y, at, (tensor_f(&in[0], at) - mean[c]) * rstd * g + b);
      }
    }
  }
}

bool batch_norm_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  AxisView v = axis_view(in[0].type, (int)attr_i(op, "axis"));
  Arena *a = arena_new();
  normalise(&v, attr_f(op, "eps"), in, tensor_doubles(a, &in[3]), tensor_doubles(a, &in[4]), out);
  arena_free(a);
  return true;
}

// The sum of (x - mean)^power over channel c.
static double channel_sum(const AxisView *v, const Tensor *x, int64_t c, double mean, int power) {
  double sum = 0;
  for (int64_t i = 0; i < v->outer; i++) {
    for (int64_t k = 0; k < v->inner; k++) {
      // The sum is over all dimensions but the channel.
      double t = tensor_f(x, axis_at(v, i, c, k)) - mean;
      sum += power == 2 ? t * t : t;
    }
  }
  return sum;
}

// momentum is the weight of the old running statistics.
bool batch_norm_train_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  AxisView v = axis_view(in[0].type, (int)attr_i(op, "axis"));
  double count = (double)(v.outer * v.inner), keep = attr_f(op, "momentum");
  double correction = attr_i(op, "unbiased") ? count / (count - 1) : 1;
  Arena *a = arena_new();
  double *mean = arena_array(a, double, v.n), *var = arena_array(a, double, v.n);
  for (int64_t c = 0; c < v.n; c++) {
    // Two passes: the variance is of the differences from the mean.
    mean[c] = channel_sum(&v, &in[0], c, 0, 1) / count;
    var[c] = channel_sum(&v, &in[0], c, mean[c], 2) / count;
    tensor_set_f(&out[1], c, mean[c]);
    tensor_set_f(&out[2], c, var[c]);
    // Running statistics move towards those of the batch.
    tensor_set_f(&out[3], c, tensor_f(&in[3], c) * keep + mean[c] * (1 - keep));
    tensor_set_f(&out[4], c, tensor_f(&in[4], c) * keep + var[c] * correction * (1 - keep));
  }
  normalise(&v, attr_f(op, "eps"), in, mean, var, &out[0]);
  arena_free(a);
  return true;
}

bool batch_norm_mean_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  AxisView v = axis_view(in[0].type, (int)attr_i(op, "axis"));
  for (int64_t c = 0; c < v.n; c++)
    tensor_set_f(out, c, channel_sum(&v, &in[0], c, 0, 1) / (double)attr_i(op, "count"));
  return true;
}

bool batch_norm_var_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  AxisView v = axis_view(in[0].type, (int)attr_i(op, "axis"));
  for (int64_t c = 0; c < v.n; c++)
    tensor_set_f(out, c,
                 channel_sum(&v, &in[0], c, tensor_f(&in[1], c), 2) / (double)attr_i(op, "count"));
  return true;
}

bool batch_norm_sums_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  AxisView v = axis_view(in[0].type, (int)attr_i(op, "axis"));
  for (int64_t c = 0; c < v.n; c++) {
    double mean = tensor_f(&in[1], c), rstd = 1 / sqrt(tensor_f(&in[2], c) + attr_f(op, "eps"));
    // Sums over all dimensions but the channel.
    double dg = 0, db = 0;
    for (int64_t i = 0; i < v.outer; i++) {
      for (int64_t k = 0; k < v.inner; k++) {
        int64_t at = axis_at(&v, i, c, k);
        double dy = tensor_f(&in[3], at);
        dg += (tensor_f(&in[0], at) - mean) * rstd * dy;
        db += dy;
      }
    }
    tensor_set_f(&out[0], c, dg);
    tensor_set_f(&out[1], c, db);
  }
  return true;
}

bool batch_norm_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  AxisView v = axis_view(in[0].type, (int)attr_i(op, "axis"));
  double count = (double)attr_i(op, "count");
  for (int64_t c = 0; c < v.n; c++) {
    double mean = tensor_f(&in[2], c), rstd = 1 / sqrt(tensor_f(&in[3], c) + attr_f(op, "eps"));
    double g = tensor_f(&in[1], c), dg = tensor_f(&in[5], c), db = tensor_f(&in[6], c);
    for (int64_t i = 0; i < v.outer; i++) {
      for (int64_t k = 0; k < v.inner; k++) {
        int64_t at = axis_at(&v, i, c, k);
        // `count` is that of the whole batch, not of the shard.
        double h = (tensor_f(&in[0], at) - mean) * rstd;
        tensor_set_f(out, at, g * rstd * (tensor_f(&in[4], at) - db / count - h * dg / count));
      }
    }
  }
  return true;
}
