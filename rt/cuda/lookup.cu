// Gathers rows of a table by index, and scatter-adds their gradients.
//
// gather_back must add, for each row of dx, the rows of dy that were gathered from it, in a fixed
// order and without atomics.  So the indices are sorted, each with its position in dy:
//
//     indices    2 0 2 1 2 0          dy of 6 rows
//     sorted     0 0 1 2 2 2
//     places     1 5 3 0 2 4          stable: equal indices keep their order
//     dx         row 0 = dy 1 + dy 5; row 1 = dy 3; row 2 = dy 0 + dy 2 + dy 4
//
// The frequency of rows is very uneven: most words of a vocabulary never occur, "the" in every
// sentence, each position of a text once per text.  So the sorted list is divided into pieces of
// PLACES places, which are added in parallel.  Sums that begin and end within a piece are complete;
// for the others each piece stores a partial sum, and these are added in the order of the pieces.
//
// Scratch, for `count` indices and rows of `inner` elements in `outer` tables: 16 bytes per index
// for sorting, half a byte per index for counting digits, and 2 / PLACES * outer * inner * 4 bytes
// per index for the partial sums, which is 1/32 of dy in f32.
//
// For a row in another shard gather yields zeros, and gather_back adds nothing.

#include "indices.cuh"

// -- gather

// Each outer table has `rows`.
template <class T, class I>
static __global__ void gather_rows(T *y, const T *x, Indices at, int64_t rows, Divider<I> inner,
                                   Divider<I> count, I all, int64_t row, Finder f) {
  for (I i = (I)first_thread(); i < all; i += (I)all_threads()) {
    I column, number;
    I outer = count.divide(inner.divide(i, &column), &number);
    int64_t from = row_of_index(at, number);
    // One thread reports an index that is out of range.
    if (from >= 0)
      y[i] = x[(outer * rows + from) * row + column];
    else if (from == ELSEWHERE)
      y[i] = T();
    else if (column == 0)
      find_index(f, index_at(at.at, at.width, number), number, at.low, at.all);
  }
}

static int gather(void *y, const void *x, const void *at, int64_t size, int64_t x_ndim,
                  const int64_t *x_shape, int64_t at_ndim, const int64_t *at_shape, int64_t width,
                  const NnrtGather *attrs, int64_t from, int64_t whole) {
  Axis a = axis_of(x_ndim, x_shape, attrs->axis);
  int64_t count = product(at_shape, at_ndim);
  Indices indices = indices_of(at, count, width, attrs->batch, from, whole, &a);
  if (attrs->embedding) indices.low = 0;
  int64_t all = a.outer * count * a.inner;
  if (all == 0) return NNRT_OK;
  // Rows are copied in the widest elements that their size and addresses permit.
  int64_t wide = width_of(address(y) | address(x) | (uint64_t)(a.inner * size));
  int64_t row = a.inner * size / wide;
  all = a.outer * count * row;
  return with_width(wide, [&](auto element) {
    using T = decltype(element);
    return with_index(all, [&](auto index) {
      using I = decltype(index);
      return launch(gather_rows<T, I>, blocks_for(all), BLOCK, 0, (T *)y, (const T *)x, indices,
                    a.n, Divider<I>(row), Divider<I>(count), (I)all, row, finder());
    });
  });
}

#define GATHER(size, T)                                                                            \
  int nnrt_gather_##size(void *y, const void *x, const void *at, int64_t x_ndim,                   \
                         const int64_t *x_shape, int64_t at_ndim, const int64_t *at_shape,         \
                         int64_t width, const NnrtGather *attrs, int64_t from, int64_t all) {      \
    return gather(y, x, at, sizeof(T), x_ndim, x_shape, at_ndim, at_shape, width, attrs, from,     \
                  all);                                                                            \
  }
FOR_SIZES(GATHER)

// -- gather_back

enum { PLACES = 64, AHEAD = 8 };

// Arguments of the sums over pieces.  A column is an element of a row of one of the `outer` tables.
struct Sums {
  float *dx;    // (outer, n, inner)
  float *share; // (pieces, 2, columns): of the sum from the piece before, of the sum into the next
  const uint32_t *keys, *places;
  int count;
  int64_t n, inner, columns;
  bool adds; // to the sums in dx
};

// Stores the sum of a row, whose only one it is.
static __device__ void put_sum(const Sums &s, float *to, float sum) {
  *to = s.adds ? *to + sum : sum;
}

// Each block: one piece, some columns.
template <class T> static __global__ void sum_pieces(Sums s, const T *dy) {
  __shared__ uint32_t keys[PLACES], places[PLACES];
  int from = (int)blockIdx.x * PLACES, size = s.count - from < PLACES ? s.count - from : PLACES;
  for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x) {
    keys[i] = s.keys[from + i];
    places[i] = s.places[from + i];
  }
  __syncthreads();
  // A sum may span pieces: its ends go to `share`, and sum_shares adds them.
  bool began_before = from > 0 && s.keys[from - 1] == keys[0];
  bool goes_on = from + size < s.count && s.keys[from + size] == keys[size - 1];
  for (int64_t c = blockIdx.y * (int64_t)blockDim.x + threadIdx.x; c < s.columns;
       c += gridDim.y * (int64_t)blockDim.x) {
    int64_t outer = c / s.inner, column = c - outer * s.inner;
    const T *in = dy + outer * s.count * s.inner + column;
    float *out = s.dx + outer * s.n * s.inner + column;
    float *share = s.share + blockIdx.x * 2 * s.columns + c, sum = 0;
    bool first = true;
    for (int i0 = 0; i0 < size; i0 += AHEAD) {
      // Loads in flight together; a store between them would serialise them.
      float x[AHEAD];
#pragma unroll
      for (int j = 0; j < AHEAD; j++)
        x[j] = i0 + j < size ? load(in + (int64_t)places[i0 + j] * s.inner) : 0;
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        int i = i0 + j;
        if (i >= size) break;
        sum += x[j];
        bool last = i == size - 1;
        if (!last && keys[i + 1] == keys[i]) continue;
        // The key changes here, so the sum of a row is complete.
        if (first && began_before)
          share[0] = sum;
        else if (last && goes_on)
          share[s.columns] = sum;
        else if (keys[i] < s.n)
          put_sum(s, out + (int64_t)keys[i] * s.inner, sum);
        sum = 0;
        first = false;
      }
    }
  }
}

// Completes the sums that begin in a piece and continue in the next.
static __global__ void sum_shares(Sums s) {
  int from = (int)blockIdx.x * PLACES, next = from + PLACES;
  if (next >= s.count) return;
  uint32_t key = s.keys[next - 1];
  bool goes_on = s.keys[next] == key;
  // A piece within one sum that began earlier has only a partial sum of it.
  bool begins = from == 0 || s.keys[from - 1] != key;
  if (!goes_on || !begins || key >= s.n) return;
  // Binary search for the pieces with a partial sum: the first piece after them begins with another
  // key.
  int low = (int)blockIdx.x + 1, high = (s.count - 1) / PLACES + 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (s.keys[middle * PLACES] == key)
      low = middle + 1;
    else
      high = middle;
  }
  // The end of this piece, then the others, in order.
  for (int64_t c = blockIdx.y * (int64_t)blockDim.x + threadIdx.x; c < s.columns;
       c += gridDim.y * (int64_t)blockDim.x) {
    float sum = s.share[((int64_t)blockIdx.x * 2 + 1) * s.columns + c];
    for (int p = (int)blockIdx.x + 1; p < low; p++)
      sum += s.share[(int64_t)p * 2 * s.columns + c];
    int64_t outer = c / s.inner;
    put_sum(s, s.dx + (outer * s.n + key) * s.inner + c - outer * s.inner, sum);
  }
}

template <class T>
static int gather_back(float *dx, const void *at, const T *dy, int64_t at_ndim,
                       const int64_t *at_shape, int64_t width, int64_t x_ndim,
                       const int64_t *x_shape, int64_t axis, int64_t batch, int64_t from,
                       int64_t all, bool adds) {
  Axis a = axis_of(x_ndim, x_shape, axis);
  int64_t count = product(at_shape, at_ndim);
  Indices indices = indices_of(at, count, width, batch, from, all, &a);
  int64_t columns = a.outer * a.inner;
  // Keys and places have 32 bits.
  if (count >= (int64_t)1 << 30 || a.n >= (int64_t)1 << 31)
    return nnrt_error(NNRT_UNSUPPORTED, "gather_back: %lld indices into %lld rows are too many",
                      (long long)count, (long long)a.n);
  if (a.n * columns == 0) return NNRT_OK;
  int code = adds ? NNRT_OK : nnrt_zero(dx, a.n * columns * (int64_t)sizeof *dx);
  if (code || count == 0) return code;
  int64_t pieces = (count + PLACES - 1) / PLACES;
  int64_t shares = pieces * 2 * columns * (int64_t)sizeof(float);
  SortLists lists;
  if (!sort_lists(count, shares, &lists)) return NNRT_MEMORY;
  int where;
  // Indices sorted by row make the order of each sum fixed.
  code = launch(make_keys, blocks_for(count), BLOCK, 0, lists.keys[0], lists.places[0], indices,
                a.n, (int)count, finder());
  if (!code) code = sort(&lists, (int)count, a.n, &where);
  if (code) return code;
  Sums s = {dx,
            (float *)lists.more,
            lists.keys[where],
            lists.places[where],
            (int)count,
            a.n,
            a.inner,
            columns,
            adds};
  // Whole warps, as few as the columns need.
  int threads = (int)(columns < BLOCK ? (columns + WARP - 1) / WARP * WARP : BLOCK);
  int64_t across = (columns + threads - 1) / threads;
  dim3 grid((unsigned)pieces, (unsigned)(across < 65535 ? across : 65535));
  code = launch(sum_pieces<T>, grid, dim3((unsigned)threads), 0, s, dy);
  return code || pieces == 1 ? code : launch(sum_shares, grid, dim3((unsigned)threads), 0, s);
}

#define GATHER_BACK(type, interface, T)                                                            \
  int nnrt_gather_back_##type(float *dx, const void *at, const interface *dy, int64_t at_ndim,     \
                              const int64_t *at_shape, int64_t width, int64_t x_ndim,              \
                              const int64_t *x_shape, int64_t axis, int64_t batch, int64_t from,   \
                              int64_t all) {                                                       \
    return gather_back(dx, at, (const T *)dy, at_ndim, at_shape, width, x_ndim, x_shape, axis,     \
                       batch, from, all, false);                                                   \
  }                                                                                                \
  int nnrt_gather_back_accumulate_##type(                                                          \
      float *dx, const void *at, const interface *dy, int64_t at_ndim, const int64_t *at_shape,    \
      int64_t width, int64_t x_ndim, const int64_t *x_shape, int64_t from, int64_t all) {          \
    return gather_back(dx, at, (const T *)dy, at_ndim, at_shape, width, x_ndim, x_shape, 0, 0,     \
                       from, all, true);                                                           \
  }
FOR_FLOATS(GATHER_BACK)
