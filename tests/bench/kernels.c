// Kernel speed, compared with the machine's limits.
//
//     kernels [NAME]            the kernels whose names contain NAME
//
// Each line is the best of several runs, as time and as Gflop/s or GB/s, with the share of the
// machine's limit: the largest matrix product for Gflop/s, a memory copy for GB/s.  It only
// measures, and never fails because of a time.

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nnrt.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *floats(int64_t n) {
  float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
  if (!x) exit(1);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(i * 2654435761u % 1000) * 2e-3f - 1.0f;
  return x;
}

static double gflops_limit, gbytes_limit;
static const char *only = "";

// Runs `call` for half a second, at least five times, and keeps the best time.
#define BEST(best, call)                                                                           \
  do {                                                                                             \
    double began = now();                                                                          \
    (best) = 1e30;                                                                                 \
    for (int run = 0; run < 5 || now() - began < 0.3; run++) {                                     \
      double before = now();                                                                       \
      if (call) exit(1);                                                                           \
      double took = now() - before;                                                                \
      if (took < (best)) (best) = took;                                                            \
    }                                                                                              \
  } while (0)

static void line(const char *name, const char *shape, double seconds, double flops, double bytes) {
  double rate = (flops > 0 ? flops : bytes) / seconds * 1e-9;
  double limit = flops > 0 ? gflops_limit : gbytes_limit;
  printf("%-18s %-30s %9.3f ms %8.1f %-8s", name, shape, seconds * 1e3, rate,
         flops > 0 ? "Gflop/s" : "GB/s");
  if (limit > 0) printf(" %4.0f %%", 100 * rate / limit);
  printf("\n");
}

static bool wanted(const char *name) {
  return strstr(name, only) != NULL;
}

static void limits(void) {
  enum { N = 2048 };
  float *a = floats(N * N), *b = floats(N * N), *y = floats(N * N);
  NnrtPrep *p = nnrt_linear_prep_f32(N, N, N, false);
  double t;
  BEST(t, nnrt_linear_f32(p, y, a, b));
  line("linear", "2048 x 2048 x 2048", t, 2.0 * N * N * N, 0);
  gflops_limit = 2.0 * N * N * N / t * 1e-9;
  nnrt_prep_free(p);
  free(a), free(b), free(y);
  int64_t n = 64 << 20, shape[1] = {n}, perm[1] = {0};
  float *from = floats(n), *to = floats(n);
  BEST(t, nnrt_transpose_b4(to, from, 1, shape, perm));
  line("copy", "256 MiB", t, 0, 8.0 * (double)n);
  gbytes_limit = 8.0 * (double)n / t * 1e-9;
  free(from), free(to);
}

static void products(void) {
  static const int64_t shapes[][3] = {{1024, 384, 1152}, {1024, 384, 384},  {1024, 384, 1536},
                                      {1024, 1536, 384}, {1024, 384, 8192}, {64, 784, 512}};
  for (size_t i = 0; wanted("linear") && i < sizeof shapes / sizeof *shapes; i++) {
    int64_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
    float *x = floats(m * k), *w = floats(k * n), *y = floats(m * n);
    char text[64];
    snprintf(text, sizeof text, "%d x %d x %d", (int)m, (int)k, (int)n);
    double t, flops = 2.0 * (double)(m * k * n);
    NnrtPrep *p = nnrt_linear_prep_f32(m, k, n, false);
    BEST(t, nnrt_linear_f32(p, y, x, w));
    line("linear", text, t, flops, 0);
    NnrtPrep *back = nnrt_linear_prep_f32(m, n, k, true);
    BEST(t, nnrt_linear_f32(back, x, y, w));
    line("linear trans", text, t, flops, 0);
    NnrtPrep *back_w = nnrt_linear_back_w_prep_f32(m, k, n, false);
    BEST(t, nnrt_linear_back_w_f32(back_w, w, x, y));
    line("linear_back_w", text, t, flops, 0);
    nnrt_prep_free(p);
    nnrt_prep_free(back);
    nnrt_prep_free(back_w);
    free(x), free(w), free(y);
  }
  if (!wanted("matmul")) return;
  int64_t batch = 48, n = 128, k = 64;
  float *a = floats(batch * n * k), *b = floats(batch * n * k), *y = floats(batch * n * n);
  NnrtPrep *p = nnrt_matmul_prep_f32(batch, n, n, k, false, true);
  double t;
  BEST(t, nnrt_matmul_f32(p, y, a, b));
  line("matmul trans_b", "48 x (128 x 64 x 128)", t, 2.0 * (double)(batch * n * n * k), 0);
  nnrt_prep_free(p);
  free(a), free(b), free(y);
}

// channels of x and y, size, kernel, stride: ResNet-18 at 64 x 64
static void convolutions(void) {
  static const int64_t cases[][5] = {{3, 64, 64, 7, 2},   {64, 64, 16, 3, 1},  {64, 128, 16, 3, 2},
                                     {128, 128, 8, 3, 1}, {256, 256, 4, 3, 1}, {512, 512, 2, 3, 1},
                                     {64, 128, 16, 1, 2}};
  enum { N = 16 };
  for (size_t i = 0; wanted("conv") && i < sizeof cases / sizeof *cases; i++)
    for (int last = 0; last < 2; last++) {
      int64_t c = cases[i][0], o = cases[i][1], h = cases[i][2], k = cases[i][3], s = cases[i][4];
      int64_t pad = k / 2, out = (h + 2 * pad - k) / s + 1;
      int64_t x_first[] = {N, c, h, h}, x_last[] = {N, h, h, c}, w_shape[] = {o, c, k, k};
      int64_t y_first[] = {N, o, out, out}, y_last[] = {N, out, out, o};
      int64_t strides[] = {s, s}, pads[] = {pad, pad, pad, pad}, none[] = {1, 1};
      const int64_t *xs = last ? x_last : x_first, *ys = last ? y_last : y_first;
      float *x = floats(N * c * h * h), *w = floats(o * c * k * k), *y = floats(N * o * out * out);
      NnrtPrep *p = nnrt_conv_prep_f32(4, xs, w_shape, ys, strides, pads, none, 1, last);
      NnrtPrep *bx = nnrt_conv_back_x_prep_f32(4, xs, w_shape, ys, strides, pads, none, 1, last);
      NnrtPrep *bw = nnrt_conv_back_w_prep_f32(4, xs, w_shape, ys, strides, pads, none, 1, last);
      double t, flops = 2.0 * (double)(N * o * out * out * c * k * k);
      char text[64];
      snprintf(text, sizeof text, "%d>%d %dx%d k%d s%d %s", (int)c, (int)o, (int)h, (int)h, (int)k,
               (int)s, last ? "last" : "first");
      BEST(t, nnrt_conv_f32(p, y, x, w));
      line("conv", text, t, flops, 0);
      BEST(t, nnrt_conv_back_x_f32(bx, x, w, y));
      line("conv_back_x", text, t, flops, 0);
      BEST(t, nnrt_conv_back_w_f32(bw, w, x, y));
      line("conv_back_w", text, t, flops, 0);
      nnrt_prep_free(p);
      nnrt_prep_free(bx);
      nnrt_prep_free(bw);
      free(x), free(w), free(y);
    }
}

static void attentions(void) {
  static const int64_t cases[][4] = {
      {8, 6, 128, 64}, {4, 12, 256, 64}, {1, 12, 1024, 64}, {1, 1, 1024, 64}};
  for (size_t i = 0; wanted("attention") && i < sizeof cases / sizeof *cases; i++)
    for (int causal = 0; causal < 2; causal++) {
      int64_t b = cases[i][0], h = cases[i][1], t = cases[i][2], d = cases[i][3];
      int64_t shape[] = {b, h, t, d}, n = b * h * t * d;
      float *q = floats(n), *k = floats(n), *v = floats(n), *y = floats(n), *dy = floats(n);
      float *dq = floats(n), *dk = floats(n), *dv = floats(n), *lse = floats(b * h * t);
      NnrtPrep *p = nnrt_attention_prep_f32(3, 4, shape, shape, shape, NULL, 0.125, causal, false);
      NnrtPrep *back =
          nnrt_attention_back_prep_f32(6, 4, shape, shape, shape, NULL, 0.125, causal, false);
      const float *in[] = {q, k, v}, *in_back[] = {q, k, v, y, lse, dy};
      double seconds, flops = 4.0 * (double)(n * t) / (causal ? 2 : 1);
      char text[64];
      snprintf(text, sizeof text, "%d x %d x %d x %d%s", (int)b, (int)h, (int)t, (int)d,
               causal ? " causal" : "");
      BEST(seconds, nnrt_attention_f32(p, y, lse, in));
      line("attention", text, seconds, flops, 0);
      BEST(seconds, nnrt_attention_back_f32(back, dq, dk, dv, in_back));
      line("attention_back", text, seconds, 2.5 * flops, 0);
      nnrt_prep_free(p);
      nnrt_prep_free(back);
      free(q), free(k), free(v), free(y), free(dy), free(dq), free(dk), free(dv), free(lse);
    }
}

// Memory-bound kernels over rows (m, n); bytes are the minimum traffic.
static void rows(int64_t m, int64_t n) {
  float *x = floats(m * n), *y = floats(m * n), *dx = floats(m * n), *g = floats(n);
  float *b = floats(n), *mean = floats(m), *rstd = floats(m), *dg = floats(n), *db = floats(n);
  int64_t *labels = calloc((size_t)m, sizeof *labels), shape[] = {m, n}, axes[] = {0, 1};
  if (!labels) exit(1);
  char text[64];
  snprintf(text, sizeof text, "%d x %d", (int)m, (int)n);
  double t, pass = 4.0 * (double)(m * n);
  if (wanted("layer_norm")) {
    BEST(t, nnrt_layer_norm_f32(y, mean, rstd, x, g, b, m, n, 1e-5));
    line("layer_norm", text, t, 0, 2 * pass);
    BEST(t, nnrt_layer_norm_back_f32(dx, dg, db, x, g, mean, rstd, y, m, n));
    line("layer_norm_back", text, t, 0, 3 * pass);
  }
  if (wanted("softmax")) {
    BEST(t, nnrt_softmax_f32(y, x, 2, shape, 1));
    line("softmax", text, t, 0, 2 * pass);
    BEST(t, nnrt_softmax_f32(y, x, 2, shape, 0));
    line("softmax axis 0", text, t, 0, 2 * pass);
  }
  if (wanted("cross_entropy")) {
    BEST(t, nnrt_cross_entropy_f32(mean, rstd, x, labels, m, n, 8, -100, 0));
    line("cross_entropy", text, t, 0, pass);
    BEST(t, nnrt_cross_entropy_back_f32(y, x, labels, rstd, mean, m, n, 0, n, 8, -100));
    line("cross_entropy_back", text, t, 0, 2 * pass);
  }
  if (wanted("reduce")) {
    BEST(t, nnrt_reduce_sum_f32(db, x, 2, shape, 1, axes));
    line("reduce_sum columns", text, t, 0, pass);
    BEST(t, nnrt_reduce_sum_f32(mean, x, 2, shape, 1, axes + 1));
    line("reduce_sum rows", text, t, 0, pass);
    BEST(t, nnrt_reduce_max_f32(mean, x, 2, shape, 1, axes + 1));
    line("reduce_max rows", text, t, 0, pass);
  }
  if (wanted("transpose")) {
    BEST(t, nnrt_transpose_b4(y, x, 2, shape, (int64_t[]){1, 0}));
    line("transpose 10", text, t, 0, 2 * pass);
  }
  if (wanted("dropout")) {
    int64_t start[] = {0, 0}, step = 1, seed = 2;
    BEST(t, nnrt_dropout_f32(y, x, &step, &seed, 2, shape, shape, start, NULL, NULL, 0.1, 3));
    line("dropout", text, t, 0, 2 * pass);
  }
  if (wanted("gather")) {
    int64_t table[] = {8192, n}, count[] = {m};
    float *w = floats(8192 * n);
    for (int64_t i = 0; i < m; i++)
      labels[i] = i * 7919 % 8192;
    BEST(t, nnrt_gather_b4(y, w, labels, 2, table, 1, count, 8, &(NnrtGather){0}, 0, 8192));
    line("gather", text, t, 0, 2 * pass);
    BEST(t, nnrt_gather_back_f32(w, labels, y, 1, count, 8, 2, table, 0, 0, 0, 8192));
    line("gather_back", text, t, 0, 4.0 * (double)(m * n * 2 + 8192 * n));
    free(w);
  }
  free(x), free(y), free(dx), free(g), free(b), free(mean), free(rstd), free(dg), free(db);
  free(labels);
}

static void images(void) {
  int64_t first[] = {16, 64, 32, 32}, last[] = {16, 32, 32, 64}, n = 16 * 64 * 32 * 32;
  int64_t y_first[] = {16, 64, 16, 16}, y_last[] = {16, 16, 16, 64};
  int64_t kernel[] = {3, 3}, strides[] = {2, 2}, pads[] = {1, 1, 1, 1}, none[] = {1, 1};
  float *x = floats(n), *y = floats(n), *dy = floats(n), *c = floats(64 * 6);
  int32_t *at = calloc((size_t)n, sizeof *at);
  if (!at) exit(1);
  for (int64_t i = 0; i < 64 * 6; i++)
    c[i] = 1.0f;
  double t, pass = 4.0 * (double)n;
  for (int l = 0; l < 2; l++) {
    const int64_t *shape = l ? last : first, *y_shape = l ? y_last : y_first;
    const char *text = l ? "16 x 32 x 32 x 64 last" : "16 x 64 x 32 x 32 first";
    int axis = l ? 3 : 1;
    if (wanted("batch_norm")) {
      BEST(t, nnrt_batch_norm_mean_f32(c, x, 4, shape, axis, n / 64));
      line("batch_norm_mean", text, t, 0, pass);
      BEST(t, nnrt_batch_norm_var_f32(c + 64, x, c, 4, shape, axis, n / 64));
      line("batch_norm_var", text, t, 0, pass);
      BEST(t, nnrt_batch_norm_f32(y, x, c + 128, c + 192, c, c + 64, 4, shape, axis, 1e-5));
      line("batch_norm", text, t, 0, 2 * pass);
      BEST(t, nnrt_batch_norm_sums_f32(c + 256, c + 320, x, c, c + 64, dy, 4, shape, axis, 1e-5));
      line("batch_norm_sums", text, t, 0, 2 * pass);
      BEST(t, nnrt_batch_norm_back_f32(y, x, c + 128, c, c + 64, dy, c + 256, c + 320, 4, shape,
                                       &(NnrtBatchNormBack){axis, 1e-5, n / 64}));
      line("batch_norm_back", text, t, 0, 3 * pass);
    }
    if (wanted("pool")) {
      BEST(t, nnrt_max_pool_f32(y, at, x, 4, shape, y_shape, kernel, strides, pads, none, l));
      line("max_pool", text, t, 0, pass * 1.5);
      BEST(t, nnrt_max_pool_back_f32(x, at, y, 4, y_shape, shape, kernel, strides, pads, none, l));
      line("max_pool_back", text, t, 0, pass * 1.5);
      BEST(t, nnrt_avg_pool_f32(y, x, 4, shape, y_shape, kernel, strides, pads, none, true, l));
      line("avg_pool", text, t, 0, pass * 1.25);
    }
  }
  if (wanted("transpose")) {
    int64_t heads[] = {8, 128, 6, 64}, perm[] = {0, 2, 1, 3};
    BEST(t, nnrt_transpose_b4(y, x, 4, heads, perm));
    line("transpose 0213", "8 x 128 x 6 x 64", t, 0, 8.0 * 8 * 128 * 6 * 64);
    int64_t to_last[] = {0, 2, 3, 1};
    BEST(t, nnrt_transpose_b4(y, x, 4, first, to_last));
    line("transpose 0231", "16 x 64 x 32 x 32", t, 0, 2 * pass);
  }
  free(x), free(y), free(dy), free(c), free(at);
}

// Bilinear interpolation to twice the size, along the last axis and then along the one before it.
static void resampling(void) {
  enum { C = 64, N = 128, M = 2 * N };
  int64_t small[] = {1, C, N, N}, wide[] = {1, C, N, M}, table[] = {M, 2};
  float *x = floats(C * N * N), *mid = floats(C * N * M), *y = floats(C * M * M), weight[2 * M];
  int32_t first[M];
  double t;
  for (int o = 0; o < M; o++) {
    double at = fmin(fmax((o + 0.5) / 2 - 0.5, 0), N - 2);
    first[o] = (int32_t)at;
    weight[2 * o + 1] = (float)(at - first[o]);
    weight[2 * o] = 1 - weight[2 * o + 1];
  }
  if (wanted("resample")) {
    double across = 4.0 * C * N * (N + M), down = 4.0 * C * M * (N + M);
    BEST(t, nnrt_resample_f32(mid, x, first, weight, 4, small, table, 3));
    line("resample", "64 x 128 x 128, axis 3", t, 0, across);
    BEST(t, nnrt_resample_f32(y, mid, first, weight, 4, wide, table, 2));
    line("resample", "64 x 128 x 256, axis 2", t, 0, down);
    BEST(t, nnrt_resample_back_f32(mid, first, weight, y, 4, wide, table, 2));
    line("resample_back", "64 x 128 x 256, axis 2", t, 0, down);
    BEST(t, nnrt_resample_back_f32(x, first, weight, mid, 4, small, table, 3));
    line("resample_back", "64 x 128 x 128, axis 3", t, 0, across);
  }
  free(x), free(mid), free(y);
}

static void optimizers(int64_t n) {
  float *w = floats(n), *g = floats(n), *m = floats(n), *v = floats(n), y;
  for (int64_t i = 0; i < n; i++)
    v[i] = v[i] * v[i];
  float lr = 1e-9f, scale = 1.0f;
  int64_t step = 10;
  char text[64];
  snprintf(text, sizeof text, "%.1f million", (double)n * 1e-6);
  double t, pass = 4.0 * (double)n;
  if (wanted("adam")) {
    const NnrtAdam adam = {0.9, 0.999, 1e-8, 0.01, .decoupled = true};
    BEST(t, nnrt_adam_f32(w, m, v, w, g, m, v, &lr, &scale, &step, n, &adam));
    line("adam", text, t, 0, 7 * pass);
  }
  if (wanted("sgd")) {
    const NnrtSgdMomentum momentum = {.momentum = 0.9};
    BEST(t, nnrt_sgd_momentum_f32(w, m, w, g, m, &lr, &scale, &step, n, &momentum));
    line("sgd_momentum", text, t, 0, 5 * pass);
  }
  if (wanted("sum_squares")) {
    BEST(t, nnrt_sum_squares_f32(&y, g, n));
    line("sum_squares", text, t, 0, pass);
  }
  if (wanted("accumulate")) {
    BEST(t, nnrt_accumulate_f32(m, g, n));
    line("accumulate", text, t, 0, 3 * pass);
  }
  free(w), free(g), free(m), free(v);
}

int main(int argc, char **argv) {
  if (argc > 1) only = argv[1];
  printf("%d threads\n", omp_get_max_threads());
  limits();
  products();
  convolutions();
  attentions();
  rows(1024, 384);
  rows(1024, 8192);
  images();
  resampling();
  optimizers(10000000);
  return 0;
}
