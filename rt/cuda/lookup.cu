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
// The table may be a shard of a larger one: rows `from` to `from + n` of `all`.  Indices are
// global; for a row in another shard gather yields zeros, and gather_back adds nothing.
//
// With a batch each of the outer tables has its own indices, and together they form one table of
// all their rows.

#include "move.cuh"

// -- gather

struct Indices {
  const void *at; // of `width` bytes each
  int64_t width, n, from, all;
  int64_t low; // the smallest index
  int64_t per; // indices per table of n rows; 0: one table for all
};

// With a batch the outer tables become one.
static Indices indices_of(const void *at, int64_t count, int64_t width, int64_t batch, int64_t from,
                          int64_t all, Axis *io_axis) {
  Indices x = {at, width, io_axis->n, from, all, -all, 0};
  if (batch == 0) return x;
  // One table of all rows, in which index i belongs to table i / per.
  x.per = io_axis->outer > 0 ? count / io_axis->outer : 0;
  io_axis->n *= io_axis->outer;
  io_axis->outer = 1;
  return x;
}

// The local row of index number `i`; or NO_ROW if the index is out of range, ELSEWHERE if its row
// is in another shard.
enum { NO_ROW = -1, ELSEWHERE = -2 };
static __device__ inline int64_t row_of_index(Indices x, int64_t i) {
  int64_t index = index_at(x.at, x.width, i);
  if (index < x.low || index >= x.all) return NO_ROW;
  // Negative indices count from the end.
  int64_t row = (index < 0 ? index + x.all : index) - x.from;
  if (row < 0 || row >= x.n) return ELSEWHERE;
  return x.per ? i / x.per * x.n + row : row;
}

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

// -- Sorting keys and places by key: a radix sort with digits of 8 bits, lowest digit first
//
// A block sorts SORT_TILE of them.  It counts its occurrences of each digit.  Counts are in order
// of digits, then of blocks, so that their prefix sum is the position of the block's first element
// with that digit.

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, SORT_ROUNDS = 8, SORT_TILE = BLOCK * SORT_ROUNDS };
static_assert((int)BLOCK == (int)DIGITS, "each thread has a digit");

static __device__ inline int digit_of(uint32_t key, int shift) {
  return (int)(key >> shift) & (DIGITS - 1);
}

static __global__ void count_digits(uint32_t *counts, const uint32_t *keys, int n, int shift) {
  __shared__ uint32_t count[DIGITS];
  count[threadIdx.x] = 0;
  __syncthreads();
  for (int r = 0; r < SORT_ROUNDS; r++) {
    int i = (int)blockIdx.x * SORT_TILE + r * BLOCK + (int)threadIdx.x;
    if (i < n) atomicAdd(&count[digit_of(keys[i], shift)], 1u);
  }
  __syncthreads();
  // By digit, then by block.
  counts[threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

// Replaces n counts by their exclusive prefix sum; one block.
static __global__ void sum_counts(uint32_t *counts, int n) {
  __shared__ uint32_t sums[BLOCK];
  int each = (n + BLOCK - 1) / BLOCK, from = (int)threadIdx.x * each;
  int to = from + each < n ? from + each : n;
  // Each thread sums a run of counts, the block scans these sums, and each thread rewrites its run.
  uint32_t sum = 0;
  for (int i = from; i < to; i++)
    sum += counts[i];
  sums[threadIdx.x] = sum;
  // An inclusive scan: each step adds the sum at twice the distance.
  for (int d = 1; d < BLOCK; d *= 2) {
    __syncthreads();
    uint32_t before = (int)threadIdx.x >= d ? sums[(int)threadIdx.x - d] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
  }
  // The sum before this thread's run.
  sum = sums[threadIdx.x] - sum;
  for (int i = from; i < to; i++) {
    uint32_t count = counts[i];
    counts[i] = sum;
    sum += count;
  }
}

static __global__ void move_by_digit(uint32_t *keys_out, uint32_t *places_out, const uint32_t *keys,
                                     const uint32_t *places, const uint32_t *starts, int n,
                                     int shift) {
  enum { WARPS = BLOCK / WARP };
  __shared__ uint32_t next[DIGITS];           // position of the next element, by digit
  __shared__ uint32_t of_warp[WARPS][DIGITS]; // count per warp and digit; then the position
  int t = (int)threadIdx.x, warp = t / WARP, lane = t % WARP;
  // Thread t keeps the position of digit t.
  next[t] = starts[t * gridDim.x + blockIdx.x];
  for (int r = 0; r < SORT_ROUNDS; r++) {
    int i = (int)blockIdx.x * SORT_TILE + r * BLOCK + t;
    bool here = i < n;
    uint32_t key = here ? keys[i] : 0;
    int digit = digit_of(key, shift);
    for (int w = 0; w < WARPS; w++)
      of_warp[w][t] = 0;
    __syncthreads();
    // Lanes with the same digit
    uint32_t same = __ballot_sync(0xffffffffu, here);
    for (int b = 0; b < DIGIT_BITS; b++) {
      uint32_t ones = __ballot_sync(0xffffffffu, digit >> b & 1);
      same &= digit >> b & 1 ? ones : ~ones;
    }
    // The number of lanes before this one with its digit: the order is stable.
    int before = __popc(same & ((1u << lane) - 1));
    if (here && before == 0) of_warp[warp][digit] = (uint32_t)__popc(same);
    __syncthreads();
    // Warps take their positions in order.
    uint32_t at = next[t];
    for (int w = 0; w < WARPS; w++) {
      uint32_t count = of_warp[w][t];
      of_warp[w][t] = at;
      at += count;
    }
    next[t] = at;
    __syncthreads();
    if (here) {
      uint32_t to = of_warp[warp][digit] + (uint32_t)before;
      keys_out[to] = key;
      places_out[to] = places[i];
    }
    __syncthreads();
  }
}

// -- gather_back

// The key of an index that is out of range, or in another shard, is n: it sorts last, and belongs
// to no row of dx.
static __global__ void make_keys(uint32_t *keys, uint32_t *places, Indices at, int64_t rows,
                                 int count, Finder f) {
  for (int64_t i = first_thread(); i < count; i += all_threads()) {
    int64_t row = row_of_index(at, i);
    if (row == NO_ROW) find_index(f, index_at(at.at, at.width, i), i, at.low, at.all);
    keys[i] = (uint32_t)(row < 0 ? rows : row);
    places[i] = (uint32_t)i;
  }
}

enum { PLACES = 64, AHEAD = 8 };

// Arguments of the sums over pieces.  A column is an element of a row of one of the `outer` tables.
struct Sums {
  float *dx;    // (outer, n, inner)
  float *share; // (pieces, 2, columns): of the sum from the piece before, of the sum into the next
  const uint32_t *keys, *places;
  int count;
  int64_t n, inner, columns;
};

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
          out[(int64_t)keys[i] * s.inner] = sum;
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
    s.dx[(outer * s.n + key) * s.inner + c - outer * s.inner] = sum;
  }
}

// Sorts.  Returns 0 or 1: the result is in keys[0] and places[0], or in keys[1] and places[1].
static int sort(uint32_t *const *keys, uint32_t *const *places, uint32_t *counts, int count,
                int64_t n, int *out_where) {
  // A digit per round, as far as the largest key has bits.
  int blocks = (count + SORT_TILE - 1) / SORT_TILE, now = 0;
  for (int shift = 0; shift < 32 && n >> shift > 0; shift += DIGIT_BITS, now = !now) {
    int code = launch(count_digits, blocks, BLOCK, 0, counts, keys[now], count, shift);
    if (!code) code = launch(sum_counts, 1, BLOCK, 0, counts, blocks * DIGITS);
    if (!code)
      code = launch(move_by_digit, blocks, BLOCK, 0, keys[!now], places[!now], keys[now],
                    places[now], counts, count, shift);
    if (code) return code;
  }
  *out_where = now;
  return NNRT_OK;
}

template <class T>
static int gather_back(float *dx, const void *at, const T *dy, int64_t at_ndim,
                       const int64_t *at_shape, int64_t width, int64_t x_ndim,
                       const int64_t *x_shape, int64_t axis, int64_t batch, int64_t from,
                       int64_t all) {
  Axis a = axis_of(x_ndim, x_shape, axis);
  int64_t count = product(at_shape, at_ndim);
  Indices indices = indices_of(at, count, width, batch, from, all, &a);
  int64_t columns = a.outer * a.inner;
  // Keys and places have 32 bits.
  if (count >= (int64_t)1 << 30 || a.n >= (int64_t)1 << 31)
    return nnrt_error(NNRT_UNSUPPORTED, "gather_back: %lld indices into %lld rows are too many",
                      (long long)count, (long long)a.n);
  if (a.n * columns == 0) return NNRT_OK;
  int code = nnrt_zero(dx, a.n * columns * (int64_t)sizeof *dx);
  if (code || count == 0) return code;
  // Scratch: keys and places, twice each; counts; shares.
  int64_t pieces = (count + PLACES - 1) / PLACES;
  int64_t list = round_256(count * (int64_t)sizeof(uint32_t));
  int64_t blocks = (count + SORT_TILE - 1) / SORT_TILE;
  int64_t counts = round_256(blocks * DIGITS * (int64_t)sizeof(uint32_t));
  int64_t shares = pieces * 2 * columns * (int64_t)sizeof(float);
  char *scratch = (char *)nnrt_gpu_scratch(4 * list + counts + shares);
  if (!scratch) return NNRT_MEMORY;
  uint32_t *keys[] = {(uint32_t *)scratch, (uint32_t *)(scratch + list)};
  uint32_t *places[] = {(uint32_t *)(scratch + 2 * list), (uint32_t *)(scratch + 3 * list)};
  int where;
  // Indices sorted by row make the order of each sum fixed.
  code = launch(make_keys, blocks_for(count), BLOCK, 0, keys[0], places[0], indices, a.n,
                (int)count, finder());
  if (!code) code = sort(keys, places, (uint32_t *)(scratch + 4 * list), (int)count, a.n, &where);
  if (code) return code;
  Sums s = {dx,          (float *)(scratch + 4 * list + counts),
            keys[where], places[where],
            (int)count,  a.n,
            a.inner,     columns};
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
                       batch, from, all);                                                          \
  }
FOR_FLOATS(GATHER_BACK)
