// Gradients of the elementwise rows, composed of elementwise ops: passes/fuse/fuse.c turns such a
// chain into one kernel.
//
//     %y = sqrt %x                     %t = scale %y by=2
//                                      %dx = div %dy, %t
//
// At points without a derivative they agree with PyTorch: abs has 0 at 0, clip passes nothing at
// its bounds, min and max give half to each of two equal operands, and the norm of zeros has 0.

#include "ir/op.h"

// `v`, or 0 if `condition` holds.
static Value *where_not(Builder *b, Value *condition, Value *v) {
  return build_where(b, condition, build_full_like(b, v, 0), v);
}

// -- Sums and products -----------------------------------------------------------------------

bool neg_grad(Builder *b, Op *op, Value **dout, Value **din) {
  (void)op;
  din[0] = build_unary(b, OP_neg, dout[0]);
  return !b->failed;
}

bool scale_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_scale(b, dout[0], attr_f(op, "by"));
  return !b->failed;
}

bool offset_grad(Builder *b, Op *op, Value **dout, Value **din) {
  (void)b, (void)op;
  din[0] = dout[0];
  return true;
}

bool add_grad(Builder *b, Op *op, Value **dout, Value **din) {
  (void)b, (void)op;
  din[0] = din[1] = dout[0];
  return true;
}

bool sub_grad(Builder *b, Op *op, Value **dout, Value **din) {
  (void)op;
  din[0] = dout[0];
  din[1] = build_unary(b, OP_neg, dout[0]);
  return !b->failed;
}

bool mul_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_binary(b, OP_mul, dout[0], op->in[1].value);
  din[1] = build_binary(b, OP_mul, dout[0], op->in[0].value);
  return !b->failed;
}

// z = x / y:  dx = dz / y,  dy = -dz / y * z
bool div_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_binary(b, OP_div, dout[0], op->in[1].value);
  din[1] = build_unary(b, OP_neg, build_binary(b, OP_mul, din[0], op->out[0]));
  return !b->failed;
}

// x mod y = x - y floor(x / y)
bool mod_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *quotient =
      build_unary(b, OP_floor, build_binary(b, OP_div, op->in[0].value, op->in[1].value));
  din[0] = dout[0];
  din[1] = build_unary(b, OP_neg, build_binary(b, OP_mul, dout[0], quotient));
  return !b->failed;
}

// The same with the quotient towards zero.
bool fmod_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *quotient = build_binary(b, OP_div, op->in[0].value, op->in[1].value);
  Value *size = build_unary(b, OP_floor, build_unary(b, OP_abs, quotient));
  quotient = build_binary(b, OP_mul, build_unary(b, OP_sign, quotient), size);
  din[0] = dout[0];
  din[1] = build_unary(b, OP_neg, build_binary(b, OP_mul, dout[0], quotient));
  return !b->failed;
}

bool cast_grad(Builder *b, Op *op, Value **dout, Value **din) {
  DType from = op->in[0].value->type->dtype;
  if (dtype_class[from] == 'F') din[0] = build_cast(b, dout[0], from);
  return !b->failed;
}

// As of a cast: rounding passes the gradient.
bool narrow_grad(Builder *b, Op *op, Value **dout, Value **din) {
  (void)op;
  din[0] = dout[0];
  return !b->failed;
}

// -- Powers ----------------------------------------------------------------------------------

// The constant that every element of `v` equals, if `v` is defined by known ops.
static bool known_number(const Value *v, double *out) {
  while (v->def && (v->def->kind == OP_broadcast || v->def->kind == OP_reshape))
    v = v->def->in[0].value;
  if (!v->def) return false;
  // A fill has the number as attribute; a constant of one element, as bytes.
  if (v->def->kind == OP_fill) {
    *out = attr_f(v->def, "value");
    return true;
  }
  if (v->def->kind != OP_constant || type_count(v->type) != 1) return false;
  Tensor one_element = {v->type, (void *)(uintptr_t)op_attr(v->def, "value")->data.at};
  *out = tensor_f(&one_element, 0);
  return true;
}

// Whether `v` is a sum of squares, or of powers with a constant exponent > 1, as in a norm or a
// standard deviation.  Such a sum is taken to be zero only if all its terms are.
static bool is_sum_of_powers(const Value *v) {
  double p;
  for (const Op *op = v->def; op; op = v->def) {
    v = op->in[0].value;
    switch (op->kind) {
    case OP_square: return true;
    case OP_pow: return known_number(op->in[1].value, &p) && p > 1;
    // x x is a power; a product with a constant is a scale.
    case OP_mul:
      if (v == op->in[1].value) return true;
      if (known_number(v, &p))
        v = op->in[1].value;
      else if (!known_number(op->in[1].value, &p))
        return false;
      break;
    // A quotient by a constant is a scale, too.
    case OP_div:
      if (!known_number(op->in[1].value, &p)) return false;
      break;
    // These ops preserve the property.
    case OP_reduce_sum:
    case OP_scale:
    case OP_cast:
    case OP_reshape:
    case OP_transpose:
    case OP_broadcast: break;
    default: return false;
    }
  }
  return false;
}

// Replaces dx by 0 at points with x = 0, if x is a sum of powers: there is no derivative.
static Value *root_grad(Builder *b, Value *x, Value *dx) {
  return is_sum_of_powers(x)
             ? where_not(b, build_binary(b, OP_equal, x, build_full_like(b, x, 0)), dx)
             : dx;
}

bool square_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_binary(b, OP_mul, build_scale(b, op->in[0].value, 2), dout[0]);
  return !b->failed;
}

bool sqrt_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *dx = build_binary(b, OP_div, dout[0], build_scale(b, op->out[0], 2));
  din[0] = root_grad(b, op->in[0].value, dx);
  return !b->failed;
}

// y = x^(-1/2):  dx = -y^3 / 2 dy
bool rsqrt_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *y = op->out[0];
  Value *cube = build_binary(b, OP_mul, build_unary(b, OP_square, y), y);
  din[0] = build_binary(b, OP_mul, build_scale(b, cube, -0.5), dout[0]);
  return !b->failed;
}

bool reciprocal_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_unary(b, OP_neg,
                       build_binary(b, OP_mul, build_unary(b, OP_square, op->out[0]), dout[0]));
  return !b->failed;
}

bool exp_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_binary(b, OP_mul, op->out[0], dout[0]);
  return !b->failed;
}

bool log_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_binary(b, OP_div, dout[0], op->in[0].value);
  return !b->failed;
}

// The gradient of x^p for a known p: p x^(p-1) dy.  For p = 0 there is none, instead of 0 times
// infinity.
static Value *power_grad(Builder *b, Value *x, double p, Value *dy) {
  if (p == 0) return NULL;
  // Small exponents need no power.
  if (p == 1) return dy;
  if (p == 2) return build_binary(b, OP_mul, build_scale(b, x, 2), dy);
  // Roots have no derivative at 0.
  Value *slope = build_binary(b, OP_pow, x, build_full_like(b, x, p - 1));
  Value *dx = build_binary(b, OP_mul, build_scale(b, slope, p), dy);
  return p > 0 && p < 1 ? root_grad(b, x, dx) : dx;
}

// z = x^y:  dx = y x^(y-1) dz, and 0 if y = 0;  dy = z log(x) dz, and 0 if x = 0 and y >= 0.
bool pow_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *y = op->in[1].value, *dz = dout[0];
  double p;
  // A known exponent has no gradient, and a simpler formula.
  if (known_number(y, &p)) {
    din[0] = power_grad(b, x, p, dz);
    return !b->failed;
  }
  // dx, for an exponent that may be 0.
  Value *zero = build_full_like(b, x, 0);
  Value *less = build_op(b, OP_offset, IN(y), ATTRS(a_f("by", -1)));
  Value *slope = build_binary(b, OP_mul, y, build_binary(b, OP_pow, x, less));
  din[0] = where_not(b, build_binary(b, OP_equal, y, zero), build_binary(b, OP_mul, slope, dz));
  // dy, for a base that may be 0.
  slope = build_binary(b, OP_mul, op->out[0], build_unary(b, OP_log, x));
  Value *flat = build_binary(b, OP_and, build_binary(b, OP_equal, x, zero),
                             build_binary(b, OP_greater_equal, y, zero));
  din[1] = where_not(b, flat, build_binary(b, OP_mul, slope, dz));
  return !b->failed;
}

// -- Smooth functions ------------------------------------------------------------------------

bool sin_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_binary(b, OP_mul, build_unary(b, OP_cos, op->in[0].value), dout[0]);
  return !b->failed;
}

bool cos_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_unary(b, OP_neg,
                       build_binary(b, OP_mul, build_unary(b, OP_sin, op->in[0].value), dout[0]));
  return !b->failed;
}

// dy / sqrt(sign x^2 + by)
static Value *over_root(Builder *b, const Op *op, Value *dy, double sign, double by) {
  Value *square = build_scale(b, build_unary(b, OP_square, op->in[0].value), sign);
  Value *sum = build_op(b, OP_offset, IN(square), ATTRS(a_f("by", by)));
  return build_binary(b, OP_mul, build_unary(b, OP_rsqrt, sum), dy);
}

// At the ends of their domain, the gradients of these are infinite.
bool asin_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = over_root(b, op, dout[0], -1, 1);
  return !b->failed;
}

bool acos_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_unary(b, OP_neg, over_root(b, op, dout[0], -1, 1));
  return !b->failed;
}

bool asinh_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = over_root(b, op, dout[0], 1, 1);
  return !b->failed;
}

bool acosh_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = over_root(b, op, dout[0], 1, -1);
  return !b->failed;
}

// dy / (sign x^2 + 1)
static Value *over_sum(Builder *b, const Op *op, Value *dy, double sign) {
  Value *square = build_scale(b, build_unary(b, OP_square, op->in[0].value), sign);
  return build_binary(b, OP_div, dy, build_op(b, OP_offset, IN(square), ATTRS(a_f("by", 1))));
}

bool atan_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = over_sum(b, op, dout[0], 1);
  return !b->failed;
}

bool atanh_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = over_sum(b, op, dout[0], -1);
  return !b->failed;
}

// 2 / sqrt(pi) exp(-x^2)
bool erf_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *bell =
      build_unary(b, OP_exp, build_unary(b, OP_neg, build_unary(b, OP_square, op->in[0].value)));
  din[0] = build_binary(b, OP_mul, build_scale(b, bell, 1.12837916709551257390), dout[0]);
  return !b->failed;
}

bool softplus_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_binary(b, OP_mul, build_unary(b, OP_sigmoid, op->in[0].value), dout[0]);
  return !b->failed;
}

// -- Functions with a row of their own for the gradient ----------------------------------------

// Builds the gradient as the row `back`, with the attributes of the op.
static bool back(Builder *b, Op *op, OpKind kind, Value *xy, Value **dout, Value **din) {
  int n;
  op_attr_specs(op->kind, &n);
  din[0] = build_op(b, kind, IN(xy, dout[0]), (Attrs){op->attrs, n});
  return !b->failed;
}

bool tanh_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_tanh_back, op->out[0], dout, din);
}

bool sigmoid_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_sigmoid_back, op->out[0], dout, din);
}

// The result is positive exactly if the operand is, so the operand need not be saved.
bool relu_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_relu_back, op->out[0], dout, din);
}

bool abs_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_abs_back, op->in[0].value, dout, din);
}

bool leaky_relu_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_leaky_relu_back, op->in[0].value, dout, din);
}

bool elu_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_elu_back, op->in[0].value, dout, din);
}

bool hard_sigmoid_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_hard_sigmoid_back, op->in[0].value, dout, din);
}

bool hard_swish_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_hard_swish_back, op->in[0].value, dout, din);
}

bool gelu_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_gelu_back, op->in[0].value, dout, din);
}

bool gelu_tanh_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_gelu_tanh_back, op->in[0].value, dout, din);
}

bool swish_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_swish_back, op->in[0].value, dout, din);
}

bool clip_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return back(b, op, OP_clip_back, op->in[0].value, dout, din);
}

// -- Choices ---------------------------------------------------------------------------------

// The gradient of min or max.  `loses`(x, y) holds if x is not the result, `wins`(x, y) if y is
// not. Equal operands share the gradient.
static bool extreme_grad(Builder *b, Op *op, OpKind loses, OpKind wins, Value **dout, Value **din) {
  Value *x = op->in[0].value, *y = op->in[1].value, *dz = dout[0];
  Value *equal = build_binary(b, OP_equal, x, y);
  // A tie gives half to each operand.
  Value *share = build_where(b, equal, build_scale(b, dz, 0.5), dz);
  din[0] = where_not(b, build_binary(b, loses, x, y), share);
  din[1] = where_not(b, build_binary(b, wins, x, y), share);
  return !b->failed;
}

bool min_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return extreme_grad(b, op, OP_greater, OP_less, dout, din);
}

bool max_grad(Builder *b, Op *op, Value **dout, Value **din) {
  return extreme_grad(b, op, OP_less, OP_greater, dout, din);
}

bool where_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *condition = op->in[0].value;
  din[1] = build_where(b, condition, dout[0], build_full_like(b, dout[0], 0));
  din[2] = where_not(b, condition, dout[0]);
  return !b->failed;
}
