// Batch normalisation from the mean and the variance of each channel, and its gradient from the
// sums of batch_norm_sums.cu.
//
// x is (outer, c, inner) around the channel axis.
//
//   channels last (inner = 1)   a thread has V adjacent channels of some rows
//   channels first              a warp has runs, or pieces of them, of one channel
//
//     batch_norm                reads x, writes y
//     batch_norm_back           reads x and dy, writes dx

#include "rows.cuh"

// Both are y = (x - mean) scale + shift, and with dy: dy slope + (x - mean) scale + shift.

struct Channels {
  const float *g, *b, *mean, *var, *dg, *db; // b or, for the gradient, dg and db
  float eps, count;
};
struct Constants {
  float mean, scale, shift, slope;
};
// With r = 1 / sqrt(var + eps):  y = (x - mean) g r + b,  and
// dx = g r (dy - db / count - (x - mean) r dg / count).
static __device__ inline Constants constants_of(const Channels &c, int64_t i) {
  float r = 1.0f / sqrtf(c.var[i] + c.eps), slope = c.g[i] * r;
  if (!c.dg) return Constants{c.mean[i], slope, c.b[i], 0};
  return Constants{c.mean[i], -slope * r * (c.dg[i] / c.count), -slope * (c.db[i] / c.count),
                   slope};
}
static __device__ inline float affine(float x, float dy, Constants k) {
  return dy * k.slope + ((x - k.mean) * k.scale + k.shift);
}
template <class T, int V>
static __device__ inline void affine_pack(T *y, const T *x, const T *dy, const Constants *k,
                                          int next) {
  Pack<T, V> p = read_pack<T, V>(x), q = p;
  if (dy) q = read_pack<T, V>(dy);
  UNROLL
  for (int j = 0; j < V; j++)
    store(&p.at[j], affine(load(&p.at[j]), dy ? load(&q.at[j]) : 0.0f, k[j * next]));
  write_pack(y, p);
}

template <class T, int V>
static __global__ void affine_rows(T *__restrict__ y, const T *__restrict__ x,
                                   const T *__restrict__ dy, Channels channels, int64_t m,
                                   int64_t c) {
  int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * V;
  if (column >= c) return;
  // The constants of a thread's channels stay in registers.
  Constants k[V];
  UNROLL
  for (int j = 0; j < V; j++)
    k[j] = constants_of(channels, column + j);
  UNROLL_4
  for (int64_t row = (int64_t)blockIdx.y * ROWS + threadIdx.y; row < m;
       row += (int64_t)gridDim.y * ROWS) {
    int64_t at = row * c + column;
    affine_pack<T, V>(y + at, x + at, dy ? dy + at : NULL, k, 1);
  }
}

// A warp processes pieces of runs.
template <class T, int V>
static __global__ void affine_runs(T *__restrict__ y, const T *__restrict__ x,
                                   const T *__restrict__ dy, Channels channels, Axis a,
                                   int64_t pieces) {
  int64_t lane = threadIdx.x % WARP, units = a.outer * a.n * pieces;
  for (int64_t u = first_thread() / WARP; u < units; u += all_threads() / WARP) {
    int64_t run = u / pieces, from = u % pieces * STRETCH;
    int64_t to = from + STRETCH < a.inner ? from + STRETCH : a.inner;
    // All of a run is of one channel.
    Constants k = constants_of(channels, run % a.n);
    UNROLL_4
    for (int64_t i = from + lane * V; i < to; i += WARP * V) {
      int64_t at = run * a.inner + i;
      affine_pack<T, V>(y + at, x + at, dy ? dy + at : NULL, &k, 0);
    }
  }
}

template <class T, int V> static int affine_all(T *y, const T *x, const T *dy, Channels c, Axis a) {
  // Channels last.
  if (a.inner == 1) {
    int64_t n_parts = parts_for(a.outer, a.n, WARP * V, ROWS * 4);
    return launch(affine_rows<T, V>, dim3((unsigned)ceil_div(a.n, WARP * V), (unsigned)n_parts),
                  dim3(WARP, ROWS), 0, y, x, dy, c, a.outer, a.n);
  }
  int64_t pieces = ceil_div(a.inner, STRETCH);
  return launch(affine_runs<T, V>, blocks_for_rows(a.outer * a.n * pieces, ROWS), BLOCK, 0, y, x,
                dy, c, a, pieces);
}
template <class T> static int normalise(T *y, const T *x, const T *dy, Channels c, Axis a) {
  constexpr int V = Width<T>::most;
  if (a.outer * a.n * a.inner == 0) return NNRT_OK;
  // Packs go along channels, or along runs.
  return in_packs(a.inner == 1 ? a.n : a.inner, V, y, x, dy) ? affine_all<T, V>(y, x, dy, c, a)
                                                             : affine_all<T, 1>(y, x, dy, c, a);
}

#define BATCH_NORMS(suffix, C, T)                                                                  \
  int nnrt_batch_norm_##suffix(C *y, const C *x, const float *g, const float *b,                   \
                               const float *mean, const float *var, int64_t ndim,                  \
                               const int64_t *shape, int64_t axis, double eps) {                   \
    Channels c = {g, b, mean, var, NULL, NULL, (float)eps, 0};                                     \
    return normalise<T>((T *)y, (const T *)x, NULL, c, axis_of(ndim, shape, axis));                \
  }                                                                                                \
  int nnrt_batch_norm_back_##suffix(C *dx, const C *x, const float *g, const float *mean,          \
                                    const float *var, const C *dy, const float *dg,                \
                                    const float *db, int64_t ndim, const int64_t *shape,           \
                                    const NnrtBatchNormBack *attrs) {                              \
    Channels c = {g, NULL, mean, var, dg, db, (float)attrs->eps, (float)attrs->count};             \
    return normalise<T>((T *)dx, (const T *)x, (const T *)dy, c,                                   \
                        axis_of(ndim, shape, attrs->axis));                                        \
  }
FOR_FLOATS(BATCH_NORMS)
