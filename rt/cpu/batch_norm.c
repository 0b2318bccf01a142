// Batch normalisation, divided for data parallelism: the sums over a rank's rows, which are added
// between ranks, and the results of the whole sums.
//
// x is (outer, c, inner) around the channel axis.  Channels first (inner > 1): a channel is runs of
// `inner` elements, and threads take channels.  Channels last (inner = 1): vectors go along the
// channels, threads take rows, and their sums are added in order.  Sums are in double: there may be
// millions of terms, and the kernel is bound by memory bandwidth anyway.

#include "kernel.h"

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

// Returns the sums of all channels, (2, c) in scratch; NULL: out of memory.
static double *sums(Sum what, const float *x, const float *dy, const float *mean, Axis a) {
  int parts = threads_for(a.outer * a.n * a.inner);
  double *total = kernel_scratch((size_t)(2 * a.n * parts) * sizeof(double)); // (parts, 2, c)
  if (!total) return NULL;
  // Channels first: each thread sums whole channels.
  if (a.inner > 1) {
#pragma omp parallel for num_threads(parts)
    for (int64_t c = 0; c < a.n; c++) {
      double pair[2] = {0};
      for (int64_t o = 0; o < a.outer; o++) {
        int64_t at = (o * a.n + c) * a.inner;
        sum_run(what, pair, x + at, dy ? dy + at : NULL, mean ? mean[c] : 0.0f, a.inner);
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
    sum_rows(what, mine, x, dy, mean, p.from, p.to, a.n);
  }
  // Channels last: the threads' parts are added in order.
  for (int i = 1; i < parts; i++)
    for (int64_t c = 0; c < 2 * a.n; c++)
      total[c] += total[i * 2 * a.n + c];
  return total;
}

static int no_memory(int64_t c) {
  return scratch_failed((size_t)c * 2 * sizeof(double));
}

int nnrt_batch_norm_mean_f32(float *mean, const float *x, int64_t ndim, const int64_t *shape,
                             int64_t axis, int64_t count) {
  Axis a = axis_of(ndim, shape, axis);
  double *total = sums(SUM_X, x, NULL, NULL, a);
  if (!total) return no_memory(a.n);
  // `count` is that of all ranks: their means add up.
  for (int64_t c = 0; c < a.n; c++)
    mean[c] = (float)(total[c] / (double)count);
  return NNRT_OK;
}

int nnrt_batch_norm_var_f32(float *var, const float *x, const float *mean, int64_t ndim,
                            const int64_t *shape, int64_t axis, int64_t count) {
  Axis a = axis_of(ndim, shape, axis);
  double *total = sums(SUM_SQUARES, x, NULL, mean, a);
  if (!total) return no_memory(a.n);
  // The biased variance, over the rows of all ranks.
  for (int64_t c = 0; c < a.n; c++)
    var[c] = (float)(total[c] / (double)count);
  return NNRT_OK;
}

int nnrt_batch_norm_sums_f32(float *dg, float *db, const float *x, const float *mean,
                             const float *var, const float *dy, int64_t ndim, const int64_t *shape,
                             int64_t axis, double eps) {
  Axis a = axis_of(ndim, shape, axis);
  double *total = sums(SUM_BACK, x, dy, mean, a);
  if (!total) return no_memory(a.n);
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

static void affine(float *y, const float *x, const float *dy, Constants k, Axis a) {
  int parts = threads_for(a.outer * a.n * a.inner);
  // Channels first: runs of one channel.
  if (a.inner > 1) {
#pragma omp parallel for collapse(2) num_threads(parts)
    for (int64_t o = 0; o < a.outer; o++)
      for (int64_t c = 0; c < a.n; c++) {
        int64_t at = (o * a.n + c) * a.inner;
        affine_run(y + at, x + at, dy ? dy + at : NULL, k.mean[c], k.scale[c], k.shift[c],
                   k.slope[c], a.inner);
      }
    return;
  }
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    // Channels last: whole rows.
    Part p = part_of(a.outer, 1, i, parts);
    affine_rows(y, x, dy, k.mean, k.scale, k.shift, k.slope, p.from, p.to, a.n);
  }
}

static bool constants_new(Constants *k, const float *mean, int64_t c) {
  float *at = kernel_scratch((size_t)(4 * c) * sizeof *at);
  if (!at) return false;
  *k = (Constants){at, at + c, at + 2 * c, at + 3 * c};
  // Each constant is an array over the channels, in one block of scratch.
  memcpy(k->mean, mean, (size_t)c * sizeof *mean);
  return true;
}

int nnrt_batch_norm_f32(float *y, const float *x, const float *g, const float *b, const float *mean,
                        const float *var, int64_t ndim, const int64_t *shape, int64_t axis,
                        double eps) {
  Axis a = axis_of(ndim, shape, axis);
  Constants k;
  if (!constants_new(&k, mean, a.n)) return no_memory(a.n);
  // Computed in double, and rounded once.
  for (int64_t c = 0; c < a.n; c++) {
    k.scale[c] = (float)((double)g[c] / sqrt((double)var[c] + eps));
    k.shift[c] = b[c];
    k.slope[c] = 0;
  }
  affine(y, x, NULL, k, a);
  return NNRT_OK;
}

// With r = 1 / sqrt(var + eps):  dx = g r (dy - db / count - (x - mean) r dg / count).
int nnrt_batch_norm_back_f32(float *dx, const float *x, const float *g, const float *mean,
                             const float *var, const float *dy, const float *dg, const float *db,
                             int64_t ndim, const int64_t *shape, const NnrtBatchNormBack *attrs) {
  Axis a = axis_of(ndim, shape, attrs->axis);
  Constants k;
  if (!constants_new(&k, mean, a.n)) return no_memory(a.n);
  // The formula as constants of (x - mean), dy and 1.
  for (int64_t c = 0; c < a.n; c++) {
    double r = 1.0 / sqrt((double)var[c] + attrs->eps), slope = (double)g[c] * r;
    k.slope[c] = (float)slope;
    k.scale[c] = (float)(-slope * r * (double)dg[c] / (double)attrs->count);
    k.shift[c] = (float)(-slope * (double)db[c] / (double)attrs->count);
  }
  affine(dx, x, dy, k, a);
  return NNRT_OK;
}
