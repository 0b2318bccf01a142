// The partial sums of batch normalisation over the rows of one rank.  Data parallelism all-reduces
// them; batch_norm.cu normalises with the reduced sums.
//
// x is (outer, c, inner) around the channel axis.
//
//   channels last (inner = 1)   a thread has V adjacent channels of some rows
//   channels first              a warp has runs, or pieces of them, of one channel
//
// Sums have two stages.  A thread adds SHORT terms at a time in float, and these in double: double
// keeps millions of terms accurate, float keeps the conversions few, which are slow on GPUs.  The
// block adds the sums of its threads and writes one part of (parts, 2 c) doubles into scratch; a
// second kernel adds the parts, in order, and computes the results.
//
//     batch_norm_mean, _var     read x, write c numbers         (and parts)
//     batch_norm_sums           reads x and dy, writes 2 c      (and parts)

#include "rows.cuh"

enum { SHORT = 4 }; // terms added in float, and rows read at once

// The summand per element of a channel: x; (x - mean)^2; or for the gradients dy (x - mean) and dy.
enum Sum { SUM_X, SUM_SQUARES, SUM_BACK };

struct Pair64 {
  double a, b;
};

template <Sum WHAT>
static __device__ inline void add_term(Pair &sum, float x, float dy, float mean) {
  float d = x - mean;
  if (WHAT == SUM_X) sum.a += x;
  if (WHAT == SUM_SQUARES) sum.a += d * d;
  if (WHAT == SUM_BACK) {
    sum.a += dy * d;
    sum.b += dy;
  }
}
static __device__ inline void add_short(Pair64 &sum, Pair &some) {
  sum.a += (double)some.a;
  sum.b += (double)some.b;
  some = Pair{0, 0};
}

// Channels last: x (m, c).  Part blockIdx.y, of rows blockIdx.y, blockIdx.y + parts, …, ROWS at a
// time; a warp has WARP * V channels.
template <class T, int V, Sum WHAT>
static __global__ void sum_rows(double *parts, const T *x, const T *dy, const float *mean,
                                int64_t m, int64_t c) {
  __shared__ Pair64 all[ROWS][WARP];
  int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * V;
  Pair64 sum[V] = {};
  Pair some[V] = {};
  float middle[V] = {};
  if (column < c) {
    if (WHAT != SUM_X) read_floats(middle, mean + column);
    int64_t step = (int64_t)gridDim.y * ROWS;
    for (int64_t row = (int64_t)blockIdx.y * ROWS + threadIdx.y; row < m; row += step * SHORT) {
      // SHORT rows are read at once, and added in float.
      Pack<T, V> p[SHORT], q[SHORT];
      UNROLL
      for (int s = 0; s < SHORT; s++) {
        int64_t at = (row + s * step) * c + column;
        if (row + s * step < m) p[s] = read_pack<T, V>(x + at);
        if (WHAT == SUM_BACK && row + s * step < m) q[s] = read_pack<T, V>(dy + at);
      }
      UNROLL
      for (int s = 0; s < SHORT; s++) {
        if (row + s * step >= m) continue;
        UNROLL
        for (int k = 0; k < V; k++)
          add_term<WHAT>(some[k], load(&p[s].at[k]), WHAT == SUM_BACK ? load(&q[s].at[k]) : 0.0f,
                         middle[k]);
      }
      UNROLL
      for (int k = 0; k < V; k++)
        add_short(sum[k], some[k]);
    }
  }
  double *mine = parts + (int64_t)blockIdx.y * 2 * c;
  UNROLL
  for (int k = 0; k < V; k++) {
    __syncthreads();
    all[threadIdx.y][threadIdx.x] = sum[k];
    __syncthreads();
    if (threadIdx.y > 0 || column >= c) continue;
    // The first row of threads adds the sums of the others, in order.
    Pair64 total = sum[k];
    for (int r = 1; r < ROWS; r++) {
      total.a += all[r][threadIdx.x].a;
      total.b += all[r][threadIdx.x].b;
    }
    mine[column + k] = total.a;
    mine[c + column + k] = total.b;
  }
}

// Channels first: channel blockIdx.x of x (outer, c, inner), part blockIdx.y of its pieces.
template <class T, int V, Sum WHAT>
static __global__ void sum_runs(double *parts, const T *x, const T *dy, const float *mean, Axis a,
                                int64_t pieces) {
  int64_t channel = blockIdx.x, lane = threadIdx.x % WARP;
  float middle = WHAT == SUM_X ? 0.0f : mean[channel];
  Pair64 sum = {};
  Pair some = {};
  for (int64_t u = (int64_t)blockIdx.y * ROWS + threadIdx.x / WARP; u < a.outer * pieces;
       u += (int64_t)gridDim.y * ROWS) {
    int64_t outer = u / pieces, from = u % pieces * STRETCH;
    int64_t to = from + STRETCH < a.inner ? from + STRETCH : a.inner;
    int64_t run = (outer * a.n + channel) * a.inner;
    // Terms are added in float, SHORT at a time, and these sums in double.
    int terms = 0;
    for (int64_t i = from + lane * V; i < to; i += WARP * V) {
      Pack<T, V> p = read_pack<T, V>(x + run + i), q;
      if (WHAT == SUM_BACK) q = read_pack<T, V>(dy + run + i);
      UNROLL
      for (int k = 0; k < V; k++)
        add_term<WHAT>(some, load(&p.at[k]), WHAT == SUM_BACK ? load(&q.at[k]) : 0.0f, middle);
      if ((terms += V) < SHORT) continue;
      add_short(sum, some);
      terms = 0;
    }
    add_short(sum, some);
  }
  // All warps of the block have the same channel.
  sum.a = block_sum(sum.a);
  if (WHAT == SUM_BACK) sum.b = block_sum(sum.b);
  if (threadIdx.x > 0) return;
  double *mine = parts + (int64_t)blockIdx.y * 2 * a.n;
  mine[channel] = sum.a;
  mine[a.n + channel] = sum.b;
}

// The sums of parts (n_parts, 2, c), by `scale`: y; or dg, divided by the deviation, and db.
static __global__ void finish_sums(float *y, const double *parts, int64_t n_parts, int64_t c,
                                   double scale) {
  int64_t channel = column_here();
  double sum = sum_parts(parts, n_parts, 2 * c, channel);
  if (threadIdx.y == 0 && channel < c) y[channel] = (float)(sum * scale);
}
static __global__ void finish_back(float *dg, float *db, const double *parts, int64_t n_parts,
                                   int64_t c, const float *var, double eps) {
  int64_t column = column_here();
  double sum = sum_parts(parts, n_parts, 2 * c, column);
  if (threadIdx.y > 0 || column >= 2 * c) return;
  if (column < c)
    dg[column] = (float)(sum / sqrt((double)var[column] + eps));
  else
    db[column - c] = (float)sum;
}

// Computes the parts, in scratch: (*n_parts, 2, c).
template <Sum WHAT, class T, int V>
static int sum_channels(double **parts, int64_t *n_parts, const T *x, const T *dy,
                        const float *mean, Axis a) {
  int64_t pieces = ceil_div(a.inner, STRETCH);
  // The number of parts fixes the order of addition.
  if (a.inner == 1)
    *n_parts = parts_for(a.outer, a.n, WARP * V, ROWS * SHORT);
  else
    *n_parts = parts_for(a.outer * pieces, a.n, 1, ROWS);
  *parts = (double *)nnrt_gpu_scratch(*n_parts * 2 * a.n * (int64_t)sizeof(double));
  if (!*parts) return NNRT_MEMORY;
  if (a.inner == 1)
    return launch(sum_rows<T, V, WHAT>, dim3((unsigned)ceil_div(a.n, WARP * V), (unsigned)*n_parts),
                  dim3(WARP, ROWS), 0, *parts, x, dy, mean, a.outer, a.n);
  return launch(sum_runs<T, V, WHAT>, dim3((unsigned)a.n, (unsigned)*n_parts), BLOCK, 0, *parts, x,
                dy, mean, a, pieces);
}
template <Sum WHAT, class T>
static int sums(double **parts, int64_t *n_parts, const T *x, const T *dy, const float *mean,
                Axis a) {
  constexpr int V = Width<T>::most;
  return in_packs(a.inner == 1 ? a.n : a.inner, V, x, dy, mean)
             ? sum_channels<WHAT, T, V>(parts, n_parts, x, dy, mean, a)
             : sum_channels<WHAT, T, 1>(parts, n_parts, x, dy, mean, a);
}

template <Sum WHAT, class T>
static int statistic(float *y, const T *x, const float *mean, Axis a, int64_t count) {
  double *parts;
  int64_t n_parts;
  if (a.n == 0) return NNRT_OK;
  // A sum over nothing is 0.
  if (a.outer * a.inner == 0) return nnrt_zero(y, a.n * (int64_t)sizeof *y);
  int code = sums<WHAT, T>(&parts, &n_parts, x, NULL, mean, a);
  if (code) return code;
  return launch(finish_sums, (unsigned)ceil_div(a.n, WARP), dim3(WARP, ROWS), 0, y, parts, n_parts,
                a.n, 1.0 / (double)count);
}

template <class T>
static int gradients(float *dg, float *db, const T *x, const float *mean, const float *var,
                     const T *dy, Axis a, double eps) {
  double *parts;
  int64_t n_parts;
  if (a.n == 0) return NNRT_OK;
  // A sum over nothing is 0.
  if (a.outer * a.inner == 0) {
    int code = nnrt_zero(dg, a.n * (int64_t)sizeof *dg);
    return code ? code : nnrt_zero(db, a.n * (int64_t)sizeof *db);
  }
  int code = sums<SUM_BACK, T>(&parts, &n_parts, x, dy, mean, a);
  if (code) return code;
  return launch(finish_back, (unsigned)ceil_div(2 * a.n, WARP), dim3(WARP, ROWS), 0, dg, db, parts,
                n_parts, a.n, var, eps);
}

#define BATCH_NORMS(suffix, C, T)                                                                  \
  int nnrt_batch_norm_mean_##suffix(float *mean, const C *x, int64_t ndim, const int64_t *shape,   \
                                    int64_t axis, int64_t count) {                                 \
    return statistic<SUM_X, T>(mean, (const T *)x, NULL, axis_of(ndim, shape, axis), count);       \
  }                                                                                                \
  int nnrt_batch_norm_var_##suffix(float *var, const C *x, const float *mean, int64_t ndim,        \
                                   const int64_t *shape, int64_t axis, int64_t count) {            \
    return statistic<SUM_SQUARES, T>(var, (const T *)x, mean, axis_of(ndim, shape, axis), count);  \
  }                                                                                                \
  int nnrt_batch_norm_sums_##suffix(float *dg, float *db, const C *x, const float *mean,           \
                                    const float *var, const C *dy, int64_t ndim,                   \
                                    const int64_t *shape, int64_t axis, double eps) {              \
    return gradients<T>(dg, db, (const T *)x, mean, var, (const T *)dy,                            \
                        axis_of(ndim, shape, axis), eps);                                          \
  }
FOR_FLOATS(BATCH_NORMS)
