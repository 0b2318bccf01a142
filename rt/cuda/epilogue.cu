// Epilogues of a product that cuBLASLt cannot fuse.  See epilogue.h.

#include "epilogue.h"

#include "rows.cuh"

// A block processes whole rows, so no thread divides.
enum { ROW_BLOCK = 256 };

static int row_blocks(int64_t m) {
  int64_t most = 16 * (int64_t)nnrt_gpu()->processors;
  return (int)(m < most ? m : most);
}

template <class T>
static __global__ void add_bias(T *d, int64_t ldd, const T *bias, int64_t m, int64_t n) {
  for (int64_t i = blockIdx.x; i < m; i += gridDim.x)
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
      store(d + i * ldd + j, load(d + i * ldd + j) + load(bias + j));
}

template <class T>
static __global__ void add_bias_gelu(T *d, int64_t ldd, T *aux, const T *bias, int64_t m,
                                     int64_t n) {
  for (int64_t i = blockIdx.x; i < m; i += gridDim.x)
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
      // The GELU is of the stored, rounded sum.
      store(aux + i * n + j, load(aux + i * n + j) + load(bias + j));
      store(d + i * ldd + j, m_gelu_tanh(load(aux + i * n + j)));
    }
}

template <class T>
static __global__ void mul_gelu_back(T *d, int64_t ldd, const T *aux, int64_t m, int64_t n) {
  for (int64_t i = blockIdx.x; i < m; i += gridDim.x)
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
      store(d + i * ldd + j, load(d + i * ldd + j) * m_gelu_tanh_back(load(aux + i * n + j)));
}

int nnrt_add_bias(NnrtDtype t, void *d, int64_t ldd, const void *bias, int64_t m, int64_t n) {
  if (m * n == 0) return NNRT_OK;
  return with_type(t, [&](auto element) {
    using T = decltype(element);
    return launch(add_bias<T>, row_blocks(m), ROW_BLOCK, 0, (T *)d, ldd, (const T *)bias, m, n);
  });
}

int nnrt_add_bias_gelu(NnrtDtype t, void *d, int64_t ldd, void *aux, const void *bias, int64_t m,
                       int64_t n) {
  if (m * n == 0) return NNRT_OK;
  return with_type(t, [&](auto element) {
    using T = decltype(element);
    return launch(add_bias_gelu<T>, row_blocks(m), ROW_BLOCK, 0, (T *)d, ldd, (T *)aux,
                  (const T *)bias, m, n);
  });
}

int nnrt_mul_gelu_back(NnrtDtype t, void *d, int64_t ldd, const void *aux, int64_t m, int64_t n) {
  if (m * n == 0) return NNRT_OK;
  return with_type(t, [&](auto element) {
    using T = decltype(element);
    return launch(mul_gelu_back<T>, row_blocks(m), ROW_BLOCK, 0, (T *)d, ldd, (T *)aux, m, n);
  });
}

// -- Sums of columns
//
// The rows are divided into `parts`; a block of 32 by 8 threads adds 32 columns of one part, each
// thread every eighth row; its sums go to part[p][j], and a second kernel adds the parts in their
// order.

enum { SUM_COLUMNS = 32, SUM_ROWS = 8, SUM_PARTS = 256, SUM_ELEMENTS = 1 << 18 };

static int64_t parts_of(int64_t m, int64_t n) {
  // Enough rows in a part, and few enough parts for scratch.
  int64_t parts = m / (4 * SUM_ROWS), fit = n > 0 ? SUM_ELEMENTS / n : 1;
  parts = parts < fit ? parts : fit;
  parts = parts < SUM_PARTS ? parts : SUM_PARTS;
  return parts < 1 ? 1 : parts;
}

template <class T>
static __global__ void sum_columns(float *part, const T *x, int64_t ldx, int64_t m, int64_t n,
                                   int64_t rows) {
  __shared__ float sums[SUM_ROWS][SUM_COLUMNS];
  int64_t j = blockIdx.x * (int64_t)SUM_COLUMNS + threadIdx.x;
  int64_t from = blockIdx.y * rows, to = from + rows < m ? from + rows : m;
  float sum = 0;
  if (j < n)
    for (int64_t i = from + threadIdx.y; i < to; i += SUM_ROWS)
      sum += load(x + i * ldx + j);
  // The first row of threads adds the sums of the others, in order.
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || j >= n) return;
  for (int i = 1; i < SUM_ROWS; i++)
    sum += sums[i][threadIdx.x];
  part[blockIdx.y * n + j] = sum;
}

int64_t nnrt_column_sums_scratch(int64_t m, int64_t n) {
  return parts_of(m, n) * n * (int64_t)sizeof(float);
}

int nnrt_column_sums(NnrtDtype out, void *sums, NnrtDtype in, const void *x, int64_t ldx, int64_t m,
                     int64_t n, void *scratch) {
  if (n == 0) return NNRT_OK;
  float *part = (float *)scratch;
  int64_t parts = parts_of(m, n), rows = (m + parts - 1) / parts;
  dim3 grid((unsigned)((n + SUM_COLUMNS - 1) / SUM_COLUMNS), (unsigned)parts);
  int code = with_type(in, [&](auto element) {
    using T = decltype(element);
    return launch(sum_columns<T>, grid, dim3(SUM_COLUMNS, SUM_ROWS), 0, part, (const T *)x, ldx, m,
                  n, rows);
  });
  if (code) return code;
  // Sums are f32, the result has the type of D.
  return with_type(out, [&](auto element) {
    using T = decltype(element);
    return add_parts((T *)sums, part, parts, n);
  });
}
