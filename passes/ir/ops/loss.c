// Losses over classes: one number for each row of logits or of log-probabilities (c classes).
//
//     cross_entropy  loss = lse - x[label]    dx = (exp(x - lse) - 1[label]) dloss
//                    lse = log(sum of exp(x))
//     nll            loss = -x[label]         dx = -1[label] dloss
//     lse_parts      lse of each of g parts of the row
//
// A label equal to `ignore` gives loss 0 and no gradient.  Any other label outside 0 .. c-1 is an
// error; if classes are split, c counts the classes of all shards.  A shard without the label's
// class contributes 0, so its losses are partial sums.  But a log-sum-exp is not the sum of those
// of shards, so cross_entropy needs whole classes.

#include <math.h>

#include "ir/ops/reference.h"

bool nll_back_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *labels = op->in[0].value->type;
  int ndim = attr_n(op, "shape");
  const int64_t *shape = attr_list(op, "shape");
  // The last dimension is that of the classes.
  bool same = ndim == labels->ndim + 1;
  for (int i = 0; same && i < labels->ndim; i++)
    same = shape[i] == labels->dim[i];
  if (!same)
    return diag_error(d, op->loc, "nll_back: 'shape' must be that of the labels and the classes");
  if (!dims_parse(dims, op, "*, * -> * c", d)) return false;
  dims_size(dims, 'c', shape[ndim - 1]);
  return true;
}

bool lse_parts_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *x = op->in[0].value->type;
  int ndim = attr_n(op, "shape");
  const int64_t *shape = attr_list(op, "shape");
  // All leading dimensions are unchanged.
  bool same = ndim == x->ndim && ndim > 0;
  for (int i = 0; same && i < ndim - 1; i++)
    same = shape[i] == x->dim[i];
  if (!same)
    return diag_error(d, op->loc,
                      "lse_parts: 'shape' must be that of the operand, but for the last length");
  // The last length is the number of parts.
  int64_t length = x->dim[ndim - 1], parts = shape[ndim - 1];
  if (parts == 0 || length % parts != 0)
    return diag_error(d, op->loc, "lse_parts: %lld elements cannot be split into %lld equal parts",
                      (long long)length, (long long)parts);
  if (!dims_parse(dims, op, "* (g c^) -> * g", d)) return false;
  dims_size(dims, 'g', parts);
  dims_size(dims, 'c', length / parts);
  return true;
}

bool cross_entropy_grad(Builder *b, Op *op, Value **dout, Value **din) {
  if (!only_first_results(b, op, dout, 1)) return false;
  din[0] =
      build_op(b, OP_cross_entropy_back, IN(op->in[0].value, op->in[1].value, op->out[1], dout[0]),
               ATTRS(*op_attr(op, "ignore"), *op_attr(op, "classes")));
  return !b->failed;
}

bool nll_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Type *x = op->in[0].value->type;
  din[0] = build_op(
      b, OP_nll_back, IN(op->in[1].value, dout[0]),
      ATTRS(*op_attr(op, "ignore"), a_list("shape", x->dim, x->ndim), *op_attr(op, "classes")));
  din[0] = build_cast(b, din[0], x->dtype);
  return !b->failed;
}

// Rows of n local classes, out of `all`; the local ones begin with number `from`.  Columns after
// `all` are padding: of the local ones, `count` are not.
typedef struct Classes {
  int64_t rows, n, from, all, count;
} Classes;

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

static Classes classes_of(const Op *op, const Type *t, const Box *box) {
  AxisView v = axis_view(t, t->ndim - 1);
  int64_t from = box_start(box, t->ndim - 1);
  int64_t all = op_unpadded(op, box_whole(box, t, t->ndim - 1));
  return (Classes){v.outer, v.n, from, all, clamp(all - from, 0, v.n)};
}

enum { IGNORED = -1, ELSEWHERE = -2 };

// Sets `label` to the label of `row` relative to the first local class, to IGNORED, or to ELSEWHERE
// if its class is in another shard.  False after an error.
static bool label_of(const Op *op, const Tensor *labels, int64_t row, const Classes *c,
                     int64_t *label, Diag *d) {
  int64_t class = tensor_i(labels, row);
  if (class == attr_i(op, "ignore")) {
    *label = IGNORED;
    return true;
  }
  // Only the shard of the class can read its logit.
  *label = class >= c->from && class < c->from + c->n ? class - c->from : ELSEWHERE;
  if (class >= 0 && class < c->all) return true;
  return diag_error(d, op->loc, "%s: label %lld of row %lld is outside 0..%lld",
                    op_info[op->kind].name, (long long)class, (long long)row,
                    (long long)c->all - 1);
}

// The log-sum-exp of n elements of x from `at` on: -inf if all are; NaN if any is NaN or +inf.
static double log_sum_exp(const Tensor *x, int64_t at, int64_t n) {
  double max = -INFINITY, sum = 0;
  // The maximum is subtracted, so that no exponential overflows.
  for (int64_t j = 0; j < n; j++)
    max = fmax(max, tensor_f(x, at + j));
  if (max == -INFINITY) max = 0;
  for (int64_t j = 0; j < n; j++)
    sum += exp(tensor_f(x, at + j) - max);
  return log(sum) + max;
}

bool cross_entropy_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Classes c = classes_of(op, in[0].type, box);
  for (int64_t i = 0; i < c.rows; i++) {
    int64_t label;
    if (!label_of(op, &in[1], i, &c, &label, d)) return false;
    // lse is a result, for the gradient.
    double lse = log_sum_exp(&in[0], i * c.n, c.count);
    tensor_set_f(&out[0], i, label < 0 ? 0 : lse - tensor_f(&in[0], i * c.n + label));
    tensor_set_f(&out[1], i, lse);
  }
  return true;
}

bool cross_entropy_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Classes c = classes_of(op, in[0].type, box);
  for (int64_t i = 0; i < c.rows; i++) {
    int64_t label;
    if (!label_of(op, &in[1], i, &c, &label, d)) return false;
    double lse = tensor_f(&in[2], i), dloss = tensor_f(&in[3], i);
    for (int64_t j = 0; j < c.n; j++) {
      // Probability minus one-hot label.
      double p = exp(tensor_f(&in[0], i * c.n + j) - lse);
      bool none = label == IGNORED || j >= c.count;
      tensor_set_f(out, i * c.n + j, none ? 0 : (p - (j == label)) * dloss);
    }
  }
  return true;
}

bool nll_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Classes c = classes_of(op, in[0].type, box);
  for (int64_t i = 0; i < c.rows; i++) {
    int64_t label;
    if (!label_of(op, &in[1], i, &c, &label, d)) return false;
    // Ignored labels, and those of other shards, contribute 0.
    tensor_set_f(out, i, label < 0 ? 0 : -tensor_f(&in[0], i * c.n + label));
  }
  return true;
}

bool nll_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Classes c = classes_of(op, out->type, box);
  for (int64_t i = 0; i < c.rows; i++) {
    int64_t label;
    if (!label_of(op, &in[0], i, &c, &label, d)) return false;
    // Only the class of the label has a gradient.
    for (int64_t j = 0; j < c.n; j++)
      tensor_set_f(out, i * c.n + j, j == label ? -tensor_f(&in[1], i) : 0);
  }
  return true;
}

bool lse_parts_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)d;
  Classes c = classes_of(op, in[0].type, box);
  int64_t n = type_count(out->type), length = n ? type_count(in[0].type) / n : 0;
  for (int64_t i = 0; i < n; i++) {
    // Of the part's columns, those before the padding.
    int64_t part = i % (c.n / length), count = clamp(c.count - part * length, 0, length);
    tensor_set_f(out, i, log_sum_exp(&in[0], i * length, count));
  }
  return true;
}
