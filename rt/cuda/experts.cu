// Sparse experts: slots of rows, rows at their slots, and products of each row with the matrix of
// its own expert.
//
// The products sort the rows by expert, so that a tile of EDGE rows mostly has one expert, and
// never wait for the host to read the number of rows of each.  A block computes a tile of EDGE
// sorted rows and EDGE columns, once for each expert among its rows:
//
//     experts    0 0 0 1 | 1 1 1 1 | 1 2 2 3        tiles of 4 rows
//     products   0, 1    | 1       | 1, 2, 3
//
// A gradient of a weight has a block for each expert and tile of the matrix, which adds the rows of
// the expert in their order.
//
// Scratch: 16 bytes per row for sorting, and half a byte for counting digits; for dispatch 4 bytes
// per slot.

#include "expert_slots.h"
#include "move.cuh"
#include "sort.cuh"

// -- Slots

// A block has a group, and each thread some of the parts: it reads all rows, in their order.
template <class T>
static __global__ void find_slots(int64_t *y, const T *x, int64_t rows, NnrtSlots s, Finder f) {
  int64_t g = blockIdx.x, per = s.experts / s.parts, choices = s.choices ? s.choices : 1;
  const T *in = x + g * rows;
  int64_t *out = y + g * rows;
  for (int64_t part = threadIdx.x; part < s.parts; part += blockDim.x) {
    int64_t taken = 0;
    for (int64_t c = 0; c < choices; c++)
      for (int64_t i = c; i < rows; i += choices) {
        int64_t expert = in[i];
        if (expert < 0 || expert >= s.experts) {
          // One thread writes the rows without an expert.
          if (part == 0) out[i] = -1;
          if (part == 0 && expert != -1) find_index(f, expert, g * rows + i, -1, s.experts);
        } else if (expert / per == part) {
          if (taken >= s.capacity && !s.drop) find_capacity(f, part, g, s.capacity);
          out[i] = taken < s.capacity ? part * s.capacity + taken : -1;
          taken++;
        }
      }
  }
}

#define EXPERT_SLOTS(name, T)                                                                      \
  int nnrt_expert_slots_##name(int64_t *y, const T *x, int64_t groups, int64_t rows,               \
                               const NnrtSlots *s) {                                               \
    if (groups * rows == 0) return NNRT_OK;                                                        \
    return launch(find_slots<T>, (unsigned)groups, BLOCK, 0, y, x, rows, *s, finder());            \
  }
EXPERT_SLOTS(i32, int32_t)
EXPERT_SLOTS(i64, int64_t)

// The place of row i among those of all slots; -1: it has none here.
static __device__ inline int64_t place_of(Slots s, int64_t i, bool report, Finder f) {
  int64_t slot = s.at[i];
  if (slot < -1 || slot >= s.all * s.capacity) {
    if (report) find_index(f, slot, i, -1, s.all * s.capacity);
    return -1;
  }
  if (slot < 0) return -1;
  int64_t part = slot / s.capacity - s.from;
  if (part < 0 || part >= s.parts) return -1;
  return (part * s.groups + i / s.rows) * s.capacity + slot % s.capacity;
}

// The row of each slot; -1: none.  Of rows with equal slots the last one stays.
static __global__ void no_rows(int *row, int64_t n) {
  for (int64_t i = first_thread(); i < n; i += all_threads())
    row[i] = -1;
}

static __global__ void find_rows(int *row, Slots s, Finder f) {
  for (int64_t i = first_thread(); i < s.groups * s.rows; i += all_threads()) {
    int64_t place = place_of(s, i, true, f);
    if (place >= 0) atomicMax(&row[place], (int)i);
  }
}

template <class T>
static __global__ void dispatch_rows(T *y, const T *x, const int *row, int64_t inner, int64_t n,
                                     T otherwise) {
  for (int64_t i = first_thread(); i < n; i += all_threads()) {
    int from = row[i / inner];
    y[i] = from >= 0 ? x[from * inner + i % inner] : otherwise;
  }
}

template <class T> static int dispatch(T *y, const T *x, Slots s, T otherwise) {
  int64_t places = s.parts * s.groups * s.capacity, count = s.groups * s.rows;
  if (places * s.inner == 0) return NNRT_OK;
  if (count >= (int64_t)1 << 31)
    return nnrt_error(NNRT_UNSUPPORTED, "dispatch: %lld rows are too many", (long long)count);
  int *row = (int *)nnrt_gpu_scratch(places * (int64_t)sizeof *row);
  if (!row) return NNRT_MEMORY;
  int code = launch(no_rows, blocks_for(places), BLOCK, 0, row, places);
  if (!code && count > 0) code = launch(find_rows, blocks_for(count), BLOCK, 0, row, s, finder());
  if (code) return code;
  int64_t n = places * s.inner;
  return launch(dispatch_rows<T>, blocks_for(n), BLOCK, 0, y, x, row, s.inner, n, otherwise);
}

template <class T>
static __global__ void collect_rows(T *y, const T *x, Slots s, int64_t n, Finder f) {
  for (int64_t i = first_thread(); i < n; i += all_threads()) {
    int64_t row = i / s.inner, column = i % s.inner, place = place_of(s, row, column == 0, f);
    y[i] = place >= 0 ? x[place * s.inner + column] : T(0);
  }
}

#define SLOT_ROWS(size, T)                                                                         \
  int nnrt_dispatch_##size(void *y, const void *x, const int64_t *slots, int64_t y_ndim,           \
                           const int64_t *y_shape, const int64_t *slots_shape, int64_t from,       \
                           int64_t all, bool none) {                                               \
    Slots s = slots_of(slots, slots_shape, y_ndim, y_shape, from, all);                            \
    return dispatch((T *)y, (const T *)x, s, (T)(none ? -1 : 0));                                  \
  }                                                                                                \
  int nnrt_collect_##size(void *y, const void *x, const int64_t *slots, int64_t x_ndim,            \
                          const int64_t *x_shape, const int64_t *slots_shape, int64_t from,        \
                          int64_t all) {                                                           \
    Slots s = slots_of(slots, slots_shape, x_ndim, x_shape, from, all);                            \
    int64_t n = s.groups * s.rows * s.inner;                                                       \
    if (n == 0) return NNRT_OK;                                                                    \
    return launch(collect_rows<T>, blocks_for(n), BLOCK, 0, (T *)y, (const T *)x, s, n, finder()); \
  }
FOR_SIZES(SLOT_ROWS)

// -- Products

enum { EDGE = 32, STEP = 8 }; // of a tile, and of the terms of its sums that are loaded at once
static_assert((int)EDGE * (int)STEP == (int)BLOCK, "each thread loads one number of an operand");

// Indices are of experts `from` to `from + n` of `all`.  With parts the rows are in as many equal
// parts as the experts, and have experts of their part.
struct Experts {
  const void *at;
  int64_t width, rows, n, from, all, per, per_rows;
};

static Experts experts_of(const void *at, int64_t ndim, const int64_t *shape, int64_t n,
                          int64_t from, int64_t all, int64_t width, bool parts) {
  int64_t rows = product(shape, ndim), by = parts && shape[0] > 0 ? shape[0] : 1;
  return Experts{at, width, rows, n, from, all, n / by, rows / by};
}

// Keys are local experts; n: none here.
static __global__ void make_expert_keys(uint32_t *keys, uint32_t *places, Experts x, Finder f) {
  for (int64_t i = first_thread(); i < x.rows; i += all_threads()) {
    int64_t expert = index_at(x.at, x.width, i);
    if (expert < -1 || expert >= x.all) find_index(f, expert, i, -1, x.all);
    int64_t low = i / x.per_rows * x.per, local = expert - x.from - low;
    bool here = expert >= 0 && local >= 0 && local < x.per;
    keys[i] = (uint32_t)(here ? low + local : x.n);
    places[i] = (uint32_t)i;
  }
}

// Sorted rows, in scratch.
struct Sorted {
  const uint32_t *keys, *places;
};

static int sort_rows(Experts x, Sorted *out) {
  if (x.rows >= (int64_t)1 << 30)
    return nnrt_error(NNRT_UNSUPPORTED, "grouped_linear: %lld rows are too many",
                      (long long)x.rows);
  SortLists lists;
  if (!sort_lists(x.rows, 0, &lists)) return NNRT_MEMORY;
  int where;
  int code = launch(make_expert_keys, blocks_for(x.rows), BLOCK, 0, lists.keys[0], lists.places[0],
                    x, finder());
  if (!code) code = sort(&lists, (int)x.rows, x.n, &where);
  if (!code) *out = Sorted{lists.keys[where], lists.places[where]};
  return code;
}

// y (rows, n) = each row of x (rows, k) times w (experts, k, n), or (experts, n, k) if `trans`.
// Thread (t / EDGE, t % EDGE) has column t % EDGE of rows t / EDGE, + STEP, + 2 STEP, …
template <class T>
static __global__ void multiply_rows(T *y, const T *w, const T *x, Sorted s, int64_t rows,
                                     int64_t experts, int64_t k, int64_t n, bool trans) {
  __shared__ float xs[EDGE][STEP + 1], ws[STEP][EDGE + 1];
  int t = (int)threadIdx.x, column = t % EDGE, first = t / EDGE;
  int64_t row0 = (int64_t)blockIdx.x * EDGE, column0 = (int64_t)blockIdx.y * EDGE;
  int64_t last = row0 + EDGE < rows ? row0 + EDGE : rows;
  float sum[EDGE / STEP];
  // One product for each run of rows with the same expert.
  for (int64_t from = row0, to; from < last; from = to) {
    uint32_t expert = s.keys[from];
    for (to = from + 1; to < last && s.keys[to] == expert;)
      to++;
    for (int i = 0; i < EDGE / STEP; i++)
      sum[i] = 0;
    const T *matrix = w + (int64_t)expert * k * n;
    for (int64_t l0 = 0; l0 < k && expert < experts; l0 += STEP) {
      int r = t / STEP, l = t % STEP;
      bool in = row0 + r >= from && row0 + r < to && l0 + l < k;
      xs[r][l] = in ? load(x + (int64_t)s.places[row0 + r] * k + l0 + l) : 0;
      int64_t wl = l0 + first, wn = column0 + column;
      ws[first][column] = wl < k && wn < n ? load(matrix + (trans ? wn * k + wl : wl * n + wn)) : 0;
      __syncthreads();
      for (int j = 0; j < STEP; j++)
        for (int i = 0; i < EDGE / STEP; i++)
          sum[i] += xs[first + i * STEP][j] * ws[j][column];
      __syncthreads();
    }
    for (int i = 0; i < EDGE / STEP; i++) {
      int64_t row = row0 + first + i * STEP;
      if (row >= from && row < to && column0 + column < n)
        store(y + (int64_t)s.places[row] * n + column0 + column, sum[i]);
    }
  }
}

// The first sorted row with a key of at least `key`.
static __device__ inline int64_t first_row(const uint32_t *keys, int64_t rows, uint32_t key) {
  int64_t low = 0, high = rows;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (keys[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// c (experts, m, n) = the sum over the rows of each expert of a (rows, m) times b (rows, n).
template <class T>
static __global__ void multiply_back(float *c, const T *a, const T *b, Sorted s, int64_t rows,
                                     int64_t m, int64_t n) {
  __shared__ float as[STEP][EDGE + 1], bs[STEP][EDGE + 1];
  int t = (int)threadIdx.x, column = t % EDGE, first = t / EDGE;
  int64_t m0 = (int64_t)blockIdx.x * EDGE, n0 = (int64_t)blockIdx.y * EDGE;
  uint32_t expert = blockIdx.z;
  int64_t from = first_row(s.keys, rows, expert), to = first_row(s.keys, rows, expert + 1);
  float sum[EDGE / STEP];
  for (int i = 0; i < EDGE / STEP; i++)
    sum[i] = 0;
  for (int64_t r0 = from; r0 < to; r0 += STEP) {
    bool in = r0 + first < to;
    int64_t row = in ? (int64_t)s.places[r0 + first] : 0;
    as[first][column] = in && m0 + column < m ? load(a + row * m + m0 + column) : 0;
    bs[first][column] = in && n0 + column < n ? load(b + row * n + n0 + column) : 0;
    __syncthreads();
    for (int j = 0; j < STEP; j++)
      for (int i = 0; i < EDGE / STEP; i++)
        sum[i] += as[j][first + i * STEP] * bs[j][column];
    __syncthreads();
  }
  for (int i = 0; i < EDGE / STEP; i++) {
    int64_t at = m0 + first + i * STEP;
    if (at < m && n0 + column < n) c[((int64_t)expert * m + at) * n + n0 + column] = sum[i];
  }
}

static unsigned tiles_of(int64_t n) {
  return (unsigned)((n + EDGE - 1) / EDGE);
}

template <class T>
static int grouped_linear(T *y, const T *w, const T *x, Experts at, int64_t k, int64_t n,
                          bool trans) {
  if (at.rows * n == 0) return NNRT_OK;
  Sorted s;
  int code = sort_rows(at, &s);
  if (code) return code;
  return launch(multiply_rows<T>, dim3(tiles_of(at.rows), tiles_of(n)), BLOCK, 0, y, w, x, s,
                at.rows, at.n, k, n, trans);
}

template <class T>
static int grouped_linear_back_w(float *dw, Experts at, const T *x, const T *dy, int64_t k,
                                 int64_t n, bool trans) {
  if (at.n * k * n == 0) return NNRT_OK;
  if (at.rows == 0) return nnrt_zero(dw, at.n * k * n * (int64_t)sizeof *dw);
  Sorted s;
  int code = sort_rows(at, &s);
  if (code) return code;
  const T *a = trans ? dy : x, *b = trans ? x : dy;
  int64_t rows = trans ? n : k, columns = trans ? k : n;
  return launch(multiply_back<T>, dim3(tiles_of(rows), tiles_of(columns), (unsigned)at.n), BLOCK, 0,
                dw, a, b, s, at.rows, rows, columns);
}

#define GROUPED_LINEAR(type, interface, T)                                                         \
  int nnrt_grouped_linear_##type(interface *y, const interface *w, const interface *x,             \
                                 const void *index, int64_t at_ndim, const int64_t *at_shape,      \
                                 const int64_t *w_shape, int64_t from, int64_t all, int64_t width, \
                                 bool trans, bool parts) {                                         \
    Experts at = experts_of(index, at_ndim, at_shape, w_shape[0], from, all, width, parts);        \
    return grouped_linear((T *)y, (const T *)w, (const T *)x, at, w_shape[trans ? 2 : 1],          \
                          w_shape[trans ? 1 : 2], trans);                                          \
  }                                                                                                \
  int nnrt_grouped_linear_back_w_##type(                                                           \
      float *dw, const void *index, const interface *x, const interface *dy, int64_t at_ndim,      \
      const int64_t *at_shape, const int64_t *w_shape, int64_t from, int64_t all, int64_t width,   \
      bool trans, bool parts) {                                                                    \
    Experts at = experts_of(index, at_ndim, at_shape, w_shape[0], from, all, width, parts);        \
    return grouped_linear_back_w(dw, at, (const T *)x, (const T *)dy, w_shape[trans ? 2 : 1],      \
                                 w_shape[trans ? 1 : 2], trans);                                   \
  }
FOR_FLOATS(GROUPED_LINEAR)
