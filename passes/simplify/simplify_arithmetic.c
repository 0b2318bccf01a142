// Simplification of elementwise ops.
//
//     x + fill c          offset x, c         x * fill c        scale x, c
//     x / fill c          scale x, 1/c        fill c / x        scale 1/x, c
//     scale 1, offset 0   x                   scale of scale    one scale
//     neg of neg          x                   x - (-y)          x + y
//     x * x               square x            x ^ 2             square x
//     1 / sqrt x          rsqrt x             cast of cast      one cast
//     max(x, -inf)        x                   min(x, inf)       x
//
// Only constants are moved; sums are not reassociated otherwise.

#include <math.h>

#include "ir/analysis/rewrite.h"

static Value *operand(const Op *op, int i) {
  return op->in[i].value;
}
static bool is_float(const Value *v) {
  return dtype_class[v->type->dtype] == 'F';
}

static Value *by(Builder *b, OpKind kind, Value *x, double c) {
  return build_op(b, kind, IN(x), ATTRS(a_f("by", c)));
}

static Value *simplify_scale(Builder *b, Op *op) {
  Value *x = operand(op, 0);
  double c = attr_f(op, "by");
  if (c == 1) return x;
  if (c == -1) return build_unary(b, OP_neg, x);
  if (!is_float(x)) return NULL;
  const Op *inner = made_by(x, OP_scale);
  if (inner) return by(b, OP_scale, operand(inner, 0), c * attr_f(inner, "by"));
  inner = made_by(x, OP_neg);
  return inner ? by(b, OP_scale, operand(inner, 0), -c) : NULL;
}

static Value *simplify_offset(Builder *b, Op *op) {
  Value *x = operand(op, 0);
  double c = attr_f(op, "by");
  if (c == 0) return x;
  const Op *inner = made_by(x, OP_offset);
  return inner ? by(b, OP_offset, operand(inner, 0), c + attr_f(inner, "by")) : NULL;
}

static Value *simplify_neg(Builder *b, Op *op) {
  Value *x = operand(op, 0);
  const Op *inner = made_by(x, OP_neg);
  if (inner) return operand(inner, 0);
  inner = made_by(x, OP_scale);
  return inner && is_float(x) ? by(b, OP_scale, operand(inner, 0), -attr_f(inner, "by")) : NULL;
}

static Value *simplify_not(Builder *b, Op *op) {
  (void)b;
  const Op *inner = made_by(operand(op, 0), OP_not);
  return inner ? operand(inner, 0) : NULL;
}

static Value *simplify_add(Builder *b, Op *op) {
  Value *x = operand(op, 0), *y = operand(op, 1);
  double c;
  if (is_fill(y, &c)) return by(b, OP_offset, x, c);
  if (is_fill(x, &c)) return by(b, OP_offset, y, c);
  const Op *inner = made_by(y, OP_neg);
  if (inner) return build_op(b, OP_sub, IN(x, operand(inner, 0)), NO_ATTRS);
  inner = made_by(x, OP_neg);
  return inner ? build_op(b, OP_sub, IN(y, operand(inner, 0)), NO_ATTRS) : NULL;
}

static Value *simplify_sub(Builder *b, Op *op) {
  Value *x = operand(op, 0), *y = operand(op, 1);
  bool unsigned_ = dtype_class[x->type->dtype] == 'U';
  double c;
  if (is_fill(y, &c) && !unsigned_) return by(b, OP_offset, x, -c);
  if (is_fill(x, &c) && !unsigned_) return by(b, OP_offset, build_unary(b, OP_neg, y), c);
  const Op *inner = made_by(y, OP_neg);
  return inner ? build_op(b, OP_add, IN(x, operand(inner, 0)), NO_ATTRS) : NULL;
}

static Value *simplify_mul(Builder *b, Op *op) {
  Value *x = operand(op, 0), *y = operand(op, 1);
  double c;
  if (is_fill(y, &c)) return by(b, OP_scale, x, c);
  if (is_fill(x, &c)) return by(b, OP_scale, y, c);
  return x == y ? build_unary(b, OP_square, x) : NULL;
}

static Value *simplify_div(Builder *b, Op *op) {
  Value *x = operand(op, 0), *y = operand(op, 1);
  double c;
  if (is_fill(y, &c) && c == 1) return x;
  if (!is_float(x)) return NULL;
  if (is_fill(y, &c) && c != 0) return by(b, OP_scale, x, 1 / c);
  return is_fill(x, &c) ? by(b, OP_scale, build_unary(b, OP_reciprocal, y), c) : NULL;
}

static Value *simplify_pow(Builder *b, Op *op) {
  Value *x = operand(op, 0);
  double c;
  if (!is_fill(operand(op, 1), &c)) return NULL;
  if (c == 1) return x;
  if (c == 2) return build_unary(b, OP_square, x);
  if (c == 3) return build_op(b, OP_mul, IN(build_unary(b, OP_square, x), x), NO_ATTRS);
  if (!is_float(x)) return NULL;
  if (c == 0.5) return build_unary(b, OP_sqrt, x);
  if (c == -0.5) return build_unary(b, OP_rsqrt, x);
  return c == -1 ? build_unary(b, OP_reciprocal, x) : NULL;
}

static Value *simplify_reciprocal(Builder *b, Op *op) {
  const Op *inner = made_by(operand(op, 0), OP_sqrt);
  return inner ? build_unary(b, OP_rsqrt, operand(inner, 0)) : NULL;
}

// jax takes every maximum with -inf, its start.
static Value *simplify_bound(Builder *b, Op *op) {
  (void)b;
  double c, none = op->kind == OP_max ? -INFINITY : INFINITY;
  for (int i = 0; i < 2; i++)
    if (is_float(operand(op, i)) && is_fill(operand(op, i), &c) && c == none)
      return operand(op, 1 - i);
  return NULL;
}

static Value *simplify_where(Builder *b, Op *op) {
  Value *x = operand(op, 1), *y = operand(op, 2);
  double c;
  if (x == y) return x;
  if (is_fill(operand(op, 0), &c)) return c != 0 ? x : y;
  const Op *inner = made_by(operand(op, 0), OP_not);
  return inner ? build_where(b, operand(inner, 0), y, x) : NULL;
}

// Whether `wide` holds every number of `narrow` exactly: bits, and for floating types also the
// range.
static bool holds(DType wide, DType narrow) {
  static const int mantissa[N_DTYPES] = {
      [DT_f32] = 24, [DT_f64] = 53, [DT_f16] = 11, [DT_bf16] = 8};
  static const int range[N_DTYPES] = {[DT_f32] = 8, [DT_f64] = 11, [DT_f16] = 5, [DT_bf16] = 8};
  if (wide == narrow) return true;
  char w = dtype_class[wide], n = dtype_class[narrow];
  if (n == 'B') return true;
  int bits = 8 * dtype_bytes[narrow] - (n == 'I');
  if (w == 'F')
    return n == 'F' ? mantissa[wide] >= mantissa[narrow] && range[wide] >= range[narrow]
                    : mantissa[wide] >= bits && range[wide] > 5;
  if (w == 'B' || n == 'F' || (w == 'U' && n == 'I')) return false;
  return 8 * dtype_bytes[wide] - (w == 'I') >= bits;
}

static Value *simplify_cast(Builder *b, Op *op) {
  Value *x = operand(op, 0);
  DType to = attr_t(op, "to");
  if (x->type->dtype == to) return x;
  const Op *inner = made_by(x, OP_cast);
  if (!inner || !holds(x->type->dtype, operand(inner, 0)->type->dtype)) return NULL;
  return build_cast(b, operand(inner, 0), to);
}

static Value *simplify_dropout(Builder *b, Op *op) {
  (void)b;
  return attr_f(op, "ratio") == 0 ? operand(op, 0) : NULL;
}

const SimplifyRule arithmetic_rules[] = {
    {OP_scale, simplify_scale},     {OP_offset, simplify_offset},
    {OP_neg, simplify_neg},         {OP_not, simplify_not},
    {OP_add, simplify_add},         {OP_sub, simplify_sub},
    {OP_mul, simplify_mul},         {OP_div, simplify_div},
    {OP_pow, simplify_pow},         {OP_reciprocal, simplify_reciprocal},
    {OP_where, simplify_where},     {OP_cast, simplify_cast},
    {OP_dropout, simplify_dropout}, {OP_max, simplify_bound},
    {OP_min, simplify_bound},       {0, NULL},
};
