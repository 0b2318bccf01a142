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

#endif
