// Softmax and log-softmax along one axis of x (outer, n, inner), and their gradients.
//
// If the axis is the last, inner is 1 and each row is contiguous.  Otherwise a leaf computes up to
// COLUMNS neighbouring positions of inner at once, and vectors go across them.  All may work in
// place.

#include "kernel.h"

enum { COLUMNS = 64 };

typedef enum Kind { SOFTMAX, LOG_SOFTMAX } Kind;

NNRT_CLONES static void rows(Kind kind, float *y, const float *x, int64_t from, int64_t to,
                             int64_t n) {
  for (int64_t i = from; i < to; i++) {
    const float *xi = x + i * n;
    float *yi = y + i * n;
    // The maximum first: no exponential overflows.
    float top = -INFINITY, sum = 0;
#pragma omp simd reduction(max : top)
    for (int64_t j = 0; j < n; j++)
      top = xi[j] > top ? xi[j] : top;
    if (kind == SOFTMAX) {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; j++) {
        float e = m_exp_f(xi[j] - top);
        yi[j] = e;
        sum += e;
      }
      // One division per row.
      float scale = 1.0f / sum;
      for (int64_t j = 0; j < n; j++)
        yi[j] *= scale;
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; j++)
        sum += m_exp_f(xi[j] - top);
      float log_sum = m_log_f(sum);
#pragma omp simd
      for (int64_t j = 0; j < n; j++)
        yi[j] = xi[j] - top - log_sum;
    }
  }
}

// Computes `width` columns from x on, of n rows at distance `stride`.
NNRT_CLONES static void columns(Kind kind, float *y, const float *x, int64_t n, int64_t stride,
                                int64_t width) {
  float top[COLUMNS], sum[COLUMNS];
  for (int64_t c = 0; c < width; c++) {
    top[c] = x[c];
    sum[c] = 0;
  }
  // Each row of x updates all columns at once.
  for (int64_t j = 1; j < n; j++)
    for (int64_t c = 0; c < width; c++)
      top[c] = x[j * stride + c] > top[c] ? x[j * stride + c] : top[c];
  for (int64_t j = 0; j < n; j++)
    for (int64_t c = 0; c < width; c++)
      sum[c] += m_exp_f(x[j * stride + c] - top[c]);
  // The exponentials are computed again: in place, x must last until the sum is known.
  if (kind == SOFTMAX) {
    for (int64_t c = 0; c < width; c++)
      sum[c] = 1.0f / sum[c];
    for (int64_t j = 0; j < n; j++)
#pragma omp simd
      for (int64_t c = 0; c < width; c++)
        y[j * stride + c] = m_exp_f(x[j * stride + c] - top[c]) * sum[c];
  } else {
    for (int64_t c = 0; c < width; c++)
      sum[c] = m_log_f(sum[c]);
    for (int64_t j = 0; j < n; j++)
#pragma omp simd
      for (int64_t c = 0; c < width; c++)
        y[j * stride + c] = x[j * stride + c] - top[c] - sum[c];
  }
}

static int forward(Kind kind, float *y, const float *x, int64_t ndim, const int64_t *shape,
                   int64_t axis) {
  Axis a = axis_of(ndim, shape, axis);
  int parts = threads_for(a.outer * a.n * a.inner);
  if (a.inner == 1) {
#pragma omp parallel for num_threads(parts)
    for (int i = 0; i < parts; i++) {
      // The last axis: whole rows.
      Part p = part_of(a.outer, 1, i, parts);
      rows(kind, y, x, p.from, p.to, a.n);
    }
    return NNRT_OK;
  }
#pragma omp parallel for collapse(2) num_threads(parts)
  for (int64_t o = 0; o < a.outer; o++)
    for (int64_t c = 0; c < a.inner; c += COLUMNS) {
      // Another axis: columns side by side.
      int64_t at = o * a.n * a.inner + c, width = a.inner - c < COLUMNS ? a.inner - c : COLUMNS;
      columns(kind, y + at, x + at, a.n, a.inner, width);
    }
  return NNRT_OK;
}

// softmax: dx = y (dy - sum(y dy));  log_softmax: dx = dy - e^y sum(dy)
NNRT_CLONES static void back_rows(Kind kind, float *dx, const float *y, const float *dy,
                                  int64_t from, int64_t to, int64_t n) {
  for (int64_t i = from; i < to; i++) {
    const float *yi = y + i * n, *dyi = dy + i * n;
    float *dxi = dx + i * n;
    float sum = 0;
    if (kind == SOFTMAX) {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; j++)
        sum += yi[j] * dyi[j];
#pragma omp simd
      for (int64_t j = 0; j < n; j++)
        dxi[j] = yi[j] * (dyi[j] - sum);
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; j++)
        sum += dyi[j];
#pragma omp simd
      for (int64_t j = 0; j < n; j++)
        dxi[j] = dyi[j] - m_exp_f(yi[j]) * sum;
    }
  }
}

NNRT_CLONES static void back_columns(Kind kind, float *dx, const float *y, const float *dy,
                                     int64_t n, int64_t stride, int64_t width) {
  float sum[COLUMNS] = {0};
  for (int64_t j = 0; j < n; j++)
    for (int64_t c = 0; c < width; c++) {
      // The weighted sum of softmax, the plain one of log-softmax.
      float weight = kind == SOFTMAX ? y[j * stride + c] : 1.0f;
      sum[c] += weight * dy[j * stride + c];
    }
  for (int64_t j = 0; j < n; j++) {
    if (kind == SOFTMAX) {
#pragma omp simd
      for (int64_t c = 0; c < width; c++)
        dx[j * stride + c] = y[j * stride + c] * (dy[j * stride + c] - sum[c]);
    } else {
#pragma omp simd
      for (int64_t c = 0; c < width; c++)
        dx[j * stride + c] = dy[j * stride + c] - m_exp_f(y[j * stride + c]) * sum[c];
    }
  }
}

static int backward(Kind kind, float *dx, const float *y, const float *dy, int64_t ndim,
                    const int64_t *shape, int64_t axis) {
  Axis a = axis_of(ndim, shape, axis);
  int parts = threads_for(a.outer * a.n * a.inner);
  if (a.inner == 1) {
#pragma omp parallel for num_threads(parts)
    for (int i = 0; i < parts; i++) {
      // The last axis: whole rows.
      Part p = part_of(a.outer, 1, i, parts);
      back_rows(kind, dx, y, dy, p.from, p.to, a.n);
    }
    return NNRT_OK;
  }
#pragma omp parallel for collapse(2) num_threads(parts)
  for (int64_t o = 0; o < a.outer; o++)
    for (int64_t c = 0; c < a.inner; c += COLUMNS) {
      // Another axis: columns side by side.
      int64_t at = o * a.n * a.inner + c, width = a.inner - c < COLUMNS ? a.inner - c : COLUMNS;
      back_columns(kind, dx + at, y + at, dy + at, a.n, a.inner, width);
    }
  return NNRT_OK;
}

int nnrt_softmax_f32(float *y, const float *x, int64_t ndim, const int64_t *shape, int64_t axis) {
  return forward(SOFTMAX, y, x, ndim, shape, axis);
}

int nnrt_softmax_back_f32(float *dx, const float *y, const float *dy, int64_t ndim,
                          const int64_t *shape, int64_t axis) {
  return backward(SOFTMAX, dx, y, dy, ndim, shape, axis);
}

int nnrt_log_softmax_f32(float *y, const float *x, int64_t ndim, const int64_t *shape,
                         int64_t axis) {
  return forward(LOG_SOFTMAX, y, x, ndim, shape, axis);
}

int nnrt_log_softmax_back_f32(float *dx, const float *y, const float *dy, int64_t ndim,
                              const int64_t *shape, int64_t axis) {
  return backward(LOG_SOFTMAX, dx, y, dy, ndim, shape, axis);
}
