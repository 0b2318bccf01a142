// Softmax and log-softmax along one axis of x (outer, n, inner).  Their gradients: softmax_back.cu.
//
// Along the last axis a warp or a block computes a row (rows.cuh).  Up to 8192 elements it holds
// the row in registers: x is read once and y written once.  Longer rows are read twice: once for
// the maximum and the sum together, with the sum rescaled whenever the maximum grows, and once for
// y, mostly from the L2 cache.  Along another axis a thread computes one column, adjacent threads
// adjacent columns, and also reads it twice.
//
//     reads x once (twice), writes y
//
// All may run in place: a thread writes only elements that it has read itself.

#include "rows.cuh"

// y = e^(x - top) / sum, or its logarithm.
template <class T>
static __device__ inline float softmax_of(float x, float top, float k, bool log) {
  return log ? x - top - k : exp_for<T>(x - top) * k;
}
// The factor or summand of softmax_of, from the sum.
static __device__ inline float softmax_factor(float sum, bool log) {
  return log ? logf(sum) : 1.0f / sum;
}

template <class T, int V, int THREADS>
static __global__ void softmax_rows(T *y, const T *x, int64_t m, int64_t n, bool log) {
  Pack<T, V> held[HELD / V];
  int lane = group_lane<THREADS>();
  for (int64_t row = group_row<THREADS>(); row < m; row += group_rows<THREADS>()) {
    float top = -INFINITY, sum = 0;
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i < n) held[h] = read_pack<T, V>(x + row * n + i);
      UNROLL
      for (int k = 0; k < V && i < n; k++)
        top = m_max_f(load(&held[h].at[k]), top);
    }
    // The row stays in registers for the sum and for y.
    top = THREADS == WARP ? warp_max(top) : block_max(top);
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      UNROLL
      for (int k = 0; k < V && ((int64_t)h * THREADS + lane) * V < n; k++)
        sum += exp_for<T>(load(&held[h].at[k]) - top);
    }
    // y, from the registers.
    float factor = softmax_factor(group_sum<THREADS>(sum), log);
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i >= n) continue;
      Pack<T, V> to;
      UNROLL
      for (int k = 0; k < V; k++)
        store(&to.at[k], softmax_of<T>(load(&held[h].at[k]), top, factor, log));
      write_pack(y + row * n + i, to);
    }
  }
}

// Long rows, a block each.
template <class T, int V>
static __global__ void softmax_long_rows(T *y, const T *x, int64_t m, int64_t n, bool log) {
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    const T *from = x + row * n;
    // Maximum and sum in one read.
    ExpSum s = {-INFINITY, 0};
    for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
      Pack<T, V> p = read_pack<T, V>(from + i);
      float v[V];
      UNROLL
      for (int k = 0; k < V; k++)
        v[k] = load(&p.at[k]);
      add_exps<T, V>(s, v);
    }
    // The second read, mostly from the L2 cache.
    s = group_exp_sum<T>(s, true);
    float factor = softmax_factor(s.sum, log);
    for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
      Pack<T, V> p = read_pack<T, V>(from + i);
      UNROLL
      for (int k = 0; k < V; k++)
        store(&p.at[k], softmax_of<T>(load(&p.at[k]), s.top, factor, log));
      write_pack(y + row * n + i, p);
    }
  }
}

template <class T> static __global__ void softmax_columns(T *y, const T *x, Axis a, bool log) {
  for (int64_t c = first_thread(); c < a.outer * a.inner; c += all_threads()) {
    int64_t at = c / a.inner * a.n * a.inner + c % a.inner;
    // Maximum and sum in one read, then y.
    ExpSum s = {-INFINITY, 0};
    for (int64_t j = 0; j < a.n; j++) {
      float v[1] = {load(x + at + j * a.inner)};
      add_exps<T, 1>(s, v);
    }
    float factor = softmax_factor(s.sum, log);
    for (int64_t j = 0; j < a.n; j++)
      store(y + at + j * a.inner, softmax_of<T>(load(x + at + j * a.inner), s.top, factor, log));
  }
}

// -- Choosing

template <class T, int V> static int forward_rows(T *y, const T *x, Axis a, bool log) {
  constexpr int THREADS = V == 1 ? WARP : BLOCK; // for rows held by a block; V is not 1 then
  // The smallest group that holds the row in registers.
  if (a.n <= WARP * HELD)
    return launch(softmax_rows<T, V, WARP>, blocks_for_rows(a.outer, ROWS), BLOCK, 0, y, x, a.outer,
                  a.n, log);
  if (V > 1 && a.n <= BLOCK * HELD)
    return launch(softmax_rows<T, V, THREADS>, blocks_for_rows(a.outer, 1), BLOCK, 0, y, x, a.outer,
                  a.n, log);
  return launch(softmax_long_rows<T, V>, blocks_for_rows(a.outer, 1), BLOCK, 0, y, x, a.outer, a.n,
                log);
}

template <class T> static int forward(T *y, const T *x, Axis a, bool log) {
  constexpr int V = Width<T>::most;
  if (a.outer * a.n * a.inner == 0) return NNRT_OK;
  if (a.inner > 1)
    return launch(softmax_columns<T>, blocks_for(a.outer * a.inner), BLOCK, 0, y, x, a, log);
  return in_packs(a.n, V, y, x) ? forward_rows<T, V>(y, x, a, log)
                                : forward_rows<T, 1>(y, x, a, log);
}

#define SOFTMAX(name, log, suffix, C, T)                                                           \
  int nnrt_##name##_##suffix(C *y, const C *x, int64_t ndim, const int64_t *shape, int64_t axis) { \
    return forward((T *)y, (const T *)x, axis_of(ndim, shape, axis), log);                         \
  }
#define SOFTMAXES(suffix, C, T)                                                                    \
  SOFTMAX(softmax, false, suffix, C, T)                                                            \
  SOFTMAX(log_softmax, true, suffix, C, T)
FOR_FLOATS(SOFTMAXES)
