// Determinants and cofactors by elimination, against expansion along the first row; of singular
// matrices, and many that several threads share.

#include "kernels.h"

// The determinant of x (n, n), by expansion along the first row.
static double expanded(const double *x, int64_t n) {
  if (n == 0) return 1;
  double sum = 0, rest[64];
  for (int64_t column = 0; column < n; column++) {
    double *out = rest;
    for (int64_t i = 1; i < n; i++)
      for (int64_t j = 0; j < n; j++)
        if (j != column) *out++ = x[i * n + j];
    sum += (column % 2 ? -1 : 1) * x[column] * expanded(rest, n - 1);
  }
  return sum;
}

static double cofactor(const float *x, int64_t n, int64_t row, int64_t column) {
  double rest[64], *out = rest;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      if (i != row && j != column) *out++ = (double)x[i * n + j];
  return ((row + column) % 2 ? -1 : 1) * expanded(rest, n - 1);
}

// Compares m matrices (n, n) with their expansions.
static void compare(const float *x, int64_t m, int64_t n) {
  float *dy = floats(m, 7), *y = results(m), *dx = results(m * n * n);
  assert_int_equal(nnrt_det_f32(y, x, m, n), NNRT_OK);
  assert_int_equal(nnrt_det_back_f32(dx, x, dy, m, n), NNRT_OK);
  for (int64_t i = 0; i < m; i++) {
    const float *at = x + i * n * n;
    double a[64];
    for (int64_t k = 0; k < n * n; k++)
      a[k] = (double)at[k];
    assert_true(fabs((double)y[i] - expanded(a, n)) <= 1e-6 * (1 + fabs(expanded(a, n))));
    for (int64_t k = 0; k < n * n; k++) {
      double want = (double)dy[i] * cofactor(at, n, k / n, k % n);
      assert_true(fabs((double)dx[i * n * n + k] - want) <= 1e-6 * (1 + fabs(want)));
    }
  }
  free(dy), free(y), free(dx);
}

static void singular(void **state) {
  (void)state;
  // Of rank 2, 2, 1 and 0.
  static const float x[] = {1, 2, 3, 2, 4, 6, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2,
                            1, 2, 3, 2, 4, 6, 3, 6, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  compare(x, 4, 3);
  float zero = 0;
  compare(&zero, 1, 1);
}

static void many(void **state) {
  (void)state;
  for (int64_t n = 1; n <= 5; n++)
    for (int threads = 1; threads <= 3; threads += 2) {
      omp_set_num_threads(threads);
      float *x = floats(4000 * n * n, n);
      compare(x, 4000, n);
      free(x);
    }
}

static void ends(void **state) {
  (void)state;
  float y = 0, none[] = {1, NAN, 2, 3}, back[4], one = 1;
  assert_int_equal(nnrt_det_f32(&y, none, 1, 0), NNRT_OK);
  assert_true(y == 1); // the product of nothing
  assert_int_equal(nnrt_det_f32(&y, none, 1, 2), NNRT_OK);
  assert_true(isnan(y));
  assert_int_equal(nnrt_det_back_f32(back, none, &one, 1, 2), NNRT_OK);
  bool lost = true;
  for (int i = 0; i < 4; i++)
    lost &= !isnan(back[i]);
  assert_false(lost);
}

TEST_GROUP(kernels_det) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(singular),
      cmocka_unit_test(many),
      cmocka_unit_test(ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
