// The functions in the elementwise formulas of the op table.
//
//     gelu   m_gelu(x)         swish   x * m_sigmoid(a * x)
//
// Each selects its version by the type of its arguments.  `float` is polynomial and without
// branches, so that the C compiler vectorises a loop over it; `double`, for the reference evaluator
// and for f64, is the C library's.  m_exp and m_log are within 2 units in the last place, the other
// float functions within 4 (m_sin and m_cos up to |x| = 1e6); the inverse functions are the C
// library's.  For infinities, NaN and denormals
// all give the results of the C library.  -fno-math-errno and -fno-trapping-math permit more
// vectorisation and change no result; -ffast-math would.
//
// The file is C and CUDA C.

#ifndef NNRT_MATH_H
#define NNRT_MATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define M_FN static inline __host__ __device__
#else
#define M_FN static inline __attribute__((unused))
#endif

// Marks a leaf function that is one loop: it is compiled for three generations of processors, and
// the dynamic linker selects the one for the machine.  OpenMP pragmas stay outside, because
// outlined functions are not cloned.  Sanitizers start too late for the resolver.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__) &&     \
    defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define NNRT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define NNRT_CLONES
#endif

// The largest finite value: a larger x of a floating type is infinite.
#define m_huge DBL_MAX

M_FN uint32_t m_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

M_FN float m_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// The 16-bit types, which are for storage only: conversion to float, and back, rounding to nearest
// even.  NaN stays NaN.
M_FN float m_from_bf16(uint16_t h) {
  return m_from_bits((uint32_t)h << 16);
}
M_FN uint16_t m_to_bf16(float x) {
  uint32_t u = m_bits(x), nan = u >> 16 | 0x40;
  u += 0x7fff + (u >> 16 & 1);
  return (uint16_t)(x != x ? nan : u >> 16);
}
M_FN float m_from_f16(uint16_t h) {
  uint32_t rest = (uint32_t)(h & 0x7fff) << 13;
  float normal = m_from_bits(rest + (112u << 23));
  float small = m_from_bits(rest + (113u << 23)) - m_from_bits(113u << 23); // below 2^-14
  float huge = m_from_bits(rest + (224u << 23));                            // infinity, NaN
  float x = rest < 1u << 23 ? small : rest >= 31u << 23 ? huge : normal;
  return m_from_bits(m_bits(x) | (uint32_t)(h & 0x8000) << 16);
}
M_FN uint16_t m_to_f16(float x) {
  uint32_t u = m_bits(x), sign = u & 0x80000000u, size = u ^ sign;
  uint32_t normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  // Adding 1/2 leaves exactly the bits of a result below 2^-14.
  uint32_t small = m_bits(m_from_bits(size) + 0.5f) - m_bits(0.5f);
  uint32_t huge = size > 255u << 23 ? 0x7e00 : 0x7c00;
  uint32_t h = size >= 143u << 23 ? huge : size < 113u << 23 ? small : normal;
  return (uint16_t)(h | sign >> 16);
}

// The number of a 16-bit type nearest to x, as m_from_bf16(m_to_bf16(x)), but in 32-bit lanes only
// and without conditions: GCC would split those by the constants of the formula, such as 0 of a
// ReLU, and vectorise none of it.  The conversions of AVX512-BF16 would replace denormals by 0.
M_FN float m_round_bf16(float x) {
  uint32_t u = m_bits(x), nan = 0 - (uint32_t)(x != x);
  uint32_t up = (0x7fff + (u >> 16 & 1)) & ~nan;
  return m_from_bits(((u + up) | (nan & 0x400000)) & 0xffff0000u);
}
M_FN float m_round_f16(float x) {
  // The sum with 1.5 times 2^13 of x's power of two has the mantissa of f16, and that of 2^-14
  // has its denormals.
  uint32_t u = m_bits(x), power = u & 0x7f800000u;
  power = power > 113u << 23 ? power : 113u << 23;
  power = power < 144u << 23 ? power : 144u << 23;
  float large = m_from_bits(power + (13u << 23) + 0x400000u), nearest = (x + large) - large;
  // 2^16 and more are infinite: in f32, 2^112 times that.
  nearest = nearest * 0x1p112f * 0x1p-112f;
  return m_from_bits(m_bits(nearest) | (u & 0x80000000u)); // -0 stays
}
// The bits of a number that a 16-bit type holds exactly.
M_FN uint16_t m_bits_bf16(float x) {
  return (uint16_t)(m_bits(x) >> 16);
}
M_FN uint16_t m_bits_f16(float x) {
  uint32_t u = m_bits(x), size = u & 0x7fffffffu;
  // Below 2^-14 the bits are the difference of |x| + 1/2 and 1/2, in units of 2^-24; from there on
  // that is the larger number.
  int32_t normal = (int32_t)(size >> 13) - (112 << 10);
  int32_t small = (int32_t)(m_bits(m_from_bits(size) + 0.5f) - m_bits(0.5f));
  normal = normal > 1024 ? normal : 1024;
  int32_t h = small < normal ? small : normal;
  // Infinity and NaN have exponent 255, and 112 less, and are to have 31.
  return (uint16_t)((h + (h >> 3 & 0x4000)) | (int32_t)(u >> 16 & 0x8000));
}

// Formats of 8 bits and less, of which values are computed in float: m_narrow rounds to the nearest
// number of one, ties to even.  Beyond the largest one it gives that if `saturate`, else infinity
// or, in formats without it, NaN.
//
//    format       mantissa  least exponent  largest
//    0 f8e4m3fn      3           -6             448
//    1 f8e4m3fnuz    3           -7             240   without -0
//    2 f8e5m2        2          -14          57,344   has infinity
//    3 f8e5m2fnuz    2          -15          57,344   without -0
//    4 f4e2m1        1            0               6   without NaN, which becomes 0
//    5 6 7 f8e8m0    0         -127           2^127   2^n: the nearest, that above, that below |x|
M_FN float m_power_of_two_f(float x, int format, int saturate) {
  uint32_t u = m_bits(x) & 0x7fffffffu, e = u >> 23, rest = u & 0x7fffffu;
  uint32_t up = format == 6 ? rest > 0 : format == 7 ? 0 : rest > 0x400000u - (e > 0);
  if (u > 255u << 23) return x; // NaN
  e = e + up > 254 ? 255 : e + up;
  if (e == 255) return m_from_bits(saturate ? 254u << 23 : 0x7fc00000u);
  return m_from_bits(e > 0 ? e << 23 : 0x400000u);
}
M_FN float m_narrow_f(float x, float format, float saturate) {
  int f = (int)format;
  if (f > 4) return m_power_of_two_f(x, f, saturate != 0.0f);
  uint32_t mantissa = f < 2 ? 3 : f < 4 ? 2 : 1, least = f == 4 ? 127 : f < 2 ? 121 - f : 115 - f;
  float largest = f == 0 ? 448.0f : f == 1 ? 240.0f : f == 4 ? 6.0f : 57344.0f;
  uint32_t size = m_bits(x) & 0x7fffffffu, sign = m_bits(x) ^ size;
  uint32_t e = size >> 23 < least ? least : size >> 23;
  // The distance of the format's numbers around x, and its reciprocal, are powers of two.
  float step = m_from_bits((e - mantissa) << 23), by = m_from_bits((254 - e + mantissa) << 23);
  float y = rintf(m_from_bits(size) * by) * step;
  float over =
      saturate != 0.0f || f == 4 ? largest : m_from_bits(f == 2 ? 255u << 23 : 0x7fc00000u);
  y = y > largest || size == 255u << 23 ? over : y;
  y = size > 255u << 23 ? (f == 4 ? 0.0f : x) : y;
  // Without -0 the bits of 0 have no sign.
  uint32_t keeps = f == 1 || f == 3 ? y > 0.0f : 1;
  return m_from_bits(m_bits(y) | (keeps ? sign : 0));
}
M_FN double m_power_of_two_d(double x, int format, int saturate) {
  int e;
  double part = frexp(x < 0 ? -x : x, &e); // 0.5 <= part < 1
  if (x != x) return x;
  if (x == 0) return ldexp(1, -127);
  double over = saturate ? ldexp(1, 127) : NAN;
  if (part > 1) return over; // infinity
  e += format == 6 ? part > 0.5 ? 0 : -1 : format == 7 ? -1 : part >= 0.75 ? 0 : -1;
  return e > 127 ? over : ldexp(1, e < -127 ? -127 : e);
}
M_FN double m_narrow_d(double x, double format, double saturate) {
  int f = (int)format, e;
  if (f > 4) return m_power_of_two_d(x, f, saturate != 0);
  int mantissa = f < 2 ? 3 : f < 4 ? 2 : 1, least = f == 4 ? 0 : f < 2 ? -6 - f : -12 - f;
  double largest = f == 0 ? 448 : f == 1 ? 240 : f == 4 ? 6 : 57344;
  double over = copysign(saturate != 0 || f == 4 ? largest : f == 2 ? INFINITY : NAN, x);
  if (x != x) return f == 4 ? 0 : x;
  if (isinf(x)) return over;
  (void)frexp(x, &e);
  double step = ldexp(1, (e - 1 < least ? least : e - 1) - mantissa), y = rint(x / step) * step;
  if (fabs(y) > largest) return over;
  return (f == 1 || f == 3) && y == 0 ? 0 : y;
}

// x rounded to an integer, as a float and (in the low bits) as an int: adding 1.5 * 2^23 leaves no
// bits for a fraction.  |x| < 2^22.
#define M_ROUND_BY 0x1.8p23f

// 2^n for n of -126 to 127, n as two's complement.
M_FN float m_exp2_int(uint32_t n) {
  return m_from_bits((n + 127) << 23);
}

// half of n, rounded down, for two's complement n
M_FN uint32_t m_half(uint32_t n) {
  return (uint32_t)((int32_t)n >> 1);
}

// e^r of the rest r = x - n ln(2), with |r| <= ln(2) / 2
M_FN float m_exp_rest(float x, float n) {
  float r = x - n * 0x1.62e4p-1f;
  r = r - n * 0x1.7f7d1cp-20f;
  float p = 0x1.694p-10f;
  p = p * r + 0x1.125edcp-7f;
  p = p * r + 0x1.555b5ap-5f;
  p = p * r + 0x1.55545p-3f;
  p = p * r + 0x1.fffff6p-2f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p;
}

// e^x = 2^n e^r; 2^n in two factors, because n goes from -150 to 128.
M_FN float m_exp_f(float x) {
  float c = x < -104.0f ? -104.0f : x; // written so that NaN stays
  c = c > 89.0f ? 89.0f : c;
  float t = c * 0x1.715476p+0f + M_ROUND_BY;
  float p = m_exp_rest(c, t - M_ROUND_BY);
  uint32_t i = m_bits(t) - m_bits(M_ROUND_BY);
  uint32_t h = m_half(i);
  return p * m_exp2_int(h) * m_exp2_int(i - h);
}

// e^x for x up to 88, such as a logit minus the largest one, and 0 below -87, where m_exp_f has
// numbers down to 1e-45.  So 2^n is one factor, and a softmax takes three quarters of the time.
M_FN float m_exp_upto_88_f(float x) {
  float c = x < -87.0f ? -87.0f : x; // written so that NaN stays
  float t = c * 0x1.715476p+0f + M_ROUND_BY;
  float p = m_exp_rest(c, t - M_ROUND_BY);
  p *= m_exp2_int(m_bits(t) - m_bits(M_ROUND_BY));
  return x < -87.0f ? 0.0f : p;
}

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1)
M_FN float m_expm1_f(float x) {
  float c = x < -30.0f ? -30.0f : x;
  c = c > 89.0f ? 89.0f : c;
  float t = c * 0x1.715476p+0f + M_ROUND_BY;
  float n = t - M_ROUND_BY;
  float r = c - n * 0x1.62e4p-1f;
  r = r - n * 0x1.7f7d1cp-20f;
  float p = 0x1.a26762p-13f; // (e^r - 1 - r) / r^2
  p = p * r + 0x1.6d2ep-10f;
  p = p * r + 0x1.110ff2p-7f;
  p = p * r + 0x1.555502p-5f;
  p = p * r + 0x1.555556p-3f;
  p = p * r + 0.5f;
  p = p * (r * r) + r;
  // Half of 2^n, so that n = 128 fits.
  float s = m_exp2_int(m_bits(t) - m_bits(M_ROUND_BY) - 1);
  float y = 2.0f * (s * p + (s - 0.5f));
  return x == 0 ? x : y;
}

// x = 2^e m with m from 2/3 to 4/3; ln(x) = e ln(2) + ln(m)
M_FN float m_log_f(float x) {
  // Denormals are scaled up by 2^23 first.
  float tiny = x < FLT_MIN ? 1.0f : 0.0f;
  float a = x < FLT_MIN ? x * 0x1p23f : x;
  // The exponent for m from 2/3 to 4/3; then a polynomial in m - 1, even and odd terms apart.
  uint32_t e = (m_bits(a) - 0x3f2aaaab) & 0xff800000;
  float m = m_from_bits(m_bits(a) - e) - 1.0f;
  float i = (float)(int32_t)e * 0x1p-23f - tiny * 23.0f;
  float s = m * m;
  float r = -0x1.0aep-3f;
  float t = 0x1.208p-3f;
  r = r * s - 0x1.f19968p-4f;
  t = t * s + 0x1.1e5740p-3f;
  r = r * s - 0x1.55b362p-3f;
  t = t * s + 0x1.99d8b2p-3f;
  r = r * s - 0x1.fffe02p-3f;
  r = t * m + r;
  r = r * m + 0x1.5554fap-2f;
  r = r * m - 0.5f;
  r = r * s + m;
  r = i * 0x1.62e43p-1f + r;
  float special = x == 0 ? -INFINITY : x < 0 ? NAN : x; // 0, below, inf and NaN
  return x > 0 && x <= FLT_MAX ? r : special;
}

// ln(1 + x) from the logarithm of u, which is 1 + x rounded, and the rounding error.
M_FN float m_log1p_f(float x) {
  float u = 1.0f + x;
  float lost = x - (u - 1.0f);
  float y = m_log_f(u) + lost / u;
  return x > -1.0f && u <= FLT_MAX ? y : m_log_f(u);
}

M_FN float m_sigmoid_f(float x) {
  return 1.0f / (1.0f + m_exp_f(-x));
}

M_FN float m_tanh_f(float x) {
  float a = fabsf(x);
  float large = 1.0f - 2.0f / (m_exp_f(2.0f * a) + 1.0f);
  float s = x * x;
  float small = -0x1.9b545ap-8f;
  small = small * s + 0x1.59f7d4p-6f;
  small = small * s - 0x1.b9585ap-5f;
  small = small * s + 0x1.110eecp-3f;
  small = small * s - 0x1.555554p-2f;
  small = small * s * a + a;
  return copysignf(a < 0.6f ? small : large, x);
}

M_FN float m_erf_f(float x) {
  float a = fabsf(x), s = x * x;
  float r = -0x1.22p-16f * a + 0x1.91cfb2p-12f;
  float u = -0x1.fd1438p-9f * a + 0x1.8d6342p-6f;
  r = r * s + u;
  r = r * a - 0x1.b55cb8p-4f;
  r = r * a - 0x1.450aap-1f;
  r = r * a - 0x1.079d0cp-3f;
  r = r * a - a;
  // The polynomial is good to 4; from there on erf rounds to 1.
  float large = a > 4.0f ? 1.0f : 1.0f - m_exp_f(r);
  float q = -0x1.38ep-11f;
  q = q * s + 0x1.471a58p-8f;
  q = q * s - 0x1.b691b2p-6f;
  q = q * s + 0x1.ce1c44p-4f;
  q = q * s - 0x1.8127p-2f;
  q = q * s + 0x1.06eba8p-3f;
  float small = q * a + a;
  float y = a > 0.927734375f ? large : small;
  return x != x ? x : copysignf(y, x);
}

// sin(x + quarter * pi / 2).  The argument is reduced in double, which is exact enough to 1e6.
M_FN float m_sin_quarter(float x, uint32_t quarter) {
  double d = x;
  double t = d * 0x1.45f306dc9c883p-1 + 0x1.8p52; // the same trick: round to an integer
  double n = t - 0x1.8p52;
  // pi / 2 in two parts, so that the difference stays accurate for large n.
  double rest = d - n * 0x1.921fb544p0;
  float r = (float)(rest - n * 0x1.0b4611a626331p-34);
  uint64_t bits;
  memcpy(&bits, &t, sizeof bits);
  uint32_t i = (uint32_t)bits + quarter;
  // Both polynomials are evaluated; the quadrant selects one and the sign.
  float s = r * r;
  float sine = 0x1.6f4dp-19f;
  sine = sine * s - 0x1.a00f9cp-13f;
  sine = sine * s + 0x1.1110dap-7f;
  sine = sine * s - 0x1.555554p-3f;
  sine = sine * s * r + r;
  float cosine = -0x1.23f2cp-22f;
  cosine = cosine * s + 0x1.a01576p-16f;
  cosine = cosine * s - 0x1.6c16b8p-10f;
  cosine = cosine * s + 0x1.555556p-5f;
  cosine = cosine * s - 0.5f;
  cosine = cosine * s + 1.0f;
  float y = i & 1 ? cosine : sine;
  y = i & 2 ? -y : y;
  return fabsf(x) <= FLT_MAX ? y : NAN;
}

M_FN float m_sin_f(float x) {
  return x == 0 ? x : m_sin_quarter(x, 0);
}
M_FN float m_cos_f(float x) {
  return m_sin_quarter(x, 1);
}

// x^y = 2^(y log2 |x|) in double, with the sign of an odd power.
M_FN float m_pow_f(float x, float y) {
  float ax = fabsf(x);
  // log2 |x|: exponent and logarithm of the mantissa, by atanh; denormals are normal as doubles
  double d = ax;
  uint64_t bits;
  memcpy(&bits, &d, sizeof bits);
  int64_t e = (int64_t)((bits - 0x3fe5555555555555u) & 0xfff0000000000000u);
  bits -= (uint64_t)e;
  double m;
  memcpy(&m, &bits, sizeof m);
  double s = (m - 1.0) / (m + 1.0), q = s * s;
  double p = 1.0 / 17;
  p = p * q + 1.0 / 15;
  p = p * q + 1.0 / 13;
  p = p * q + 1.0 / 11;
  p = p * q + 1.0 / 9;
  p = p * q + 1.0 / 7;
  p = p * q + 1.0 / 5;
  p = p * q + 1.0 / 3;
  p = p * q + 1.0;
  double l = (double)(int32_t)(e >> 52) + 2.0 * 0x1.71547652b82fep0 * s * p;
  l = ax == 0 ? -INFINITY : ax > FLT_MAX ? INFINITY : l;
  // 2^t by its integer and the rest
  double t = y * l;
  t = t < -200.0 ? -200.0 : t;
  t = t > 200.0 ? 200.0 : t;
  double n = t + 0x1.8p52;
  double f = (t - (n - 0x1.8p52)) * 0x1.62e42fefa39efp-1;
  double r = 1.0 / 362880;
  r = r * f + 1.0 / 40320;
  r = r * f + 1.0 / 5040;
  r = r * f + 1.0 / 720;
  r = r * f + 1.0 / 120;
  r = r * f + 1.0 / 24;
  r = r * f + 1.0 / 6;
  r = r * f + 0.5;
  r = r * f + 1.0;
  r = r * f + 1.0;
  memcpy(&bits, &n, sizeof bits);
  uint64_t scale_bits = (bits + 1023) << 52;
  double scale;
  memcpy(&scale, &scale_bits, sizeof scale);
  float z = (float)(r * scale);
  z = ax == 1 && y == y ? 1.0f : z; // even when y is infinite
  // Even, odd and broken powers of negative numbers
  float whole = rintf(y), half = y * 0.5f;
  float odd = whole == y && rintf(half) != half ? 1.0f : 0.0f;
  z = odd != 0 ? copysignf(z, x) : z;
  z = x < 0 && x >= -FLT_MAX && whole != y ? NAN : z;
  z = x != x || y != y ? NAN : z;
  return y == 0 || x == 1 ? 1.0f : z;
}

M_FN float m_softplus_f(float x) {
  return (x > 0 ? x : 0.0f) + m_log1p_f(m_exp_f(-fabsf(x)));
}

// GELU and its slope, each as 1/2 + c P(c^2) / Q(c^2), with c = x up to a limit, and as 0 or 1
// beyond.  tools/gelu_coefficients.py finds the coefficients.  Up to |x| = 4 the error of GELU is
// at most 6.6e-7, of which the last rounding is 2.4e-7, and that of the slopes 2e-7; without fused
// multiply-add 7.5e-7 and 3e-7.  Without an exponential they take 1 / 4 to 2 / 3 of the time of the
// definitions.
M_FN float m_clamp_f(float x, float most) {
  float c = x < -most ? -most : x; // written so that NaN stays
  return c > most ? most : c;
}
M_FN float m_step_f(float x, float most, float y) {
  y = x > most ? 1.0f : y;
  return x < -most ? 0.0f : y;
}

// x Phi(x), with Phi the normal distribution, and its derivative Phi(x) + x phi(x)
M_FN float m_gelu_f(float x) {
  float c = m_clamp_f(x, 5.6f), s = c * c;
  float p = 0x1.74fadp-26f;
  p = p * s + 0x1.ba4842p-18f;
  p = p * s + 0x1.8ec898p-13f;
  p = p * s + 0x1.3aed8cp-8f;
  p = p * s + 0x1.25a906p-5f;
  p = p * s + 0x1.98843cp-2f;
  float q = 0x1.3e2232p-20f;
  q = q * s + 0x1.53c85ep-14f;
  q = q * s + 0x1.069564p-9f;
  q = q * s + 0x1.e84eep-6f;
  q = q * s + 0x1.06accp-2f;
  q = q * s + 1.0f;
  return x * m_step_f(x, 5.6f, 0.5f + c * (p / q));
}

M_FN float m_gelu_back_f(float x) {
  float c = m_clamp_f(x, 6.0f), s = c * c;
  float p = -0x1.fc107ap-36f;
  p = p * s + 0x1.bec72ap-27f;
  p = p * s + 0x1.2d29fp-20f;
  p = p * s + 0x1.0ca9dp-15f;
  p = p * s + 0x1.2b132ep-12f;
  p = p * s + 0x1.bca12ep-7f;
  p = p * s - 0x1.2789cep-6f;
  p = p * s + 0x1.988452p-1f;
  float q = 0x1.8672a2p-22f;
  q = q * s + 0x1.6acbf8p-17f;
  q = q * s + 0x1.0f2ac6p-12f;
  q = q * s + 0x1.0ffcf2p-8f;
  q = q * s + 0x1.7569f2p-5f;
  q = q * s + 0x1.3e2ec4p-2f;
  q = q * s + 1.0f;
  return m_step_f(x, 6.0f, 0.5f + c * (p / q));
}

// x (1 + tanh(u)) / 2 = x sigmoid(2 u), with u = sqrt(2 / pi) (x + 0.044715 x^3)
M_FN float m_gelu_tanh_f(float x) {
  float c = m_clamp_f(x, 5.0f), s = c * c;
  float p = 0x1.ad6d2ep-26f;
  p = p * s + 0x1.dcac4ep-18f;
  p = p * s + 0x1.0dba56p-13f;
  p = p * s + 0x1.d8c96ap-9f;
  p = p * s + 0x1.e747e2p-6f;
  p = p * s + 0x1.98845ep-2f;
  float q = 0x1.69cf16p-20f;
  q = q * s + 0x1.39060cp-14f;
  q = q * s + 0x1.4d8ea8p-10f;
  q = q * s + 0x1.89559cp-6f;
  q = q * s + 0x1.efb4a6p-3f;
  q = q * s + 1.0f;
  return x * m_step_f(x, 5.0f, 0.5f + c * (p / q));
}

M_FN float m_gelu_tanh_back_f(float x) {
  float c = m_clamp_f(x, 5.2f), s = c * c;
  float p = 0x1.2c144ep-27f;
  p = p * s + 0x1.28bcbcp-20f;
  p = p * s + 0x1.4962f6p-16f;
  p = p * s + 0x1.61d8p-13f;
  p = p * s + 0x1.844ce6p-7f;
  p = p * s - 0x1.7383cap-6f;
  p = p * s + 0x1.98845p-1f;
  float q = 0x1.631a0ap-22f;
  q = q * s + 0x1.066bfep-17f;
  q = q * s + 0x1.88ae02p-13f;
  q = q * s + 0x1.73430ep-9f;
  q = q * s + 0x1.4e80fap-5f;
  q = q * s + 0x1.39eb96p-2f;
  q = q * s + 1.0f;
  return m_step_f(x, 5.2f, 0.5f + c * (p / q));
}

// The same in double.
M_FN double m_sigmoid_d(double x) {
  return 1.0 / (1.0 + exp(-x));
}
M_FN double m_softplus_d(double x) {
  return (x > 0 ? x : 0.0) + log1p(exp(-fabs(x)));
}
M_FN double m_gelu_d(double x) {
  return 0.5 * x * (1.0 + erf(x * 0x1.6a09e667f3bcdp-1));
}
M_FN double m_gelu_back_d(double x) {
  return 0.5 * (1.0 + erf(x * 0x1.6a09e667f3bcdp-1)) + x * 0x1.9884533d43651p-2 * exp(-0.5 * x * x);
}
M_FN double m_gelu_tanh_d(double x) {
  return x * m_sigmoid_d(0x1.9884533d43651p0 * (x + 0.044715 * x * x * x));
}
M_FN double m_gelu_tanh_back_d(double x) {
  double square = x * x < 1e6 ? x * x : 1e6;
  double s = m_sigmoid_d(0x1.9884533d43651p0 * (x + 0.044715 * x * x * x));
  return s + x * (s * (1.0 - s)) * (0x1.9884533d43651p0 * (1.0 + 3 * 0.044715 * square));
}

// Smaller and larger; NaN if either is.
#define M_MIN_MAX(suffix, type)                                                                    \
  M_FN type m_min_##suffix(type x, type y) {                                                       \
    return x < y || x != x ? x : y;                                                                \
  }                                                                                                \
  M_FN type m_max_##suffix(type x, type y) {                                                       \
    return x > y || x != x ? x : y;                                                                \
  }
M_MIN_MAX(f, float)
M_MIN_MAX(d, double)
M_MIN_MAX(i, int32_t)
M_MIN_MAX(u, uint32_t)
M_MIN_MAX(l, int64_t)
M_MIN_MAX(ul, uint64_t)
#undef M_MIN_MAX

// mod has the sign of the divisor, fmod that of the dividend.  Integers divided by zero are 0, with
// remainder 0; the least integer divided by -1 wraps to itself: the processor's instruction ends
// the program for both.
// pow of integers wraps around; to a negative power it is the integer part.  A shift by a negative
// number of bits, or by all bits or more, leaves the sign: shorter types are shifted as int.
#define M_INT_SIGNED(suffix, type, unsigned_type)                                                  \
  M_FN type m_div_##suffix(type x, type y) {                                                       \
    return y == 0 ? 0 : y == -1 ? (type)(0 - (unsigned_type)x) : x / y;                            \
  }                                                                                                \
  M_FN type m_fmod_##suffix(type x, type y) {                                                      \
    return y == 0 || y == -1 ? 0 : x % y;                                                          \
  }                                                                                                \
  M_FN type m_mod_##suffix(type x, type y) {                                                       \
    type r = m_fmod_##suffix(x, y);                                                                \
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;                                               \
  }                                                                                                \
  M_FN type m_shift_left_##suffix(type x, type y) {                                                \
    return y < 0 || y >= (type)(8 * sizeof x) ? 0 : (type)((unsigned_type)x << y);                 \
  }                                                                                                \
  M_FN type m_shift_right_##suffix(type x, type y) {                                               \
    return y < 0 || y >= (type)(8 * sizeof x) ? (x < 0 ? -1 : 0) : x >> y;                         \
  }                                                                                                \
  M_FN type m_pow_##suffix(type x, type y) {                                                       \
    unsigned_type base = (unsigned_type)x, z = 1;                                                  \
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;                                 \
    for (; y > 0; y >>= 1, base *= base)                                                           \
      if (y & 1) z *= base;                                                                        \
    return (type)z;                                                                                \
  }
#define M_INT_UNSIGNED(suffix, type)                                                               \
  M_FN type m_div_##suffix(type x, type y) {                                                       \
    return y == 0 ? 0 : x / y;                                                                     \
  }                                                                                                \
  M_FN type m_fmod_##suffix(type x, type y) {                                                      \
    return y == 0 ? 0 : x % y;                                                                     \
  }                                                                                                \
  M_FN type m_mod_##suffix(type x, type y) {                                                       \
    return y == 0 ? 0 : x % y;                                                                     \
  }                                                                                                \
  M_FN type m_shift_left_##suffix(type x, type y) {                                                \
    return y >= 8 * sizeof x ? 0 : x << y;                                                         \
  }                                                                                                \
  M_FN type m_shift_right_##suffix(type x, type y) {                                               \
    return y >= 8 * sizeof x ? 0 : x >> y;                                                         \
  }                                                                                                \
  M_FN type m_pow_##suffix(type x, type y) {                                                       \
    type z = 1;                                                                                    \
    for (; y > 0; y >>= 1, x *= x)                                                                 \
      if (y & 1) z *= x;                                                                           \
    return z;                                                                                      \
  }
M_INT_SIGNED(i, int32_t, uint32_t)
M_INT_SIGNED(l, int64_t, uint64_t)
M_INT_UNSIGNED(u, uint32_t)
M_INT_UNSIGNED(ul, uint64_t)
#undef M_INT_SIGNED
#undef M_INT_UNSIGNED

M_FN float m_div_f(float x, float y) {
  return x / y;
}
M_FN double m_div_d(double x, double y) {
  return x / y;
}
M_FN float m_mod_f(float x, float y) {
  float r = fmodf(x, y);
  if (r == 0) return copysignf(r, y);
  return (r < 0) != (y < 0) ? r + y : r;
}
M_FN double m_mod_d(double x, double y) {
  double r = fmod(x, y);
  if (r == 0) return copysign(r, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

#define m_bit_not(x)    (~(x))
#define m_bit_and(x, y) ((x) & (y))
#define m_bit_or(x, y)  ((x) | (y))
#define m_bit_xor(x, y) ((x) ^ (y))

#ifdef __cplusplus
#define M_ONE(name, library)                                                                       \
  M_FN float m_##name(float x) {                                                                   \
    return m_##name##_f(x);                                                                        \
  }                                                                                                \
  M_FN double m_##name(double x) {                                                                 \
    return library(x);                                                                             \
  }
#define M_ONE_LIBRARY(name, of_float, of_double)                                                   \
  M_FN float m_##name(float x) {                                                                   \
    return of_float(x);                                                                            \
  }                                                                                                \
  M_FN double m_##name(double x) {                                                                 \
    return of_double(x);                                                                           \
  }
#define M_TWO_OF(name, suffix, type)                                                               \
  M_FN type m_##name(type x, type y) {                                                             \
    return m_##name##_##suffix(x, y);                                                              \
  }
// Functions of two types compute in the type of x + y, as in C.
#define M_TWO(name)                                                                                \
  M_TWO_OF(name, f, float)                                                                         \
  M_TWO_OF(name, d, double)                                                                        \
  M_TWO_OF(name, i, int32_t)                                                                       \
  M_TWO_OF(name, u, uint32_t)                                                                      \
  M_TWO_OF(name, l, int64_t)                                                                       \
  M_TWO_OF(name, ul, uint64_t)                                                                     \
  template <class X, class Y> M_FN auto m_##name(X x, Y y)->decltype(x + y) {                      \
    return m_##name((decltype(x + y))x, (decltype(x + y))y);                                       \
  }
// Of integers alone.
#define M_TWO_INT(name)                                                                            \
  M_TWO_OF(name, i, int32_t)                                                                       \
  M_TWO_OF(name, u, uint32_t)                                                                      \
  M_TWO_OF(name, l, int64_t)                                                                       \
  M_TWO_OF(name, ul, uint64_t)                                                                     \
  template <class X, class Y> M_FN auto m_##name(X x, Y y)->decltype(x + y) {                      \
    return m_##name((decltype(x + y))x, (decltype(x + y))y);                                       \
  }
M_FN float m_fmod_f(float x, float y) {
  return fmodf(x, y);
}
M_FN double m_fmod_d(double x, double y) {
  return fmod(x, y);
}
M_FN double m_pow_d(double x, double y) {
  return pow(x, y);
}
M_FN float m_narrow(float x, float format, float saturate) {
  return m_narrow_f(x, format, saturate);
}
M_FN double m_narrow(double x, double format, double saturate) {
  return m_narrow_d(x, format, saturate);
}
M_ONE(exp, exp)
M_ONE(expm1, expm1)
M_ONE(log, log)
M_ONE(log1p, log1p)
M_ONE(sin, sin)
M_ONE(cos, cos)
M_ONE(erf, erf)
M_ONE(tanh, tanh)
M_ONE(sigmoid, m_sigmoid_d)
M_ONE(softplus, m_softplus_d)
M_ONE(gelu, m_gelu_d)
M_ONE(gelu_back, m_gelu_back_d)
M_ONE(gelu_tanh, m_gelu_tanh_d)
M_ONE(gelu_tanh_back, m_gelu_tanh_back_d)
M_ONE_LIBRARY(asin, asinf, asin)
M_ONE_LIBRARY(acos, acosf, acos)
M_ONE_LIBRARY(atan, atanf, atan)
M_ONE_LIBRARY(asinh, asinhf, asinh)
M_ONE_LIBRARY(acosh, acoshf, acosh)
M_ONE_LIBRARY(atanh, atanhf, atanh)
M_ONE_LIBRARY(sqrt, sqrtf, sqrt)
M_ONE_LIBRARY(floor, floorf, floor)
M_ONE_LIBRARY(ceil, ceilf, ceil)
M_ONE_LIBRARY(round, rintf, rint)
M_TWO(min)
M_TWO(max)
M_TWO(div)
M_TWO(mod)
M_TWO(fmod)
M_TWO(pow)
M_TWO_INT(shift_left)
M_TWO_INT(shift_right)
#else
// clang-format off: it knows no _Generic
#define m_exp(x)       _Generic((x), float : m_exp_f, default : exp)(x)
#define m_expm1(x)     _Generic((x), float : m_expm1_f, default : expm1)(x)
#define m_log(x)       _Generic((x), float : m_log_f, default : log)(x)
#define m_log1p(x)     _Generic((x), float : m_log1p_f, default : log1p)(x)
#define m_sin(x)       _Generic((x), float : m_sin_f, default : sin)(x)
#define m_cos(x)       _Generic((x), float : m_cos_f, default : cos)(x)
#define m_erf(x)       _Generic((x), float : m_erf_f, default : erf)(x)
#define m_tanh(x)      _Generic((x), float : m_tanh_f, default : tanh)(x)
#define m_sigmoid(x)   _Generic((x), float : m_sigmoid_f, default : m_sigmoid_d)(x)
#define m_softplus(x)  _Generic((x), float : m_softplus_f, default : m_softplus_d)(x)
#define m_gelu(x)      _Generic((x), float : m_gelu_f, default : m_gelu_d)(x)
#define m_gelu_back(x) _Generic((x), float : m_gelu_back_f, default : m_gelu_back_d)(x)
#define m_gelu_tanh(x) _Generic((x), float : m_gelu_tanh_f, default : m_gelu_tanh_d)(x)
#define m_gelu_tanh_back(x)                                                                        \
  _Generic((x), float : m_gelu_tanh_back_f, default : m_gelu_tanh_back_d)(x)
#define m_asin(x)  _Generic((x), float : asinf, default : asin)(x)
#define m_acos(x)  _Generic((x), float : acosf, default : acos)(x)
#define m_atan(x)  _Generic((x), float : atanf, default : atan)(x)
#define m_asinh(x) _Generic((x), float : asinhf, default : asinh)(x)
#define m_acosh(x) _Generic((x), float : acoshf, default : acosh)(x)
#define m_atanh(x) _Generic((x), float : atanhf, default : atanh)(x)
#define m_sqrt(x)  _Generic((x), float : sqrtf, default : sqrt)(x)
#define m_floor(x) _Generic((x), float : floorf, default : floor)(x)
#define m_ceil(x)  _Generic((x), float : ceilf, default : ceil)(x)
#define m_round(x) _Generic((x), float : rintf, default : rint)(x) // halves to even

#define m_narrow(x, format, saturate)                                                              \
  _Generic((x), float : m_narrow_f, default : m_narrow_d)(x, format, saturate)

#define M_TWO(name, x, y, of_float, of_double)                                                     \
  _Generic((x) + (y), float                                                                        \
           : of_float, double                                                                      \
           : of_double, int                                                                        \
           : m_##name##_i, unsigned                                                                \
           : m_##name##_u, long                                                                    \
           : m_##name##_l, long long                                                               \
           : m_##name##_l, unsigned long                                                           \
           : m_##name##_ul, unsigned long long                                                     \
           : m_##name##_ul)(x, y)
#define m_min(x, y)         M_TWO(min, x, y, m_min_f, m_min_d)
#define m_max(x, y)         M_TWO(max, x, y, m_max_f, m_max_d)
#define m_div(x, y)         M_TWO(div, x, y, m_div_f, m_div_d)
#define m_mod(x, y)         M_TWO(mod, x, y, m_mod_f, m_mod_d)
#define m_fmod(x, y)        M_TWO(fmod, x, y, fmodf, fmod)
#define m_pow(x, y)         M_TWO(pow, x, y, m_pow_f, pow)
// Of integers alone; floating types have no such ops.
#define m_shift_left(x, y)  M_TWO(shift_left, x, y, fmodf, fmod)
#define m_shift_right(x, y) M_TWO(shift_right, x, y, fmodf, fmod)
// clang-format on
#endif

#endif
