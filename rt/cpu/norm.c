// Layer and RMS normalisation of the rows of x (m, n).
//
// The gradients of the gain and the bias are sums over rows.  Each thread sums its rows into a part
// of its own, and the parts are added in order.

#include "wide.h"

// y = (x - mean) rstd g + b for rows from .. to
NNRT_CLONES static void layer_norm_rows(float *restrict y, float *restrict mean,
                                        float *restrict rstd, const float *restrict x,
                                        const float *restrict g, const float *restrict b,
                                        int64_t from, int64_t to, int64_t n, float eps) {
  for (int64_t i = from; i < to; i++) {
    const float *xi = x + i * n;
    float *yi = y + i * n;
    float sum = 0, left = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
      sum += xi[j];
    float m = sum / (float)n;
    // A second pass: the row is in the L1 cache, and E(x^2) - m^2 would cancel.  It also finds the
    // error of the mean, which matters if the mean is large compared with the deviation.
#pragma omp simd reduction(+ : left, squares)
    for (int64_t j = 0; j < n; j++) {
      float d = xi[j] - m;
      left += d;
      squares += d * d;
    }
    // The corrected mean and variance.
    float off = left / (float)n;
    float r = 1.0f / sqrtf(squares / (float)n - off * off + eps);
    m += off;
    for (int64_t j = 0; j < n; j++)
      yi[j] = (xi[j] - m) * r * g[j] + b[j];
    mean[i] = m;
    rstd[i] = r;
  }
}

static int layer_norm(NnrtDtype type, void *y, float *mean, float *rstd, const void *x,
                      const float *g, const float *b, int64_t m, int64_t n, double eps) {
  int parts = threads_for(m * n);
  Wide w;
  if (!wide_new(&w, type, m, n, parts, 2, 0)) return NNRT_MEMORY;
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    // A row is never divided, so its sums do not depend on the number of threads.
    Part p = part_of(m, 1, i, parts);
    for (int64_t r = p.from; r < p.to; r += w.rows) {
      int64_t some = wide_some(&w, p.to - r);
      const float *xr = wide_read(&w, x, r * n, some * n, wide_block(&w, i, 0));
      float *yr = wide_place(&w, y, r * n, wide_block(&w, i, 1));
      layer_norm_rows(yr, mean + r, rstd + r, xr, g, b, 0, some, n, (float)eps);
      wide_write(&w, y, r * n, some * n, yr);
    }
  }
  return NNRT_OK;
}

// With h = (x - mean) rstd and e = dy g:  dx = rstd (e - mean(e) - h mean(e h)).
// dg and db (n) are sums over these rows.
NNRT_CLONES static void layer_norm_back_rows(float *restrict dx, float *restrict dg,
                                             float *restrict db, const float *restrict x,
                                             const float *restrict g, const float *restrict mean,
                                             const float *restrict rstd, const float *restrict dy,
                                             int64_t from, int64_t to, int64_t n) {
  for (int64_t i = from; i < to; i++) {
    const float *xi = x + i * n, *dyi = dy + i * n;
    float *dxi = dx + i * n;
    float m = mean[i], r = rstd[i], sum = 0, product_sum = 0;
#pragma omp simd reduction(+ : sum, product_sum)
    for (int64_t j = 0; j < n; j++) {
      float h = (xi[j] - m) * r, e = dyi[j] * g[j];
      sum += e;
      product_sum += e * h;
    }
    // The second loop needs the row's two means.
    float mean_e = sum / (float)n, mean_eh = product_sum / (float)n;
    for (int64_t j = 0; j < n; j++) {
      float h = (xi[j] - m) * r;
      dxi[j] = r * (dyi[j] * g[j] - mean_e - h * mean_eh);
      dg[j] += dyi[j] * h;
      db[j] += dyi[j];
    }
  }
}

// y (n) = the sum of parts (n_parts, stride)
NNRT_CLONES static void add_parts(float *restrict y, const float *restrict parts, int n_parts,
                                  int64_t stride, int64_t n) {
  memcpy(y, parts, (size_t)n * sizeof *y);
  for (int i = 1; i < n_parts; i++)
    for (int64_t j = 0; j < n; j++)
      y[j] += parts[i * stride + j];
}

// Returns the distance in floats of parts of n floats: they begin at cache lines of their own.
static int64_t part_stride(int64_t n) {
  return (int64_t)round_64((size_t)n * sizeof(float)) / (int64_t)sizeof(float);
}

static int layer_norm_back(NnrtDtype type, void *dx, float *dg, float *db, const void *x,
                           const float *g, const float *mean, const float *rstd, const void *dy,
                           int64_t m, int64_t n) {
  int parts = threads_for(m * n);
  int64_t stride = part_stride(n);
  Wide w; // its own floats: (dg or db, parts, stride)
  if (!wide_new(&w, type, m, n, parts, 3, 2 * parts * stride)) return NNRT_MEMORY;
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    Part p = part_of(m, 1, i, parts);
    float *dg_part = w.own + i * stride, *db_part = w.own + (parts + i) * stride;
    memset(dg_part, 0, (size_t)n * sizeof(float));
    memset(db_part, 0, (size_t)n * sizeof(float));
    for (int64_t r = p.from; r < p.to; r += w.rows) {
      int64_t some = wide_some(&w, p.to - r);
      const float *xr = wide_read(&w, x, r * n, some * n, wide_block(&w, i, 0));
      const float *dyr = wide_read(&w, dy, r * n, some * n, wide_block(&w, i, 1));
      float *dxr = wide_place(&w, dx, r * n, wide_block(&w, i, 2));
      layer_norm_back_rows(dxr, dg_part, db_part, xr, g, mean + r, rstd + r, dyr, 0, some, n);
      wide_write(&w, dx, r * n, some * n, dxr);
    }
  }
  // In order, so that the sums do not depend on timing.
  add_parts(dg, w.own, parts, stride, n);
  add_parts(db, w.own + parts * stride, parts, stride, n);
  return NNRT_OK;
}

NNRT_CLONES static void rms_norm_rows(float *restrict y, float *restrict rstd,
                                      const float *restrict x, const float *restrict g,
                                      int64_t from, int64_t to, int64_t n, float eps) {
  for (int64_t i = from; i < to; i++) {
    const float *xi = x + i * n;
    float *yi = y + i * n;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < n; j++)
      squares += xi[j] * xi[j];
    // No mean is subtracted.
    float r = 1.0f / sqrtf(squares / (float)n + eps);
    for (int64_t j = 0; j < n; j++)
      yi[j] = xi[j] * r * g[j];
    rstd[i] = r;
  }
}

static int rms_norm(NnrtDtype type, void *y, float *rstd, const void *x, const float *g, int64_t m,
                    int64_t n, double eps) {
  int parts = threads_for(m * n);
  Wide w;
  if (!wide_new(&w, type, m, n, parts, 2, 0)) return NNRT_MEMORY;
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    Part p = part_of(m, 1, i, parts);
    for (int64_t r = p.from; r < p.to; r += w.rows) {
      int64_t some = wide_some(&w, p.to - r);
      const float *xr = wide_read(&w, x, r * n, some * n, wide_block(&w, i, 0));
      float *yr = wide_place(&w, y, r * n, wide_block(&w, i, 1));
      rms_norm_rows(yr, rstd + r, xr, g, 0, some, n, (float)eps);
      wide_write(&w, y, r * n, some * n, yr);
    }
  }
  return NNRT_OK;
}

// With h = x rstd and e = dy g:  dx = rstd (e - h mean(e h)).
NNRT_CLONES static void rms_norm_back_rows(float *restrict dx, float *restrict dg,
                                           const float *restrict x, const float *restrict g,
                                           const float *restrict rstd, const float *restrict dy,
                                           int64_t from, int64_t to, int64_t n) {
  for (int64_t i = from; i < to; i++) {
    const float *xi = x + i * n, *dyi = dy + i * n;
    float *dxi = dx + i * n;
    float r = rstd[i], product_sum = 0;
#pragma omp simd reduction(+ : product_sum)
    for (int64_t j = 0; j < n; j++)
      product_sum += dyi[j] * g[j] * (xi[j] * r);
    // The second loop needs the mean of the whole row.
    float mean_eh = product_sum / (float)n;
    for (int64_t j = 0; j < n; j++) {
      float h = xi[j] * r;
      dxi[j] = r * (dyi[j] * g[j] - h * mean_eh);
      dg[j] += dyi[j] * h;
    }
  }
}

static int rms_norm_back(NnrtDtype type, void *dx, float *dg, const void *x, const float *g,
                         const float *rstd, const void *dy, int64_t m, int64_t n) {
  int parts = threads_for(m * n);
  int64_t stride = part_stride(n);
  Wide w; // its own floats: (parts, stride)
  if (!wide_new(&w, type, m, n, parts, 3, parts * stride)) return NNRT_MEMORY;
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    Part p = part_of(m, 1, i, parts);
    float *dg_part = w.own + i * stride;
    memset(dg_part, 0, (size_t)n * sizeof(float));
    for (int64_t r = p.from; r < p.to; r += w.rows) {
      int64_t some = wide_some(&w, p.to - r);
      const float *xr = wide_read(&w, x, r * n, some * n, wide_block(&w, i, 0));
      const float *dyr = wide_read(&w, dy, r * n, some * n, wide_block(&w, i, 1));
      float *dxr = wide_place(&w, dx, r * n, wide_block(&w, i, 2));
      rms_norm_back_rows(dxr, dg_part, xr, g, rstd + r, dyr, 0, some, n);
      wide_write(&w, dx, r * n, some * n, dxr);
    }
  }
  // In order, so that the sums do not depend on timing.
  add_parts(dg, w.own, parts, stride, n);
  return NNRT_OK;
}

#define KERNELS(type, T)                                                                           \
  int nnrt_layer_norm_##type(T *y, float *mean, float *rstd, const T *x, const float *g,           \
                             const float *b, int64_t m, int64_t n, double eps) {                   \
    return layer_norm(NNRT_##type, y, mean, rstd, x, g, b, m, n, eps);                             \
  }                                                                                                \
  int nnrt_layer_norm_back_##type(T *dx, float *dg, float *db, const T *x, const float *g,         \
                                  const float *mean, const float *rstd, const T *dy, int64_t m,    \
                                  int64_t n) {                                                     \
    return layer_norm_back(NNRT_##type, dx, dg, db, x, g, mean, rstd, dy, m, n);                   \
  }                                                                                                \
  int nnrt_rms_norm_##type(T *y, float *rstd, const T *x, const float *g, int64_t m, int64_t n,    \
                           double eps) {                                                           \
    return rms_norm(NNRT_##type, y, rstd, x, g, m, n, eps);                                        \
  }                                                                                                \
  int nnrt_rms_norm_back_##type(T *dx, float *dg, const T *x, const float *g, const float *rstd,   \
                                const T *dy, int64_t m, int64_t n) {                               \
    return rms_norm_back(NNRT_##type, dx, dg, x, g, rstd, dy, m, n);                               \
  }

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)
