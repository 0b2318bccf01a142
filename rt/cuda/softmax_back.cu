// The gradients of softmax and log-softmax along one axis of y (outer, n, inner), from their
// results.
//
// As in softmax.cu: along the last axis a warp or a block computes a row, which it holds in
// registers up to 8192 elements, and reads twice if it is longer; along another axis a thread
// computes a column, and reads it twice.
//
//     reads y and dy once (twice), writes dx
//
// All may run in place: a thread writes only elements that it has read itself.

#include "rows.cuh"

// softmax: dx = y (dy - sum(y dy));  log_softmax: dx = dy - e^y sum(dy)
static __device__ inline float back_term(float y, float dy, bool log) {
  return log ? dy : y * dy;
}
template <class T> static __device__ inline float back_of(float y, float dy, float sum, bool log) {
  return log ? dy - exp_for<T>(y) * sum : y * (dy - sum);
}

template <class T, int V, int THREADS>
static __global__ void softmax_back_rows(T *dx, const T *y, const T *dy, int64_t m, int64_t n,
                                         bool log) {
  Pack<T, V> held[HELD / V], held_dy[HELD / V];
  int lane = group_lane<THREADS>();
  for (int64_t row = group_row<THREADS>(); row < m; row += group_rows<THREADS>()) {
    // The sum over the row, which stays in registers for dx.
    float sum = 0;
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i >= n) continue;
      held[h] = read_pack<T, V>(y + row * n + i);
      held_dy[h] = read_pack<T, V>(dy + row * n + i);
      UNROLL
      for (int k = 0; k < V; k++)
        sum += back_term(load(&held[h].at[k]), load(&held_dy[h].at[k]), log);
    }
    sum = group_sum<THREADS>(sum);
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i >= n) continue;
      Pack<T, V> to;
      UNROLL
      for (int k = 0; k < V; k++)
        store(&to.at[k], back_of<T>(load(&held[h].at[k]), load(&held_dy[h].at[k]), sum, log));
      write_pack(dx + row * n + i, to);
    }
  }
}

template <class T, int V>
static __global__ void softmax_back_long_rows(T *dx, const T *y, const T *dy, int64_t m, int64_t n,
                                              bool log) {
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    // The sum over the row, then dx from a second read.
    float sum = 0;
    for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
      Pack<T, V> p = read_pack<T, V>(y + row * n + i), q = read_pack<T, V>(dy + row * n + i);
      UNROLL
      for (int k = 0; k < V; k++)
        sum += back_term(load(&p.at[k]), load(&q.at[k]), log);
    }
    sum = block_sum(sum);
    for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
      Pack<T, V> p = read_pack<T, V>(y + row * n + i), q = read_pack<T, V>(dy + row * n + i);
      UNROLL
      for (int k = 0; k < V; k++)
        store(&p.at[k], back_of<T>(load(&p.at[k]), load(&q.at[k]), sum, log));
      write_pack(dx + row * n + i, p);
    }
  }
}

template <class T>
static __global__ void softmax_back_columns(T *dx, const T *y, const T *dy, Axis a, bool log) {
  for (int64_t c = first_thread(); c < a.outer * a.inner; c += all_threads()) {
    int64_t from = c / a.inner * a.n * a.inner + c % a.inner;
    // The sum over the column, then dx from a second read.
    float sum = 0;
    for (int64_t j = 0; j < a.n; j++)
      sum += back_term(load(y + from + j * a.inner), load(dy + from + j * a.inner), log);
    for (int64_t j = 0; j < a.n; j++) {
      int64_t at = from + j * a.inner;
      store(dx + at, back_of<T>(load(y + at), load(dy + at), sum, log));
    }
  }
}

// -- Choosing

template <class T, int V> static int back_rows(T *dx, const T *y, const T *dy, Axis a, bool log) {
  constexpr int THREADS = V == 1 ? WARP : BLOCK; // for rows held by a block; V is not 1 then
  // The smallest group that holds the row in registers.
  if (a.n <= WARP * HELD)
    return launch(softmax_back_rows<T, V, WARP>, blocks_for_rows(a.outer, ROWS), BLOCK, 0, dx, y,
                  dy, a.outer, a.n, log);
  if (V > 1 && a.n <= BLOCK * HELD)
    return launch(softmax_back_rows<T, V, THREADS>, blocks_for_rows(a.outer, 1), BLOCK, 0, dx, y,
                  dy, a.outer, a.n, log);
  return launch(softmax_back_long_rows<T, V>, blocks_for_rows(a.outer, 1), BLOCK, 0, dx, y, dy,
                a.outer, a.n, log);
}

template <class T> static int backward(T *dx, const T *y, const T *dy, Axis a, bool log) {
  constexpr int V = Width<T>::most;
  if (a.outer * a.n * a.inner == 0) return NNRT_OK;
  if (a.inner > 1)
    return launch(softmax_back_columns<T>, blocks_for(a.outer * a.inner), BLOCK, 0, dx, y, dy, a,
                  log);
  return in_packs(a.n, V, dx, y, dy) ? back_rows<T, V>(dx, y, dy, a, log)
                                     : back_rows<T, 1>(dx, y, dy, a, log);
}

#define SOFTMAX(name, log, suffix, C, T)                                                           \
  int nnrt_##name##_back_##suffix(C *dx, const C *y, const C *dy, int64_t ndim,                    \
                                  const int64_t *shape, int64_t axis) {                            \
    return backward((T *)dx, (const T *)y, (const T *)dy, axis_of(ndim, shape, axis), log);        \
  }
#define SOFTMAXES(suffix, C, T)                                                                    \
  SOFTMAX(softmax, false, suffix, C, T)                                                            \
  SOFTMAX(log_softmax, true, suffix, C, T)
FOR_FLOATS(SOFTMAXES)
