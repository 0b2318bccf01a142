// Products of f32 with --fpmath (cpu/fpmath.h), against loops in double: over the operands as they
// are, from which bf16 and bf16x3 differ by their rounding, no more and no less; and over the
// rounded operands, from which they differ by the rounding of f32 alone.
//
// NNRT_MAX_ISA chooses the instruction set: the values are the same in each.

#include "cpu/fpmath.h"
#include "device.h"
#include "kernels.h"
#include "nnrt_math.h"

static const char *const names[] = {"f32", "bf16", "bf16x3"};

// x = high + low; of the operand as it is, low is 0.
typedef struct Values {
  double *high, *low;
} Values;

static Values values(Fpmath fpmath, const float *x, int64_t n) {
  Values v = {zeros(n), zeros(n)};
  for (int64_t i = 0; i < n; i++) {
    float high = fpmath == FPMATH_f32 ? x[i] : m_from_bf16(m_to_bf16(x[i]));
    v.high[i] = high;
    if (fpmath == FPMATH_bf16x3) v.low[i] = m_from_bf16(m_to_bf16(x[i] - high));
  }
  return v;
}

// y (batch, m, n) = a b as the definition has it.
static double *naive(Fpmath fpmath, const Gemm *g, const float *x, const float *w) {
  int64_t n_a = g->m * g->k, n_b = g->k * g->n;
  Values a = values(fpmath, x, g->batch * n_a), b = values(fpmath, w, g->batch * n_b);
  double *y = zeros(g->batch * g->m * g->n);
  for (int64_t s = 0; s < g->batch; s++)
    for (int64_t i = 0; i < g->m; i++)
      for (int64_t l = 0; l < g->k; l++) {
        int64_t of_a = s * n_a + i * g->a_row + l * g->a_column;
        double high = a.high[of_a], low = a.low[of_a];
        for (int64_t j = 0; j < g->n; j++) {
          int64_t of_b = s * n_b + l * g->b_row + j * g->b_column;
          y[(s * g->m + i) * g->n + j] += (high + low) * b.high[of_b] + high * b.low[of_b];
        }
      }
  free(a.high), free(a.low), free(b.high), free(b.low);
  return y;
}

static Gemm gemm_of(const int64_t *size, bool trans_a, bool trans_b) {
  Gemm g = {.batch = size[0], .m = size[1], .n = size[2], .k = size[3]};
  g.a_row = trans_a ? 1 : g.k;
  g.a_column = trans_a ? g.m : 1;
  g.b_row = trans_b ? 1 : g.n;
  g.b_column = trans_b ? g.k : 1;
  return g;
}

// The relative norm of the difference of two results.
static double difference(const float *got, const double *want, int64_t n) {
  double off = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    off += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return sqrt(off / size);
}

// The rounding is there: a few numbers may be rounded by little.
static const double least[] = {0, 1e-3, 1e-6}, most[] = {1e-6, 5e-3, 2e-5};
enum { FEW = 1000 };

static void check_product(const char *what, Fpmath fpmath, const Gemm *g, const float *y,
                          const float *a, const float *b) {
  int64_t n = g->batch * g->m * g->n;
  double *rounded = naive(fpmath, g, a, b), *exact = naive(FPMATH_f32, g, a, b);
  char text[128];
  snprintf(text, sizeof text, "%s, %s, batch %d: %d x %d x %d", what, names[fpmath], (int)g->batch,
           (int)g->m, (int)g->k, (int)g->n);
  assert_near(text, y, rounded, n, 1e-6);
  double error = difference(y, exact, n);
  bool few = g->batch * (g->m * g->k + g->k * g->n) < FEW;
  if (!(error <= (few ? 2 : 1) * most[fpmath])) fail_msg("%s: error %g", text, error);
  if (!few && !(error >= least[fpmath]))
    fail_msg("%s: error %g, so nothing was rounded", text, error);
  free(rounded), free(exact);
}

// m, k, n: single rows and columns, rows that threads share, and rows a power of two apart.
static const int64_t layers[][3] = {{1, 300, 70},   {70, 1, 33},    {70, 33, 1},
                                    {1, 1, 1},      {50, 512, 128}, {127, 129, 131},
                                    {1030, 50, 64}, {47, 65, 1000}};

// y = x w, dx = dy w', dw = x' dy
static void layers_of(Fpmath fpmath) {
  for (size_t s = 0; s < sizeof layers / sizeof *layers; s++)
    for (int trans = 0; trans < 2; trans++) {
      int64_t m = layers[s][0], k = layers[s][1], n = layers[s][2];
      float *x = floats(m * k, 1), *w = floats(k * n, 2), *dy = floats(m * n, 3);
      float *y = results(m * n), *dx = results(m * k), *dw = results(k * n);
      NnrtPrep *p = nnrt_linear_prep_f32(m, k, n, trans);
      NnrtPrep *back = nnrt_linear_prep_f32(m, n, k, !trans);
      NnrtPrep *back_w = nnrt_linear_back_w_prep_f32(m, k, n, trans);
      assert_true(p && back && back_w);
      assert_int_equal(nnrt_linear_f32(p, y, x, w), 0);
      assert_int_equal(nnrt_linear_f32(back, dx, dy, w), 0);
      assert_int_equal(nnrt_linear_back_w_f32(back_w, dw, x, dy), 0);
      Gemm forward = gemm_of((int64_t[]){1, m, n, k}, false, trans);
      Gemm backward = gemm_of((int64_t[]){1, m, k, n}, false, !trans);
      Gemm weight = gemm_of((int64_t[]){1, trans ? n : k, trans ? k : n, m}, true, false);
      check_product("linear", fpmath, &forward, y, x, w);
      check_product("the gradient of x", fpmath, &backward, dx, dy, w);
      check_product("linear_back_w", fpmath, &weight, dw, trans ? dy : x, trans ? x : dy);
      // A second run has the same bits.
      float *again = results(k * n);
      assert_int_equal(nnrt_linear_back_w_f32(back_w, again, x, dy), 0);
      assert_same_bits("linear_back_w", dw, again, (size_t)(k * n) * sizeof *dw);
      nnrt_prep_free(p), nnrt_prep_free(back), nnrt_prep_free(back_w);
      free(x), free(w), free(dy), free(y), free(dx), free(dw), free(again);
    }
}

static const int64_t sizes[][4] = {{1, 1, 40, 7},   {1, 37, 1, 5},    {1, 2, 3, 900},
                                   {5, 13, 17, 19}, {48, 64, 64, 32}, {1, 241, 70, 390},
                                   {2, 60, 65, 1},  {3, 6, 48, 800},  {1, 300, 9, 400}};

static void matmuls_of(Fpmath fpmath) {
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int how = 0; how < 4; how++) {
      Gemm g = gemm_of(sizes[s], how & 1, how & 2);
      int64_t n = g.batch * g.m * g.n;
      float *a = floats(g.batch * g.m * g.k, 1), *b = floats(g.batch * g.k * g.n, 2),
            *y = results(n);
      NnrtPrep *p = nnrt_matmul_prep_f32(g.batch, g.m, g.n, g.k, how & 1, how & 2);
      assert_non_null(p);
      assert_int_equal(nnrt_matmul_f32(p, y, a, b), 0);
      check_product("matmul", fpmath, &g, y, a, b);
      nnrt_prep_free(p);
      free(a), free(b), free(y);
    }
}

static void products_of(Fpmath fpmath) {
  fpmath_set(fpmath);
  layers_of(fpmath);
  matmuls_of(fpmath);
  fpmath_set(FPMATH_f32);
}

static void f32(void **state) {
  (void)state;
  products_of(FPMATH_f32);
}

static void bf16(void **state) {
  (void)state;
  products_of(FPMATH_bf16);
}

static void bf16x3(void **state) {
  (void)state;
  products_of(FPMATH_bf16x3);
}

// NaN and infinity spread, in bf16x3 as NaN.
static void special(void **state) {
  (void)state;
  enum { M = 20, N = 40, K = 30 };
  for (int fpmath = FPMATH_f32; fpmath <= FPMATH_bf16x3; fpmath++) {
    fpmath_set((Fpmath)fpmath);
    float *a = floats(M * K, 1), *b = floats(K * N, 2), *y = results(M * N);
    a[7 * K + 3] = NAN;
    a[8 * K + 3] = INFINITY;
    NnrtPrep *p = nnrt_linear_prep_f32(M, K, N, false);
    assert_int_equal(nnrt_linear_f32(p, y, a, b), 0);
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) {
        float x = y[i * N + j];
        if (i == 7)
          assert_true(isnan(x));
        else if (i == 8)
          assert_true(fpmath == FPMATH_bf16x3 ? isnan(x) : isinf(x));
        else
          assert_true(isfinite(x));
      }
    nnrt_prep_free(p);
    free(a), free(b), free(y);
  }
  fpmath_set(FPMATH_f32);
}

// The flag is for operands in f32: others have the same bits with and without it.
static void other_types(void **state) {
  (void)state;
  enum { M = 50, N = 60, K = 70 };
  uint16_t x[M * K], w[K * N], y[2][M * N];
  float *a = floats(M * K, 1), *b = floats(K * N, 2);
  for (int i = 0; i < M * K; i++)
    x[i] = m_to_bf16(a[i]);
  for (int i = 0; i < K * N; i++)
    w[i] = m_to_bf16(b[i]);
  for (int i = 0; i < 2; i++) {
    fpmath_set(i ? FPMATH_bf16x3 : FPMATH_f32);
    NnrtPrep *p = nnrt_linear_prep_bf16(M, K, N, false);
    assert_non_null(p);
    assert_int_equal(nnrt_linear_bf16(p, y[i], x, w), 0);
    nnrt_prep_free(p);
  }
  assert_same_bits("linear of bf16", y[0], y[1], sizeof y[0]);
  fpmath_set(FPMATH_f32);
  free(a), free(b);
}

static int use_isa(void **state) {
  (void)state;
  int64_t set;
  Why w = {0};
  if (nnrt_device_isa(&set, &w) && nnrt_device_use_isa(set, &w)) return 0;
  fprintf(stderr, "%s\n", w.text);
  return 1;
}

TEST_GROUP(kernels_fpmath) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(f32),     cmocka_unit_test(bf16),        cmocka_unit_test(bf16x3),
      cmocka_unit_test(special), cmocka_unit_test(other_types),
  };
  return cmocka_run_group_tests(tests, use_isa, NULL);
}
