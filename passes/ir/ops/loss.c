// Losses over classes: one number for each row of logits or of log-probabilities (c classes).
//
//     cross_entropy  loss = lse - x[label]    dx = (exp(x - lse) - 1[label]) dloss
//                    lse = log(sum of exp(x))
//     nll            loss = -x[label]         dx = -1[label] dloss
//
// A label equal to `ignore` gives loss 0 and no gradient; another one outside 0 .. c-1 is an error.

#include <math.h>

#include "ir/ops/reference.h"

bool nll_back_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *labels = op->in[0].value->type;
  int rank = attr_n(op, "shape");
  const int64_t *shape = attr_list(op, "shape");
  bool same = rank == labels->rank + 1;
  for (int i = 0; same && i < labels->rank; i++)
    same = shape[i] == labels->dim[i];
  if (!same)
    return diag_error(d, op->loc, "nll_back: 'shape' must be that of the labels and the classes");
  if (!dims_parse(dims, op, "*, * -> * c^", d)) return false;
  dims_size(dims, 'c', shape[rank - 1]);
  return true;
}

bool cross_entropy_grad(Builder *b, Op *op, Value **dout, Value **din) {
  if (!only_first_results(b, op, dout, 1)) return false;
  din[0] =
      build(b, OP_cross_entropy_back, IN(op->in[0].value, op->in[1].value, op->out[1], dout[0]),
            ATTRS(*op_attr(op, "ignore")));
  return !b->failed;
}

bool nll_grad(Builder *b, Op *op, Value **dout, Value **din) {
  const Type *x = op->in[0].value->type;
  din[0] = build(b, OP_nll_back, IN(op->in[1].value, dout[0]),
                 ATTRS(*op_attr(op, "ignore"), a_list("shape", x->dim, x->rank)));
  din[0] = build_cast(b, din[0], x->dtype);
  return !b->failed;
}

// The label of `row`, or -1 when it is to be ignored.
static bool label_of(const Op *op, const Tensor *labels, int64_t row, int64_t n_classes,
                     int64_t *label, Diag *d) {
  *label = tensor_i(labels, row);
  if (*label == attr_i(op, "ignore")) {
    *label = -1;
    return true;
  }
  if (*label >= 0 && *label < n_classes) return true;
  return diag_error(d, op->loc, "%s: label %lld of row %lld is outside 0..%lld",
                    op_info[op->kind].name, (long long)*label, (long long)row,
                    (long long)n_classes - 1);
}

static AxisView rows_of(const Type *t) {
  return axis_view(t, t->rank - 1);
}

bool cross_entropy_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  AxisView v = rows_of(in[0].type);
  for (int64_t i = 0; i < v.outer; i++) {
    int64_t label;
    if (!label_of(op, &in[1], i, v.n, &label, d)) return false;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < v.n; j++)
      max = fmax(max, tensor_f(&in[0], i * v.n + j));
    for (int64_t j = 0; j < v.n; j++)
      sum += exp(tensor_f(&in[0], i * v.n + j) - max);
    double lse = log(sum) + max;
    tensor_set_f(&out[0], i, label < 0 ? 0 : lse - tensor_f(&in[0], i * v.n + label));
    tensor_set_f(&out[1], i, lse);
  }
  return true;
}

bool cross_entropy_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  AxisView v = rows_of(in[0].type);
  for (int64_t i = 0; i < v.outer; i++) {
    int64_t label;
    if (!label_of(op, &in[1], i, v.n, &label, d)) return false;
    double lse = tensor_f(&in[2], i), dloss = tensor_f(&in[3], i);
    for (int64_t j = 0; j < v.n; j++) {
      double p = exp(tensor_f(&in[0], i * v.n + j) - lse);
      tensor_set_f(out, i * v.n + j, label < 0 ? 0 : (p - (j == label)) * dloss);
    }
  }
  return true;
}

bool nll_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  AxisView v = rows_of(in[0].type);
  for (int64_t i = 0; i < v.outer; i++) {
    int64_t label;
    if (!label_of(op, &in[1], i, v.n, &label, d)) return false;
    tensor_set_f(out, i, label < 0 ? 0 : -tensor_f(&in[0], i * v.n + label));
  }
  return true;
}

bool nll_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box;
  AxisView v = rows_of(out->type);
  for (int64_t i = 0; i < v.outer; i++) {
    int64_t label;
    if (!label_of(op, &in[0], i, v.n, &label, d)) return false;
    for (int64_t j = 0; j < v.n; j++)
      tensor_set_f(out, i * v.n + j, j == label ? -tensor_f(&in[1], i) : 0);
  }
  return true;
}
