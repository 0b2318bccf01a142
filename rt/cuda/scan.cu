// Along one axis of x (outer, n, inner): the index of the maximum or minimum, and running sums
// and products.
//
// Along the last axis a block computes a row.  For an index every thread finds its own best, then
// the block the best of these.  For running sums or products the block processes an element per
// thread at a time and carries the result on.  Along another axis a thread computes one column,
// adjacent threads adjacent columns.
//
//     arg_max, arg_min   read x, write one index per row
//     cumsum, cumprod    read x, write y

#include "rows.cuh"

// Maximal threads of a block that computes a row.  Such blocks get enough registers only if the
// compiler knows the maximum.
enum { LARGE = 4 * BLOCK };

// -- Index of the maximum or minimum

template <class T> struct Best {
  T x;
  int64_t at; // -1: none yet
};

// Whether a comes before b: the larger with `most`, else the smaller.  A NaN comes before every
// number; of equal ones the first, or with `last` the last.
template <class T>
static __device__ inline bool better(Best<T> a, Best<T> b, bool most, bool last) {
  if (a.at < 0 || b.at < 0) return b.at < 0;
  bool a_nan = a.x != a.x, b_nan = b.x != b.x;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.x != b.x) return most ? a.x > b.x : a.x < b.x;
  return last ? a.at > b.at : a.at < b.at;
}

static __device__ inline float shuffled(float x, int d) {
  return __shfl_xor_sync(0xffffffffu, x, d);
}
static __device__ inline int32_t shuffled(int32_t x, int d) {
  return __shfl_xor_sync(0xffffffffu, x, d);
}
static __device__ inline int64_t shuffled(int64_t x, int d) {
  return (int64_t)__shfl_xor_sync(0xffffffffu, (long long)x, d);
}

template <class T> static __device__ inline Best<T> warp_best(Best<T> best, bool most, bool last) {
  for (int d = WARP / 2; d > 0; d /= 2) {
    T x = shuffled(best.x, d);
    Best<T> other = {x, shuffled(best.at, d)};
    if (better(other, best, most, last)) best = other;
  }
  return best;
}

template <class T>
static __global__ void __launch_bounds__(LARGE)
    arg_rows(int64_t *y, const T *x, int64_t m, int64_t n, bool most, bool last) {
  __shared__ Best<T> part[WARP];
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    Best<T> best = {0, -1};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      Best<T> here = {x[row * n + i], i};
      if (better(here, best, most, last)) best = here;
    }
    // The best of each warp, then of all.
    best = warp_best(best, most, last);
    __syncthreads();
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = best;
    __syncthreads();
    if (threadIdx.x > 0) continue;
    for (int i = 1; i < (int)(blockDim.x / WARP); i++)
      if (better(part[i], best, most, last)) best = part[i];
    y[row] = best.at;
  }
}

template <class T>
static __global__ void arg_columns(int64_t *y, const T *x, Axis a, bool most, bool last) {
  for (int64_t c = first_thread(); c < a.outer * a.inner; c += all_threads()) {
    const T *from = x + c / a.inner * a.n * a.inner + c % a.inner;
    // Adjacent threads read adjacent columns.
    Best<T> best = {0, -1};
    for (int64_t j = 0; j < a.n; j++) {
      Best<T> here = {from[j * a.inner], j};
      if (better(here, best, most, last)) best = here;
    }
    y[c] = best.at;
  }
}

// Threads of a block that computes a row of n.
static int threads_of(int64_t n) {
  return (int)least(LARGE, ceil_div(n, WARP) * WARP);
}

template <class T> static int arg(int64_t *y, const T *x, Axis a, bool most, bool last) {
  if (a.outer * a.n * a.inner == 0) return NNRT_OK;
  // Along the last axis a block per row, else a thread per column.
  if (a.inner > 1)
    return launch(arg_columns<T>, blocks_for(a.outer * a.inner), BLOCK, 0, y, x, a, most, last);
  return launch(arg_rows<T>, blocks_for_rows(a.outer, 1), threads_of(a.n), 0, y, x, a.outer, a.n,
                most, last);
}

#define ARG(type, T)                                                                               \
  int nnrt_arg_max_##type(int64_t *y, const T *x, int64_t ndim, const int64_t *shape,              \
                          int64_t axis, bool last) {                                               \
    return arg(y, x, axis_of(ndim, shape, axis), true, last);                                      \
  }                                                                                                \
  int nnrt_arg_min_##type(int64_t *y, const T *x, int64_t ndim, const int64_t *shape,              \
                          int64_t axis, bool last) {                                               \
    return arg(y, x, axis_of(ndim, shape, axis), false, last);                                     \
  }
ARG(f32, float)
ARG(i32, int32_t)
ARG(i64, int64_t)

// -- Running sums and products.  Acc: double for floats; those of integers wrap around.

template <class Acc_> struct SumOf {
  typedef Acc_ Acc;
  static __device__ Acc start() { return 0; }
  static __device__ Acc of(Acc a, Acc b) { return a + b; }
};
template <class Acc_> struct ProdOf {
  typedef Acc_ Acc;
  static __device__ Acc start() { return 1; }
  static __device__ Acc of(Acc a, Acc b) { return a * b; }
};

template <class Op> static __device__ inline typename Op::Acc warp_running(typename Op::Acc x) {
  for (int d = 1; d < WARP; d *= 2) {
    typename Op::Acc y = __shfl_up_sync(0xffffffffu, x, (unsigned)d);
    if ((int)(threadIdx.x % WARP) >= d) x = Op::of(x, y);
  }
  return x;
}

template <class T, class Op>
static __global__ void __launch_bounds__(LARGE)
    scan_rows(T *y, const T *x, int64_t m, int64_t n, bool exclusive, bool reverse) {
  typedef typename Op::Acc Acc;
  __shared__ Acc part[WARP];
  int warp = (int)(threadIdx.x / WARP), warps = (int)(blockDim.x / WARP);
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    Acc carried = Op::start();
    for (int64_t from = 0; from < n; from += blockDim.x) {
      // `reverse` runs from the end.
      int64_t i = from + threadIdx.x, at = row * n + (reverse ? n - 1 - i : i);
      Acc mine = i < n ? (Acc)x[at] : Op::start(), all = warp_running<Op>(mine), before = carried;
      __syncthreads(); // all reads of `part` are done
      if (threadIdx.x % WARP == WARP - 1) part[warp] = all;
      __syncthreads();
      // Warps before this one count for its elements, all of them for what is carried on.
      for (int w = 0; w < warps; w++) {
        if (w < warp) before = Op::of(before, part[w]);
        carried = Op::of(carried, part[w]);
      }
      // For floats, all - mine is not the sum of the earlier ones: small terms may have been lost.
      Acc without = __shfl_up_sync(0xffffffffu, all, 1u);
      if (threadIdx.x % WARP == 0) without = Op::start();
      if (i < n) y[at] = (T)Op::of(before, exclusive ? without : all);
    }
  }
}

template <class T, class Op>
static __global__ void scan_columns(T *y, const T *x, Axis a, bool exclusive, bool reverse) {
  for (int64_t c = first_thread(); c < a.outer * a.inner; c += all_threads()) {
    int64_t from = c / a.inner * a.n * a.inner + c % a.inner;
    typename Op::Acc all = Op::start();
    for (int64_t j = 0; j < a.n; j++) {
      int64_t at = from + (reverse ? a.n - 1 - j : j) * a.inner;
      // An exclusive scan leaves the element itself out.
      typename Op::Acc before = all;
      all = Op::of(all, (typename Op::Acc)x[at]);
      y[at] = (T)(exclusive ? before : all);
    }
  }
}

template <class Op, class T>
static int scan(T *y, const T *x, Axis a, bool exclusive, bool reverse) {
  if (a.outer * a.n * a.inner == 0) return NNRT_OK;
  // Along the last axis a block per row, else a thread per column.
  if (a.inner > 1)
    return launch(scan_columns<T, Op>, blocks_for(a.outer * a.inner), BLOCK, 0, y, x, a, exclusive,
                  reverse);
  return launch(scan_rows<T, Op>, blocks_for_rows(a.outer, 1), threads_of(a.n), 0, y, x, a.outer,
                a.n, exclusive, reverse);
}

#define SCAN(op, name, type, Op)                                                                   \
  int nnrt_##op##_##name(type *y, const type *x, int64_t ndim, const int64_t *shape, int64_t axis, \
                         bool exclusive, bool reverse) {                                           \
    return scan<Op>(y, x, axis_of(ndim, shape, axis), exclusive, reverse);                         \
  }
SCAN(cumsum, f32, float, SumOf<double>)
SCAN(cumsum, i32, int32_t, SumOf<uint32_t>)
SCAN(cumsum, i64, int64_t, SumOf<uint64_t>)
SCAN(cumprod, f32, float, ProdOf<double>)
SCAN(cumprod, i32, int32_t, ProdOf<uint32_t>)
SCAN(cumprod, i64, int64_t, ProdOf<uint64_t>)
