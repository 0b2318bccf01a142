// Products of matrices in each element type, against naive loops.  Our own kernel (cpu/gemm.h):
// sizes at the ends of tiles, panels, slices and blocks, and bits that do not depend on the number
// of threads.  The product and its two gradients, whichever kernel runs them: one row, one column,
// and rows a power of two apart.
//
// NNRT_MAX_ISA chooses the version of both kernels.

#include "cpu/gemm.h"
#include "device.h"
#include "kernels.h"
#include "nnrt_math.h"

// Elements of one type, and their values in double.
typedef struct Matrix {
  void *at;
  double *value;
} Matrix;

static size_t bytes_of(GemmType t, int64_t n) {
  return (size_t)n * (t == GEMM_f32 ? 4 : 2);
}

static double value_at(GemmType t, const void *x, int64_t i) {
  if (t == GEMM_f32) return ((const float *)x)[i];
  uint16_t h = ((const uint16_t *)x)[i];
  return t == GEMM_bf16 ? m_from_bf16(h) : m_from_f16(h);
}

static Matrix matrix(GemmType t, int64_t n, int64_t seed) {
  float *x = floats(n, seed);
  Matrix m = {malloc(bytes_of(t, n)), zeros(n)};
  for (int64_t i = 0; i < n; i++) {
    if (t == GEMM_f32)
      ((float *)m.at)[i] = x[i];
    else
      ((uint16_t *)m.at)[i] = t == GEMM_bf16 ? m_to_bf16(x[i]) : m_to_f16(x[i]);
    m.value[i] = value_at(t, m.at, i);
  }
  free(x);
  return m;
}

static void matrix_free(Matrix m) {
  free(m.at), free(m.value);
}

// Compares n elements of a result of type t: those of 16 bits are off by half a unit in the last
// place.
static void check_result(const char *what, GemmType t, const void *y, const double *want,
                         int64_t n) {
  float *got = results(n);
  for (int64_t i = 0; i < n; i++)
    got[i] = (float)value_at(t, y, i);
  assert_near(what, got, want, n, t == GEMM_f32 ? 1e-6 : t == GEMM_bf16 ? 0x1p-8 : 0x1p-11);
  free(got);
}

// y (batch, m, n) = a b
static double *naive(const Gemm *g, const double *a, const double *b) {
  double *y = zeros(g->batch * g->m * g->n);
  for (int64_t s = 0; s < g->batch; s++)
    for (int64_t i = 0; i < g->m; i++)
      for (int64_t l = 0; l < g->k; l++) {
        double x = a[s * g->m * g->k + i * g->a_row + l * g->a_column];
        const double *row = b + s * g->k * g->n + l * g->b_row;
        for (int64_t j = 0; j < g->n; j++)
          y[(s * g->m + i) * g->n + j] += x * row[j * g->b_column];
      }
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

// Runs the product with `threads` threads.  The result begins as NaN in all types, and a margin
// after it must stay.
static void *run(const Gemm *g, int threads, const void *a, const void *b) {
  enum { MARGIN = 64 };
  size_t bytes = bytes_of(g->out, g->batch * g->m * g->n);
  unsigned char *y = malloc(bytes + MARGIN);
  memset(y, 0xff, bytes + MARGIN);
  assert_int_equal(gemm_run(g, threads, y, a, b), 0);
  for (int i = 0; i < MARGIN; i++)
    assert_int_equal(y[bytes + (size_t)i], 0xff);
  return y;
}

static const int64_t sizes[][4] = {
    {1, 1, 1, 1},    {1, 1, 40, 7},    {1, 37, 1, 5},     {1, 2, 3, 900},   {1, 14, 32, 64},
    {1, 15, 33, 65}, {1, 29, 31, 129}, {1, 128, 10, 256}, {5, 13, 17, 19},  {1, 241, 70, 390},
    {2, 60, 65, 1},  {1, 9, 1100, 21}, {3, 6, 48, 800},   {1, 1100, 9, 400}};

static void one_type(GemmType in, GemmType out) {
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int how = 0; how < 4; how++) {
      Gemm g = gemm_of(sizes[s], how & 1, how & 2);
      g.in = in;
      g.out = out;
      Matrix a = matrix(in, g.batch * g.m * g.k, 1), b = matrix(in, g.batch * g.k * g.n, 2);
      double *want = naive(&g, a.value, b.value);
      int64_t n = g.batch * g.m * g.n;
      void *y = run(&g, 2, a.at, b.at);
      check_result("gemm", out, y, want, n);
      free(y), free(want);
      matrix_free(a);
      matrix_free(b);
    }
}

static void types(void **state) {
  (void)state;
  one_type(GEMM_f32, GEMM_f32);
  one_type(GEMM_bf16, GEMM_f32);
  one_type(GEMM_f16, GEMM_f32);
  one_type(GEMM_bf16, GEMM_bf16);
  one_type(GEMM_f16, GEMM_f16);
}

static void threads(void **state) {
  (void)state;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int in = GEMM_f32; in <= GEMM_f16; in++) {
      Gemm g = gemm_of(sizes[s], s & 1, s & 2);
      g.in = g.out = (GemmType)in;
      Matrix a = matrix(g.in, g.batch * g.m * g.k, 1), b = matrix(g.in, g.batch * g.k * g.n, 2);
      void *one = run(&g, 1, a.at, b.at);
      for (int n = 2; n <= 7; n++) {
        void *y = run(&g, n, a.at, b.at);
        assert_same_bits("gemm", one, y, bytes_of(g.out, g.batch * g.m * g.n));
        free(y);
      }
      free(one);
      matrix_free(a);
      matrix_free(b);
    }
}

// Sums of no products are zeros, and infinities and NaN spread as they do in a sum.
static void special(void **state) {
  (void)state;
  Gemm g = gemm_of((int64_t[]){1, 3, 5, 0}, false, false);
  float *y = run(&g, 1, "", "");
  for (int i = 0; i < 15; i++)
    assert_true(y[i] == 0);
  free(y);
  g = gemm_of((int64_t[]){1, 20, 40, 30}, false, false);
  Matrix a = matrix(GEMM_f32, 600, 1), b = matrix(GEMM_f32, 1200, 2);
  ((float *)a.at)[7 * 30 + 3] = NAN;
  ((float *)a.at)[8 * 30 + 3] = INFINITY;
  y = run(&g, 1, a.at, b.at);
  for (int i = 0; i < 20; i++)
    for (int j = 0; j < 40; j++) {
      assert_true(isnan(y[i * 40 + j]) ? i == 7 : i != 7);
      assert_true(isinf(y[i * 40 + j]) ? i == 8 : i != 8);
    }
  free(y);
  matrix_free(a);
  matrix_free(b);
}

// -- The product and its gradients --------------------------------------------------------------

// The kernels of one element type.
typedef struct Kernels {
  GemmType type;
  NnrtPrep *(*linear_prep)(int64_t m, int64_t k, int64_t n, bool trans);
  int (*linear)(NnrtPrep *p, void *y, const void *x, const void *w);
  NnrtPrep *(*back_w_prep)(int64_t m, int64_t k, int64_t n, bool trans);
  int (*back_w)(NnrtPrep *p, float *dw, const void *x, const void *dy);
  NnrtPrep *(*matmul_prep)(int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb);
  int (*matmul)(NnrtPrep *p, void *y, const void *a, const void *b);
} Kernels;

#define KERNELS(type, T)                                                                           \
  static int linear_##type(NnrtPrep *p, void *y, const void *x, const void *w) {                   \
    return nnrt_linear_##type(p, (T *)y, (const T *)x, (const T *)w);                              \
  }                                                                                                \
  static int back_w_##type(NnrtPrep *p, float *dw, const void *x, const void *dy) {                \
    return nnrt_linear_back_w_##type(p, dw, (const T *)x, (const T *)dy);                          \
  }                                                                                                \
  static int matmul_##type(NnrtPrep *p, void *y, const void *a, const void *b) {                   \
    return nnrt_matmul_##type(p, (T *)y, (const T *)a, (const T *)b);                              \
  }                                                                                                \
  static const Kernels kernels_##type = {                                                          \
      GEMM_##type,   nnrt_linear_prep_##type, linear_##type, nnrt_linear_back_w_prep_##type,       \
      back_w_##type, nnrt_matmul_prep_##type, matmul_##type};
KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)

static void *nan_result(GemmType t, int64_t n) {
  return memset(malloc(bytes_of(t, n)), 0xff, bytes_of(t, n));
}

// m, k, n; the last one, a long vocabulary, is for f32 only.
static const int64_t layers[][3] = {
    {1, 300, 70},   {70, 1, 33},    {70, 33, 1},     {1, 1, 1},       {70, 256, 64},
    {65, 1024, 50}, {50, 512, 512}, {127, 129, 131}, {1030, 50, 256}, {48, 48, 16401}};
enum { LAYERS = sizeof layers / sizeof *layers };

// y = x w, dx = dy w', dw = x' dy
static void layer_of(const Kernels *f) {
  for (int s = 0; s < LAYERS - (f->type != GEMM_f32); s++)
    for (int trans = 0; trans < 2; trans++) {
      int64_t m = layers[s][0], k = layers[s][1], n = layers[s][2];
      Matrix x = matrix(f->type, m * k, 1), w = matrix(f->type, k * n, 2);
      Matrix dy = matrix(f->type, m * n, 3);
      void *y = nan_result(f->type, m * n), *dx = nan_result(f->type, m * k);
      float *dw = nan_result(GEMM_f32, k * n);
      NnrtPrep *p = f->linear_prep(m, k, n, trans), *back = f->linear_prep(m, n, k, !trans);
      NnrtPrep *back_w = f->back_w_prep(m, k, n, trans);
      assert_true(p && back && back_w);
      assert_int_equal(f->linear(p, y, x.at, w.at), 0);
      assert_int_equal(f->linear(back, dx, dy.at, w.at), 0);
      assert_int_equal(f->back_w(back_w, dw, x.at, dy.at), 0);
      Gemm forward = gemm_of((int64_t[]){1, m, n, k}, false, trans);
      Gemm backward = gemm_of((int64_t[]){1, m, k, n}, false, !trans);
      Gemm weight = gemm_of((int64_t[]){1, trans ? n : k, trans ? k : n, m}, true, false);
      double *want = naive(&forward, x.value, w.value);
      double *want_dx = naive(&backward, dy.value, w.value);
      double *want_dw =
          trans ? naive(&weight, dy.value, x.value) : naive(&weight, x.value, dy.value);
      check_result("linear", f->type, y, want, m * n);
      check_result("the gradient of x", f->type, dx, want_dx, m * k);
      check_result("linear_back_w", GEMM_f32, dw, want_dw, k * n);
      nnrt_prep_free(p), nnrt_prep_free(back), nnrt_prep_free(back_w);
      free(y), free(dx), free(dw), free(want), free(want_dx), free(want_dw);
      matrix_free(x), matrix_free(w), matrix_free(dy);
    }
}

static void matmul_of(const Kernels *f) {
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int how = 0; how < 4; how++) {
      Gemm g = gemm_of(sizes[s], how & 1, how & 2);
      Matrix a = matrix(f->type, g.batch * g.m * g.k, 1),
             b = matrix(f->type, g.batch * g.k * g.n, 2);
      void *y = nan_result(f->type, g.batch * g.m * g.n);
      NnrtPrep *p = f->matmul_prep(g.batch, g.m, g.n, g.k, how & 1, how & 2);
      assert_non_null(p);
      assert_int_equal(f->matmul(p, y, a.at, b.at), 0);
      double *want = naive(&g, a.value, b.value);
      check_result("matmul", f->type, y, want, g.batch * g.m * g.n);
      nnrt_prep_free(p);
      free(y), free(want);
      matrix_free(a), matrix_free(b);
    }
}

static void products_f32(void **state) {
  (void)state;
  layer_of(&kernels_f32);
  matmul_of(&kernels_f32);
}

static void products_bf16(void **state) {
  (void)state;
  layer_of(&kernels_bf16);
  matmul_of(&kernels_bf16);
}

static void products_f16(void **state) {
  (void)state;
  layer_of(&kernels_f16);
  matmul_of(&kernels_f16);
}

static int use_isa(void **state) {
  (void)state;
  int64_t set;
  Why w = {0};
  if (nnrt_device_isa(&set, &w) && nnrt_device_use_isa(set, &w)) return 0;
  fprintf(stderr, "%s\n", w.text);
  return 1;
}

TEST_GROUP(kernels_gemm) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(types),         cmocka_unit_test(threads),
      cmocka_unit_test(special),       cmocka_unit_test(products_f32),
      cmocka_unit_test(products_bf16), cmocka_unit_test(products_f16),
  };
  return cmocka_run_group_tests(tests, use_isa, NULL);
}
