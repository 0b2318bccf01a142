// Softmax and log-softmax along one axis of x (outer, n, inner), and their gradients.
//
// If the axis is the last, inner is 1 and each row is contiguous.  Otherwise a leaf computes up to
// COLUMNS neighbouring positions of inner at once, and vectors go across them.  All may work in
// place.

#include "wide.h"

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
        float e = m_exp_upto_88_f(xi[j] - top);
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
        sum += m_exp_upto_88_f(xi[j] - top);
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
      sum[c] += m_exp_upto_88_f(x[j * stride + c] - top[c]);
  // The exponentials are computed again: in place, x must last until the sum is known.
  if (kind == SOFTMAX) {
    for (int64_t c = 0; c < width; c++)
      sum[c] = 1.0f / sum[c];
    for (int64_t j = 0; j < n; j++)
#pragma omp simd
      for (int64_t c = 0; c < width; c++)
        y[j * stride + c] = m_exp_upto_88_f(x[j * stride + c] - top[c]) * sum[c];
  } else {
    for (int64_t c = 0; c < width; c++)
      sum[c] = m_log_f(sum[c]);
    for (int64_t j = 0; j < n; j++)
#pragma omp simd
      for (int64_t c = 0; c < width; c++)
        y[j * stride + c] = x[j * stride + c] - top[c] - sum[c];
  }
}

// Columns of a 16-bit tensor as f32: rows of `width` elements, `stride` apart in x, side by side in
// `block`; of f32 the tensor itself.
static const float *columns_read(const Wide *w, const void *x, int64_t at, int64_t n,
                                 int64_t stride, int64_t width, float *block) {
  if (w->type == NNRT_f32) return (const float *)x + at;
  for (int64_t j = 0; j < n; j++)
    wide_read(w, x, at + j * stride, width, block + j * width);
  return block;
}

static void columns_write(const Wide *w, void *y, int64_t at, int64_t n, int64_t stride,
                          int64_t width, const float *place) {
  for (int64_t j = 0; j < n; j++)
    wide_write(w, y, at + j * stride, width, place + j * width);
}

// Memory for rows, or for `columns` of up to COLUMNS.
static bool wide_axis(Wide *w, NnrtDtype type, Axis a, int parts, int blocks) {
  return a.inner == 1 ? wide_new(w, type, a.outer, a.n, parts, blocks, 0)
                      : wide_new(w, type, 1, a.n * COLUMNS, parts, blocks, 0);
}

static int forward(NnrtDtype type, Kind kind, void *y, const void *x, int64_t ndim,
                   const int64_t *shape, int64_t axis) {
  Axis a = axis_of(ndim, shape, axis);
  int parts = threads_for(a.outer * a.n * a.inner);
  Wide w;
  if (!wide_axis(&w, type, a, parts, 1)) return NNRT_MEMORY;
  if (a.inner == 1) {
#pragma omp parallel for num_threads(parts)
    for (int i = 0; i < parts; i++) {
      // The last axis: whole rows.
      Part p = part_of(a.outer, 1, i, parts);
      for (int64_t r = p.from; r < p.to; r += w.rows) {
        int64_t some = wide_some(&w, p.to - r);
        const float *xr = wide_read(&w, x, r * a.n, some * a.n, wide_block(&w, i, 0));
        float *yr = wide_place(&w, y, r * a.n, wide_block(&w, i, 0));
        rows(kind, yr, xr, 0, some, a.n);
        wide_write(&w, y, r * a.n, some * a.n, yr);
      }
    }
    return NNRT_OK;
  }
#pragma omp parallel for collapse(2) num_threads(parts)
  for (int64_t o = 0; o < a.outer; o++)
    for (int64_t c = 0; c < a.inner; c += COLUMNS) {
      // Another axis: columns side by side.
      int64_t at = o * a.n * a.inner + c, width = a.inner - c < COLUMNS ? a.inner - c : COLUMNS;
      float *block = wide_block(&w, omp_get_thread_num(), 0);
      const float *xc = columns_read(&w, x, at, a.n, a.inner, width, block);
      float *yc = wide_place(&w, y, at, block);
      columns(kind, yc, xc, a.n, type == NNRT_f32 ? a.inner : width, width);
      columns_write(&w, y, at, a.n, a.inner, width, yc);
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
        dxi[j] = dyi[j] - m_exp_upto_88_f(yi[j]) * sum;
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
        dx[j * stride + c] = dy[j * stride + c] - m_exp_upto_88_f(y[j * stride + c]) * sum[c];
    }
  }
}

static int backward(NnrtDtype type, Kind kind, void *dx, const void *y, const void *dy,
                    int64_t ndim, const int64_t *shape, int64_t axis) {
  Axis a = axis_of(ndim, shape, axis);
  int parts = threads_for(a.outer * a.n * a.inner);
  Wide w;
  if (!wide_axis(&w, type, a, parts, 2)) return NNRT_MEMORY;
  if (a.inner == 1) {
#pragma omp parallel for num_threads(parts)
    for (int i = 0; i < parts; i++) {
      // The last axis: whole rows.
      Part p = part_of(a.outer, 1, i, parts);
      for (int64_t r = p.from; r < p.to; r += w.rows) {
        int64_t some = wide_some(&w, p.to - r);
        const float *yr = wide_read(&w, y, r * a.n, some * a.n, wide_block(&w, i, 0));
        const float *dyr = wide_read(&w, dy, r * a.n, some * a.n, wide_block(&w, i, 1));
        float *dxr = wide_place(&w, dx, r * a.n, wide_block(&w, i, 0));
        back_rows(kind, dxr, yr, dyr, 0, some, a.n);
        wide_write(&w, dx, r * a.n, some * a.n, dxr);
      }
    }
    return NNRT_OK;
  }
#pragma omp parallel for collapse(2) num_threads(parts)
  for (int64_t o = 0; o < a.outer; o++)
    for (int64_t c = 0; c < a.inner; c += COLUMNS) {
      // Another axis: columns side by side.
      int64_t at = o * a.n * a.inner + c, width = a.inner - c < COLUMNS ? a.inner - c : COLUMNS;
      int thread = omp_get_thread_num();
      float *block = wide_block(&w, thread, 0);
      const float *yc = columns_read(&w, y, at, a.n, a.inner, width, block);
      const float *dyc = columns_read(&w, dy, at, a.n, a.inner, width, wide_block(&w, thread, 1));
      float *dxc = wide_place(&w, dx, at, block);
      back_columns(kind, dxc, yc, dyc, a.n, type == NNRT_f32 ? a.inner : width, width);
      columns_write(&w, dx, at, a.n, a.inner, width, dxc);
    }
  return NNRT_OK;
}

#define KERNELS(type, T)                                                                           \
  int nnrt_softmax_##type(T *y, const T *x, int64_t ndim, const int64_t *shape, int64_t axis) {    \
    return forward(NNRT_##type, SOFTMAX, y, x, ndim, shape, axis);                                 \
  }                                                                                                \
  int nnrt_softmax_back_##type(T *dx, const T *y, const T *dy, int64_t ndim, const int64_t *shape, \
                               int64_t axis) {                                                     \
    return backward(NNRT_##type, SOFTMAX, dx, y, dy, ndim, shape, axis);                           \
  }                                                                                                \
  int nnrt_log_softmax_##type(T *y, const T *x, int64_t ndim, const int64_t *shape,                \
                              int64_t axis) {                                                      \
    return forward(NNRT_##type, LOG_SOFTMAX, y, x, ndim, shape, axis);                             \
  }                                                                                                \
  int nnrt_log_softmax_back_##type(T *dx, const T *y, const T *dy, int64_t ndim,                   \
                                   const int64_t *shape, int64_t axis) {                           \
    return backward(NNRT_##type, LOG_SOFTMAX, dx, y, dy, ndim, shape, axis);                       \
  }

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)
