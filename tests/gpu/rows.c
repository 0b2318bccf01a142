// Kernels over rows, columns and elements on a GPU against their definition: the cases that
// kernels.c does not reach, such as rows longer than registers, odd addresses, infinities and NaN,
// thousands of rows, and many tensors at once.

#include "check.h"
#include "word_sum.h"

static const NnrtDtype floats[] = {NNRT_f32, NNRT_bf16, NNRT_f16};

// Calls the kernel of element type `t` with pointers as void *.
#define BY_TYPE(t, name, ...)                                                                      \
  ((t) == NNRT_f32    ? nnrt_##name##_f32(__VA_ARGS__)                                             \
   : (t) == NNRT_bf16 ? nnrt_##name##_bf16(__VA_ARGS__)                                            \
                      : nnrt_##name##_f16(__VA_ARGS__))

static double *doubles(const void *x, NnrtDtype t, int64_t n) {
  double *y = malloc((size_t)(n + 1) * sizeof *y);
  for (int64_t i = 0; i < n; i++)
    y[i] = element(x, t, i);
  return y;
}

static bool same_bytes(const void *a, const void *b, int64_t bytes) {
  void *x = gpu_get(a, bytes), *y = gpu_get(b, bytes);
  bool same = memcmp(x, y, (size_t)bytes) == 0;
  free(x);
  free(y);
  return same;
}

// -- Softmax: warps, blocks, long rows; in packs and not; at odd addresses

static void softmax(void) {
  static const int64_t shapes[][2] = {{5, 1},    {9, 33},   {3, 1024}, {2, 1025},
                                      {2, 5000}, {2, 8192}, {2, 8193}, {1, 20000}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int k = 0; k < 3; k++)
      for (int odd = 0; odd < 2; odd++)
        for (int logs = 0; logs < 2; logs++) {
          NnrtDtype t = floats[k];
          const int64_t *shape = shapes[s], m = shape[0], n = shape[1], all = m * n;
          // Odd: one element beyond a multiple of 16 bytes
          char *x = numbers(t, all + odd, 1), *dy = numbers(t, all + odd, 2);
          char *gx = gpu_put(x, (all + odd) * size_of(t)),
               *gdy = gpu_put(dy, (all + odd) * size_of(t));
          char *gy = gpu_new((all + odd) * size_of(t)), *gdx = gpu_new((all + odd) * size_of(t));
          int64_t skip = odd * size_of(t);
          double *want = doubles(x + skip, t, all), *d = doubles(dy + skip, t, all);
          for (int64_t i = 0; i < m; i++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++)
              sum += exp(want[i * n + j]);
            for (int64_t j = 0; j < n; j++)
              want[i * n + j] =
                  logs ? (n > 1 ? want[i * n + j] - log(sum) : 0) : exp(want[i * n + j]) / sum;
          }
          void *y = gy + skip, *dx = gdx + skip;
          const void *from = gx + skip, *dfrom = gdy + skip;
          int code = logs ? BY_TYPE(t, log_softmax, y, from, 2, shape, 1)
                          : BY_TYPE(t, softmax, y, from, 2, shape, 1);
          CHECK(code == 0, "softmax returns %d", code);
          check_near("softmax", y, t, want, all, tolerance(t));
          char *is = gpu_get(y, all * size_of(t)); // the gradient reads the stored, rounded result
          for (int64_t i = 0; i < m; i++) {
            double sum = 0;
            for (int64_t j = i * n; j < (i + 1) * n; j++)
              sum += logs ? d[j] : element(is, t, j) * d[j];
            for (int64_t j = i * n; j < (i + 1) * n; j++)
              d[j] = logs ? d[j] - exp(element(is, t, j)) * sum : element(is, t, j) * (d[j] - sum);
          }
          code = logs ? BY_TYPE(t, log_softmax_back, dx, y, dfrom, 2, shape, 1)
                      : BY_TYPE(t, softmax_back, dx, y, dfrom, 2, shape, 1);
          CHECK(code == 0, "softmax_back returns %d", code);
          check_near("softmax_back", dx, t, d, all, n == 1 ? INFINITY : tolerance(t));
          gpu_free(gx), gpu_free(gdy), gpu_free(gy), gpu_free(gdx);
          free(x), free(dy), free(want), free(d), free(is);
        }
}

// -inf adds nothing at any position; a row of only -inf, +inf and NaN yield NaN.
static void infinities(void) {
  enum { ROWS = 6 };
  static const int64_t lengths[] = {40, 2000, 9000};
  for (int l = 0; l < 3; l++)
    for (int axis = 0; axis < 2; axis++) {
      int64_t n = lengths[l], shape[2] = {axis ? ROWS : n, axis ? n : ROWS};
      float *x = calloc((size_t)(ROWS * n), sizeof *x);
      for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < n; j++) {
          float v = (float)(j % 7);
          if (i == 1 && j < n / 2) v = -INFINITY;
          if (i == 2) v = -INFINITY;
          if (i == 3 && j == n - 1) v = NAN;
          if (i == 4 && j == 3) v = INFINITY;
          if (i == 5 && j > 0) v = -INFINITY;
          x[axis ? i * n + j : j * ROWS + i] = v;
        }
      float *gx = gpu_put(x, ROWS * n * 4), *gy = gpu_new(ROWS * n * 4);
      nnrt_softmax_f32(gy, gx, 2, shape, axis);
      float *y = gpu_get(gy, ROWS * n * 4);
      for (int64_t i = 0; i < ROWS; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
          sum += (double)y[axis ? i * n + j : j * ROWS + i];
        bool nan = i >= 2 && i <= 4;
        CHECK(nan ? isnan(sum) : fabs(sum - 1) < 1e-5, "row %d of %d along %d sums to %g", (int)i,
              (int)n, axis, sum);
      }
      if (axis) {
        int64_t label[ROWS] = {0, n - 1, 0, 0, 0, 0};
        void *labels = gpu_put(label, sizeof label);
        float *gloss = gpu_new(ROWS * 4), *glse = gpu_new(ROWS * 4);
        nnrt_cross_entropy_f32(gloss, glse, gx, labels, ROWS, n, 8, -1, 0);
        float *loss = gpu_get(gloss, ROWS * 4);
        CHECK(isfinite(loss[0]) && isfinite(loss[1]) && isnan(loss[2]) && isnan(loss[3]) &&
                  isnan(loss[4]) && loss[5] == 0,
              "losses of %d classes are %g %g %g %g %g %g", (int)n, (double)loss[0],
              (double)loss[1], (double)loss[2], (double)loss[3], (double)loss[4], (double)loss[5]);
        gpu_free(labels), gpu_free(gloss), gpu_free(glse);
        free(loss);
      }
      gpu_free(gx), gpu_free(gy);
      free(x), free(y);
    }
}

// -- Norms

static void norms(void) {
  static const int64_t shapes[][2] = {{300, 64}, {37, 768}, {40, 1023}, {70, 1600},
                                      {5, 8192}, {3, 8200}, {6, 3001}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int k = 0; k < 3; k++)
      for (int centred = 0; centred < 2; centred++) {
        NnrtDtype t = floats[k];
        int64_t m = shapes[s][0], n = shapes[s][1], all = m * n;
        void *x = numbers(t, all, 1), *dy = numbers(t, all, 2), *r = numbers(t, all, 3);
        float *g = numbers(NNRT_f32, n, 4), *b = numbers(NNRT_f32, n, 5);
        void *gx = gpu_put(x, all * size_of(t)), *gdy = gpu_put(dy, all * size_of(t));
        void *gr = gpu_put(r, all * size_of(t)), *gg = gpu_put(g, n * 4), *gb = gpu_put(b, n * 4);
        void *gs = gpu_new(all * size_of(t)), *gy = gpu_new(all * size_of(t));
        void *gdx = gpu_new(all * size_of(t)), *gdg = gpu_new(n * 4), *gdb = gpu_new(n * 4);
        float *gmean = gpu_new(m * 4), *grstd = gpu_new(m * 4);
        int code =
            centred ? BY_TYPE(t, add_layer_norm, gs, gy, gmean, grstd, gx, gr, gg, gb, m, n, 1e-5)
                    : BY_TYPE(t, add_rms_norm, gs, gy, grstd, gx, gr, gg, m, n, 1e-5);
        CHECK(code == 0, "a norm returns %d", code);
        void *sum = gpu_get(gs, all * size_of(t));
        double *h = doubles(sum, t, all), *y = malloc((size_t)all * sizeof *y);
        double *dx = doubles(dy, t, all), *dg = calloc((size_t)n, sizeof *dg);
        double *db = calloc((size_t)n, sizeof *db), *rstd = malloc((size_t)m * sizeof *rstd);
        for (int64_t i = 0; i < m; i++) {
          double mean = 0, var = 0, mean_p = 0, mean_ph = 0;
          for (int64_t j = 0; j < n; j++)
            mean += centred ? h[i * n + j] / (double)n : 0;
          for (int64_t j = 0; j < n; j++)
            var += (h[i * n + j] - mean) * (h[i * n + j] - mean) / (double)n;
          rstd[i] = 1 / sqrt(var + 1e-5);
          for (int64_t j = 0; j < n; j++) {
            double *hj = &h[i * n + j], d = dx[i * n + j];
            *hj = (*hj - mean) * rstd[i];
            y[i * n + j] = *hj * (double)g[j] + (centred ? (double)b[j] : 0);
            dg[j] += *hj * d;
            db[j] += d;
            mean_p += centred ? d * (double)g[j] / (double)n : 0;
            mean_ph += d * (double)g[j] * *hj / (double)n;
          }
          for (int64_t j = 0; j < n; j++) {
            double *d = &dx[i * n + j];
            *d = rstd[i] * (*d * (double)g[j] - mean_p - h[i * n + j] * mean_ph) +
                 element(r, t, i * n + j);
          }
        }
        check_near("a norm", gy, t, y, all, tolerance(t));
        check_near("rstd", grstd, NNRT_f32, rstd, m, 1e-5);
        // dx added to dr, twice: the same bits
        void *gdr = gpu_put(r, all * size_of(t)), *gdg2 = gpu_new(n * 4), *gdb2 = gpu_new(n * 4);
        for (int again = 0; again < 2; again++) {
          void *to = again ? gdr : gdx, *dg_to = again ? gdg2 : gdg, *db_to = again ? gdb2 : gdb;
          code = centred ? BY_TYPE(t, layer_norm_back_add, to, dg_to, db_to, gdr, gs, gg, gmean,
                                   grstd, gdy, m, n)
                         : BY_TYPE(t, rms_norm_back_add, to, dg_to, gdr, gs, gg, grstd, gdy, m, n);
          CHECK(code == 0, "a norm's gradient returns %d", code);
        }
        check_near("dx of a norm", gdx, t, dx, all, tolerance(t));
        check_near("dg of a norm", gdg, NNRT_f32, dg, n, 1e-5);
        if (centred) check_near("db of a norm", gdb, NNRT_f32, db, n, 1e-5);
        CHECK(same_bytes(gdx, gdr, all * size_of(t)) && same_bytes(gdg, gdg2, n * 4),
              "a norm's gradient has other bits the second time");
        gpu_free(gx), gpu_free(gdy), gpu_free(gr), gpu_free(gg), gpu_free(gb), gpu_free(gs);
        gpu_free(gy), gpu_free(gdx), gpu_free(gdg), gpu_free(gdb), gpu_free(gmean), gpu_free(grstd);
        gpu_free(gdr), gpu_free(gdg2), gpu_free(gdb2);
        free(x), free(dy), free(r), free(g), free(b), free(sum), free(h), free(y), free(dx);
        free(dg), free(db), free(rstd);
      }
}

// A mean that is large compared with the deviation
static void large_mean(void) {
  enum { ROWS = 3000, N = 5 };
  float *x = malloc(ROWS * N * sizeof *x);
  for (int i = 0; i < ROWS * N; i++)
    x[i] = 1000.0f + (float)nnrt_random_uniform(1, 0, 0, i);
  for (int axis = 0; axis < 2; axis++) {
    int64_t shape[2] = {axis ? ROWS : N, axis ? N : ROWS}, c = N;
    double mean[N] = {0}, var[N] = {0};
    for (int i = 0; i < ROWS * N; i++)
      mean[axis ? i % N : i / ROWS] += (double)x[i] / ROWS;
    for (int i = 0; i < ROWS * N; i++) {
      double d = (double)x[i] - mean[axis ? i % N : i / ROWS];
      var[axis ? i % N : i / ROWS] += d * d / ROWS;
    }
    void *gx = gpu_put(x, sizeof *x * ROWS * N);
    float *gmean = gpu_new(c * 4), *gvar = gpu_new(c * 4);
    nnrt_batch_norm_mean_f32(gmean, gx, 2, shape, axis, ROWS);
    nnrt_batch_norm_var_f32(gvar, gx, gmean, 2, shape, axis, ROWS);
    check_near("a mean", gmean, NNRT_f32, mean, c, 1e-6);
    check_near("a variance", gvar, NNRT_f32, var, c, 1e-5);
    float *gy = gpu_new(ROWS * N * 4), *gm = gpu_new(ROWS * 4), *gr = gpu_new(ROWS * 4);
    float ones[ROWS], zeros[ROWS] = {0};
    for (int i = 0; i < ROWS; i++)
      ones[i] = 1;
    float *g = gpu_put(ones, sizeof ones), *b = gpu_put(zeros, sizeof zeros);
    nnrt_layer_norm_f32(gy, gm, gr, gx, g, b, N, ROWS, 0); // as rows of ROWS
    float *y = gpu_get(gy, ROWS * N * 4);
    double squares = 0;
    for (int i = 0; i < ROWS * N; i++)
      squares += (double)y[i] * (double)y[i];
    CHECK(fabs(squares / (ROWS * N) - 1) < 1e-4, "normalised rows have variance %g",
          squares / (ROWS * N));
    gpu_free(gx), gpu_free(gmean), gpu_free(gvar), gpu_free(gy), gpu_free(gm), gpu_free(gr);
    gpu_free(g), gpu_free(b);
    free(y);
  }
  free(x);
}

// -- Losses

// The last columns may be padding, which counts for nothing and has gradient 0.
static void losses_of(int64_t padding) {
  static const int64_t shapes[][2] = {{70, 10}, {9, 1025}, {5, 50257}, {600, 1100}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
    for (int k = 0; k < 3; k++)
      for (int width = 4; width <= 8; width += 4) {
        NnrtDtype t = floats[k];
        int64_t m = shapes[s][0], c = shapes[s][1], all = m * c, n = c - padding;
        void *x = numbers(t, all, 1);
        float *dloss = numbers(NNRT_f32, m, 2);
        double *want = malloc((size_t)m * sizeof *want), *dx = malloc((size_t)all * sizeof *dx);
        char *labels = calloc((size_t)m, (size_t)width);
        for (int64_t i = 0; i < m; i++) {
          int64_t label = i % 4 == 3 ? -100 : i * 997 % n;
          memcpy(labels + i * width, &label, (size_t)width);
          double sum = 0;
          for (int64_t j = 0; j < n; j++)
            sum += exp(element(x, t, i * c + j));
          want[i] = label < 0 ? 0 : log(sum) - element(x, t, i * c + label);
          for (int64_t j = 0; j < c; j++)
            dx[i * c + j] =
                label < 0 || j >= n
                    ? 0
                    : (exp(element(x, t, i * c + j)) / sum - (j == label)) * (double)dloss[i];
        }
        void *gx = gpu_put(x, all * size_of(t)), *gl = gpu_put(labels, m * width);
        float *gd = gpu_put(dloss, m * 4), *gloss = gpu_new(m * 4), *glse = gpu_new(m * 4);
        void *gdx = gpu_new(all * size_of(t));
        int code =
            BY_TYPE(t, cross_entropy, gloss, glse, gx, gl, m, c, width, -100, padding ? n : 0);
        CHECK(code == 0, "cross_entropy returns %d", code);
        check_near("cross_entropy", gloss, NNRT_f32, want, m, 1e-5);
        code = BY_TYPE(t, cross_entropy_back, gdx, gx, gl, glse, gd, m, c, 0, n, width, -100);
        CHECK(code == 0, "cross_entropy_back returns %d", code);
        check_near("cross_entropy_back", gdx, t, dx, all, tolerance(t));
        BY_TYPE(t, cross_entropy_back, gx, gx, gl, glse, gd, m, c, 0, n, width, -100);
        CHECK(same_bytes(gx, gdx, all * size_of(t)), "in place it has other bits");
        // As one part, with the columns of the padding.
        gx = (gpu_free(gx), gpu_put(x, all * size_of(t)));
        float *whole = gpu_get(glse, m * 4);
        double *as_part = malloc((size_t)m * sizeof *as_part);
        for (int64_t i = 0; i < m; i++)
          as_part[i] = (double)whole[i];
        code = BY_TYPE(t, lse_parts, gloss, gx, m, 1, c, 0, n);
        CHECK(code == 0, "lse_parts returns %d", code);
        check_near("lse_parts", gloss, NNRT_f32, as_part, m, 1e-6);
        free(whole), free(as_part);
        CHECK(gpu_finding().code == NNRT_OK, "labels in range are found wrong");
        gpu_free(gx), gpu_free(gl), gpu_free(gd), gpu_free(gloss), gpu_free(glse), gpu_free(gdx);
        free(x), free(dloss), free(want), free(dx), free(labels);
      }
}

static void losses(void) {
  losses_of(0);
  losses_of(7);
}

static void labels_out_of_range(void) {
  enum { M = 3 };
  for (int64_t c = 10; c <= 2000; c += 1990) {
    int32_t label[M] = {1, (int32_t)c, -1};
    float *x = numbers(NNRT_f32, M * c, 1), *gx = gpu_put(x, M * c * 4);
    void *gl = gpu_put(label, sizeof label);
    float *loss = gpu_new(M * 4), *lse = gpu_new(M * 4), *dx = gpu_new(M * c * 4);
    gpu.op = 7;
    nnrt_cross_entropy_f32(loss, lse, gx, gl, M, c, 4, -1, 0);
    NnrtFinding f = gpu_finding();
    CHECK(f.code == NNRT_INDEX && f.op == 7 && f.kind == FOUND_label && f.value == c &&
              f.place == 1 && f.least == 0 && f.limit == c,
          "label %d of %d is found as %d: op %d, %lld of %lld", (int)c, (int)c, f.code, f.op,
          f.value, f.limit);
    nnrt_cross_entropy_back_f32(dx, gx, gl, lse, loss, M, c, 0, c, 4, -1);
    CHECK(gpu_finding().value == c, "cross_entropy_back does not find it");
    nnrt_nll_f32(loss, gx, gl, M, c, 0, c, 4, -1);
    CHECK(gpu_finding().value == c, "nll does not find it");
    nnrt_nll_back_f32(dx, gl, lse, M, c, 0, c, 4, -1);
    CHECK(gpu_finding().value == c, "nll_back does not find it");
    gpu_free(gx), gpu_free(gl), gpu_free(loss), gpu_free(lse), gpu_free(dx);
    free(x);
  }
}

// -- Reductions

static void sums(void) {
  static const struct {
    int64_t ndim, shape[5], n_axes, axes[5];
  } cases[] = {
      {1, {300001}, 1, {0}},              // all, in parts, unaligned end
      {2, {3, 70000}, 1, {1}},            // few long rows
      {2, {70000, 3}, 1, {0}},            // few long columns
      {2, {5000, 40}, 1, {0}},            // columns in parts
      {2, {700, 100}, 1, {1}},            // many rows
      {3, {50, 60, 70}, 2, {0, 2}},       // rows of several runs
      {3, {50, 60, 72}, 1, {1}},          // columns in the middle
      {4, {7, 64, 9, 64}, 2, {0, 2}},     // kept and reduced by turns, columns last
      {4, {64, 7, 64, 9}, 2, {1, 3}},     // rows last
      {5, {4, 5, 6, 7, 8}, 3, {0, 2, 4}}, // and more
      {2, {0, 5}, 1, {0}},                // empty sums
      {2, {5, 0}, 1, {0}},                // empty
      {3, {1, 9, 1}, 2, {0, 2}},          // length-1 axes only
  };
  for (size_t s = 0; s < sizeof cases / sizeof cases[0]; s++) {
    int64_t n = 1, m = 1, ndim = cases[s].ndim;
    bool reduced[5] = {0};
    for (int64_t i = 0; i < cases[s].n_axes; i++)
      reduced[cases[s].axes[i]] = true;
    for (int64_t d = 0; d < ndim; d++) {
      n *= cases[s].shape[d];
      m *= reduced[d] ? 1 : cases[s].shape[d];
    }
    float *x = numbers(NNRT_f32, n, (int64_t)s);
    double *sum = calloc((size_t)m + 1, sizeof *sum), *max = calloc((size_t)m + 1, sizeof *max);
    for (int64_t i = 0; i < m; i++)
      max[i] = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
      int64_t to = 0, stride = 1, rest = i;
      for (int64_t d = ndim - 1; d >= 0; d--) {
        if (!reduced[d]) to += rest % cases[s].shape[d] * stride, stride *= cases[s].shape[d];
        rest /= cases[s].shape[d];
      }
      sum[to] += (double)x[i];
      max[to] = fmax(max[to], (double)x[i]);
    }
    float *gx = gpu_put(x, n * 4), *gy = gpu_new(m * 4), *again = gpu_new(m * 4);
    int code = nnrt_reduce_sum_f32(gy, gx, ndim, cases[s].shape, cases[s].n_axes, cases[s].axes);
    CHECK(code == 0, "case %d returns %d", (int)s, code);
    check_near("reduce_sum", gy, NNRT_f32, sum, m, 1e-6);
    nnrt_reduce_sum_f32(again, gx, ndim, cases[s].shape, cases[s].n_axes, cases[s].axes);
    CHECK(same_bytes(gy, again, m * 4), "case %d has other bits the second time", (int)s);
    nnrt_reduce_max_f32(gy, gx, ndim, cases[s].shape, cases[s].n_axes, cases[s].axes);
    float *is = gpu_get(gy, m * 4);
    for (int64_t i = 0; i < m; i++)
      CHECK((double)is[i] == max[i], "case %d: maximum %d is %g", (int)s, (int)i, (double)is[i]);
    gpu_free(gx), gpu_free(gy), gpu_free(again);
    free(x), free(sum), free(max), free(is);
  }
}

static void extremes_of_nan(void) {
  enum { N = 3000 };
  int64_t shape[1] = {N}, axes[1] = {0};
  float *x = numbers(NNRT_f32, N, 1);
  x[1234] = NAN;
  x[2345] = NAN;
  float *gx = gpu_put(x, N * 4), *gy = gpu_new(4);
  int64_t *at = gpu_new(8);
  nnrt_reduce_max_f32(gy, gx, 1, shape, 1, axes);
  float *max = gpu_get(gy, 4);
  nnrt_reduce_min_f32(gy, gx, 1, shape, 1, axes);
  float *min = gpu_get(gy, 4);
  CHECK(isnan(*max) && isnan(*min), "the extremes are %g and %g", (double)*min, (double)*max);
  for (int last = 0; last < 2; last++) {
    nnrt_arg_max_f32(at, gx, 1, shape, 0, last);
    int64_t *is = gpu_get(at, 8);
    CHECK(*is == (last ? 2345 : 1234), "the NaN is at %d", (int)*is);
    free(is);
  }
  gpu_free(gx), gpu_free(gy), gpu_free(at);
  free(x), free(max), free(min);
}

static void running_sums(void) {
  enum { N = 5003 };
  for (int how = 0; how < 4; how++) {
    bool exclusive = how % 2, reverse = how / 2;
    int64_t shape[2] = {2, N};
    float *x = numbers(NNRT_f32, 2 * N, 1);
    double *want = malloc(2 * N * sizeof *want);
    for (int row = 0; row < 2; row++) {
      double sum = 0;
      for (int j = 0; j < N; j++) {
        int at = row * N + (reverse ? N - 1 - j : j);
        want[at] = exclusive ? sum : sum + (double)x[at];
        sum += (double)x[at];
      }
    }
    float *gx = gpu_put(x, 2 * N * 4), *gy = gpu_new(2 * N * 4);
    nnrt_cumsum_f32(gy, gx, 2, shape, 1, exclusive, reverse);
    check_near("cumsum", gy, NNRT_f32, want, 2 * N, 1e-6);
    gpu_free(gx), gpu_free(gy);
    free(x), free(want);
  }
}

// -- Pooling: the gradients are the transposes.  With dy of whole numbers, so are all sums.

static void pooling(void) {
  static const struct {
    int64_t c, x[3], y[3], kernel[3], strides[3], pads[6], dilations[3];
  } cases[] = {
      {16, {1, 12, 14}, {1, 6, 7}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1, 0, 1, 1}, {1, 1, 1}},
      {3, {1, 9, 10}, {1, 9, 4}, {1, 2, 3}, {1, 1, 2}, {0, 1, 0, 0, 1, 0}, {1, 2, 1}},
      {8, {5, 6, 7}, {3, 2, 3}, {3, 2, 3}, {2, 3, 3}, {1, 0, 1, 1, 0, 1}, {1, 2, 1}},
      {24, {1, 7, 7}, {1, 1, 1}, {1, 7, 7}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, {1, 1, 1}},
  };
  for (size_t s = 0; s < sizeof cases / sizeof cases[0]; s++)
    for (int k = 0; k < 3; k++)
      for (int last = 0; last < 2; last++) {
        NnrtDtype t = floats[k];
        int64_t n = 2, c = cases[s].c, px = 1, py = 1, xs[5] = {n, c}, ys[5] = {n, c};
        for (int d = 0; d < 3; d++) {
          px *= xs[d + (last ? 1 : 2)] = cases[s].x[d];
          py *= ys[d + (last ? 1 : 2)] = cases[s].y[d];
        }
        if (last) xs[4] = ys[4] = c;
        int64_t nx = n * c * px, ny = n * c * py;
        void *x = numbers(t, nx, 1), *gx = gpu_put(x, nx * size_of(t));
        void *dy = numbers(t, ny, 2), *gdx = gpu_new(nx * size_of(t)),
             *gy = gpu_new(ny * size_of(t));
        for (int64_t i = 0; i < ny; i++) {
          float v = (float)(i % 5 - 2);
          if (t == NNRT_f32)
            ((float *)dy)[i] = v;
          else
            ((uint16_t *)dy)[i] = t == NNRT_bf16 ? m_to_bf16(v) : m_to_f16(v);
        }
        void *gdy = gpu_put(dy, ny * size_of(t));
        int32_t *gat = gpu_new(ny * 4);
        const int64_t *kernel = cases[s].kernel, *strides = cases[s].strides;
        const int64_t *pads = cases[s].pads, *dilations = cases[s].dilations;
        BY_TYPE(t, max_pool, gy, gat, gx, 5, xs, ys, kernel, strides, pads, dilations, last);
        BY_TYPE(t, max_pool_back, gdx, gat, gdy, 5, ys, xs, kernel, strides, pads, dilations, last);
        void *y = gpu_get(gy, ny * size_of(t));
        int32_t *at = gpu_get(gat, ny * 4);
        double *dx = calloc((size_t)nx, sizeof *dx), left = 0, right = 0;
        for (int64_t i = 0; i < ny; i++) {
          int64_t to = last ? (i / (py * c) * px + at[i]) * c + i % c : i / py * px + at[i];
          CHECK(at[i] >= 0 && at[i] < px && element(x, t, to) == element(y, t, i),
                "max_pool, case %d: maximum %d is said to be at %d", (int)s, (int)i, at[i]);
          if (to >= 0 && to < nx) dx[to] += element(dy, t, i);
        }
        check_near("max_pool_back", gdx, t, dx, nx, 0);
        for (int pad = 0; pad < 2; pad++) {
          BY_TYPE(t, avg_pool, gy, gx, 5, xs, ys, kernel, strides, pads, dilations, pad, last);
          BY_TYPE(t, avg_pool_back, gdx, gdy, 5, ys, xs, kernel, strides, pads, dilations, pad,
                  last);
          void *mean = gpu_get(gy, ny * size_of(t)), *d = gpu_get(gdx, nx * size_of(t));
          double size = 0;
          left = right = 0;
          for (int64_t i = 0; i < ny; i++) {
            left += element(mean, t, i) * element(dy, t, i);
            size += fabs(element(mean, t, i) * element(dy, t, i));
          }
          for (int64_t i = 0; i < nx; i++)
            right += element(x, t, i) * element(d, t, i);
          CHECK(fabs(left - right) <= tolerance(t) * size, "avg_pool, case %d: %g is not %g",
                (int)s, left, right);
          free(mean), free(d);
        }
        gpu_free(gx), gpu_free(gdx), gpu_free(gy), gpu_free(gdy), gpu_free(gat);
        free(x), free(dy), free(y), free(at), free(dx);
      }
}

// -- Dropout, of a shard with any offset

static void dropout(void) {
  static const struct {
    int64_t shape[3], whole[3], start[3];
  } cases[] = {
      {{4, 6, 8}, {4, 6, 8}, {0, 0, 0}},     {{2, 6, 8}, {4, 6, 8}, {2, 0, 0}},
      {{4, 3, 8}, {4, 6, 8}, {0, 3, 0}},     {{4, 6, 4}, {4, 6, 12}, {0, 0, 8}},
      {{4, 6, 3}, {4, 6, 9}, {0, 0, 3}},     {{3, 5, 8}, {3, 10, 9}, {0, 5, 1}},
      {{16, 32, 8}, {32, 32, 8}, {7, 0, 0}},
  };
  int64_t step = 12, seed = 34, *gstep = gpu_put(&step, 8), *gseed = gpu_put(&seed, 8);
  for (size_t s = 0; s < sizeof cases / sizeof cases[0]; s++)
    for (int k = 0; k < 3; k++) {
      NnrtDtype t = floats[k];
      const int64_t *shape = cases[s].shape, *whole = cases[s].whole, *start = cases[s].start;
      int64_t n = shape[0] * shape[1] * shape[2];
      void *x = numbers(t, n, 1);
      double *want = doubles(x, t, n);
      for (int64_t i = 0; i < n; i++) {
        int64_t a = start[0] + i / (shape[1] * shape[2]);
        int64_t b = start[1] + i / shape[2] % shape[1], c = start[2] + i % shape[2];
        int64_t at = (a * whole[1] + b) * whole[2] + c;
        want[i] *= nnrt_random_uniform(seed, step, 5, at) >= 0.3 ? 1 / 0.7 : 0;
      }
      void *gx = gpu_put(x, n * size_of(t)), *gy = gpu_new(n * size_of(t));
      // Every second case passes a piece: all of a piece of the global tensor.
      static const int64_t zero[3];
      bool piece = s % 2;
      int code = BY_TYPE(t, dropout, gy, gx, gstep, gseed, 3, shape, piece ? shape : whole,
                         piece ? zero : start, piece ? whole : NULL, piece ? start : NULL, 0.3, 5);
      CHECK(code == 0, "dropout returns %d", code);
      check_near("dropout", gy, t, want, n, tolerance(t));
      gpu_free(gx), gpu_free(gy);
      free(x), free(want);
    }
  gpu_free(gstep), gpu_free(gseed);
}

// -- Many tensors: the same bits as one by one.  Sizes around packs and pieces, and empty ones.
// With 16-bit copies, every second tensor has one.

enum { TENSORS = 7, MOST = 10 };
static const int64_t sizes[TENSORS] = {1, 0, 8192, 770, 8195, 20000, 3};

// n_out results and n_in operands per tensor; the first `elements` operands are as long as it.
typedef struct Many {
  int n_out, n_in, elements;
  void *out[TENSORS * MOST], *in[TENSORS * MOST], *single[TENSORS * MOST], *narrow[TENSORS];
} Many;

static void many_open(Many *m, int n_out, int n_in, int elements, const double *scalars,
                      int64_t steps) {
  *m = (Many){.n_out = n_out, .n_in = n_in, .elements = elements};
  for (int k = 0; k < TENSORS; k += 2)
    m->narrow[k] = gpu_new(sizes[k] * 2 + 2);
  for (int k = 0; k < TENSORS; k++) {
    for (int i = 0; i < n_in; i++) {
      float *x = numbers(NNRT_f32, sizes[k], 10 * k + i);
      // Second moments are not negative.
      for (int64_t j = 0; i >= 2 && j < sizes[k]; j++)
        x[j] = fabsf(x[j]);
      float scalar = (float)(i < elements ? 0 : scalars[i - elements]);
      void **at = &m->in[k * n_in + i];
      if (i < elements)
        *at = gpu_put(x, sizes[k] * 4);
      else if (isinf(scalar)) // represents the step
        *at = gpu_put(&steps, 8);
      else
        *at = gpu_put(&scalar, 4);
      free(x);
    }
    for (int r = 0; r < n_out; r++) {
      m->out[k * n_out + r] = gpu_new(sizes[k] * 4 + 4);
      m->single[k * n_out + r] = gpu_new(sizes[k] * 4 + 4);
    }
  }
}

// Whether the n elements at `y` are those at `x`, rounded.
static bool rounds(const void *gy, NnrtDtype type, const void *gx, int64_t n) {
  float *x = gpu_get(gx, n * 4);
  uint16_t *y = gpu_get(gy, n * 2);
  bool same = true;
  for (int64_t i = 0; i < n; i++)
    same = same && y[i] == (type == NNRT_f16 ? m_to_f16(x[i]) : m_to_bf16(x[i]));
  free(x), free(y);
  return same;
}

static void many_close(Many *m, const char *name, NnrtDtype narrow, NnrtPrep *p,
                       int (*run)(NnrtPrep *, void *const *, const void *const *)) {
  void *out[TENSORS * (MOST + 1)];
  int n = 0;
  for (int k = 0; k < TENSORS; k++) {
    for (int r = 0; r < m->n_out; r++)
      out[n++] = m->out[k * m->n_out + r];
    if (narrow != NNRT_f32) out[n++] = m->narrow[k];
  }
  CHECK(p != NULL, "%s_batch is not prepared", name);
  // Of all tensors at once, or tensor by tensor, the last first; and again.
  static int calls;
  bool by_tensor = calls++ % 4 < 2; // each optimizer in both ways, of three narrow types
  for (int times = 0; p && times < 2; times++) {
    for (int k = TENSORS; by_tensor && k-- > 0;)
      nnrt_batch_tensor(p, k, out + k * (n / TENSORS), (const void *const *)m->in + k * m->n_in);
    int code = run(p, by_tensor ? NULL : out, by_tensor ? NULL : (const void *const *)m->in);
    CHECK(code == 0, "%s_batch returns %d", name, code);
  }
  nnrt_prep_free(p);
  for (int k = 0; k < TENSORS; k++)
    for (int r = 0; r < m->n_out; r++) {
      void *a = m->out[k * m->n_out + r], *b = m->single[k * m->n_out + r];
      CHECK(same_bytes(a, b, sizes[k] * 4), "%s_batch: result %d of tensor %d differs", name, r, k);
    }
  for (int k = 0; k < TENSORS && narrow != NNRT_f32; k += 2)
    CHECK(rounds(m->narrow[k], narrow, m->single[k * m->n_out], sizes[k]),
          "%s_batch: tensor %d is not rounded to %s", name, k, narrow == NNRT_f16 ? "f16" : "bf16");
  for (int k = 0; k < TENSORS; k++)
    gpu_free(m->narrow[k]);
  for (int i = 0; i < TENSORS * m->n_in; i++)
    gpu_free(m->in[i]);
  for (int i = 0; i < TENSORS * m->n_out; i++)
    gpu_free(m->out[i]), gpu_free(m->single[i]);
}

#define IN(i)  m.in[k * m.n_in + (i)]
#define OUT(i) m.single[k * m.n_out + (i)]

static void batches(NnrtDtype narrow) {
  Many m;
  const double lr_scale[] = {0.1, 0.5}, with_steps[] = {0.1, 0.5, INFINITY};
  const NnrtSgdMomentum momentum = {0.9, 0.1, 0.01, .nesterov = true};
  const NnrtAdam adam = {0.9, 0.999, 1e-8, 0.01, .decoupled = true};
  const NnrtAdagrad adagrad = {0.1, 1e-8, 0.01};
  const NnrtLamb lamb = {0.9, 0.999, 1e-6, 0.01};
  many_open(&m, 1, 4, 2, lr_scale, 0);
  for (int k = 0; k < TENSORS; k++)
    nnrt_sgd_f32(OUT(0), IN(0), IN(1), IN(2), IN(3), sizes[k], 0.01);
  many_close(&m, "sgd", narrow, nnrt_sgd_batch_prep_f32(TENSORS, sizes, narrow, 0.01),
             nnrt_sgd_batch_f32);

  many_open(&m, 2, 6, 3, with_steps, 3);
  for (int k = 0; k < TENSORS; k++)
    nnrt_sgd_momentum_f32(OUT(0), OUT(1), IN(0), IN(1), IN(2), IN(3), IN(4), IN(5), sizes[k],
                          &momentum);
  many_close(&m, "sgd_momentum", narrow,
             nnrt_sgd_momentum_batch_prep_f32(TENSORS, sizes, narrow, &momentum),
             nnrt_sgd_momentum_batch_f32);

  many_open(&m, 3, 7, 4, with_steps, 3);
  for (int k = 0; k < TENSORS; k++)
    nnrt_adam_f32(OUT(0), OUT(1), OUT(2), IN(0), IN(1), IN(2), IN(3), IN(4), IN(5), IN(6), sizes[k],
                  &adam);
  many_close(&m, "adam", narrow, nnrt_adam_batch_prep_f32(TENSORS, sizes, narrow, &adam),
             nnrt_adam_batch_f32);

  many_open(&m, 2, 6, 3, with_steps, 3);
  for (int k = 0; k < TENSORS; k++)
    nnrt_adagrad_f32(OUT(0), OUT(1), IN(0), IN(1), IN(2), IN(3), IN(4), IN(5), sizes[k], &adagrad);
  many_close(&m, "adagrad", narrow, nnrt_adagrad_batch_prep_f32(TENSORS, sizes, narrow, &adagrad),
             nnrt_adagrad_batch_f32);

  const double scale_steps[] = {0.5, INFINITY}, of_norms[] = {2.0, 3.0, 0.1};
  many_open(&m, 3, 6, 4, scale_steps, 3);
  for (int k = 0; k < TENSORS; k++)
    nnrt_lamb_f32(OUT(0), OUT(1), OUT(2), IN(0), IN(1), IN(2), IN(3), IN(4), IN(5), sizes[k],
                  &lamb);
  many_close(&m, "lamb", NNRT_f32, nnrt_lamb_batch_prep_f32(TENSORS, sizes, &lamb),
             nnrt_lamb_batch_f32);

  many_open(&m, 1, 5, 2, of_norms, 0);
  for (int k = 0; k < TENSORS; k++)
    nnrt_lamb_apply_f32(OUT(0), IN(0), IN(1), IN(2), IN(3), IN(4), sizes[k]);
  many_close(&m, "lamb_apply", narrow, nnrt_lamb_apply_batch_prep_f32(TENSORS, sizes, narrow),
             nnrt_lamb_apply_batch_f32);
}

static void batch_of_squares(void) {
  void *in[TENSORS], *squares[TENSORS];
  for (int k = 0; k < TENSORS; k++) {
    float *x = numbers(NNRT_f32, sizes[k], k);
    in[k] = gpu_put(x, sizes[k] * 4);
    squares[k] = gpu_new(4);
    free(x);
  }
  NnrtPrep *p = nnrt_sum_squares_batch_prep_f32(TENSORS, sizes);
  CHECK(nnrt_sum_squares_batch_f32(p, squares, (const void *const *)in) == 0, "squares fail");
  float *one = gpu_new(4);
  for (int k = 0; k < TENSORS; k++) {
    nnrt_sum_squares_f32(one, in[k], sizes[k]);
    CHECK(same_bytes(one, squares[k], 4), "the squares of tensor %d differ", k);
    float *x = gpu_get(in[k], sizes[k] * 4);
    double sum = 0;
    for (int64_t i = 0; i < sizes[k]; i++)
      sum += (double)x[i] * (double)x[i];
    check_near("sum_squares", one, NNRT_f32, &sum, 1, 1e-6);
    free(x);
  }
  nnrt_prep_free(p);
  for (int k = 0; k < TENSORS; k++)
    gpu_free(in[k]), gpu_free(squares[k]);
  gpu_free(one);
}

// The rounding of weights at the start of training, at odd and even addresses.
static void narrowing(void) {
  for (int half = 0; half < 2; half++)
    for (int k = 0; k < TENSORS; k++) {
      NnrtDtype type = half ? NNRT_f16 : NNRT_bf16;
      float *x = numbers(NNRT_f32, sizes[k], k), *gx = gpu_put(x, sizes[k] * 4);
      uint16_t *gy = gpu_new(sizes[k] * 2 + 2);
      for (int skip = 0; skip < 2 && skip <= sizes[k]; skip++) {
        int code = nnrt_gpu_narrow(gy + skip, type, gx + skip, sizes[k] - skip);
        CHECK(code == 0 && rounds(gy + skip, type, gx + skip, sizes[k] - skip),
              "%lld elements from %d are not rounded", (long long)sizes[k], skip);
      }
      gpu_free(gx), gpu_free(gy);
      free(x);
    }
}

// Checksums, as the host computes them, of all lengths up to a few words, and of many blocks.
static void checksums(void) {
  static const int64_t lengths[] = {0, 1, 7, 8, 9, 31, 64, 4096, 100003, 3000000};
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
    int64_t n = lengths[k], words = n / 8;
    float *x = numbers(NNRT_f32, n / 4 + 1, (int)k);
    uint64_t zero = 0, *sum = gpu_put(&zero, 8);
    uint64_t want = word_mix_rest((char *)x + words * 8, n % 8, (uint64_t)words), word;
    for (int64_t i = 0; i < words; i++) {
      memcpy(&word, (char *)x + i * 8, 8);
      want += word_mix(word, (uint64_t)i);
    }
    char *gx = gpu_put(x, (n / 4 + 1) * 4);
    int code = nnrt_gpu_checksum(sum, gx, n);
    uint64_t *got = gpu_get(sum, 8);
    CHECK(code == 0 && *got == want, "the checksum of %lld bytes", (long long)n);
    gpu_free(gx), gpu_free(sum), free(got);
    free(x);
  }
}

// A NaN factor of the gradients changes nothing.
static void skipped_updates(void) {
  enum { N = 1001 };
  float *x[4], nan = NAN, lr = 0.1f;
  void *in[4], *out[3];
  for (int i = 0; i < 4; i++) {
    x[i] = numbers(NNRT_f32, N, i);
    in[i] = gpu_put(x[i], N * 4);
  }
  x[1][5] = INFINITY;
  int64_t steps = 3;
  void *g = gpu_put(x[1], N * 4), *glr = gpu_put(&lr, 4), *scale = gpu_put(&nan, 4);
  void *step = gpu_put(&steps, 8);
  for (int i = 0; i < 3; i++)
    out[i] = gpu_new(N * 4);
  nnrt_sgd_f32(out[0], in[0], g, glr, scale, N, 0.01);
  CHECK(same_bytes(out[0], in[0], N * 4), "sgd changes the weights");
  const NnrtSgdMomentum momentum = {0.9, 0, 0.01, .nesterov = false};
  nnrt_sgd_momentum_f32(out[0], out[1], in[0], g, in[2], glr, scale, step, N, &momentum);
  CHECK(same_bytes(out[0], in[0], N * 4) && same_bytes(out[1], in[2], N * 4), "sgd_momentum does");
  const NnrtAdam adam = {0.9, 0.999, 1e-8, 0.01, .decoupled = true};
  nnrt_adam_f32(out[0], out[1], out[2], in[0], g, in[2], in[3], glr, scale, step, N, &adam);
  CHECK(same_bytes(out[0], in[0], N * 4) && same_bytes(out[1], in[2], N * 4) &&
            same_bytes(out[2], in[3], N * 4),
        "adam does");
  const NnrtAdagrad adagrad = {0, 1e-8, 0.01};
  nnrt_adagrad_f32(out[0], out[1], in[0], g, in[2], glr, scale, step, N, &adagrad);
  CHECK(same_bytes(out[0], in[0], N * 4) && same_bytes(out[1], in[2], N * 4), "adagrad does");
  const NnrtLamb lamb = {0.9, 0.999, 1e-6, 0.01};
  nnrt_lamb_f32(out[0], out[1], out[2], in[0], g, in[2], in[3], scale, step, N, &lamb);
  double zeros[N] = {0};
  check_near("lamb's direction", out[0], NNRT_f32, zeros, N, 0);
  CHECK(same_bytes(out[1], in[2], N * 4) && same_bytes(out[2], in[3], N * 4), "lamb does");
  for (int i = 0; i < 4; i++)
    gpu_free(in[i]), free(x[i]);
  for (int i = 0; i < 3; i++)
    gpu_free(out[i]);
  gpu_free(g), gpu_free(glr), gpu_free(scale), gpu_free(step);
}

// -- Determinants of singular matrices

static void singular(void) {
  // Of rank 2, 2, 1 and 0, and their cofactors.
  static const float x[] = {1, 2, 3, 2, 4, 6, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2,
                            1, 2, 3, 2, 4, 6, 3, 6, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  static const float ones[] = {1, 1, 1, 1};
  static const double cofactors[36] = {4, 4, -4, -2, -2, 2, 0, 0, 0, 0, 0, 0, 0, 2};
  static const double zeros[4] = {0};
  void *in = gpu_put(x, sizeof x), *dy = gpu_put(ones, sizeof ones);
  void *y = gpu_new(sizeof ones), *dx = gpu_new(sizeof x);
  nnrt_det_f32(y, in, 4, 3);
  nnrt_det_back_f32(dx, in, dy, 4, 3);
  check_near("determinants of singular matrices", y, NNRT_f32, zeros, 4, 1e-6);
  check_near("their cofactors", dx, NNRT_f32, cofactors, 36, 1e-6);
  gpu_free(in), gpu_free(dy), gpu_free(y), gpu_free(dx);
}

int main(void) {
  gpu_open();
  singular();
  softmax();
  infinities();
  norms();
  large_mean();
  losses();
  labels_out_of_range();
  sums();
  extremes_of_nan();
  running_sums();
  pooling();
  dropout();
  batches(NNRT_f32);
  batches(NNRT_bf16);
  batches(NNRT_f16);
  batch_of_squares();
  narrowing();
  checksums();
  skipped_updates();
  return gpu_close();
}
