// The functions in the formulas of ops.def, in double, for the reference evaluator. rt/nnrt_math.h
// has the same for kernels, in float.

#ifndef IR_MATH_H
#define IR_MATH_H

#include <float.h>
#include <math.h>

#define m_huge DBL_MAX

static inline double m_sqrt(double x) {
  return sqrt(x);
}
static inline double m_exp(double x) {
  return exp(x);
}
static inline double m_expm1(double x) {
  return expm1(x);
}
static inline double m_log(double x) {
  return log(x);
}
static inline double m_sin(double x) {
  return sin(x);
}
static inline double m_cos(double x) {
  return cos(x);
}
static inline double m_erf(double x) {
  return erf(x);
}
static inline double m_tanh(double x) {
  return tanh(x);
}
static inline double m_asin(double x) {
  return asin(x);
}
static inline double m_acos(double x) {
  return acos(x);
}
static inline double m_atan(double x) {
  return atan(x);
}
static inline double m_asinh(double x) {
  return asinh(x);
}
static inline double m_acosh(double x) {
  return acosh(x);
}
static inline double m_atanh(double x) {
  return atanh(x);
}
static inline double m_floor(double x) {
  return floor(x);
}
static inline double m_ceil(double x) {
  return ceil(x);
}
// Halves to even.
static inline double m_round(double x) {
  return nearbyint(x);
}
static inline double m_div(double x, double y) {
  return x / y;
}
static inline double m_pow(double x, double y) {
  return pow(x, y);
}
// The remainder with the sign of x.
static inline double m_fmod(double x, double y) {
  return fmod(x, y);
}

// NaN if either operand is NaN.
static inline double m_min(double x, double y) {
  return x < y || x != x ? x : y;
}
static inline double m_max(double x, double y) {
  return x > y || x != x ? x : y;
}

// The remainder with the sign of y, as Python's %; a zero too.
static inline double m_mod(double x, double y) {
  double r = fmod(x, y);
  if (r == 0) return copysign(r, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

static inline double m_sigmoid(double x) {
  double e = exp(x < 0 ? x : -x); // never overflows
  return (x < 0 ? e : 1) / (1 + e);
}

static inline double m_softplus(double x) {
  return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

// x times the normal distribution function of x, and its derivative.
static inline double m_gelu(double x) {
  return 0.5 * x * erfc(x * -0.70710678118654752440);
}
static inline double m_gelu_back(double x) {
  return 0.5 * erfc(x * -0.70710678118654752440) + x * 0.39894228040143267794 * exp(-0.5 * x * x);
}

// The same with tanh in place of erf: Hendrycks and Gimpel, Gaussian Error Linear Units, section 2.
static inline double m_gelu_tanh(double x) {
  return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static inline double m_gelu_tanh_back(double x) {
  double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
  double slope = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope;
}

// The number of a format of 8 bits and less that is nearest to x; the format is as in
// rt/nnrt_math.h.  All numbers of the format are tried: of two at one distance, the one with an
// even mantissa is taken.
static inline double m_narrow(double x, double format, double saturate) {
  static const struct {
    int mantissa, bias;
    double largest;
  } formats[] = {{3, 7, 448}, {3, 8, 240}, {2, 15, 57344}, {2, 16, 57344}, {1, 1, 6}};
  int f = (int)format;
  double size = fabs(x), nearest = 0, best = INFINITY;
  if (isnan(x)) return f == 4 ? 0 : x;
  if (f > 4) {
    // 2^-127 to 2^127
    double power = ldexp(1, -127);
    if (isinf(x) || size > ldexp(f == 5 ? 1.5 : 1, 127) || (f == 5 && size == ldexp(1.5, 127)))
      return f == 7 && !isinf(x) && size < ldexp(1, 128) ? ldexp(1, 127)
             : saturate != 0                             ? ldexp(1, 127)
                                                         : NAN;
    while (f == 7 ? 2 * power <= size : f == 6 ? power < size : 1.5 * power <= size)
      power *= 2;
    return f == 6 && size == 0 ? ldexp(1, -127) : power;
  }
  int mantissa = formats[f].mantissa, ones = 1 << mantissa;
  // One number more, as if the exponent had no end: a value nearest to it overflows.
  for (int code = 0;; code++) {
    int e = code >> mantissa;
    double of = e == 0 ? ldexp(code, 1 - formats[f].bias - mantissa)
                       : ldexp(ones + code % ones, e - formats[f].bias - mantissa);
    double distance = fabs(of - size);
    if (distance < best || (distance == best && code % 2 == 0)) {
      best = distance;
      nearest = of;
    }
    if (of > formats[f].largest) break;
  }
  if (size >= 2 * formats[f].largest || nearest > formats[f].largest)
    nearest = saturate != 0 || f == 4 ? formats[f].largest : f == 2 ? INFINITY : NAN;
  if ((f == 1 || f == 3) && nearest == 0) return 0;
  return copysign(nearest, x);
}

#endif
