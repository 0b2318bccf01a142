// Layer and RMS normalisation of the rows of x (m, n).
//
// The gradients of the gain and the bias are sums over rows.  Each thread sums its rows into a part
// of its own, and the parts are added in order.

#include "kernel.h"

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

int nnrt_layer_norm_f32(float *y, float *mean, float *rstd, const float *x, const float *g,
                        const float *b, int64_t m, int64_t n, double eps) {
  int parts = threads_for(m * n);
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    // A row is never divided, so its sums do not depend on the number of threads.
    Part p = part_of(m, 1, i, parts);
    layer_norm_rows(y, mean, rstd, x, g, b, p.from, p.to, n, (float)eps);
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

int nnrt_layer_norm_back_f32(float *dx, float *dg, float *db, const float *x, const float *g,
                             const float *mean, const float *rstd, const float *dy, int64_t m,
                             int64_t n) {
  int parts = threads_for(m * n);
  // Parts begin at cache lines of their own.
  int64_t stride = (int64_t)round_64((size_t)n * sizeof(float)) / (int64_t)sizeof(float);
  size_t bytes = (size_t)(2 * parts * stride) * sizeof(float);
  float *sums = kernel_scratch(bytes); // (dg or db, parts, stride)
  if (!sums) return scratch_failed(bytes);
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    Part p = part_of(m, 1, i, parts);
    float *dg_part = sums + i * stride, *db_part = sums + (parts + i) * stride;
    memset(dg_part, 0, (size_t)n * sizeof(float));
    memset(db_part, 0, (size_t)n * sizeof(float));
    layer_norm_back_rows(dx, dg_part, db_part, x, g, mean, rstd, dy, p.from, p.to, n);
  }
  // In order, so that the sums do not depend on timing.
  add_parts(dg, sums, parts, stride, n);
  add_parts(db, sums + parts * stride, parts, stride, n);
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

int nnrt_rms_norm_f32(float *y, float *rstd, const float *x, const float *g, int64_t m, int64_t n,
                      double eps) {
  int parts = threads_for(m * n);
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    Part p = part_of(m, 1, i, parts);
    rms_norm_rows(y, rstd, x, g, p.from, p.to, n, (float)eps);
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

int nnrt_rms_norm_back_f32(float *dx, float *dg, const float *x, const float *g, const float *rstd,
                           const float *dy, int64_t m, int64_t n) {
  int parts = threads_for(m * n);
  int64_t stride = (int64_t)round_64((size_t)n * sizeof(float)) / (int64_t)sizeof(float);
  size_t bytes = (size_t)(parts * stride) * sizeof(float);
  float *sums = kernel_scratch(bytes); // (parts, stride)
  if (!sums) return scratch_failed(bytes);
#pragma omp parallel for num_threads(parts)
  for (int i = 0; i < parts; i++) {
    Part p = part_of(m, 1, i, parts);
    float *dg_part = sums + i * stride;
    memset(dg_part, 0, (size_t)n * sizeof(float));
    rms_norm_back_rows(dx, dg_part, x, g, rstd, dy, p.from, p.to, n);
  }
  // In order, so that the sums do not depend on timing.
  add_parts(dg, sums, parts, stride, n);
  return NNRT_OK;
}
