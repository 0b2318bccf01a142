// Kernels over rows and channels, at sizes for several threads: normalisations, softmax, losses,
// reductions and pooling, against naive loops in double; with one thread and with three.

#include "kernels.h"

// Runs the body with one thread and with three.
#define FOR_THREADS                                                                                \
  for (int threads = 1; threads <= 3; threads += 2)                                                \
    if (omp_set_num_threads(threads), true)

static void layer_norm(void **state) {
  (void)state;
  int64_t m = 301, n = 517;
  float *x = floats(m * n, 1), *g = floats(n, 2), *b = floats(n, 3), *dy = floats(m * n, 4);
  double *y = zeros(m * n), *dx = zeros(m * n), *dg = zeros(n), *db = zeros(n), eps = 1e-5;
  double *rms = zeros(m * n), *rms_dx = zeros(m * n), *rms_dg = zeros(n);
  for (int64_t i = 0; i < m; i++) {
    double mean = 0, var = 0, square = 0, sum = 0, product = 0, rms_product = 0;
    for (int64_t j = 0; j < n; j++)
      mean += (double)x[i * n + j] / (double)n;
    for (int64_t j = 0; j < n; j++) {
      double v = (double)x[i * n + j], d = v - mean;
      var += d * d / (double)n;
      square += v * v / (double)n;
    }
    double r = 1 / sqrt(var + eps), rms_r = 1 / sqrt(square + eps);
    for (int64_t j = 0; j < n; j++) {
      double v = (double)x[i * n + j], h = (v - mean) * r, e = (double)dy[i * n + j] * (double)g[j];
      y[i * n + j] = h * (double)g[j] + (double)b[j];
      rms[i * n + j] = v * rms_r * (double)g[j];
      sum += e / (double)n;
      product += e * h / (double)n;
      rms_product += e * v * rms_r / (double)n;
      dg[j] += (double)dy[i * n + j] * h;
      db[j] += (double)dy[i * n + j];
      rms_dg[j] += (double)dy[i * n + j] * v * rms_r;
    }
    for (int64_t j = 0; j < n; j++) {
      double v = (double)x[i * n + j], e = (double)dy[i * n + j] * (double)g[j];
      dx[i * n + j] = r * (e - sum - (v - mean) * r * product);
      rms_dx[i * n + j] = rms_r * (e - v * rms_r * rms_product);
    }
  }
  FOR_THREADS {
    float *got = results(m * n), *mean = results(m), *rstd = results(m);
    float *got_dg = results(n), *got_db = results(n);
    assert_int_equal(nnrt_layer_norm_f32(got, mean, rstd, x, g, b, m, n, eps), 0);
    assert_near("layer_norm", got, y, m * n, 1e-6);
    assert_int_equal(nnrt_layer_norm_back_f32(got, got_dg, got_db, x, g, mean, rstd, dy, m, n), 0);
    assert_near("layer_norm_back dx", got, dx, m * n, 1e-6);
    assert_near("layer_norm_back dg", got_dg, dg, n, 1e-6);
    assert_near("layer_norm_back db", got_db, db, n, 1e-6);
    assert_int_equal(nnrt_rms_norm_f32(got, rstd, x, g, m, n, eps), 0);
    assert_near("rms_norm", got, rms, m * n, 1e-6);
    assert_int_equal(nnrt_rms_norm_back_f32(got, got_dg, x, g, rstd, dy, m, n), 0);
    assert_near("rms_norm_back dx", got, rms_dx, m * n, 1e-6);
    assert_near("rms_norm_back dg", got_dg, rms_dg, n, 1e-6);
    free(got), free(mean), free(rstd), free(got_dg), free(got_db);
  }
  free(x), free(g), free(b), free(dy), free(y), free(dx), free(dg), free(db);
  free(rms), free(rms_dx), free(rms_dg);
}

// Along each axis of (outer, n, inner), out of place and in place.
static void softmax(void **state) {
  (void)state;
  int64_t shape[] = {37, 41, 67}, all = shape[0] * shape[1] * shape[2];
  for (int64_t axis = 0; axis < 3; axis++) {
    int64_t n = shape[axis], stride = axis == 0 ? shape[1] * shape[2] : axis == 1 ? shape[2] : 1;
    float *x = floats(all, 1), *dy = floats(all, 2);
    double *y = zeros(all), *log_y = zeros(all), *dx = zeros(all), *log_dx = zeros(all);
    for (int64_t i = 0; i < all; i++)
      x[i] *= 20;
    for (int64_t i = 0; i < all; i++) {
      if (i / stride % n != 0) continue; // the first of each line
      double top = -INFINITY, sum = 0, dot = 0, dy_sum = 0;
      for (int64_t j = 0; j < n; j++)
        top = fmax(top, (double)x[i + j * stride]);
      for (int64_t j = 0; j < n; j++)
        sum += exp((double)x[i + j * stride] - top);
      for (int64_t j = 0; j < n; j++) {
        int64_t at = i + j * stride;
        log_y[at] = (double)x[at] - top - log(sum);
        y[at] = exp(log_y[at]);
        dot += y[at] * (double)dy[at];
        dy_sum += (double)dy[at];
      }
      for (int64_t j = 0; j < n; j++) {
        int64_t at = i + j * stride;
        dx[at] = y[at] * ((double)dy[at] - dot);
        log_dx[at] = (double)dy[at] - y[at] * dy_sum;
      }
    }
    FOR_THREADS {
      float *got = results(all), *got_dx = results(all);
      assert_int_equal(nnrt_softmax_f32(got, x, 3, shape, axis), 0);
      assert_near("softmax", got, y, all, 1e-6);
      assert_int_equal(nnrt_softmax_back_f32(got_dx, got, dy, 3, shape, axis), 0);
      assert_near("softmax_back", got_dx, dx, all, 1e-6);
      assert_int_equal(nnrt_softmax_back_f32(got, got, dy, 3, shape, axis), 0);
      assert_same_bits("softmax_back in place", got, got_dx, (size_t)all * sizeof *got);
      memcpy(got, x, (size_t)all * sizeof *got);
      assert_int_equal(nnrt_log_softmax_f32(got, got, 3, shape, axis), 0);
      assert_near("log_softmax in place", got, log_y, all, 1e-6);
      assert_int_equal(nnrt_log_softmax_back_f32(got_dx, got, dy, 3, shape, axis), 0);
      assert_near("log_softmax_back", got_dx, log_dx, all, 1e-5);
      free(got), free(got_dx);
    }
    free(x), free(dy), free(y), free(log_y), free(dx), free(log_dx);
  }
}

static void batch_norm(void **state) {
  (void)state;
  int64_t first[] = {6, 37, 23, 11}, last[] = {6, 23, 11, 37}, c = 37, all = 6 * 37 * 23 * 11;
  int64_t count = all / c;
  for (int axis = 1; axis <= 3; axis += 2) {
    const int64_t *shape = axis == 1 ? first : last;
    int64_t inner = axis == 1 ? 23 * 11 : 1;
    float *x = floats(all, 1), *dy = floats(all, 2), *g = floats(c, 3), *b = floats(c, 4);
    double *mean = zeros(c), *var = zeros(c), *dg = zeros(c), *db = zeros(c);
    double *y = zeros(all), *dx = zeros(all), eps = 1e-5;
    for (int64_t i = 0; i < all; i++) {
      x[i] += 3; // a mean that is large compared with the deviation
      mean[i / inner % c] += (double)x[i] / (double)count;
    }
    for (int64_t i = 0; i < all; i++) {
      double d = (double)x[i] - mean[i / inner % c];
      var[i / inner % c] += d * d / (double)count;
    }
    for (int64_t i = 0; i < all; i++) {
      int64_t k = i / inner % c;
      double h = ((double)x[i] - mean[k]) / sqrt(var[k] + eps);
      y[i] = h * (double)g[k] + (double)b[k];
      dg[k] += (double)dy[i] * h;
      db[k] += (double)dy[i];
    }
    for (int64_t i = 0; i < all; i++) {
      int64_t k = i / inner % c;
      double r = 1 / sqrt(var[k] + eps), h = ((double)x[i] - mean[k]) * r;
      dx[i] =
          (double)g[k] * r * ((double)dy[i] - db[k] / (double)count - h * dg[k] / (double)count);
    }
    FOR_THREADS {
      float *m = results(c), *v = results(c), *s = results(c), *t = results(c), *got = results(all);
      assert_int_equal(nnrt_batch_norm_mean_f32(m, x, 4, shape, axis, count), 0);
      assert_near("batch_norm_mean", m, mean, c, 1e-6);
      assert_int_equal(nnrt_batch_norm_var_f32(v, x, m, 4, shape, axis, count), 0);
      assert_near("batch_norm_var", v, var, c, 1e-6);
      assert_int_equal(nnrt_batch_norm_f32(got, x, g, b, m, v, 4, shape, axis, eps), 0);
      assert_near("batch_norm", got, y, all, 1e-6);
      assert_int_equal(nnrt_batch_norm_sums_f32(s, t, x, m, v, dy, 4, shape, axis, eps), 0);
      assert_near("batch_norm_sums dg", s, dg, c, 2e-6);
      assert_near("batch_norm_sums db", t, db, c, 1e-6);
      assert_int_equal(nnrt_batch_norm_back_f32(got, x, g, m, v, dy, s, t, 4, shape,
                                                &(NnrtBatchNormBack){axis, eps, count}),
                       0);
      assert_near("batch_norm_back", got, dx, all, 1e-6);
      free(m), free(v), free(s), free(t), free(got);
    }
    free(x), free(dy), free(g), free(b), free(mean), free(var), free(dg), free(db), free(y),
        free(dx);
  }
}

static void cross_entropy(void **state) {
  (void)state;
  int64_t m = 203, c = 307;
  float *x = floats(m * c, 1), *dloss = floats(m, 2);
  int32_t *labels = calloc((size_t)m, sizeof *labels);
  int64_t *wide = calloc((size_t)m, sizeof *wide);
  double *loss = zeros(m), *dx = zeros(m * c);
  for (int64_t i = 0; i < m; i++) {
    wide[i] = labels[i] = i % 5 ? (int32_t)(i * 31 % c) : -100;
    double sum = 0;
    for (int64_t j = 0; j < c; j++)
      sum += exp((double)x[i * c + j]);
    if (labels[i] < 0) continue;
    loss[i] = log(sum) - (double)x[i * c + labels[i]];
    for (int64_t j = 0; j < c; j++)
      dx[i * c + j] = (exp((double)x[i * c + j]) / sum - (j == labels[i])) * (double)dloss[i];
  }
  FOR_THREADS {
    float *got = results(m), *lse = results(m), *got_dx = results(m * c);
    assert_int_equal(nnrt_cross_entropy_f32(got, lse, x, labels, m, c, 4, -100, 0), 0);
    assert_near("cross_entropy", got, loss, m, 1e-6);
    assert_int_equal(nnrt_cross_entropy_f32(got, lse, x, wide, m, c, 8, -100, 0), 0);
    assert_near("cross_entropy, i64", got, loss, m, 1e-6);
    assert_int_equal(nnrt_cross_entropy_back_f32(got_dx, x, wide, lse, dloss, m, c, 0, c, 8, -100),
                     0);
    assert_near("cross_entropy_back", got_dx, dx, m * c, 1e-6);
    free(got), free(lse), free(got_dx);
  }
  free(x), free(dloss), free(labels), free(wide), free(loss), free(dx);
}

// Of 9 columns the last 4 are padding: the results are those of 5 columns, and the gradient is 0
// there. As two shards of parts of 3 columns and one, the second part has two columns and the third
// none.
static void padded_classes(void **state) {
  (void)state;
  enum { M = 3, C = 9, CLASSES = 5 };
  float *x = floats(M * C, 1), *dloss = floats(M, 2), few[M * CLASSES];
  const int64_t labels[M] = {4, -100, 0}, bad[M] = {0, CLASSES, 0};
  float loss[M], lse[M], dx[M * C], want[M], want_lse[M], want_dx[M * CLASSES], parts[M * 3];
  for (int i = 0; i < M; i++)
    memcpy(few + i * CLASSES, x + i * C, sizeof(float) * CLASSES);
  assert_int_equal(nnrt_cross_entropy_f32(want, want_lse, few, labels, M, CLASSES, 8, -100, 0), 0);
  assert_int_equal(nnrt_cross_entropy_back_f32(want_dx, few, labels, want_lse, dloss, M, CLASSES, 0,
                                               CLASSES, 8, -100),
                   0);
  assert_int_equal(nnrt_cross_entropy_f32(loss, lse, x, labels, M, C, 8, -100, CLASSES), 0);
  assert_int_equal(
      nnrt_cross_entropy_back_f32(dx, x, labels, lse, dloss, M, C, 0, CLASSES, 8, -100), 0);
  assert_int_equal(nnrt_lse_parts_f32(parts, x, M, 3, 3, 0, CLASSES), 0);
  for (int i = 0; i < M; i++) {
    assert_true(loss[i] == want[i] && lse[i] == want_lse[i]);
    for (int j = 0; j < C; j++)
      assert_true(dx[i * C + j] == (j < CLASSES ? want_dx[i * CLASSES + j] : 0));
    // The log-sum-exp of the parts' is that of the row; a part of padding alone has none.
    double sum = exp((double)parts[i * 3]) + exp((double)parts[i * 3 + 1]);
    assert_true(fabs(log(sum) - (double)lse[i]) < 1e-5 && parts[i * 3 + 2] == -INFINITY);
  }
  // Of a shard from column 6 on, all columns are padding.
  assert_int_equal(nnrt_lse_parts_f32(parts, x, M, 1, 3, 6, CLASSES), 0);
  assert_true(parts[0] == -INFINITY && parts[1] == -INFINITY && parts[2] == -INFINITY);
  // Padding is no class.
  assert_int_equal(nnrt_cross_entropy_f32(loss, lse, x, bad, M, C, 8, -100, CLASSES), NNRT_INDEX);
  free(x), free(dloss);
}

// A label outside ends the run, and nothing has been written.
static void bad_labels(void **state) {
  (void)state;
  float x[6] = {0}, loss[2] = {7, 7}, lse[2] = {7, 7}, dloss[2] = {1, 1}, dx[6] = {7, 7};
  static const int64_t bad[][2] = {{0, 3}, {-1, 0}, {INT64_MAX, 0}, {0, INT64_MIN}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(nnrt_cross_entropy_f32(loss, lse, x, bad[i], 2, 3, 8, -100, 0), NNRT_INDEX);
    assert_int_equal(nnrt_cross_entropy_back_f32(dx, x, bad[i], lse, dloss, 2, 3, 0, 3, 8, -100),
                     NNRT_INDEX);
    assert_int_equal(nnrt_nll_f32(loss, x, bad[i], 2, 3, 0, 3, 8, -100), NNRT_INDEX);
    assert_int_equal(nnrt_nll_back_f32(dx, bad[i], dloss, 2, 3, 0, 3, 8, -100), NNRT_INDEX);
  }
  assert_true(loss[0] == 7 && lse[1] == 7 && dx[0] == 7 && dx[1] == 7);
}

// Every set of axes of a tensor with four dimensions, in every type of accumulation.
static void reductions(void **state) {
  (void)state;
  int64_t shape[] = {7, 61, 13, 29}, all = 7 * 61 * 13 * 29;
  float *x = floats(all, 1);
  int64_t *ints = calloc((size_t)all, sizeof *ints);
  for (int64_t i = 0; i < all; i++)
    ints[i] = (int64_t)((double)x[i] * 1e15);
  for (int set = 0; set < 16; set++) {
    int64_t axes[4], n_axes = 0, kept = 1;
    for (int d = 0; d < 4; d++) {
      if (set >> d & 1)
        axes[n_axes++] = d;
      else
        kept *= shape[d];
    }
    double *sum = zeros(kept), *top = zeros(kept), *low = zeros(kept);
    int64_t *int_sum = calloc((size_t)kept, sizeof *int_sum);
    for (int64_t i = 0; i < kept; i++) {
      top[i] = -INFINITY;
      low[i] = INFINITY;
    }
    for (int64_t i = 0; i < all; i++) {
      int64_t at = 0, rest = i, index[4];
      for (int d = 3; d >= 0; d--) {
        index[d] = rest % shape[d];
        rest /= shape[d];
      }
      for (int d = 0; d < 4; d++)
        if (!(set >> d & 1)) at = at * shape[d] + index[d];
      sum[at] += (double)x[i];
      int_sum[at] += ints[i];
      top[at] = fmax(top[at], (double)x[i]);
      low[at] = fmin(low[at], (double)x[i]);
    }
    FOR_THREADS {
      float *got = results(kept);
      int64_t *got_ints = calloc((size_t)kept, sizeof *got_ints);
      assert_int_equal(nnrt_reduce_sum_f32(got, x, 4, shape, n_axes, axes), 0);
      assert_near("reduce_sum", got, sum, kept, 1e-6);
      assert_int_equal(nnrt_reduce_max_f32(got, x, 4, shape, n_axes, axes), 0);
      assert_near("reduce_max", got, top, kept, 0);
      assert_int_equal(nnrt_reduce_min_f32(got, x, 4, shape, n_axes, axes), 0);
      assert_near("reduce_min", got, low, kept, 0);
      assert_int_equal(nnrt_reduce_sum_i64(got_ints, ints, 4, shape, n_axes, axes), 0);
      assert_same_bits("reduce_sum i64", got_ints, int_sum, (size_t)kept * sizeof *int_sum);
      free(got), free(got_ints);
    }
    free(sum), free(top), free(low), free(int_sum);
  }
  free(x), free(ints);
}

// A NaN wins every maximum and minimum, in any position.
static void nan_is_not_lost(void **state) {
  (void)state;
  int64_t shape[] = {300}, axes[] = {0};
  for (int64_t at = 0; at < 300; at += 23) {
    float *x = floats(300, 1), y;
    int64_t place;
    x[at] = NAN;
    assert_int_equal(nnrt_reduce_max_f32(&y, x, 1, shape, 1, axes), 0);
    assert_true(isnan(y));
    assert_int_equal(nnrt_reduce_min_f32(&y, x, 1, shape, 1, axes), 0);
    assert_true(isnan(y));
    assert_int_equal(nnrt_arg_max_f32(&place, x, 1, shape, 0, false), 0);
    assert_int_equal(place, at);
    free(x);
  }
}

// Blocks are of a fixed size: the clipping norm is the same on any number of threads.
static void sum_squares(void **state) {
  (void)state;
  int64_t n = 300001;
  float *x = floats(n, 1), first = 0;
  double want = 0;
  for (int64_t i = 0; i < n; i++)
    want += (double)x[i] * (double)x[i];
  for (int threads = 1; threads < 6; threads++) {
    float y;
    omp_set_num_threads(threads);
    assert_int_equal(nnrt_sum_squares_f32(&y, x, n), 0);
    assert_near("sum_squares", &y, &want, 1, 1e-7);
    if (threads == 1) first = y;
    assert_same_bits("sum_squares", &y, &first, sizeof y);
  }
  free(x);
}

// Gradients of pooling are the transposes: <pool(x), dy> = <x, pool_back(dy)>; and `at` is the
// index of a maximum.
static void pooling(void **state) {
  (void)state;
  int64_t kernel[] = {3, 2}, strides[] = {2, 1}, pads[] = {1, 1, 1, 0}, dilations[] = {1, 2};
  int64_t n = 3, c = 21, h = 19, w = 34, yh = 10, yw = 33;
  int64_t x_first[] = {n, c, h, w}, x_last[] = {n, h, w, c};
  int64_t y_first[] = {n, c, yh, yw}, y_last[] = {n, yh, yw, c};
  int64_t nx = n * c * h * w, ny = n * c * yh * yw;
  for (int last = 0; last < 2; last++)
    FOR_THREADS {
      const int64_t *xs = last ? x_last : x_first, *ys = last ? y_last : y_first;
      float *x = floats(nx, 1), *dy = floats(ny, 2), *y = results(ny), *dx = results(nx);
      int32_t *at = calloc((size_t)ny, sizeof *at);
      assert_int_equal(
          nnrt_max_pool_f32(y, at, x, 4, xs, ys, kernel, strides, pads, dilations, last), 0);
      assert_int_equal(
          nnrt_max_pool_back_f32(dx, at, dy, 4, ys, xs, kernel, strides, pads, dilations, last), 0);
      double left = 0, right = 0;
      for (int64_t i = 0; i < ny; i++) {
        int64_t image = last ? i / c / (yh * yw) : i / (yh * yw);
        int64_t from = last ? (image * h * w + at[i]) * c + i % c : image * h * w + at[i];
        assert_true(at[i] >= 0 && at[i] < h * w && x[from] == y[i]);
        left += (double)y[i] * (double)dy[i];
      }
      for (int64_t i = 0; i < nx; i++)
        right += (double)x[i] * (double)dx[i];
      assert_true(fabs(left - right) < 1e-4 * fabs(left));
      for (int include = 0; include < 2; include++) {
        assert_int_equal(
            nnrt_avg_pool_f32(y, x, 4, xs, ys, kernel, strides, pads, dilations, include, last), 0);
        assert_int_equal(nnrt_avg_pool_back_f32(dx, dy, 4, ys, xs, kernel, strides, pads, dilations,
                                                include, last),
                         0);
        left = right = 0;
        for (int64_t i = 0; i < ny; i++)
          left += (double)y[i] * (double)dy[i];
        for (int64_t i = 0; i < nx; i++)
          right += (double)x[i] * (double)dx[i];
        assert_true(fabs(left - right) < 1e-4 * fabs(left));
      }
      free(x), free(dy), free(y), free(dx), free(at);
    }
}

// Of equal maxima the first in the plane counts, and of NaN the first.
static void first_of_equal(void **state) {
  (void)state;
  int64_t kernel[] = {3, 4}, strides[] = {2, 3}, pads[] = {1, 2, 1, 1}, dilations[] = {1, 1};
  int64_t h = 17, w = 40, yh = 9, yw = 14, n = 4;
  int64_t x_shape[] = {n, 1, h, w}, y_shape[] = {n, 1, yh, yw};
  float *x = floats(n * h * w, 1), *y = results(n * yh * yw);
  int32_t *at = calloc((size_t)(n * yh * yw), sizeof *at);
  for (int64_t i = 0; i < n * h * w; i++)
    x[i] = i % 29 == 0 ? NAN : rintf(x[i] * 1.5f);
  for (int last = 0; last < 2; last++) { // with one channel, both are the same tensor
    int64_t x_last[] = {n, h, w, 1}, y_last[] = {n, yh, yw, 1};
    assert_int_equal(nnrt_max_pool_f32(y, at, x, 4, last ? x_last : x_shape,
                                       last ? y_last : y_shape, kernel, strides, pads, dilations,
                                       last),
                     0);
    for (int64_t i = 0; i < n * yh * yw; i++) {
      const float *plane = x + i / (yh * yw) * h * w;
      int64_t want = -1;
      for (int64_t j = 0; j < kernel[0] * kernel[1]; j++) {
        int64_t xh = i / yw % yh * strides[0] - pads[0] + j / kernel[1];
        int64_t xw = i % yw * strides[1] - pads[1] + j % kernel[1], place = xh * w + xw;
        if (xh < 0 || xh >= h || xw < 0 || xw >= w) continue;
        bool first_nan = want >= 0 && isnan(plane[place]) && !isnan(plane[want]);
        if (want < 0 || first_nan || plane[place] > plane[want]) want = place;
      }
      assert_int_equal(at[i], want);
    }
  }
  free(x), free(y), free(at);
}

// Sums of taps do not depend on the number of threads, and the gradient is the transpose.  The
// elements that no tap has, the last ones, do not spread.
static void resampling(void **state) {
  (void)state;
  int64_t x_shape[] = {37, 53, 29}, n = 53, m = 71, taps = 3, table[] = {m, taps};
  for (int64_t axis = 1; axis < 3; axis++) {
    int64_t shape[] = {37, axis == 1 ? n : 29, axis == 1 ? 29 : n};
    int64_t nx = 37 * n * 29, ny = 37 * m * 29, inner = axis == 1 ? 29 : 1;
    float *x = floats(nx, 1), *dy = floats(ny, 2), *weight = floats(m * taps, 3);
    int32_t *first = calloc((size_t)m, sizeof *first);
    float *y = results(ny), *dx = results(nx);
    memcpy(x_shape, shape, sizeof shape);
    for (int64_t o = 0; o < m; o++)
      first[o] = (int32_t)(o * (n - 4) / m) - 1;
    for (int64_t i = 0; i < nx; i++)
      if (i / inner % n == n - 1) x[i] = NAN;
    bool again = false;
    FOR_THREADS {
      float *got = results(ny), *got_dx = results(nx);
      assert_int_equal(nnrt_resample_f32(got, x, first, weight, 3, x_shape, table, axis), 0);
      assert_int_equal(nnrt_resample_back_f32(got_dx, first, weight, dy, 3, x_shape, table, axis),
                       0);
      if (again) {
        assert_same_bits("resample", got, y, (size_t)ny * sizeof *got);
        assert_same_bits("resample_back", got_dx, dx, (size_t)nx * sizeof *got);
      }
      again = true;
      memcpy(y, got, (size_t)ny * sizeof *got);
      memcpy(dx, got_dx, (size_t)nx * sizeof *got);
      free(got), free(got_dx);
    }
    double left = 0, right = 0, size = 0;
    for (int64_t i = 0; i < ny; i++) {
      left += (double)y[i] * (double)dy[i];
      size += fabs((double)y[i] * (double)dy[i]);
    }
    for (int64_t i = 0; i < nx; i++) {
      if (i / inner % n == n - 1)
        assert_true(dx[i] == 0);
      else
        right += (double)x[i] * (double)dx[i];
    }
    assert_true(fabs(left - right) < 1e-6 * size);
    free(x), free(dy), free(weight), free(first), free(y), free(dx);
  }
}

TEST_GROUP(kernels_rows) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layer_norm),      cmocka_unit_test(softmax),
      cmocka_unit_test(batch_norm),      cmocka_unit_test(cross_entropy),
      cmocka_unit_test(padded_classes),  cmocka_unit_test(bad_labels),
      cmocka_unit_test(padded_classes),  cmocka_unit_test(reductions),
      cmocka_unit_test(nan_is_not_lost), cmocka_unit_test(sum_squares),
      cmocka_unit_test(pooling),         cmocka_unit_test(first_of_equal),
      cmocka_unit_test(resampling),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
