// Determinants of matrices (n, n), and their cofactors, by elimination in double: the algorithm of
// cpu/det.c.  A block computes a matrix, with its factors in scratch:
//
//     pivot           the block's largest element of the rest
//     elimination     a thread per element
//     V^-1, adj(U)    a thread per column, per row
//     adj(U) L^-1     a thread per row

#include "rows.cuh"

// Memory of a block: the factors, the result, and the order of rows and columns.
struct Work {
  double *a, *b;         // [n * n]
  int64_t *row, *column; // [n]
};

static __host__ __device__ inline int64_t work_bytes(int64_t n) {
  return 2 * n * n * (int64_t)sizeof(double) + 2 * n * (int64_t)sizeof(int64_t);
}

static __device__ inline Work work_of_block(char *scratch, int64_t n) {
  Work w;
  w.a = (double *)(scratch + blockIdx.x * work_bytes(n));
  w.b = w.a + n * n;
  w.row = (int64_t *)(w.b + n * n);
  w.column = w.row + n;
  return w;
}

struct Pivot {
  double size;
  int64_t at; // -1: none
};

// Whether a is the larger; a NaN is larger than every number.
static __device__ inline bool larger(Pivot a, Pivot b) {
  if (a.at < 0 || b.at < 0) return a.at >= 0;
  bool a_nan = a.size != a.size, b_nan = b.size != b.size;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.size != b.size) return a.size > b.size;
  return a.at < b.at;
}

// The place of the largest element in rows and columns from k on.
static __device__ inline int64_t largest(const double *a, int64_t n, int64_t k) {
  __shared__ Pivot best[BLOCK];
  Pivot mine = {0, -1};
  for (int64_t t = threadIdx.x; t < (n - k) * (n - k); t += BLOCK) {
    int64_t at = (k + t / (n - k)) * n + k + t % (n - k);
    Pivot here = {fabs(a[at]), at};
    if (larger(here, mine)) mine = here;
  }
  __syncthreads(); // all reads of the previous one are done
  best[threadIdx.x] = mine;
  for (int half = BLOCK / 2; half > 0; half /= 2) {
    __syncthreads();
    if ((int)threadIdx.x < half && larger(best[threadIdx.x + half], best[threadIdx.x]))
      best[threadIdx.x] = best[threadIdx.x + half];
  }
  __syncthreads();
  return best[0].at;
}

template <class T> static __device__ inline void swap(T *x, T *y) {
  T t = *x;
  *x = *y;
  *y = t;
}

// Factors x into w.a.  Returns the sign of the order to all threads.
static __device__ double factor(const Work &w, const float *x, int64_t n) {
  double *a = w.a, sign = 1;
  for (int64_t t = threadIdx.x; t < n * n; t += BLOCK)
    a[t] = (double)x[t];
  for (int64_t i = threadIdx.x; i < n; i += BLOCK)
    w.row[i] = w.column[i] = i;
  __syncthreads();
  for (int64_t k = 0; k < n; k++) {
    int64_t at = largest(a, n, k), p = at / n, q = at % n;
    if (a[at] == 0) break;
    __syncthreads(); // all threads have read the pivot
    if (p != k)
      for (int64_t j = threadIdx.x; j < n; j += BLOCK)
        swap(&a[p * n + j], &a[k * n + j]);
    __syncthreads();
    if (q != k)
      for (int64_t i = threadIdx.x; i < n; i += BLOCK)
        swap(&a[i * n + q], &a[i * n + k]);
    if (threadIdx.x == 0) {
      swap(&w.row[p], &w.row[k]);
      swap(&w.column[q], &w.column[k]);
    }
    if ((p != k) != (q != k)) sign = -sign;
    __syncthreads();
    for (int64_t i = k + 1 + threadIdx.x; i < n; i += BLOCK)
      a[i * n + k] /= a[k * n + k];
    __syncthreads();
    int64_t rest = n - k - 1;
    for (int64_t t = threadIdx.x; t < rest * rest; t += BLOCK) {
      int64_t i = k + 1 + t / rest, j = k + 1 + t % rest;
      a[i * n + j] -= a[i * n + k] * a[k * n + j];
    }
    __syncthreads();
  }
  return sign;
}

// The product of the first `m` pivots.
static __device__ inline double product_of(const double *a, int64_t n, int64_t m) {
  double v = 1;
  for (int64_t k = 0; k < m; k++)
    v *= a[k * n + k];
  return v;
}

// b = adj(U) L^-1; v is not 0.
static __device__ void multiply_adjugate(const double *a, double *b, double v, int64_t n) {
  int64_t last = n - 1;
  double d = a[n * n - 1];
  // V^-1, from the diagonal up.
  for (int64_t j = threadIdx.x; j < last; j += BLOCK)
    for (int64_t i = last - 1; i >= 0; i--) {
      double sum = i == j;
      for (int64_t k = i + 1; k <= j; k++)
        sum -= a[i * n + k] * b[k * n + j];
      b[i * n + j] = i > j ? 0 : sum / a[i * n + i];
    }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
    double sum = 0;
    for (int64_t k = i; k < last; k++) {
      sum += b[i * n + k] * a[k * n + last];
      b[i * n + k] *= d * v;
    }
    for (int64_t k = 0; i == last && k < last; k++)
      b[i * n + k] = 0;
    b[i * n + last] = i == last ? v : -v * sum;
    // The row times L^-1, from the last column to the first.
    for (int64_t j = last; j >= 0; j--)
      for (int64_t k = j + 1; k < n; k++)
        b[i * n + j] -= b[i * n + k] * a[k * n + j];
  }
  __syncthreads();
}

static __global__ void determinants(float *y, const float *x, int64_t m, int64_t n, char *scratch) {
  Work w = work_of_block(scratch, n);
  for (int64_t i = blockIdx.x; i < m; i += gridDim.x) {
    double sign = factor(w, x + i * n * n, n);
    if (threadIdx.x == 0) y[i] = (float)(sign * product_of(w.a, n, n));
    __syncthreads(); // the next matrix overwrites the factors
  }
}

static __global__ void cofactors(float *dx, const float *x, const float *dy, int64_t m, int64_t n,
                                 char *scratch) {
  Work w = work_of_block(scratch, n);
  for (int64_t i = blockIdx.x; i < m; i += gridDim.x) {
    double sign = factor(w, x + i * n * n, n), v = product_of(w.a, n, n - 1);
    if (v != 0) multiply_adjugate(w.a, w.b, v, n);
    for (int64_t t = threadIdx.x; t < n * n; t += BLOCK) {
      int64_t p = t / n, q = t % n;
      dx[i * n * n + w.row[p] * n + w.column[q]] =
          v == 0 ? 0 : (float)((double)dy[i] * sign * w.b[q * n + p]);
    }
    __syncthreads();
  }
}

// The number of blocks at once, which have scratch.
static int blocks_of(int64_t m) {
  return (int)most(1, least(m, 4 * (int64_t)nnrt_gpu()->processors));
}

int nnrt_det_f32(float *y, const float *x, int64_t m, int64_t n) {
  if (m == 0) return NNRT_OK;
  char *scratch = (char *)nnrt_gpu_scratch(blocks_of(m) * most(1, work_bytes(n)));
  if (!scratch) return NNRT_MEMORY;
  return launch(determinants, blocks_of(m), BLOCK, 0, y, x, m, n, scratch);
}

int nnrt_det_back_f32(float *dx, const float *x, const float *dy, int64_t m, int64_t n) {
  if (m * n == 0) return NNRT_OK;
  char *scratch = (char *)nnrt_gpu_scratch(blocks_of(m) * work_bytes(n));
  if (!scratch) return NNRT_MEMORY;
  return launch(cofactors, blocks_of(m), BLOCK, 0, dx, x, dy, m, n, scratch);
}
