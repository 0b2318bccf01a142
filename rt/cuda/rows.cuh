// Shared by kernels over rows, columns and elements, in addition to device.cuh.
//
//   packs      Accesses have 16 bytes if addresses and lengths permit.  A kernel is a template over
//              V, the elements per access: 16 / sizeof(T), or 1.
//   rows       A group of THREADS threads, a warp or a block of BLOCK, computes a row.  Rows of up
//              to HELD * THREADS elements are held in registers, so a kernel that needs the row two
//              or three times reads it once; longer ones are read again.
//   columns    Sums of columns have two stages: blocks add some rows each, into scratch
//              (parts, n), and add_parts adds the parts.
//
// Only `parts` depends on the number of blocks that run at once, and so on the GPU: on one model of
// GPU the same operands give the same bits.

#ifndef NNRT_CUDA_ROWS_CUH
#define NNRT_CUDA_ROWS_CUH

#include <initializer_list>

#include "device.cuh"

#ifdef __CUDACC__
#define UNROLL   _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#define UNROLL_1 _Pragma("unroll 1")
#else
#define UNROLL
#define UNROLL_4
#define UNROLL_1
#endif

enum {
  HELD = 32,           // elements of a row per thread
  ROWS = BLOCK / WARP, // rows per block with a warp per row; rows of threads over columns
  STRETCH = 2048       // elements of a long run that a warp processes at once
};

// -- Host: packs and blocks

static inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
static constexpr int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static inline int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

// Whether rows of n elements can be accessed `width` at once: all rows begin at multiples of 16.
template <class... P> static bool in_packs(int64_t n, int width, const P *...p) {
  bool aligned = true;
  for (const void *at : {(const void *)p...})
    aligned = aligned && (uintptr_t)at % 16 == 0;
  return aligned && n % width == 0;
}

// The number of blocks for m rows if a block processes `rows` at a time, in a loop.
static inline int blocks_for_rows(int64_t m, int rows) {
  return (int)most(1, least(ceil_div(m, rows), 32 * (int64_t)nnrt_gpu()->processors));
}

// -- Packs

template <class T> struct Width {
  enum { most = 16 / sizeof(T) };
};

template <class T, int V> static __device__ inline Pack<T, V> read_pack(const T *at) {
  return *(const Pack<T, V> *)at;
}
// As words: for a pack of 16-bit elements that were computed one by one, the compiler may emit a
// store per element.
template <class T, int V> static __device__ inline void write_pack(T *at, const Pack<T, V> &p) {
  constexpr int BYTES = sizeof p, WORDS = BYTES < 4 ? 1 : BYTES / 4;
  if (V == 1 || BYTES < 4) {
    *(Pack<T, V> *)at = p;
  } else {
    Pack<unsigned, WORDS> words;
    memcpy(&words, &p, BYTES);
    *(Pack<unsigned, WORDS> *)at = words;
  }
}
// Reads V floats (or doubles, or integers), at a multiple of 16 bytes unless V is 1.
template <int V> static __device__ inline void read_floats(float (&to)[V], const float *from) {
  if (V % 4 == 0) {
    UNROLL
    for (int k = 0; k < V; k += 4) {
      Pack<float, 4> p = read_pack<float, 4>(from + k);
      UNROLL
      for (int j = 0; j < 4; j++)
        to[(k + j) % V] = p.at[j];
    }
  } else {
    UNROLL
    for (int k = 0; k < V; k++)
      to[k] = from[k];
  }
}

// -- Groups: a warp or a block

template <int THREADS> static __device__ inline int group_lane() {
  return THREADS == WARP ? (int)(threadIdx.x % WARP) : (int)threadIdx.x;
}
// The group's first row; the next one is group_rows further.
template <int THREADS> static __device__ inline int64_t group_row() {
  return THREADS == WARP ? first_thread() / WARP : (int64_t)blockIdx.x;
}
template <int THREADS> static __device__ inline int64_t group_rows() {
  return THREADS == WARP ? all_threads() / WARP : (int64_t)gridDim.x;
}
template <int THREADS> static __device__ inline float group_sum(float x) {
  return THREADS == WARP ? warp_sum(x) : block_sum(x);
}

static __device__ inline double warp_sum(double x) {
  for (int d = WARP / 2; d > 0; d /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}
static __device__ inline double block_sum(double x) {
  __shared__ double part[WARP];
  int warps = (int)(blockDim.x / WARP), warp = (int)(threadIdx.x / WARP);
  x = warp_sum(x);
  // The sums of warps, added in order by every thread.
  __syncthreads(); // all reads of `part` by the previous sum are done
  if (threadIdx.x % WARP == 0) part[warp] = x;
  __syncthreads();
  double sum = 0;
  for (int i = 0; i < warps; i++)
    sum += part[i];
  return sum;
}

// Two sums for the cost of one.
struct Pair {
  float a, b;
};
static __device__ inline Pair warp_sum(Pair x) {
  for (int d = WARP / 2; d > 0; d /= 2) {
    x.a += __shfl_xor_sync(0xffffffffu, x.a, d);
    x.b += __shfl_xor_sync(0xffffffffu, x.b, d);
  }
  return x;
}
template <int THREADS> static __device__ inline Pair group_sum(Pair x) {
  x = warp_sum(x);
  if (THREADS == WARP) return x;
  __shared__ Pair part[WARP];
  int warps = (int)(blockDim.x / WARP), warp = (int)(threadIdx.x / WARP);
  __syncthreads();
  if (threadIdx.x % WARP == 0) part[warp] = x;
  __syncthreads();
  Pair sum = {0, 0};
  for (int i = 0; i < warps; i++) {
    sum.a += part[i].a;
    sum.b += part[i].b;
  }
  return sum;
}

// -- Numbers

// e^x to the precision of type T: within 2 units in the last place of a float; for 16 bits within
// 2^-18 for results that matter, in two instructions.
template <class T> static __device__ inline float exp_for(float x) {
#ifdef __CUDA_ARCH__
  return sizeof(T) == 2 ? __expf(x) : expf(x);
#else
  return m_exp_f(x);
#endif
}

// A running sum of e^x, as sum * e^top: top is the maximum so far, NaN excluded, and -inf if there
// is none yet.  -inf adds nothing; NaN makes the sum NaN, and so does +inf.
struct ExpSum {
  float top, sum;
};
static __device__ inline float finite_top(float top) {
  return top == -INFINITY ? 0.0f : top;
}
template <class T> static __device__ inline ExpSum add_exp_sums(ExpSum x, ExpSum y) {
  float top = y.top > x.top ? y.top : x.top, by = finite_top(top);
  return ExpSum{top, x.sum * exp_for<T>(x.top - by) + y.sum * exp_for<T>(y.top - by)};
}
// Adds V numbers; the maximum first, so that the sum is rescaled once.
template <class T, int V> static __device__ inline void add_exps(ExpSum &s, const float (&x)[V]) {
  float top = s.top;
  UNROLL
  for (int k = 0; k < V; k++)
    top = x[k] > top ? x[k] : top;
  float by = finite_top(top), sum = s.sum * exp_for<T>(s.top - by);
  UNROLL
  for (int k = 0; k < V; k++)
    sum += exp_for<T>(x[k] - by);
  s = ExpSum{top, sum};
}
template <class T> static __device__ inline ExpSum warp_exp_sum(ExpSum x) {
  for (int d = WARP / 2; d > 0; d /= 2) {
    ExpSum y = {__shfl_xor_sync(0xffffffffu, x.top, d), __shfl_xor_sync(0xffffffffu, x.sum, d)};
    // The same order of operands in both lanes, so that all get the same bits.
    x = threadIdx.x & (unsigned)d ? add_exp_sums<T>(y, x) : add_exp_sums<T>(x, y);
  }
  return x;
}
// The sum of a group: of a warp, or of the whole block.
template <class T> static __device__ inline ExpSum group_exp_sum(ExpSum x, bool block) {
  x = warp_exp_sum<T>(x);
  if (!block) return x;
  __shared__ ExpSum part[WARP];
  int warps = (int)(blockDim.x / WARP), warp = (int)(threadIdx.x / WARP);
  __syncthreads();
  if (threadIdx.x % WARP == 0) part[warp] = x;
  __syncthreads();
  ExpSum sum = part[0];
  for (int i = 1; i < warps; i++)
    sum = add_exp_sums<T>(sum, part[i]);
  return sum;
}
// The logarithm of the sum: -inf if all numbers are -inf, or there are none.
static __device__ inline float log_of(ExpSum s) {
  return s.top + logf(s.sum);
}

// -- Columns

// The number of parts for the sums of m rows of n columns, if a block computes `columns` of them
// and adds at least `rows` rows.
static inline int64_t parts_for(int64_t m, int64_t n, int64_t columns, int64_t rows) {
  int64_t wide = ceil_div(n, columns), blocks = 4 * (int64_t)nnrt_gpu()->processors;
  return most(1, least(ceil_div(m, rows), ceil_div(blocks, wide)));
}

// The sum of a column of parts (n_parts, n), as float or double, in all threads of the column.
// Blocks of WARP x ROWS threads: a warp has WARP adjacent columns, and row r of threads the parts
// r, r + ROWS, …
template <class Sum>
static __device__ inline Sum sum_parts(const Sum *parts, int64_t n_parts, int64_t n,
                                       int64_t column) {
  __shared__ Sum some[ROWS][WARP];
  Sum sum = 0;
  if (column < n) {
    UNROLL_4
    for (int64_t i = threadIdx.y; i < n_parts; i += ROWS)
      sum += parts[i * n + column];
  }
  __syncthreads();
  // The sums of the rows of threads, in order.
  some[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (int r = 0; r < ROWS; r++)
    sum += some[r][threadIdx.x];
  return sum;
}
static __device__ inline int64_t column_here() {
  return (int64_t)blockIdx.x * WARP + threadIdx.x;
}
template <class T>
static __global__ void add_all_parts(T *y, const float *parts, int64_t n_parts, int64_t n) {
  int64_t column = column_here();
  float sum = sum_parts(parts, n_parts, n, column);
  if (threadIdx.y == 0 && column < n) store(y + column, sum);
}
template <class T> static int add_parts(T *y, const float *parts, int64_t n_parts, int64_t n) {
  return launch(add_all_parts<T>, (unsigned)ceil_div(n, WARP), dim3(WARP, ROWS), 0, y, parts,
                n_parts, n);
}

#endif
