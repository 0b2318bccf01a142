// Kernels on bf16 and f16, at sizes for several threads, rows longer than a block, and rows of a
// few elements: the results are those of the kernels for f32 on the same numbers, rounded once. The
// loss of long rows, which are summed in pieces, is compared with sums in double.

#include "kernels.h"

#define FOR_THREADS                                                                                \
  for (int threads = 1; threads <= 3; threads += 2)                                                \
    if (omp_set_num_threads(threads), true)

// A tensor of 16 bits, and the same numbers in f32.
typedef struct Pair {
  uint16_t *half;
  float *wide;
} Pair;

static bool is_bf16; // or f16

static float to_wide(uint16_t h) {
  return is_bf16 ? m_from_bf16(h) : m_from_f16(h);
}

static uint16_t to_half(float x) {
  return is_bf16 ? m_to_bf16(x) : m_to_f16(x);
}

static Pair pair_of(float *x, int64_t n) {
  Pair p = {malloc((size_t)n * sizeof *p.half), x};
  for (int64_t i = 0; i < n; i++) {
    p.half[i] = to_half(x[i]);
    x[i] = to_wide(p.half[i]);
  }
  return p;
}

// Results begin as NaN.
static Pair pair_new(int64_t n) {
  return pair_of(results(n), n);
}

static void pair_free(Pair p) {
  free(p.half), free(p.wide);
}

// Checks that the 16-bit result is the f32 one, rounded, NaN for NaN.
static void assert_rounded(const char *what, const Pair *p, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (p->half[i] != to_half(p->wide[i]))
      fail_msg("%s: element %d is %g, not %g", what, (int)i, (double)to_wide(p->half[i]),
               (double)p->wide[i]);
}

#define HALF(name, ...)                                                                            \
  assert_int_equal(is_bf16 ? nnrt_##name##_bf16(__VA_ARGS__) : nnrt_##name##_f16(__VA_ARGS__), 0)
#define WIDE(name, ...) assert_int_equal(nnrt_##name##_f32(__VA_ARGS__), 0)

// Runs the body for both types, with one thread and with three.
#define FOR_ALL                                                                                    \
  for (int type = 0; type < 2; type++)                                                             \
    if (is_bf16 = type == 0, true) FOR_THREADS

static void norms_of(int64_t m, int64_t n) {
  Pair x = pair_of(floats(m * n, 1), m * n), dy = pair_of(floats(m * n, 2), m * n);
  Pair y = pair_new(m * n);
  float *g = floats(n, 3), *b = floats(n, 4), *mean = results(m), *rstd = results(m);
  float *mean2 = results(m), *rstd2 = results(m), *dg = results(n), *db = results(n);
  float *dg2 = results(n), *db2 = results(n);
  x.wide[n + 1] = NAN, x.half[n + 1] = to_half(NAN); // in row 1
  size_t row = (size_t)m * sizeof *mean, column = (size_t)n * sizeof *dg;
  HALF(layer_norm, y.half, mean, rstd, x.half, g, b, m, n, 1e-5);
  WIDE(layer_norm, y.wide, mean2, rstd2, x.wide, g, b, m, n, 1e-5);
  assert_rounded("layer_norm", &y, m * n);
  assert_true(isnan(y.wide[n]));
  assert_same_bits("mean", mean, mean2, row);
  assert_same_bits("rstd", rstd, rstd2, row);
  mean[1] = 0.25F, rstd[1] = 3; // so that the sums over rows are numbers
  x.wide[n + 1] = 0.5F, x.half[n + 1] = to_half(0.5F);
  HALF(layer_norm_back, y.half, dg, db, x.half, g, mean, rstd, dy.half, m, n);
  WIDE(layer_norm_back, y.wide, dg2, db2, x.wide, g, mean, rstd, dy.wide, m, n);
  assert_rounded("layer_norm_back", &y, m * n);
  assert_same_bits("dg", dg, dg2, column);
  assert_same_bits("db", db, db2, column);
  HALF(rms_norm, y.half, rstd, x.half, g, m, n, 1e-5);
  WIDE(rms_norm, y.wide, rstd2, x.wide, g, m, n, 1e-5);
  assert_rounded("rms_norm", &y, m * n);
  assert_same_bits("rstd", rstd, rstd2, row);
  HALF(rms_norm_back, y.half, dg, x.half, g, rstd, dy.half, m, n);
  WIDE(rms_norm_back, y.wide, dg2, x.wide, g, rstd, dy.wide, m, n);
  assert_rounded("rms_norm_back", &y, m * n);
  assert_same_bits("dg", dg, dg2, column);
  pair_free(x), pair_free(dy), pair_free(y), free(g), free(b), free(mean), free(rstd);
  free(mean2), free(rstd2), free(dg), free(db), free(dg2), free(db2);
}

static void norms(void **state) {
  (void)state;
  FOR_ALL {
    norms_of(301, 517);
    norms_of(20, 5000); // longer than a block
    norms_of(40001, 3);
  }
}

static void softmax_of(int64_t a, int64_t b, int64_t c) {
  int64_t shape[] = {a, b, c}, all = a * b * c;
  for (int64_t axis = 0; axis < 3; axis++) {
    Pair x = pair_of(floats(all, 1), all), dy = pair_of(floats(all, 2), all), y = pair_new(all);
    Pair dx = pair_new(all);
    HALF(softmax, y.half, x.half, 3, shape, axis);
    WIDE(softmax, y.wide, x.wide, 3, shape, axis);
    assert_rounded("softmax", &y, all);
    for (int64_t i = 0; i < all; i++)
      y.wide[i] = to_wide(y.half[i]);
    HALF(softmax_back, dx.half, y.half, dy.half, 3, shape, axis);
    WIDE(softmax_back, dx.wide, y.wide, dy.wide, 3, shape, axis);
    assert_rounded("softmax_back", &dx, all);
    HALF(log_softmax_back, y.half, y.half, dy.half, 3, shape, axis); // in place
    WIDE(log_softmax_back, y.wide, y.wide, dy.wide, 3, shape, axis);
    assert_rounded("log_softmax_back", &y, all);
    HALF(log_softmax, x.half, x.half, 3, shape, axis); // in place
    WIDE(log_softmax, x.wide, x.wide, 3, shape, axis);
    assert_rounded("log_softmax", &x, all);
    pair_free(x), pair_free(dy), pair_free(y), pair_free(dx);
  }
}

static void softmax(void **state) {
  (void)state;
  FOR_ALL {
    softmax_of(37, 41, 67);
    softmax_of(3, 5, 4099);
    softmax_of(7001, 2, 3);
  }
}

// The f32 kernel sums a run of a channel as a whole: sums differ in their last bits.
static void batch_norm_of(int64_t n, int64_t c, int64_t inner, bool last) {
  int64_t first_shape[] = {n, c, inner}, last_shape[] = {n, inner, c}, all = n * c * inner;
  const int64_t *shape = last ? last_shape : first_shape;
  int64_t axis = last ? 2 : 1, count = n * inner;
  Pair x = pair_of(floats(all, 1), all), dy = pair_of(floats(all, 2), all), y = pair_new(all);
  float *g = floats(c, 3), *b = floats(c, 4), *mean = results(c), *var = results(c);
  float *dg = results(c), *db = results(c), *dg2 = results(c), *db2 = results(c);
  double *sum = zeros(c), *square = zeros(c), *product = zeros(c), *dy_sum = zeros(c);
  for (int64_t i = 0; i < all; i++)
    sum[last ? i % c : i / inner % c] += (double)x.wide[i] / (double)count;
  HALF(batch_norm_mean, mean, x.half, 3, shape, axis, count);
  assert_near("batch_norm_mean", mean, sum, c, 1e-6);
  for (int64_t i = 0; i < all; i++) {
    int64_t k = last ? i % c : i / inner % c;
    double d = (double)x.wide[i] - (double)mean[k];
    square[k] += d * d / (double)count;
  }
  HALF(batch_norm_var, var, x.half, mean, 3, shape, axis, count);
  assert_near("batch_norm_var", var, square, c, 1e-6);
  for (int64_t i = 0; i < all; i++) {
    int64_t k = last ? i % c : i / inner % c;
    double d = (double)x.wide[i] - (double)mean[k], r = 1 / sqrt((double)var[k] + 1e-5);
    product[k] += (double)dy.wide[i] * d * r;
    dy_sum[k] += (double)dy.wide[i];
  }
  HALF(batch_norm_sums, dg, db, x.half, mean, var, dy.half, 3, shape, axis, 1e-5);
  assert_near("batch_norm_sums dg", dg, product, c, 1e-6);
  assert_near("batch_norm_sums db", db, dy_sum, c, 1e-6);
  HALF(batch_norm, y.half, x.half, g, b, mean, var, 3, shape, axis, 1e-5);
  WIDE(batch_norm, y.wide, x.wide, g, b, mean, var, 3, shape, axis, 1e-5);
  assert_rounded("batch_norm", &y, all);
  NnrtBatchNormBack attrs = {.axis = axis, .eps = 1e-5, .count = count};
  HALF(batch_norm_back, y.half, x.half, g, mean, var, dy.half, dg, db, 3, shape, &attrs);
  WIDE(batch_norm_back, y.wide, x.wide, g, mean, var, dy.wide, dg, db, 3, shape, &attrs);
  assert_rounded("batch_norm_back", &y, all);
  pair_free(x), pair_free(dy), pair_free(y), free(g), free(b), free(mean), free(var), free(dg);
  free(db), free(dg2), free(db2), free(sum), free(square), free(product), free(dy_sum);
}

static void batch_norm(void **state) {
  (void)state;
  FOR_ALL for (int last = 0; last < 2; last++) {
    batch_norm_of(6, 37, 253, last);
    batch_norm_of(3, 5, 5001, last);
    batch_norm_of(2, 3001, 7, last);
  }
}

// Rows of c logits, of which the last are padding.
static void loss_of(int64_t m, int64_t c, int64_t classes) {
  Pair x = pair_of(floats(m * c, 1), m * c), dx = pair_new(m * c);
  float *loss = results(m), *lse = results(m), *dloss = floats(m, 2), *parts = results(m);
  double *want = zeros(m), *want_lse = zeros(m);
  int64_t *label = calloc((size_t)m, sizeof *label);
  for (int64_t i = 0; i < m; i++) {
    double sum = 0;
    for (int64_t j = 0; j < c; j++) {
      float far = j < classes ? 8 * x.wide[i * c + j] : 300; // the padding is to be ignored
      x.half[i * c + j] = to_half(far);
      x.wide[i * c + j] = to_wide(x.half[i * c + j]);
      if (j < classes) sum += exp((double)x.wide[i * c + j]);
    }
    label[i] = i == 1 ? -100 : i * 7919 % classes;
    want_lse[i] = log(sum);
    want[i] = i == 1 ? 0 : want_lse[i] - (double)x.wide[i * c + label[i]];
  }
  HALF(cross_entropy, loss, lse, x.half, label, m, c, 8, -100, classes);
  assert_near("cross_entropy", loss, want, m, 1e-6);
  assert_near("log-sum-exp", lse, want_lse, m, 1e-6);
  HALF(lse_parts, parts, x.half, m, 1, c, 0, classes);
  assert_near("lse_parts", parts, want_lse, m, 1e-6);
  HALF(cross_entropy_back, dx.half, x.half, label, lse, dloss, m, c, 0, classes, 8, -100);
  WIDE(cross_entropy_back, dx.wide, x.wide, label, lse, dloss, m, c, 0, classes, 8, -100);
  assert_rounded("cross_entropy_back", &dx, m * c);
  HALF(cross_entropy_back, x.half, x.half, label, lse, dloss, m, c, 0, classes, 8, -100);
  assert_same_bits("cross_entropy_back in place", x.half, dx.half, (size_t)(m * c) * 2);
  // A NaN anywhere in a row is in its loss.
  x.half[2 * c - 1 - (c - classes)] = to_half(NAN);
  HALF(cross_entropy, loss, lse, x.half, label, m, c, 8, -100, classes);
  assert_true(isnan(lse[1]) && !isnan(lse[0]));
  pair_free(x), pair_free(dx), free(loss), free(lse), free(dloss), free(parts), free(want);
  free(want_lse), free(label);
}

static void losses(void **state) {
  (void)state;
  FOR_ALL {
    loss_of(2000, 11, 10);
    loss_of(9, 10007, 10001); // several pieces
    loss_of(3, 2048, 2048);
  }
}

// Rows of -inf, and one piece of a row that is.
static void infinite_logits(void **state) {
  (void)state;
  enum { C = 5000 };
  FOR_ALL {
    Pair x = pair_new(2 * C);
    float lse[2];
    for (int64_t j = 0; j < 2 * C; j++)
      x.half[j] = to_half(j < C || j < C + 3000 ? -INFINITY : 0);
    HALF(lse_parts, lse, x.half, 2, 1, C, 0, C);
    assert_true(lse[0] == -INFINITY && fabs((double)lse[1] - log(2000)) < 1e-6);
    pair_free(x);
  }
}

static void gather_back(void **state) {
  (void)state;
  int64_t shape[] = {503, 65}, count[] = {701}, all = 701 * 65;
  FOR_ALL {
    Pair dy = pair_of(floats(all, 1), all);
    float *dx = results(503 * 65), *dx2 = results(503 * 65);
    int64_t *at = calloc(701, sizeof *at);
    for (int64_t i = 0; i < 701; i++)
      at[i] = i * 31 % 97;
    HALF(gather_back, dx, at, dy.half, 1, count, 8, 2, shape, 0, 0, 0, 503);
    WIDE(gather_back, dx2, at, dy.wide, 1, count, 8, 2, shape, 0, 0, 0, 503);
    assert_same_bits("gather_back", dx, dx2, (size_t)(503 * 65) * sizeof *dx);
    pair_free(dy), free(dx), free(dx2), free(at);
  }
}

TEST_GROUP(kernels_narrow) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(norms),  cmocka_unit_test(softmax),         cmocka_unit_test(batch_norm),
      cmocka_unit_test(losses), cmocka_unit_test(infinite_logits), cmocka_unit_test(gather_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
