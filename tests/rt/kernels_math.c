// nnrt_math.h: distance to the C library in units in the last place, over floats of all sizes, and
// the results for infinities, NaN, zeros and integers.

#include "kernels.h"

// Units in the last place of the rounded result between `got` and `want`.
static double ulps(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  float rounded = (float)want;
  if (rounded == got) return 0;
  if (isinf(rounded) || !isfinite(got)) return INFINITY;
  double unit = (double)nextafterf(fabsf(rounded), INFINITY) - (double)fabsf(rounded);
  return fabs((double)got - want) / unit;
}

typedef struct Function {
  const char *name;
  float (*of_float)(float);
  double (*of_double)(double);
  float most; // |x|
  double ulps;
} Function;

static const Function functions[] = {
    {"exp", m_exp_f, exp, INFINITY, 2},
    {"expm1", m_expm1_f, expm1, INFINITY, 4},
    {"log", m_log_f, log, INFINITY, 2},
    {"log1p", m_log1p_f, log1p, INFINITY, 4},
    {"sin", m_sin_f, sin, 1e6f, 4},
    {"cos", m_cos_f, cos, 1e6f, 4},
    {"erf", m_erf_f, erf, INFINITY, 4},
    {"tanh", m_tanh_f, tanh, INFINITY, 4},
    {"softplus", m_softplus_f, m_softplus_d, INFINITY, 4},
    {"sigmoid", m_sigmoid_f, m_sigmoid_d, 80.0f, 4},
};

// Every float whose bits are a multiple of 997, and the ends of the ranges.
static void close_to_the_library(void **state) {
  (void)state;
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
    const Function *fn = &functions[f];
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 997) {
      float x = m_from_bits((uint32_t)bits);
      if (fabsf(x) > fn->most) continue;
      double off = ulps(fn->of_float(x), fn->of_double((double)x));
      if (!(off <= fn->ulps))
        fail_msg("%s(%a) is %a, off by %g ulp", fn->name, (double)x, (double)fn->of_float(x), off);
    }
  }
}

static void ends_of_ranges(void **state) {
  (void)state;
  static const float ends[] = {0.0f,     -0.0f,    INFINITY, -INFINITY, NAN,    FLT_MAX,
                               -FLT_MAX, FLT_MIN,  -FLT_MIN, 1e-45f,    88.72f, 88.73f,
                               -103.97f, -103.98f, -87.4f,   1.0f,      -1.0f};
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
      const Function *fn = &functions[f];
      if (fabsf(ends[i]) > fn->most && isfinite(ends[i])) continue;
      double want = fn->of_double((double)ends[i]), off = ulps(fn->of_float(ends[i]), want);
      if (!(off <= fn->ulps))
        fail_msg("%s(%g) is %g, not %g", fn->name, (double)ends[i], (double)fn->of_float(ends[i]),
                 want);
    }
}

// The exponential of a smaller range: as close in it, and 0 below.
static void exponentials_up_to_88(void **state) {
  (void)state;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 997) {
    float x = m_from_bits((uint32_t)bits);
    if (x > 88.0f) continue;
    float got = m_exp_upto_88_f(x);
    if (isnan(x))
      assert_true(isnan(got));
    else if (x < -87.0f)
      assert_true(got == 0);
    else
      assert_true(ulps(got, exp((double)x)) <= 2);
  }
  assert_true(m_exp_upto_88_f(-INFINITY) == 0 && m_exp_upto_88_f(0) == 1);
  assert_true(ulps(m_exp_upto_88_f(88), exp(88)) <= 2);
  assert_true(ulps(m_exp_upto_88_f(-87), exp(-87)) <= 2);
}

// As m_gelu and its gradient are small differences of large numbers, their error is absolute.
static void gelus(void **state) {
  (void)state;
  for (float x = -12; x < 12; x += 1.0f / 512) {
    double tolerance = 6e-7 * (1 + fabs((double)x));
    assert_true(fabs((double)m_gelu_f(x) - m_gelu_d((double)x)) < tolerance);
    assert_true(fabs((double)m_gelu_back_f(x) - m_gelu_back_d((double)x)) < tolerance);
    assert_true(fabs((double)m_gelu_tanh_f(x) - m_gelu_tanh_d((double)x)) < tolerance);
    assert_true(fabs((double)m_gelu_tanh_back_f(x) - m_gelu_tanh_back_d((double)x)) < tolerance);
    // The gradients are the slopes.
    double slope = (m_gelu_d((double)x + 1e-5) - m_gelu_d((double)x - 1e-5)) / 2e-5;
    assert_true(fabs(m_gelu_back_d((double)x) - slope) < 1e-8);
    slope = (m_gelu_tanh_d((double)x + 1e-5) - m_gelu_tanh_d((double)x - 1e-5)) / 2e-5;
    assert_true(fabs(m_gelu_tanh_back_d((double)x) - slope) < 1e-8);
  }
  // Nearly all activations are here; without fused multiply-add.
  for (float x = -4; x <= 4; x += 1.0f / 4096) {
    assert_true(fabs((double)m_gelu_f(x) - m_gelu_d((double)x)) < 7.5e-7);
    assert_true(fabs((double)m_gelu_tanh_f(x) - m_gelu_tanh_d((double)x)) < 7.5e-7);
    assert_true(fabs((double)m_gelu_back_f(x) - m_gelu_back_d((double)x)) < 3e-7);
    assert_true(fabs((double)m_gelu_tanh_back_f(x) - m_gelu_tanh_back_d((double)x)) < 3e-7);
  }
  static float (*const all[])(float) = {m_gelu_f, m_gelu_back_f, m_gelu_tanh_f, m_gelu_tanh_back_f};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    assert_true(isnan(all[i](NAN)) && all[i](INFINITY) >= 1 && all[i](-1e30f) == 0);
  // Nothing overflows on the way.
  assert_true(m_gelu_tanh_f(1e30f) == 1e30f && m_gelu_tanh_back_f(1e30f) == 1.0f);
  assert_true(m_gelu_tanh_f(-1e30f) == 0 && m_gelu_tanh_back_f(-1e30f) == 0);
}

static void powers(void **state) {
  (void)state;
  static const float special[] = {0.0f,  -0.0f, 1,      -1,       2,         -2,  3,      -3,  0.5f,
                                  -0.5f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, 1e-40f, 1e9f};
  enum { N = sizeof special / sizeof *special };
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) {
      float got = m_pow_f(special[i], special[j]);
      double want = pow((double)special[i], (double)special[j]);
      bool same_sign = isnan(want) || signbit(got) == signbit((float)want);
      if (!(ulps(got, want) <= 1) || !same_sign)
        fail_msg("pow(%g, %g) is %g, not %g", (double)special[i], (double)special[j], (double)got,
                 want);
    }
  for (int64_t i = 0; i < 300000; i++) {
    uint32_t bits[4];
    nnrt_random_block(1, 2, 3, i, bits);
    float x = i % 3 ? (float)(bits[0] % 100000) * 1e-3f : m_from_bits(bits[0]);
    float y = i % 2 ? (float)((int)(bits[1] % 4001) - 2000) * 1e-2f : m_from_bits(bits[1]);
    double off = ulps(m_pow_f(x, y), pow((double)x, (double)y));
    if (!(off <= 1)) fail_msg("pow(%a, %a) is off by %g ulp", (double)x, (double)y, off);
  }
}

static void smaller_and_larger(void **state) {
  (void)state;
  float nan = NAN, one = 1;
  assert_true(isnan(m_min(nan, one)) && isnan(m_min(one, nan)));
  assert_true(isnan(m_max(nan, one)) && isnan(m_max(one, nan)));
  assert_true(isnan(m_max((double)nan, 1.0)) && isnan(m_min(1.0, (double)nan)));
  assert_true(m_min(2.0f, 1) == 1 && m_max(2, 3.0f) == 3);
  // Integers are compared as such: these are equal as doubles.
  int64_t large = (INT64_C(1) << 53) + 1;
  assert_true(m_max(large, large - 1) == large && m_min(large, large - 1) == large - 1);
  uint64_t top = UINT64_MAX;
  assert_true(m_max(top, (uint64_t)1) == top);
}

static void integers(void **state) {
  (void)state;
  int32_t seven = 7, three = 3, low = INT32_MIN;
  assert_true(m_mod(-seven, three) == 2 && m_mod(seven, -three) == -2 && m_mod(seven, three) == 1);
  assert_true(m_fmod(-seven, three) == -1 && m_fmod(seven, -three) == 1);
  assert_true(m_mod(-7.0f, 3.0f) == 2 && m_fmod(-7.0f, 3.0f) == -1);
  assert_true(m_mod(-7.5, 2.0) == 0.5 && m_fmod(-7.5, 2.0) == -1.5);
  // Operations that would trap in the processor.
  // The processor's instruction ends the program for these divisions.
  const int64_t zero = 0;
  assert_true(m_div(seven, 0) == 0 && m_div(low, 0) == 0 && m_div(low, -1) == low);
  assert_true(m_div(INT64_MIN, (int64_t)-1) == INT64_MIN && m_div((int64_t)7, zero) == 0);
  assert_true(m_div(7u, 0u) == 0 && m_div((uint64_t)7, (uint64_t)zero) == 0 && m_div(7u, 2u) == 3);
  assert_true(m_div(-seven, 2) == -3 && m_div(seven, -1) == -7 && m_div(7.0f, 2.0f) == 3.5f);
  assert_true(isinf(m_div(7.0, 0.0)) && m_div(7.0f, 2.0) == 3.5);
  assert_true(m_mod(low, -1) == 0 && m_fmod(INT64_MIN, (int64_t)-1) == 0 && m_mod(seven, 0) == 0);
  assert_true(m_pow(three, 4) == 81 && m_pow(-three, 3) == -27 && m_pow(seven, 0) == 1);
  assert_true(m_pow(2, -1) == 0 && m_pow(-1, -3) == -1 && m_pow(1, -5) == 1);
  // Bits beyond the type leave the sign.
  assert_true(m_shift_left(low, 1) == 0 && m_shift_left(seven, 32) == 0);
  assert_true(m_shift_right(-seven, 1) == -4 && m_shift_right(-seven, 32) == -1);
  assert_true(m_shift_right(seven, -1) == 0 && m_shift_right(-seven, -1) == -1);
  assert_true(m_shift_left((uint64_t)1, (uint64_t)63) == UINT64_C(1) << 63);
  assert_true(m_shift_right(UINT64_MAX, (uint64_t)64) == 0);
  assert_true(m_pow((int64_t)3, (int64_t)39) == INT64_C(4052555153018976267));
}

static void roundings(void **state) {
  (void)state;
  assert_true(m_round(0.5f) == 0 && m_round(1.5f) == 2 && m_round(-2.5) == -2);
  assert_true(m_floor(-0.5f) == -1 && m_ceil(-0.5) == 0);
}

// The number of a format with this code; INFINITY beyond its largest one.
static double number_of(int format, int code) {
  static const int mantissa[] = {3, 3, 2, 2, 1}, bias[] = {7, 8, 15, 16, 1};
  static const double largest[] = {448, 240, 57344, 57344, 6};
  int m = mantissa[format], e = code >> m, rest = code & ((1 << m) - 1);
  double x = (rest + (e > 0 ? 1 << m : 0)) * pow(2, (e > 0 ? e : 1) - bias[format] - m);
  return x <= largest[format] ? x : INFINITY;
}

// The number nearest to x with this mantissa and least exponent, by division by its distance from
// the next one.
static double nearest(double x, int mantissa, int least, double largest) {
  int e;
  frexp(x, &e);
  double step = ldexp(1, (e - 1 < least ? least : e - 1) - mantissa), y = rint(x / step) * step;
  return fabs(y) > largest ? copysign(INFINITY, x) : y;
}

// The 16-bit types: for every upper half of a float the numbers in the middle of two and beside it.
static void nearest_of_16_bits(void **state) {
  (void)state;
  static const uint32_t low[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
  for (uint32_t top = 0; top < 1 << 19; top++)
    for (size_t i = 0; i < sizeof low / sizeof *low; i++) {
      float x = m_from_bits(top << 13 | low[i]);
      float b = m_round_bf16(x), h = m_round_f16(x);
      float of_bits[] = {m_from_bf16(m_bits_bf16(b)), m_from_f16(m_bits_f16(h))};
      if (isnan(x)) {
        if (!isnan(b) || !isnan(h) || !isnan(of_bits[0]) || !isnan(of_bits[1]))
          fail_msg("NaN %x is rounded to a number", m_bits(x));
        continue;
      }
      double want_b = isinf(x) ? (double)x : nearest((double)x, 7, -126, 0x1.fep127);
      double want_h = isinf(x) ? (double)x : nearest((double)x, 10, -14, 65504);
      // -0 stays.
      if ((double)b != want_b || signbit(b) != signbit(x) || (double)h != want_h ||
          signbit(h) != signbit(x))
        fail_msg("%a is rounded to %a and %a, not %a and %a", (double)x, (double)b, (double)h,
                 want_b, want_h);
      // Memory has the same number, rounded before or by the store.
      if (m_bits(of_bits[0]) != m_bits(b) || m_bits(of_bits[1]) != m_bits(h) ||
          m_to_bf16(x) != m_bits_bf16(b) || m_to_f16(x) != m_bits_f16(h))
        fail_msg("%a is stored as %a and %a", (double)x, (double)of_bits[0], (double)of_bits[1]);
    }
}

// Numbers between neighbours of each format go to the nearer one; ties to the even code.
static void narrow_formats(void **state) {
  (void)state;
  for (int format = 0; format < 5; format++)
    for (int code = 0; number_of(format, code) < INFINITY; code++) {
      double low = number_of(format, code), high = number_of(format, code + 1);
      bool last = isinf(high);
      if (last) high = low + (low - number_of(format, code - 1));
      double middle = low + (high - low) / 2;
      double above = last ? format == 2 ? INFINITY : NAN : high;
      if (format == 4 && last) above = low;
      const double x[] = {low, nextafterf((float)middle, 0), middle,
                          nextafterf((float)middle, INFINITY)};
      const double y[] = {low, low, code % 2 ? above : low, above};
      for (int i = 0; i < 4; i++)
        for (int sign = -1; sign < 2; sign += 2) {
          double f = m_narrow((float)(sign * x[i]), (float)format, 0.0f);
          double d = m_narrow(sign * x[i], format, 0);
          if (isnan(y[i]) ? !isnan(f) || !isnan(d) : f != sign * y[i] || d != sign * y[i])
            fail_msg("format %d: %a is %g, %g; expected %g", format, sign * x[i], f, d,
                     sign * y[i]);
        }
      // With saturation nothing is beyond the largest number.
      if (last) assert_true(m_narrow((float)high, (float)format, 1.0f) == low);
    }
  for (int e = -126; e < 127; e++) {
    double x = ldexp(1.25, e);
    assert_true(m_narrow((float)x, 5, 0) == ldexp(1, e) && m_narrow(x, 5, 0) == ldexp(1, e));
    assert_true(m_narrow((float)x, 6, 0) == ldexp(1, e + 1) &&
                m_narrow(x, 6, 0) == ldexp(1, e + 1));
    assert_true(m_narrow((float)x, 7, 0) == ldexp(1, e) && m_narrow(x, 7, 0) == ldexp(1, e));
    assert_true(m_narrow((float)(x * 1.2), 5, 0) == ldexp(1, e + 1));
  }
}

TEST_GROUP(kernels_math) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(close_to_the_library),
      cmocka_unit_test(ends_of_ranges),
      cmocka_unit_test(exponentials_up_to_88),
      cmocka_unit_test(gelus),
      cmocka_unit_test(powers),
      cmocka_unit_test(smaller_and_larger),
      cmocka_unit_test(integers),
      cmocka_unit_test(roundings),
      cmocka_unit_test(nearest_of_16_bits),
      cmocka_unit_test(narrow_formats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
