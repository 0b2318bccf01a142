// Elementwise operators that need more than a row: attributes, several operands, mixed types.

#include <float.h>
#include <math.h>
#include <string.h>

#include "frontend/onnx_node.h"
#include "frontend/onnx_walk.h"
#include "frontend/onnx_weights.h"

bool import_is_inf(Node *n) {
  n->out[0] = build_op(n->b, OP_is_inf, IN(n->in[0]),
                       ATTRS(a_b("negative", node_int(n, "detect_negative", 1)),
                             a_b("positive", node_int(n, "detect_positive", 1))));
  return true;
}

bool import_bit_shift(Node *n) {
  const char *direction = node_str(n, "direction", "");
  bool left = str_equal(direction, "LEFT");
  if (!left && !str_equal(direction, "RIGHT"))
    return node_fail(n, "direction '%s' is neither LEFT nor RIGHT", direction);
  n->out[0] = node_binary(n, left ? OP_shift_left : OP_shift_right, n->in[0], n->in[1]);
  return true;
}

bool import_leaky_relu(Node *n) {
  n->out[0] = build_op(n->b, OP_leaky_relu, IN(n->in[0]),
                       ATTRS(a_f("slope", node_float(n, "alpha", 0.01))));
  return true;
}

bool import_elu(Node *n) {
  n->out[0] = build_op(n->b, OP_elu, IN(n->in[0]), ATTRS(a_f("alpha", node_float(n, "alpha", 1))));
  return true;
}

// gamma * elu(x), with the constants of Klambauer et al. 2017 by default
bool import_selu(Node *n) {
  double alpha = node_float(n, "alpha", 1.67326319217681884765625);
  double gamma = node_float(n, "gamma", 1.05070102214813232421875);
  Value *y = build_op(n->b, OP_elu, IN(n->in[0]), ATTRS(a_f("alpha", alpha)));
  n->out[0] = build_scale(n->b, y, gamma);
  return true;
}

// x if it is positive, else alpha * (exp(x / alpha) - 1)
bool import_celu(Node *n) {
  double alpha = node_float(n, "alpha", 1);
  Value *scaled = build_scale(n->b, n->in[0], 1 / alpha);
  Value *y = build_op(n->b, OP_elu, IN(scaled), ATTRS(a_f("alpha", 1)));
  n->out[0] = build_scale(n->b, y, alpha);
  return true;
}

bool import_hard_sigmoid(Node *n) {
  n->out[0] = build_op(
      n->b, OP_hard_sigmoid, IN(n->in[0]),
      ATTRS(a_f("alpha", node_float(n, "alpha", 0.2)), a_f("beta", node_float(n, "beta", 0.5))));
  return true;
}

bool import_gelu(Node *n) {
  const char *approximate = node_str(n, "approximate", "none");
  if (!str_equal(approximate, "none") && !str_equal(approximate, "tanh"))
    return node_fail(n, "approximate '%s' is unknown", approximate);
  n->out[0] = node_unary(n, str_equal(approximate, "tanh") ? OP_gelu_tanh : OP_gelu, n->in[0]);
  return true;
}

bool import_swish(Node *n) {
  n->out[0] = build_op(n->b, OP_swish, IN(n->in[0]), ATTRS(a_f("beta", node_float(n, "alpha", 1))));
  return true;
}

// swish(a) * b
bool import_swiglu(Node *n) {
  if (n->in[0]->type != n->in[1]->type) return node_fail(n, "its operands differ in type");
  Value *gate =
      build_op(n->b, OP_swish, IN(n->in[0]), ATTRS(a_f("beta", node_float(n, "alpha", 1))));
  n->out[0] = gate ? build_op(n->b, OP_mul, IN(gate, n->in[1]), NO_ATTRS) : NULL;
  return true;
}

// x * tanh(softplus(x))
bool import_mish(Node *n) {
  Value *t = node_unary(n, OP_tanh, node_unary(n, OP_softplus, n->in[0]));
  n->out[0] = build_op(n->b, OP_mul, IN(n->in[0], t), NO_ATTRS);
  return true;
}

// x / (1 + |x|)
bool import_softsign(Node *n) {
  Value *d = build_op(n->b, OP_offset, IN(node_unary(n, OP_abs, n->in[0])), ATTRS(a_f("by", 1)));
  n->out[0] = build_op(n->b, OP_div, IN(n->in[0], d), NO_ATTRS);
  return true;
}

bool import_thresholded_relu(Node *n) {
  Value *x = n->in[0];
  Value *above = node_binary(n, OP_greater, x, node_like(n, x, node_float(n, "alpha", 1)));
  n->out[0] = build_where(n->b, above, x, node_like(n, x, 0));
  return true;
}

// The slope is broadcast to x, from the last dimension on.
bool import_prelu(Node *n) {
  Value *x = n->in[0], *slope = n->in[1];
  int ndim = x->type->ndim;
  int64_t dim[MAX_NDIM];
  // Older opsets have one slope per channel, without trailing dimensions.
  if (slope->type->ndim == 1 && ndim > 2 && slope->type->dim[0] == x->type->dim[1] &&
      slope->type->dim[0] != x->type->dim[ndim - 1]) {
    for (int i = 0; i < ndim - 1; i++)
      dim[i] = i == 0 ? slope->type->dim[0] : 1;
    slope = build_reshape(n->b, slope, ndim - 1, dim);
  }
  // A positive x stays, any other is multiplied by the slope.
  Value *scaled = node_binary(n, OP_mul, x, slope);
  Value *positive = node_binary(n, OP_greater, x, node_like(n, x, 0));
  n->out[0] = build_where(n->b, positive, x, scaled);
  return true;
}

// x - bias above lambd, x + bias below -lambd, 0 between
bool import_shrink(Node *n) {
  Value *x = n->in[0];
  double lambd = node_float(n, "lambd", 0.5), bias = node_float(n, "bias", 0);
  Value *above = node_binary(n, OP_greater, x, node_like(n, x, lambd));
  Value *below = node_binary(n, OP_less, x, node_like(n, x, -lambd));
  // Both results are computed, and then selected.
  Value *down = node_binary(n, OP_sub, x, node_like(n, x, bias));
  Value *up = node_binary(n, OP_add, x, node_like(n, x, bias));
  Value *rest = build_where(n->b, below, up, node_like(n, x, 0));
  n->out[0] = build_where(n->b, above, down, rest);
  return true;
}

bool import_tan(Node *n) {
  n->out[0] =
      node_binary(n, OP_div, node_unary(n, OP_sin, n->in[0]), node_unary(n, OP_cos, n->in[0]));
  return true;
}

// (exp(x) ± exp(-x)) / 2
static Value *hyperbolic(Node *n, OpKind kind) {
  Value *up = node_unary(n, OP_exp, n->in[0]);
  Value *down = node_unary(n, OP_exp, node_unary(n, OP_neg, n->in[0]));
  return build_scale(n->b, build_op(n->b, kind, IN(up, down), NO_ATTRS), 0.5);
}

// Near zero exp(x) and exp(-x) cancel; there sinh(x) = cosh(x) tanh(x) is exact.
bool import_sinh(Node *n) {
  n->out[0] = node_binary(n, OP_mul, hyperbolic(n, OP_add), node_unary(n, OP_tanh, n->in[0]));
  return true;
}

bool import_cosh(Node *n) {
  n->out[0] = hyperbolic(n, OP_add);
  return true;
}

// Whether operand i is neither a constant nor an initializer.
static bool is_computed(const Node *n, int i) {
  const Value *v = node_in(n, i);
  return v && !node_known(n, v) && (v->def || v->role != ROLE_weight);
}

static Value *clip(const Node *n, double low, double high) {
  return build_op(n->b, OP_clip, IN(n->in[0]), ATTRS(a_f("low", low), a_f("high", high)));
}

// A bound of integers.  Before opset 12 Clip takes no integers, and PyTorch's exporter
// (dynamo=False) writes those with bounds in f32: a whole one that is known has the type of x.
static Value *integer_bound(Node *n, const Value *x, int i) {
  const Tensor *t = node_known(n, n->in[i]);
  double bound = t && type_count(t->type) == 1 ? tensor_f(t, 0) : NAN;
  bool whole = bound == floor(bound) && fabs(bound) <= INT32_MAX;
  if ((x->type->dtype != DT_i32 && x->type->dtype != DT_i64) || !whole) return n->in[i];
  return node_scalar(n, x->type->dtype, bound);
}

// The bounds are settings, not operands: by the standard they have no gradient.
bool import_clip(Node *n) {
  Value *x = n->in[0];
  bool attributes = node_attr(n, "min") || node_attr(n, "max");
  bool has_low = attributes ? node_attr(n, "min") != NULL : node_in(n, 1) != NULL;
  bool has_high = attributes ? node_attr(n, "max") != NULL : node_in(n, 2) != NULL;
  // Computed bounds, and integers, are operands of max and min.
  bool computed = is_computed(n, 1) || is_computed(n, 2);
  if (computed || (dtype_class[x->type->dtype] != 'F' && !attributes)) {
    if (has_low) x = node_binary(n, OP_max, x, integer_bound(n, n->in[0], 1));
    if (has_high) x = node_binary(n, OP_min, x, integer_bound(n, n->in[0], 2));
    n->out[0] = x;
    return true;
  }
  // Bounds are attributes before opset 11, operands after it.
  double low = node_float(n, "min", -INFINITY), high = node_float(n, "max", INFINITY);
  if (!attributes && (!node_setting_float(n, 1, "lower bound", low, &low) ||
                      !node_setting_float(n, 2, "upper bound", high, &high)))
    return false;
  n->out[0] = has_low || has_high ? clip(n, low, high) : x;
  return true;
}

// A trained exponent, as in GeM pooling, has a gradient; otherwise an initializer is a number.
bool import_pow(Node *n) {
  Value *x = n->in[0], *y = n->in[1];
  const Tensor *t = node_known(n, y);
  if (!t && !y->def && y->init && !y->train && !node_setting(n, 1, "exponent", &t)) return false;
  DType dtype = x->type->dtype;
  bool floating = dtype_class[dtype] == 'F';
  double power = t && type_count(t->type) == 1 ? tensor_f(t, 0) : NAN;
  // A scalar exponent may still add dimensions to the result.
  bool same = y->type->ndim <= x->type->ndim;
  if (floating && same && power == 2)
    n->out[0] = node_unary(n, OP_square, x);
  else if (floating && same && power == 0.5)
    n->out[0] = node_unary(n, OP_sqrt, x);
  else if (floating && same && power == -0.5)
    n->out[0] = node_unary(n, OP_rsqrt, x);
  else if (floating && same && power == -1)
    n->out[0] = node_unary(n, OP_reciprocal, x);
  else if (same && power == 1)
    n->out[0] = x;
  else {
    if (t && !y->def) y = build_constant(n->b, t->type, t->data);
    // The result has the base's type; with a floating exponent it is computed in floating point.
    bool as_float = !floating && dtype_class[y->type->dtype] == 'F';
    DType compute = as_float ? y->type->dtype : dtype;
    Value *power_of =
        node_binary(n, OP_pow, build_cast(n->b, x, compute), build_cast(n->b, y, compute));
    n->out[0] = build_cast(n->b, power_of, dtype);
  }
  return true;
}

bool import_mod(Node *n) {
  OpKind kind = node_int(n, "fmod", 0) ? OP_fmod : OP_mod;
  n->out[0] = node_binary(n, kind, n->in[0], n->in[1]);
  return true;
}

static Value *fold_left(Node *n, OpKind kind) {
  Value *all = node_in(n, 0);
  for (int i = 1; i < n->n_in; i++) {
    if (!n->in[i]) {
      node_fail(n, "operand %d is left out", i);
      return NULL;
    }
    // Operands broadcast pair by pair.
    all = node_binary(n, kind, all, n->in[i]);
  }
  return all;
}

// Whether the node is a clamp with numbers.  PyTorch's exporter writes it as Max and Min with
// tensors named scalar_tensor; tensors of the model have other names.  At equality a clamp passes
// no gradient, while equal tensors share it.
static bool is_clamp(const Node *n, double *bound) {
  if (!node_from_torch(n, "aten.clamp") || n->n_in != 2) return false;
  // The arguments of the call name the tensors.
  const char *low = node_torch_arg(n, 1), *high = node_torch_arg(n, 2);
  bool numbers = (low && strstr(low, "scalar_tensor")) || (high && strstr(high, "scalar_tensor"));
  const Tensor *t = numbers ? node_known(n, n->in[1]) : NULL;
  if (!t || type_count(t->type) != 1 || dtype_class[t->type->dtype] != 'F') return false;
  *bound = tensor_f(t, 0);
  return true;
}

bool import_min(Node *n) {
  double bound;
  n->out[0] = is_clamp(n, &bound) ? clip(n, -INFINITY, bound) : fold_left(n, OP_min);
  return true;
}

// Whether the node is max(log(x), -100) of PyTorch's BCELoss: torch.export's decomposition of it
// has no finite gradient at 0.
static bool is_log_of_bce(const Node *n) {
  if (!node_from_torch(n, "aten.maximum") || n->n_in != 2 || !n->in[0]->def ||
      n->in[0]->def->kind != OP_log)
    return false;
  // The constant may be broadcast or cast.
  const Value *low = n->in[1];
  while (low->def && (low->def->kind == OP_broadcast || low->def->kind == OP_cast))
    low = low->def->in[0].value;
  const Tensor *t = node_known(n, low);
  return t && type_count(t->type) == 1 && tensor_f(t, 0) == -100;
}

// The derivative of BCELoss by a probability p is (p - y) / max(p (1 - p), 1e-12), by ATen's
// Loss.cpp.  It is the sum of the derivatives of its logarithms, log(x) with x = p and x = 1 - p,
// if each of these is (1 - x) / max(x (1 - x), 1e-12).  The result is the logarithm, detached, plus
// a term that is zero and has this derivative.
static Value *log_of_bce(const Node *n) {
  Value *x = n->in[0]->def->in[0].value, *y = clip(n, -100, INFINITY), *rest = NULL;
  // 1 - x; but p if x = -p + 1, in which a small p is lost.
  for (int i = 0; x->def && x->def->kind == OP_add && i < 2 && !rest; i++) {
    const Value *p = x->def->in[i].value;
    if (p->def && p->def->kind == OP_neg) rest = p->def->in[0].value;
  }
  if (!rest) rest = build_binary(n->b, OP_sub, build_full_like(n->b, x, 1), x);
  Value *product = build_binary(n->b, OP_mul, x, rest);
  Value *at_least =
      build_op(n->b, OP_clip, IN(product), ATTRS(a_f("low", 1e-12), a_f("high", INFINITY)));
  // The derivative, detached: it has none of its own.
  Value *slope = build_unary(n->b, OP_detach, build_binary(n->b, OP_div, rest, at_least));
  Value *zero = build_binary(n->b, OP_sub, x, build_unary(n->b, OP_detach, x));
  return build_binary(n->b, OP_add, build_unary(n->b, OP_detach, y),
                      build_binary(n->b, OP_mul, zero, slope));
}

bool import_max(Node *n) {
  double bound;
  if (is_log_of_bce(n))
    n->out[0] = log_of_bce(n);
  else
    n->out[0] = is_clamp(n, &bound) ? clip(n, bound, INFINITY) : fold_left(n, OP_max);
  return true;
}

bool import_sum(Node *n) {
  n->out[0] = fold_left(n, OP_add);
  return true;
}

bool import_mean(Node *n) {
  n->out[0] = build_scale(n->b, fold_left(n, OP_add), 1.0 / n->n_in);
  return true;
}

bool import_where(Node *n) {
  Value *in[] = {n->in[0], n->in[1], n->in[2]};
  // Masked scores are -inf in PyTorch's attention.  Its exporter writes the lowest number instead,
  // with which the softmax of a completely masked row is not NaN.
  const Tensor *t = node_known(n, in[2]);
  bool lowest = t && type_count(t->type) == 1 && dtype_class[t->type->dtype] == 'F' &&
                tensor_f(t, 0) <= -65504; // the lowest of f16
  if (lowest && node_from_torch(n, "aten.scaled_dot_product_attention"))
    in[2] = node_like(n, in[2], -INFINITY);
  if (node_broadcast(n, in, 3)) n->out[0] = build_op(n->b, OP_where, in, 3, NO_ATTRS);
  return true;
}

// The format of op `narrow`: powers of two are rounded as round_mode says.
static int format_of(Node *n, const OnnxNarrow *narrow) {
  const char *mode = node_str(n, "round_mode", "up");
  if (narrow->format != 5 || str_equal(mode, "nearest")) return narrow->format;
  if (!str_equal(mode, "up") && !str_equal(mode, "down")) node_fail(n, "round_mode '%s'", mode);
  return str_equal(mode, "up") ? 6 : 7;
}

// x as an integer of few bits: the low ones are kept.
static Value *low_bits(Node *n, Value *x, const OnnxNarrow *narrow, DType to) {
  double count = 1 << narrow->bits, half = dtype_class[to] == 'I' ? count / 2 : 0;
  x = build_cast(n->b, x, DT_i32);
  if (!x) return NULL;
  x = build_op(n->b, OP_offset, IN(x), ATTRS(a_f("by", half)));
  x = node_binary(n, OP_mod, x, node_scalar(n, DT_i32, count));
  return build_cast(n->b, build_op(n->b, OP_offset, IN(x), ATTRS(a_f("by", -half))), to);
}

// To bool, everything but zero is true.
Value *node_cast(Node *n, Value *x, DType to) {
  if (!x) return NULL;
  if (to != DT_bool || x->type->dtype == DT_bool) return build_cast(n->b, x, to);
  return node_unary(n, OP_not, node_binary(n, OP_equal, x, node_like(n, x, 0)));
}

Value *node_cast_to(Node *n, Value *x, int data_type) {
  DType to;
  const OnnxNarrow *narrow = onnx_narrow(data_type);
  if (!onnx_dtype(data_type, &to)) {
    node_fail(n, "type %s is not supported", onnx_dtype_name(data_type));
    return NULL;
  }
  if (!x) return NULL;
  to = onnx_compute_dtype(to, n->im->o->keep_f64 && !narrow);
  if (narrow && narrow->format < 0) return low_bits(n, x, narrow, to);
  if (!narrow) return node_cast(n, x, to);
  // Rounded from its own type, at once.
  if (dtype_class[x->type->dtype] != 'F') x = build_cast(n->b, x, DT_f32);
  int saturate = node_int(n, "saturate", 1) != 0;
  x = build_op(n->b, OP_narrow, IN(x),
               ATTRS(a_i("format", format_of(n, narrow)), a_b("saturate", saturate)));
  return build_cast(n->b, x, to);
}

bool import_cast(Node *n) {
  int to = (int)node_int(n, "to", 0);
  n->out[0] = node_cast_to(n, n->in[0], to);
  n->out_narrow[0] = onnx_narrow(to) ? to : 0;
  return n->out[0] != NULL;
}

// Elements must have their types of the model: those of 16 or 64 bits that are computed in f32 have
// other bits there.
bool import_bit_cast(Node *n) {
  int data_type = (int)node_int(n, "to", 0);
  DType to;
  bool known = onnx_dtype(data_type, &to), keep = n->im->o->keep_f64;
  if (!known || onnx_narrow(data_type) || onnx_compute_dtype(to, keep) != to)
    return node_fail(n, "type %s is not supported", onnx_dtype_name(data_type));
  DType from = n->in[0]->type->dtype;
  if (to == DT_bool && from != DT_bool)
    return node_fail(n, "the bits of %s are no truth values", dtype_name[from]);
  if (node_narrow(n, 0) || dtype_bytes[from] != dtype_bytes[to])
    return node_fail_hint(
        n, "elements of f16, bf16, f64 and of less than 8 bits have no bits of their own",
        "its operand is computed in %s, and its result is %s", dtype_name[from], dtype_name[to]);
  n->out[0] =
      from == to ? n->in[0] : build_op(n->b, OP_bit_cast, IN(n->in[0]), ATTRS(a_t("to", to)));
  n->out_narrow[0] = 0;
  return true;
}

bool import_cast_like(Node *n) {
  int to = node_narrow(n, 1);
  n->out[0] = to ? node_cast_to(n, n->in[0], to) : node_cast(n, n->in[0], n->in[1]->type->dtype);
  n->out_narrow[0] = to;
  return n->out[0] != NULL;
}

// An Identity from x.detach() stops the gradient.
bool import_identity(Node *n) {
  bool stops =
      node_from_torch(n, "aten.detach") && n->in[0] && dtype_class[n->in[0]->type->dtype] == 'F';
  n->out[0] = stops ? build_unary(n->b, OP_detach, n->in[0]) : n->in[0];
  n->out_sequence[0] = n->in_sequence[0];
  return true;
}
