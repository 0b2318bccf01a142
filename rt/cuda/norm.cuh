// Layer and RMS normalisation of the rows of x (m, n), and their gradients.
//
// A warp computes a row of up to 1024 elements, a block one of up to 8192, and holds it in
// registers: the mean, then the sum of squared distances from it, then y, from one read.  The
// gradients of the gain and the bias are sums of columns.  A group keeps, in registers, the sums
// over its rows of the columns of its threads; a block adds the sums of its warps and writes one
// part of (parts, 2 n); a second kernel adds the parts, in order.  So x and dy are read once for
// all three gradients.  Longer rows are read twice, and a third time for the column sums.
//
//     forward    reads x (and r), g, b, writes y, mean, rstd (and s = x + r)
//     backward   reads x, dy, g, mean, rstd (and dr), writes dx (+ dr) and the parts;
//                then reads the parts
//
// NORMS defines the functions of one element type; norm_f32.cu, norm_bf16.cu and norm_f16.cu have
// one each, so that they compile in parallel.

#ifndef NNRT_CUDA_NORM_CUH
#define NNRT_CUDA_NORM_CUH

#include "rows.cuh"

// -- Forward

// s = x + r.  The stored, rounded s is normalised.
template <class T, int V>
static __device__ inline Pack<T, V> add_packs(Pack<T, V> x, Pack<T, V> r) {
  UNROLL
  for (int k = 0; k < V; k++)
    store(&x.at[k], load(&x.at[k]) + load(&r.at[k]));
  return x;
}

template <class T, int V, int THREADS, bool CENTRED>
static __global__ void norm_rows(T *s, T *y, float *mean, float *rstd, const T *x, const T *r,
                                 const float *__restrict__ g, const float *__restrict__ b,
                                 int64_t m, int64_t n, float eps) {
  Pack<T, V> held[HELD / V], other[HELD / V];
  int lane = group_lane<THREADS>();
  for (int64_t row = group_row<THREADS>(); row < m; row += group_rows<THREADS>()) {
    // All reads of the row are in flight at once.
    float sum = 0, middle = 0, off = 0, squares = 0;
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i < n) held[h] = read_pack<T, V>(x + row * n + i);
      if (i < n && r) other[h] = read_pack<T, V>(r + row * n + i);
    }
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i >= n) continue;
      if (r) {
        held[h] = add_packs(held[h], other[h]);
        write_pack(s + row * n + i, held[h]);
      }
      UNROLL
      for (int k = 0; k < V; k++)
        sum += load(&held[h].at[k]);
    }
    // The squares are of distances from the mean, which is why the row is held.
    if (CENTRED) middle = group_sum<THREADS>(sum) / (float)n;
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      UNROLL
      for (int k = 0; k < V && ((int64_t)h * THREADS + lane) * V < n; k++) {
        float d = load(&held[h].at[k]) - middle;
        off += d;
        squares += d * d;
      }
    }
    // Corrects the mean by its error, which matters if it is large compared with the deviation.
    Pair sums = group_sum<THREADS>(Pair{off, squares});
    off = CENTRED ? sums.a / (float)n : 0.0f;
    middle += off;
    float scale = 1.0f / sqrtf(sums.b / (float)n - off * off + eps);
    UNROLL
    for (int h = 0; h < HELD / V; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i >= n) continue;
      // y = (x - mean) rstd g + b
      float gain[V], bias[V];
      read_floats(gain, g + i);
      if (CENTRED) read_floats(bias, b + i);
      Pack<T, V> to;
      UNROLL
      for (int k = 0; k < V; k++) {
        float v = (load(&held[h].at[k]) - middle) * scale * gain[k];
        store(&to.at[k], CENTRED ? v + bias[k] : v);
      }
      write_pack(y + row * n + i, to);
    }
    if (lane == 0) {
      if (CENTRED) mean[row] = middle;
      rstd[row] = scale;
    }
  }
}

// Long rows, a block each.  A thread reads only elements of s that it wrote itself.
template <class T, int V, bool CENTRED>
static __global__ void norm_long_rows(T *s, T *y, float *mean, float *rstd, const T *x, const T *r,
                                      const float *g, const float *b, int64_t m, int64_t n,
                                      float eps) {
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    const T *from = (r ? s : x) + row * n;
    float sum = 0, middle = 0, off = 0, squares = 0;
    // First read: the sum s = x + r, and its mean.
    if (CENTRED || r) {
      for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
        Pack<T, V> p = read_pack<T, V>(x + row * n + i);
        if (r) {
          p = add_packs(p, read_pack<T, V>(r + row * n + i));
          write_pack(s + row * n + i, p);
        }
        UNROLL
        for (int k = 0; k < V; k++)
          sum += load(&p.at[k]);
      }
    }
    // Second read: the distances from the mean.
    if (CENTRED) middle = block_sum(sum) / (float)n;
    for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
      Pack<T, V> p = read_pack<T, V>(from + i);
      UNROLL
      for (int k = 0; k < V; k++) {
        float d = load(&p.at[k]) - middle;
        off += d;
        squares += d * d;
      }
    }
    Pair sums = group_sum<BLOCK>(Pair{off, squares});
    off = CENTRED ? sums.a / (float)n : 0.0f;
    middle += off;
    float scale = 1.0f / sqrtf(sums.b / (float)n - off * off + eps);
    for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
      Pack<T, V> p = read_pack<T, V>(from + i);
      UNROLL
      for (int k = 0; k < V; k++) {
        float v = (load(&p.at[k]) - middle) * scale * g[i + k];
        store(&p.at[k], CENTRED ? v + b[i + k] : v);
      }
      write_pack(y + row * n + i, p);
    }
    if (threadIdx.x == 0) {
      if (CENTRED) mean[row] = middle;
      rstd[row] = scale;
    }
  }
}

// -- Backward.  With h = (x - mean) rstd and e = dy g:  dx = rstd (e - mean(e) - h mean(e h)), dg
// the sum of dy h over rows, db that of dy.  Not CENTRED: without mean(e) and db.  dr is added to
// the rounded dx.

template <class T, int V, int THREADS, bool CENTRED, int PACKS>
static __global__ void __launch_bounds__(BLOCK, PACKS *V <= 3 * HELD / 4 ? 2 : 1)
    norm_back_rows(T *dx, float *parts, const T *dr, const T *x, const float *__restrict__ g,
                   const float *mean, const float *rstd, const T *dy, int64_t m, int64_t n) {
  Pack<T, V> held[PACKS], held_dy[PACKS], held_dr[PACKS];
  float dg[PACKS][V] = {}, db[PACKS][V] = {};
  int lane = group_lane<THREADS>();
  for (int64_t row = group_row<THREADS>(); row < m; row += group_rows<THREADS>()) {
    // The two sums of dx over the row; dg and db are sums over rows, kept in registers.
    float middle = CENTRED ? mean[row] : 0.0f, r = rstd[row];
    Pair sum = {0, 0};
    UNROLL
    for (int h = 0; h < PACKS; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i >= n) continue;
      held[h] = read_pack<T, V>(x + row * n + i);
      held_dy[h] = read_pack<T, V>(dy + row * n + i);
      if (dr) held_dr[h] = read_pack<T, V>(dr + row * n + i);
      float gain[V];
      read_floats(gain, g + i);
      UNROLL
      for (int k = 0; k < V; k++) {
        float d = load(&held_dy[h].at[k]), v = (load(&held[h].at[k]) - middle) * r;
        sum.a += d * gain[k];
        sum.b += d * gain[k] * v;
        dg[h][k] += d * v;
        if (CENTRED) db[h][k] += d;
      }
    }
    sum = group_sum<THREADS>(sum);
    // dx, from the registers.
    float mean_e = CENTRED ? sum.a / (float)n : 0.0f, mean_eh = sum.b / (float)n;
    UNROLL
    for (int h = 0; h < PACKS; h++) {
      int64_t i = ((int64_t)h * THREADS + lane) * V;
      if (i >= n) continue;
      float gain[V];
      read_floats(gain, g + i);
      Pack<T, V> to;
      UNROLL
      for (int k = 0; k < V; k++) {
        float v = (load(&held[h].at[k]) - middle) * r;
        float d = r * (load(&held_dy[h].at[k]) * gain[k] - mean_e - v * mean_eh);
        store(&to.at[k], d);
        if (dr) store(&to.at[k], load(&held_dr[h].at[k]) + load(&to.at[k]));
      }
      write_pack(dx + row * n + i, to);
    }
  }
  float *mine = parts + (int64_t)blockIdx.x * (CENTRED ? 2 : 1) * n;
  // A block that computes one row at a time has the sums of its columns already.
  if (THREADS != WARP) {
    UNROLL
    for (int h = 0; h < PACKS; h++) {
      UNROLL
      for (int k = 0; k < V; k++) {
        int64_t i = ((int64_t)h * THREADS + lane) * V + k;
        if (i < n) mine[i] = dg[h][k];
        if (CENTRED && i < n) mine[n + i] = db[h][k];
      }
    }
    return;
  }
  DYNAMIC_SHARED(float, shared); // (ROWS, n)
  // Of warps, each has sums of its own: the block adds them in shared memory.
  float *row_of_mine = shared + threadIdx.x / WARP * n;
  UNROLL
  for (int which = 0; which < (CENTRED ? 2 : 1); which++) {
    __syncthreads();
    UNROLL
    for (int h = 0; h < PACKS; h++) {
      UNROLL
      for (int k = 0; k < V; k++) {
        int64_t i = ((int64_t)h * THREADS + lane) * V + k;
        if (i < n) row_of_mine[i] = which ? db[h][k] : dg[h][k];
      }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) {
      float sum = 0;
      for (int w = 0; w < ROWS; w++)
        sum += shared[w * n + i];
      mine[which * n + i] = sum;
    }
  }
}

template <class T, int V, bool CENTRED>
static __global__ void norm_back_long_rows(T *dx, const T *dr, const T *x, const float *g,
                                           const float *mean, const float *rstd, const T *dy,
                                           int64_t m, int64_t n) {
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    float middle = CENTRED ? mean[row] : 0.0f, r = rstd[row];
    // First read: the two sums.
    Pair sum = {0, 0};
    for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
      Pack<T, V> p = read_pack<T, V>(x + row * n + i), q = read_pack<T, V>(dy + row * n + i);
      UNROLL
      for (int k = 0; k < V; k++) {
        float e = load(&q.at[k]) * g[i + k];
        sum.a += e;
        sum.b += e * ((load(&p.at[k]) - middle) * r);
      }
    }
    sum = group_sum<BLOCK>(sum);
    // Second read: dx.
    float mean_e = CENTRED ? sum.a / (float)n : 0.0f, mean_eh = sum.b / (float)n;
    for (int64_t i = (int64_t)threadIdx.x * V; i < n; i += BLOCK * V) {
      Pack<T, V> p = read_pack<T, V>(x + row * n + i), q = read_pack<T, V>(dy + row * n + i);
      UNROLL
      for (int k = 0; k < V; k++) {
        float v = (load(&p.at[k]) - middle) * r;
        float d = r * (load(&q.at[k]) * g[i + k] - mean_e - v * mean_eh);
        store(&p.at[k], d);
        if (dr) store(&p.at[k], load(dr + row * n + i + k) + load(&p.at[k]));
      }
      write_pack(dx + row * n + i, p);
    }
  }
}

// Part blockIdx.y of the column sums, of rows blockIdx.y, blockIdx.y + parts, …, ROWS at a time.
template <class T, bool CENTRED>
static __global__ void norm_back_columns(float *parts, const T *x, const float *mean,
                                         const float *rstd, const T *dy, int64_t m, int64_t n) {
  __shared__ Pair some[ROWS][WARP];
  int64_t column = column_here();
  Pair sum = {0, 0};
  if (column < n) {
    for (int64_t row = (int64_t)blockIdx.y * ROWS + threadIdx.y; row < m;
         row += (int64_t)gridDim.y * ROWS) {
      float d = load(dy + row * n + column);
      sum.a += d * ((load(x + row * n + column) - (CENTRED ? mean[row] : 0.0f)) * rstd[row]);
      sum.b += d;
    }
  }
  // The first row of threads adds the sums of the others, in order.
  some[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= n) return;
  for (int r = 1; r < ROWS; r++) {
    sum.a += some[r][threadIdx.x].a;
    sum.b += some[r][threadIdx.x].b;
  }
  float *mine = parts + (int64_t)blockIdx.y * (CENTRED ? 2 : 1) * n;
  mine[column] = sum.a;
  if (CENTRED) mine[n + column] = sum.b;
}

// dg and db from parts (n_parts, 2 n), or (n_parts, n) without db
static __global__ void norm_back_parts(float *dg, float *db, const float *parts, int64_t n_parts,
                                       int64_t n) {
  int64_t column = column_here(), columns = db ? 2 * n : n;
  float sum = sum_parts(parts, n_parts, columns, column);
  if (threadIdx.y > 0 || column >= columns) return;
  if (column < n)
    dg[column] = sum;
  else
    db[column - n] = sum;
}

// -- Choosing

template <bool CENTRED, class T, int V>
static int forward_rows(T *s, T *y, float *mean, float *rstd, const T *x, const T *r,
                        const float *g, const float *b, int64_t m, int64_t n, double eps) {
  constexpr int THREADS = V == 1 ? WARP : BLOCK; // for rows held by a block; V is not 1 then
  // The smallest group that holds the row in registers.
  if (n <= WARP * HELD)
    return launch(norm_rows<T, V, WARP, CENTRED>, blocks_for_rows(m, ROWS), BLOCK, 0, s, y, mean,
                  rstd, x, r, g, b, m, n, eps);
  if (V > 1 && n <= BLOCK * HELD)
    return launch(norm_rows<T, V, THREADS, CENTRED>, blocks_for_rows(m, 1), BLOCK, 0, s, y, mean,
                  rstd, x, r, g, b, m, n, eps);
  return launch(norm_long_rows<T, V, CENTRED>, blocks_for_rows(m, 1), BLOCK, 0, s, y, mean, rstd, x,
                r, g, b, m, n, eps);
}

template <bool CENTRED, class T>
static int forward(T *s, T *y, float *mean, float *rstd, const T *x, const T *r, const float *g,
                   const float *b, int64_t m, int64_t n, double eps) {
  constexpr int V = Width<T>::most;
  if (m == 0) return NNRT_OK;
  return in_packs(n, V, s, y, x, r) && in_packs(n, 4, g, b)
             ? forward_rows<CENTRED, T, V>(s, y, mean, rstd, x, r, g, b, m, n, eps)
             : forward_rows<CENTRED, T, 1>(s, y, mean, rstd, x, r, g, b, m, n, eps);
}

// norm_back_rows for a given number of packs per thread: fewer packs take fewer registers, so more
// blocks run at once.
template <class T, int V, int THREADS, bool CENTRED, class... A>
static int launch_back_rows(int64_t n, int64_t blocks, int64_t shared, A... arguments) {
  constexpr int MOST = HELD / V, QUARTER = V == 1 ? MOST : MOST / 4;
  // A quarter, half, three quarters, or all of HELD elements.
  int64_t packs = ceil_div(n, (int64_t)THREADS * V);
  auto kernel =
      packs <= QUARTER       ? norm_back_rows<T, V, THREADS, CENTRED, QUARTER>
      : packs <= 2 * QUARTER ? norm_back_rows<T, V, THREADS, CENTRED, least(2 * QUARTER, MOST)>
      : packs <= 3 * QUARTER ? norm_back_rows<T, V, THREADS, CENTRED, least(3 * QUARTER, MOST)>
                             : norm_back_rows<T, V, THREADS, CENTRED, MOST>;
  return launch(kernel, (unsigned)blocks, BLOCK, shared, arguments..., n);
}

template <bool CENTRED, class T, int V>
static int backward_rows(T *dx, float *dg, float *db, const T *dr, const T *x, const float *g,
                         const float *mean, const float *rstd, const T *dy, int64_t m, int64_t n) {
  constexpr int THREADS = V == 1 ? WARP : BLOCK; // for rows held by a block; V is not 1 then

  bool warp = n <= WARP * HELD, block = !warp && V > 1 && n <= BLOCK * HELD;
  int64_t columns = CENTRED ? 2 * n : n, n_parts;
  int64_t held = ceil_div(n, warp ? WARP : THREADS), at_once = held <= HELD / 4 ? 4 : 2; // blocks
  if (warp)
    n_parts = least(ceil_div(m, ROWS), at_once * nnrt_gpu()->processors);
  else if (block)
    n_parts = least(m, at_once * nnrt_gpu()->processors);
  else
    n_parts = parts_for(m, n, WARP, 4 * ROWS);
  n_parts = most(n_parts, 1);
  // Each block writes a part of the column sums; a last kernel adds the parts.
  float *parts = (float *)nnrt_gpu_scratch(n_parts * columns * (int64_t)sizeof(float));
  if (!parts) return NNRT_MEMORY;
  int code;
  if (warp) {
    code = launch_back_rows<T, V, WARP, CENTRED>(n, n_parts, ROWS * n * (int64_t)sizeof(float), dx,
                                                 parts, dr, x, g, mean, rstd, dy, m);
  } else if (block) {
    code = launch_back_rows<T, V, THREADS, CENTRED>(n, n_parts, 0, dx, parts, dr, x, g, mean, rstd,
                                                    dy, m);
  } else {
    code = launch(norm_back_long_rows<T, V, CENTRED>, blocks_for_rows(m, 1), BLOCK, 0, dx, dr, x, g,
                  mean, rstd, dy, m, n);
    if (!code)
      code = launch(norm_back_columns<T, CENTRED>,
                    dim3((unsigned)ceil_div(n, WARP), (unsigned)n_parts), dim3(WARP, ROWS), 0,
                    parts, x, mean, rstd, dy, m, n);
  }
  if (code) return code;
  return launch(norm_back_parts, (unsigned)ceil_div(columns, WARP), dim3(WARP, ROWS), 0, dg, db,
                parts, n_parts, n);
}

template <bool CENTRED, class T>
static int backward(T *dx, float *dg, float *db, const T *dr, const T *x, const float *g,
                    const float *mean, const float *rstd, const T *dy, int64_t m, int64_t n) {
  constexpr int V = Width<T>::most;
  if (n == 0) return NNRT_OK;
  // A sum over no rows is 0.
  if (m == 0) {
    int code = nnrt_zero(dg, n * (int64_t)sizeof *dg);
    return code || !db ? code : nnrt_zero(db, n * (int64_t)sizeof *db);
  }
  return in_packs(n, V, dx, dr, x, dy) && in_packs(n, 4, g)
             ? backward_rows<CENTRED, T, V>(dx, dg, db, dr, x, g, mean, rstd, dy, m, n)
             : backward_rows<CENTRED, T, 1>(dx, dg, db, dr, x, g, mean, rstd, dy, m, n);
}

#define NORMS(suffix, C, T)                                                                        \
  int nnrt_layer_norm_##suffix(C *y, float *mean, float *rstd, const C *x, const float *g,         \
                               const float *b, int64_t m, int64_t n, double eps) {                 \
    return forward<true, T>(NULL, (T *)y, mean, rstd, (const T *)x, NULL, g, b, m, n, eps);        \
  }                                                                                                \
  int nnrt_add_layer_norm_##suffix(C *s, C *y, float *mean, float *rstd, const C *x, const C *r,   \
                                   const float *g, const float *b, int64_t m, int64_t n,           \
                                   double eps) {                                                   \
    return forward<true, T>((T *)s, (T *)y, mean, rstd, (const T *)x, (const T *)r, g, b, m, n,    \
                            eps);                                                                  \
  }                                                                                                \
  int nnrt_rms_norm_##suffix(C *y, float *rstd, const C *x, const float *g, int64_t m, int64_t n,  \
                             double eps) {                                                         \
    return forward<false, T>(NULL, (T *)y, NULL, rstd, (const T *)x, NULL, g, NULL, m, n, eps);    \
  }                                                                                                \
  int nnrt_add_rms_norm_##suffix(C *s, C *y, float *rstd, const C *x, const C *r, const float *g,  \
                                 int64_t m, int64_t n, double eps) {                               \
    return forward<false, T>((T *)s, (T *)y, NULL, rstd, (const T *)x, (const T *)r, g, NULL, m,   \
                             n, eps);                                                              \
  }                                                                                                \
  int nnrt_layer_norm_back_##suffix(C *dx, float *dg, float *db, const C *x, const float *g,       \
                                    const float *mean, const float *rstd, const C *dy, int64_t m,  \
                                    int64_t n) {                                                   \
    return backward<true, T>((T *)dx, dg, db, NULL, (const T *)x, g, mean, rstd, (const T *)dy, m, \
                             n);                                                                   \
  }                                                                                                \
  int nnrt_layer_norm_back_add_##suffix(C *dx, float *dg, float *db, const C *dr, const C *x,      \
                                        const float *g, const float *mean, const float *rstd,      \
                                        const C *dy, int64_t m, int64_t n) {                       \
    return backward<true, T>((T *)dx, dg, db, (const T *)dr, (const T *)x, g, mean, rstd,          \
                             (const T *)dy, m, n);                                                 \
  }                                                                                                \
  int nnrt_rms_norm_back_##suffix(C *dx, float *dg, const C *x, const float *g, const float *rstd, \
                                  const C *dy, int64_t m, int64_t n) {                             \
    return backward<false, T>((T *)dx, dg, NULL, NULL, (const T *)x, g, NULL, rstd, (const T *)dy, \
                              m, n);                                                               \
  }                                                                                                \
  int nnrt_rms_norm_back_add_##suffix(C *dx, float *dg, const C *dr, const C *x, const float *g,   \
                                      const float *rstd, const C *dy, int64_t m, int64_t n) {      \
    return backward<false, T>((T *)dx, dg, NULL, (const T *)dr, (const T *)x, g, NULL, rstd,       \
                              (const T *)dy, m, n);                                                \
  }

#endif
