// The parts that recurrent layers share: see recurrent.h.

#include "ir/ops/recurrent.h"

#include <math.h>

// -- Activations -------------------------------------------------------------------------------

static const char *const activations[] = {
    "relu",        "tanh",         "sigmoid", "affine",   "leaky_relu", "thresholded_relu",
    "scaled_tanh", "hard_sigmoid", "elu",     "softsign", "softplus",
};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };

static bool is(const Activation *f, const char *name) {
  return str_equal(f->name, name);
}

Activation activation_of(const Op *op, const char *which) {
  char alpha[8], beta[8];
  snprintf(alpha, sizeof alpha, "%s_alpha", which);
  snprintf(beta, sizeof beta, "%s_beta", which);
  return (Activation){attr_s(op, which), attr_f(op, alpha), attr_f(op, beta), attr_f(op, "clip")};
}

static double clipped(const Activation *f, double x) {
  if (f->clip == 0) return x;
  return x > f->clip ? f->clip : x < -f->clip ? -f->clip : x;
}

double activation_at(const Activation *f, double x) {
  double a = f->alpha, b = f->beta;
  x = clipped(f, x);
  if (is(f, "relu")) return x > 0 ? x : isnan(x) ? x : 0;
  if (is(f, "tanh")) return tanh(x);
  if (is(f, "sigmoid")) return 1 / (1 + exp(-x));
  if (is(f, "affine")) return a * x + b;
  if (is(f, "leaky_relu")) return x >= 0 ? x : a * x;
  if (is(f, "thresholded_relu")) return x > a || isnan(x) ? x : 0;
  if (is(f, "scaled_tanh")) return a * tanh(b * x);
  if (is(f, "hard_sigmoid")) return isnan(x) ? x : fmin(fmax(a * x + b, 0), 1);
  if (is(f, "elu")) return x >= 0 ? x : a * expm1(x);
  if (is(f, "softsign")) return x / (1 + fabs(x));
  if (is(f, "softplus")) return fmax(x, 0) + log1p(exp(-fabs(x)));
  BUG("no activation '%s'", f->name);
}

double activation_slope(const Activation *f, double x) {
  double a = f->alpha, b = f->beta;
  if (clipped(f, x) != x) return 0;
  if (is(f, "relu")) return x > 0;
  if (is(f, "tanh")) return 1 - tanh(x) * tanh(x);
  if (is(f, "sigmoid")) return 1 / (1 + exp(-x)) / (1 + exp(x));
  if (is(f, "affine")) return a;
  if (is(f, "leaky_relu")) return x > 0 ? 1 : a;
  if (is(f, "thresholded_relu")) return x > a;
  if (is(f, "scaled_tanh")) return a * b * (1 - tanh(b * x) * tanh(b * x));
  if (is(f, "hard_sigmoid")) return a * x + b > 0 && a * x + b < 1 ? a : 0;
  if (is(f, "elu")) return x > 0 ? 1 : a * exp(x);
  if (is(f, "softsign")) return 1 / ((1 + fabs(x)) * (1 + fabs(x)));
  if (is(f, "softplus")) return 1 / (1 + exp(-x));
  BUG("no activation '%s'", f->name);
}

bool activations_fit(const Op *op, const char *which, Diag *d) {
  const char *name = op_info[op->kind].name;
  for (const char *p = which; *p; p++) {
    const char letter[2] = {*p, 0};
    const char *f = attr_s(op, letter);
    bool known = false;
    for (int i = 0; i < N_ACTIVATIONS; i++)
      known = known || str_equal(f, activations[i]);
    if (!known) return diag_error(d, op->loc, "%s: no activation '%s' for %s", name, f, letter);
  }
  // Written so that NaN is refused.
  if (!(attr_f(op, "clip") >= 0))
    return diag_error(d, op->loc, "%s: clip is %g; it must be positive, or 0 for none", name,
                      attr_f(op, "clip"));
  return true;
}

// -- The loop over time ------------------------------------------------------------------------

Recurrence recurrence_of(const Op *op, int gx, int h0, int lengths, const Tensor *in) {
  const Type *x = op->in[gx].value->type, *h = op->in[h0].value->type;
  Recurrence r = {.reverse = attr_i(op, "reverse"), .lengths = in ? &in[lengths] : NULL};
  // Tensors of other shapes have sizes 0, and are refused.
  if (x->ndim == 3 && h->ndim == 2) {
    r.t = x->dim[0];
    r.b = x->dim[1];
    r.gates = x->dim[2];
    r.h = h->dim[1];
  }
  return r;
}

int64_t recurrence_time(const Recurrence *r, int64_t step) {
  return r->reverse ? r->t - 1 - step : step;
}

bool recurrence_active(const Recurrence *r, int64_t t, int64_t row) {
  return t < tensor_i(r->lengths, row);
}

bool recurrence_lengths(const Op *op, const Recurrence *r, Diag *d) {
  for (int64_t row = 0; row < r->b; row++) {
    int64_t length = tensor_i(r->lengths, row);
    if (length < 0 || length > r->t)
      return diag_error(d, op->loc, "%s: length %lld of row %lld is not one of 0 to %lld",
                        op_info[op->kind].name, (long long)length, (long long)row, (long long)r->t);
  }
  return true;
}

double recurrence_before(const Recurrence *r, const Tensor *y, const Tensor *h0, int64_t step,
                         int64_t row, int64_t j) {
  int64_t t = step > 0 ? recurrence_time(r, step - 1) : 0;
  // In reverse, the rows that are shorter start later.
  bool first = step == 0 || !recurrence_active(r, t, row);
  return first ? tensor_f(h0, row * r->h + j) : tensor_f(y, (t * r->b + row) * r->h + j);
}

double recurrence_product(const Recurrence *r, const double *x, const Tensor *m, int64_t row) {
  double sum = 0;
  for (int64_t j = 0; j < r->h; j++)
    sum += x[j] * tensor_f(m, row * r->h + j);
  return sum;
}

bool recurrence_fits(const Op *op, const Recurrence *r, int gates, int weight, Diag *d) {
  const Type *w = op->in[weight].value->type;
  if (r->h > 0 && r->gates == gates * r->h && w->ndim == 2 && w->dim[0] == r->gates) return true;
  Arena *a = op->graph->module->arena;
  return diag_error(d, op->loc, "%s: the recurrent weight must be (%d h, h) for %d h columns of %s",
                    op_info[op->kind].name, gates, gates, type_text(a, op->in[0].value->type));
}

// -- Gradients ---------------------------------------------------------------------------------

Value *adjoint_or_zeros(Builder *b, Value *dout, const Value *result) {
  return dout ? dout : build_full_like(b, result, 0);
}

Value *recurrent_weight_adjoint(Builder *b, Value *x, Value *dy, const Value *like) {
  Value *dw = build_op(b, OP_linear_back_w, IN(x, dy), ATTRS(a_b("trans", true)));
  return build_cast(b, dw, like->type->dtype);
}
