// Batch normalisation, divided for data parallelism: the sums over a rank's rows, which are added
// between ranks, and the results of the whole sums.
//
// x is (outer, c, inner) around the channel axis.  Channels first (inner > 1): a channel is runs of
// `inner` elements, and threads take channels.  Channels last (inner = 1): vectors go along the
// channels, threads take rows, and their sums are added in order.  Sums are in double: there may be
// millions of terms, and the kernel is bound by memory bandwidth anyway.

#include "wide.h"

// The terms of the sums over a channel's elements: x; (x - mean)^2; and for the gradients dy and dy
// (x - mean).
typedef enum Sum { SUM_X, SUM_SQUARES, SUM_BACK } Sum;

// Adds one run of one channel.
NNRT_CLONES static void sum_run(Sum what, double *total, const float *x, const float *dy,
                                float mean, int64_t n) {
  // A run has one mean, so the loops vectorise over its elements.
  double a = 0, b = 0;
  switch (what) {
  case SUM_X:
#pragma omp simd reduction(+ : a)
    for (int64_t i = 0; i < n; i++)
      a += (double)x[i];
    break;
  case SUM_SQUARES:
#pragma omp simd reduction(+ : a)
    for (int64_t i = 0; i < n; i++) {
      float d = x[i] - mean;
      a += (double)d * (double)d;
    }
    break;
  case SUM_BACK:
#pragma omp simd reduction(+ : a, b)
    for (int64_t i = 0; i < n; i++) {
      a += (double)(dy[i] * (x[i] - mean));
      b += (double)dy[i];
    }
    break;
  }
  total[0] += a;
  total[1] += b;
}

// Adds rows from .. to of (rows, c), channel by channel; total (2, c).
NNRT_CLONES static void sum_rows(Sum what, double *restrict total, const float *restrict x,
                                 const float *restrict dy, const float *restrict mean, int64_t from,
                                 int64_t to, int64_t c) {
  double *other = total + c;
  for (int64_t i = from; i < to; i++) {
    // A row has all channels: vectors go across them.
    const float *xi = x + i * c;
    switch (what) {
    case SUM_X:
      for (int64_t j = 0; j < c; j++)
        total[j] += (double)xi[j];
      break;
    case SUM_SQUARES:
      for (int64_t j = 0; j < c; j++) {
        float d = xi[j] - mean[j];
        total[j] += (double)d * (double)d;
      }
      break;
    case SUM_BACK:
      for (int64_t j = 0; j < c; j++) {
        float d = dy[i * c + j];
        total[j] += (double)(d * (xi[j] - mean[j]));
        other[j] += (double)d;
      }
      break;
    }
  }
}

// Returns the sums of all channels, (2, c) in scratch; NULL: no memory, which is reported.
static double *sums(NnrtDtype type, Sum what, const void *x, const void *dy, const float *mean,
                    Axis a) {
  int parts = threads_for(a.outer * a.n * a.inner);
  bool runs = a.inner > 1;
  // A row of a block: a channel's run, or the channels of a position.
  int64_t n = runs ? a.inner < WIDE_BLOCK ? a.inner : WIDE_BLOCK : a.n, most = n;
  if (type == NNRT_f32) most = a.inner;
  Wide w; // its own floats: doubles (parts, 2, c)
  int64_t own = 2 * a.n * parts * (int64_t)(sizeof(double) / sizeof(float));
  if (!wide_new(&w, type, a.outer, n, parts, 2, own)) return NULL;
  double *total = (double *)w.own;
  // Channels first: each thread sums whole channels.
  if (runs) {
#pragma omp parallel for num_threads(parts)
    for (int64_t c = 0; c < a.n; c++) {
      double pair[2] = {0};
      int thread = omp_get_thread_num();
      for (int64_t o = 0; o < a.outer; o++)
        for (int64_t j = 0; j < a.inner; j += most) {
          int64_t at = (o * a.n + c) * a.inner + j, some = a.inner - j < most ? a.inner - j : most;
          const float *xr = wide_read(&w, x, at, some, wide_block(&w, thread, 0));
          const float *dyr = dy ? wide_read(&w, dy, at, some, wide_block(&w, thread, 1)) : NULL;
          sum_run(what, pair, xr, dyr, mean ? mean[c] : 0.0f, some);
        }
      total[c] = pair[0];
      total[a.n + c] = pair[1];
    }
    return total;
  }
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    Part p = part_of(a.outer, 1, i, parts);
    double *mine = total + i * 2 * a.n;
    memset(mine, 0, (size_t)(2 * a.n) * sizeof(double));
    for (int64_t r = p.from; r < p.to; r += w.rows) {
      int64_t some = wide_some(&w, p.to - r);
      const float *xr = wide_read(&w, x, r * a.n, some * a.n, wide_block(&w, i, 0));
      const float *dyr = dy ? wide_read(&w, dy, r * a.n, some * a.n, wide_block(&w, i, 1)) : NULL;
      sum_rows(what, mine, xr, dyr, mean, 0, some, a.n);
    }
  }
  // Channels last: the threads' parts are added in order.
  for (int i = 1; i < parts; i++)
    for (int64_t c = 0; c < 2 * a.n; c++)
      total[c] += total[i * 2 * a.n + c];
  return total;
}

static int batch_norm_mean(NnrtDtype type, float *mean, const void *x, int64_t ndim,
                           const int64_t *shape, int64_t axis, int64_t count) {
  Axis a = axis_of(ndim, shape, axis);
  double *total = sums(type, SUM_X, x, NULL, NULL, a);
  if (!total) return NNRT_MEMORY;
  // `count` is that of all ranks: their means add up.
  for (int64_t c = 0; c < a.n; c++)
    mean[c] = (float)(total[c] / (double)count);
  return NNRT_OK;
}

static int batch_norm_var(NnrtDtype type, float *var, const void *x, const float *mean,
                          int64_t ndim, const int64_t *shape, int64_t axis, int64_t count) {
  Axis a = axis_of(ndim, shape, axis);
  double *total = sums(type, SUM_SQUARES, x, NULL, mean, a);
  if (!total) return NNRT_MEMORY;
  // The biased variance, over the rows of all ranks.
  for (int64_t c = 0; c < a.n; c++)
    var[c] = (float)(total[c] / (double)count);
  return NNRT_OK;
}

static int batch_norm_sums(NnrtDtype type, float *dg, float *db, const void *x, const float *mean,
                           const float *var, const void *dy, int64_t ndim, const int64_t *shape,
                           int64_t axis, double eps) {
  Axis a = axis_of(ndim, shape, axis);
  double *total = sums(type, SUM_BACK, x, dy, mean, a);
  if (!total) return NNRT_MEMORY;
  // dg = sum(dy (x - mean)) / sqrt(var + eps), db = sum(dy).
  for (int64_t c = 0; c < a.n; c++) {
    dg[c] = (float)(total[c] / sqrt((double)var[c] + eps));
    db[c] = (float)total[a.n + c];
  }
  return NNRT_OK;
}

// y = (x - mean) scale + shift, and with dy added: dy slope.  Each constant is one number per
// channel; a run has one channel, a row has them all.
typedef struct Constants {
  float *mean, *scale, *shift, *slope;
} Constants;

NNRT_CLONES static void affine_run(float *restrict y, const float *restrict x,
                                   const float *restrict dy, float mean, float scale, float shift,
                                   float slope, int64_t n) {
  // The order of the additions is the same in both layouts.
  if (dy)
    for (int64_t i = 0; i < n; i++)
      y[i] = dy[i] * slope + ((x[i] - mean) * scale + shift);
  else
    for (int64_t i = 0; i < n; i++)
      y[i] = (x[i] - mean) * scale + shift;
}

NNRT_CLONES static void affine_rows(float *restrict y, const float *restrict x,
                                    const float *restrict dy, const float *restrict mean,
                                    const float *restrict scale, const float *restrict shift,
                                    const float *restrict slope, int64_t from, int64_t to,
                                    int64_t c) {
  for (int64_t i = from; i < to; i++) {
    const float *xi = x + i * c;
    float *yi = y + i * c;
    if (dy)
      for (int64_t j = 0; j < c; j++)
        yi[j] = dy[i * c + j] * slope[j] + ((xi[j] - mean[j]) * scale[j] + shift[j]);
    else
      for (int64_t j = 0; j < c; j++)
        yi[j] = (xi[j] - mean[j]) * scale[j] + shift[j];
  }
}

// Memory for `affine`: its blocks, and in the floats of its own the constants.
static bool affine_new(Wide *w, Constants *k, NnrtDtype type, const float *mean, Axis a) {
  int parts = threads_for(a.outer * a.n * a.inner);
  int64_t n = a.inner == 1 ? a.n : a.inner < WIDE_BLOCK ? a.inner : WIDE_BLOCK;
  if (!wide_new(w, type, a.outer, n, parts, 3, 4 * a.n)) return false;
  float *at = w->own;
  *k = (Constants){at, at + a.n, at + 2 * a.n, at + 3 * a.n};
  // Each constant is an array over the channels.
  memcpy(k->mean, mean, (size_t)a.n * sizeof *mean);
  return true;
}

static void affine(const Wide *w, void *y, const void *x, const void *dy, Constants k, Axis a) {
  int parts = threads_for(a.outer * a.n * a.inner);
  // Channels first: runs of one channel.
  if (a.inner > 1) {
    int64_t most = w->type == NNRT_f32 ? a.inner : WIDE_BLOCK;
#pragma omp parallel for collapse(2) num_threads(parts)
    for (int64_t o = 0; o < a.outer; o++)
      for (int64_t c = 0; c < a.n; c++)
        for (int64_t j = 0; j < a.inner; j += most) {
          int64_t at = (o * a.n + c) * a.inner + j, some = a.inner - j < most ? a.inner - j : most;
          int thread = omp_get_thread_num();
          const float *xr = wide_read(w, x, at, some, wide_block(w, thread, 0));
          const float *dyr = dy ? wide_read(w, dy, at, some, wide_block(w, thread, 1)) : NULL;
          float *yr = wide_place(w, y, at, wide_block(w, thread, 2));
          affine_run(yr, xr, dyr, k.mean[c], k.scale[c], k.shift[c], k.slope[c], some);
          wide_write(w, y, at, some, yr);
        }
    return;
  }
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    // Channels last: whole rows.
    Part p = part_of(a.outer, 1, i, parts);
    for (int64_t r = p.from; r < p.to; r += w->rows) {
      int64_t at = r * a.n, some = wide_some(w, p.to - r);
      const float *xr = wide_read(w, x, at, some * a.n, wide_block(w, i, 0));
      const float *dyr = dy ? wide_read(w, dy, at, some * a.n, wide_block(w, i, 1)) : NULL;
      float *yr = wide_place(w, y, at, wide_block(w, i, 2));
      affine_rows(yr, xr, dyr, k.mean, k.scale, k.shift, k.slope, 0, some, a.n);
      wide_write(w, y, at, some * a.n, yr);
    }
  }
}

static int batch_norm(NnrtDtype type, void *y, const void *x, const float *g, const float *b,
                      const float *mean, const float *var, int64_t ndim, const int64_t *shape,
                      int64_t axis, double eps) {
  Axis a = axis_of(ndim, shape, axis);
  Wide w;
  Constants k;
  if (!affine_new(&w, &k, type, mean, a)) return NNRT_MEMORY;
  // Computed in double, and rounded once.
  for (int64_t c = 0; c < a.n; c++) {
    k.scale[c] = (float)((double)g[c] / sqrt((double)var[c] + eps));
    k.shift[c] = b[c];
    k.slope[c] = 0;
  }
  affine(&w, y, x, NULL, k, a);
  return NNRT_OK;
}

// With r = 1 / sqrt(var + eps):  dx = g r (dy - db / count - (x - mean) r dg / count).
static int batch_norm_back(NnrtDtype type, void *dx, const void *x, const float *g,
                           const float *mean, const float *var, const void *dy, const float *dg,
                           const float *db, int64_t ndim, const int64_t *shape,
                           const NnrtBatchNormBack *attrs) {
  Axis a = axis_of(ndim, shape, attrs->axis);
  Wide w;
  Constants k;
  if (!affine_new(&w, &k, type, mean, a)) return NNRT_MEMORY;
  // The formula as constants of (x - mean), dy and 1.
  for (int64_t c = 0; c < a.n; c++) {
    double r = 1.0 / sqrt((double)var[c] + attrs->eps), slope = (double)g[c] * r;
    k.slope[c] = (float)slope;
    k.scale[c] = (float)(-slope * r * (double)dg[c] / (double)attrs->count);
    k.shift[c] = (float)(-slope * (double)db[c] / (double)attrs->count);
  }
  affine(&w, dx, x, dy, k, a);
  return NNRT_OK;
}

#define KERNELS(type, T)                                                                           \
  int nnrt_batch_norm_mean_##type(float *mean, const T *x, int64_t ndim, const int64_t *shape,     \
                                  int64_t axis, int64_t count) {                                   \
    return batch_norm_mean(NNRT_##type, mean, x, ndim, shape, axis, count);                        \
  }                                                                                                \
  int nnrt_batch_norm_var_##type(float *var, const T *x, const float *mean, int64_t ndim,          \
                                 const int64_t *shape, int64_t axis, int64_t count) {              \
    return batch_norm_var(NNRT_##type, var, x, mean, ndim, shape, axis, count);                    \
  }                                                                                                \
  int nnrt_batch_norm_sums_##type(float *dg, float *db, const T *x, const float *mean,             \
                                  const float *var, const T *dy, int64_t ndim,                     \
                                  const int64_t *shape, int64_t axis, double eps) {                \
    return batch_norm_sums(NNRT_##type, dg, db, x, mean, var, dy, ndim, shape, axis, eps);         \
  }                                                                                                \
  int nnrt_batch_norm_##type(T *y, const T *x, const float *g, const float *b, const float *mean,  \
                             const float *var, int64_t ndim, const int64_t *shape, int64_t axis,   \
                             double eps) {                                                         \
    return batch_norm(NNRT_##type, y, x, g, b, mean, var, ndim, shape, axis, eps);                 \
  }                                                                                                \
  int nnrt_batch_norm_back_##type(T *dx, const T *x, const float *g, const float *mean,            \
                                  const float *var, const T *dy, const float *dg, const float *db, \
                                  int64_t ndim, const int64_t *shape,                              \
                                  const NnrtBatchNormBack *attrs) {                                \
    return batch_norm_back(NNRT_##type, dx, x, g, mean, var, dy, dg, db, ndim, shape, attrs);      \
  }

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)
