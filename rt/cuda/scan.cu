// Along one axis of x (outer, n, inner): the place of the largest or smallest, and running sums.
//
// Along the last axis a block does a row: for a place every thread finds its own best, then the
// block the best of these; for running sums the block takes as many elements as it has threads at a
// time and carries the sum on.  Along another axis a thread does one column, neighbours beside each
// other.
//
//     arg_max, arg_min   read x, write one place per row
//     cumsum             reads x, writes y

#include "rows.cuh"

// Threads at most of a block that does a row: so many only get the registers they need when the
// compiler is told.
enum { LARGE = 4 * BLOCK };

// -- Places

struct Best {
  float x;
  int64_t at; // -1: nothing yet
};

// Whether a comes before b; `sign` 1 for the largest, -1 for the smallest.  A NaN comes before
// every number; of equal ones the first, or with `last` the last.
static __device__ inline bool better(Best a, Best b, float sign, bool last) {
  if (a.at < 0 || b.at < 0) return b.at < 0;
  bool a_nan = a.x != a.x, b_nan = b.x != b.x;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.x != b.x) return a.x * sign > b.x * sign;
  return last ? a.at > b.at : a.at < b.at;
}

static __device__ inline Best warp_best(Best best, float sign, bool last) {
  for (int d = WARP / 2; d > 0; d /= 2) {
    float x = __shfl_xor_sync(0xffffffffu, best.x, d);
    long long at = __shfl_xor_sync(0xffffffffu, (long long)best.at, d);
    Best other = {x, (int64_t)at};
    if (better(other, best, sign, last)) best = other;
  }
  return best;
}

static __global__ void __launch_bounds__(LARGE)
    arg_rows(int64_t *y, const float *x, int64_t m, int64_t n, float sign, bool last) {
  __shared__ Best part[WARP];
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    Best best = {0, -1};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      Best here = {x[row * n + i], i};
      if (better(here, best, sign, last)) best = here;
    }
    best = warp_best(best, sign, last);
    __syncthreads();
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = best;
    __syncthreads();
    if (threadIdx.x > 0) continue;
    for (int i = 1; i < (int)(blockDim.x / WARP); i++)
      if (better(part[i], best, sign, last)) best = part[i];
    y[row] = best.at;
  }
}

static __global__ void arg_columns(int64_t *y, const float *x, Axis a, float sign, bool last) {
  for (int64_t c = first_thread(); c < a.outer * a.inner; c += all_threads()) {
    const float *from = x + c / a.inner * a.n * a.inner + c % a.inner;
    Best best = {0, -1};
    for (int64_t j = 0; j < a.n; j++) {
      Best here = {from[j * a.inner], j};
      if (better(here, best, sign, last)) best = here;
    }
    y[c] = best.at;
  }
}

// Threads of a block that does a row of n.
static int threads_of(int64_t n) {
  return (int)least(LARGE, ceil_div(n, WARP) * WARP);
}

static int arg(int64_t *y, const float *x, Axis a, float sign, bool last) {
  if (a.outer * a.n * a.inner == 0) return NNRT_OK;
  if (a.inner > 1)
    return launch(arg_columns, blocks_for(a.outer * a.inner), BLOCK, 0, y, x, a, sign, last);
  return launch(arg_rows, blocks_for_rows(a.outer, 1), threads_of(a.n), 0, y, x, a.outer, a.n, sign,
                last);
}

int nnrt_arg_max_f32(int64_t *y, const float *x, int64_t rank, const int64_t *shape, int64_t axis,
                     bool last) {
  return arg(y, x, axis_of(rank, shape, axis), 1.0f, last);
}

int nnrt_arg_min_f32(int64_t *y, const float *x, int64_t rank, const int64_t *shape, int64_t axis,
                     bool last) {
  return arg(y, x, axis_of(rank, shape, axis), -1.0f, last);
}

// -- Running sums.  Acc: double for floats; sums of integers wrap around.

template <class Acc> static __device__ inline Acc warp_running_sum(Acc x) {
  for (int d = 1; d < WARP; d *= 2) {
    Acc y = __shfl_up_sync(0xffffffffu, x, (unsigned)d);
    if ((int)(threadIdx.x % WARP) >= d) x += y;
  }
  return x;
}

template <class T, class Acc>
static __global__ void __launch_bounds__(LARGE)
    cumsum_rows(T *y, const T *x, int64_t m, int64_t n, bool exclusive, bool reverse) {
  __shared__ Acc part[WARP];
  int warp = (int)(threadIdx.x / WARP), warps = (int)(blockDim.x / WARP);
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    Acc carried = 0;
    for (int64_t from = 0; from < n; from += blockDim.x) {
      int64_t i = from + threadIdx.x, at = row * n + (reverse ? n - 1 - i : i);
      Acc mine = i < n ? (Acc)x[at] : 0, sum = warp_running_sum(mine), before = carried;
      __syncthreads(); // nobody reads `part` any more
      if (threadIdx.x % WARP == WARP - 1) part[warp] = sum;
      __syncthreads();
      for (int w = 0; w < warps; w++) {
        if (w < warp) before += part[w];
        carried += part[w];
      }
      // Of floats, sum - mine is not the sum of those before: what is small may have been lost.
      Acc without = __shfl_up_sync(0xffffffffu, sum, 1u);
      if (threadIdx.x % WARP == 0) without = 0;
      if (i < n) y[at] = (T)(before + (exclusive ? without : sum));
    }
  }
}

template <class T, class Acc>
static __global__ void cumsum_columns(T *y, const T *x, Axis a, bool exclusive, bool reverse) {
  for (int64_t c = first_thread(); c < a.outer * a.inner; c += all_threads()) {
    int64_t from = c / a.inner * a.n * a.inner + c % a.inner;
    Acc sum = 0;
    for (int64_t j = 0; j < a.n; j++) {
      int64_t at = from + (reverse ? a.n - 1 - j : j) * a.inner;
      Acc before = sum;
      sum += (Acc)x[at];
      y[at] = (T)(exclusive ? before : sum);
    }
  }
}

template <class Acc, class T>
static int cumsum(T *y, const T *x, Axis a, bool exclusive, bool reverse) {
  if (a.outer * a.n * a.inner == 0) return NNRT_OK;
  if (a.inner > 1)
    return launch(cumsum_columns<T, Acc>, blocks_for(a.outer * a.inner), BLOCK, 0, y, x, a,
                  exclusive, reverse);
  return launch(cumsum_rows<T, Acc>, blocks_for_rows(a.outer, 1), threads_of(a.n), 0, y, x, a.outer,
                a.n, exclusive, reverse);
}

#define CUMSUM(name, type, acc)                                                                    \
  int nnrt_cumsum_##name(type *y, const type *x, int64_t rank, const int64_t *shape, int64_t axis, \
                         bool exclusive, bool reverse) {                                           \
    return cumsum<acc>(y, x, axis_of(rank, shape, axis), exclusive, reverse);                      \
  }
CUMSUM(f32, float, double)
CUMSUM(i32, int32_t, uint32_t)
CUMSUM(i64, int64_t, uint64_t)
