// The kernels that copy elements without computing.  There is one per element size.
//
// Most of them copy a box between two tensors, each with a stride per dimension:
//
//     transpose    x (2, 3) -> y (3, 2)    shape 3 2     x strides 1 3     y strides 2 1
//     broadcast    x (3)    -> y (2, 3)    shape 2 3     x strides 0 1     y strides 3 1
//     slice        every 2nd of x (8)      shape 4       x strides 2       y strides 1
//
// copy_box minimises the number of dimensions: it drops dimensions of 1, merges adjacent dimensions
// that are contiguous in both tensors, and copies elements that are contiguous in both 16 bytes at
// a time. The result is one of
//
//     a plain copy
//     tiles        contiguous elements of x are far apart in y and vice versa: through shared
//                  memory, so that both reads and writes are coalesced
//     packs        contiguous elements of y are anywhere in x: a thread collects 16 bytes
//     the rest     a thread per element

#include "../boxes.h"
#include "box.cuh"

static void strides_of(int64_t ndim, const int64_t *shape, int64_t *stride) {
  int64_t n = 1;
  for (int64_t d = ndim - 1; d >= 0; d--) {
    stride[d] = n;
    n *= shape[d];
  }
}

// Makes elements as wide as shape, strides and addresses permit; returns their size.
static int64_t widen(CopyBox *c, int64_t width, const void *y, const void *x) {
  int last = c->ndim - 1;
  if (c->x_stride[last] != 1 || c->y_stride[last] != 1) return width;
  uint64_t bytes = address(y) | address(x) | (uint64_t)(c->shape[last] * width);
  for (int d = 0; d < last; d++)
    bytes |= (uint64_t)(c->x_stride[d] * width) | (uint64_t)(c->y_stride[d] * width);
  int64_t wide = width_of(bytes);
  // All strides and the last length count wider elements.
  for (int d = 0; d < last; d++) {
    c->x_stride[d] = c->x_stride[d] * width / wide;
    c->y_stride[d] = c->y_stride[d] * width / wide;
  }
  c->shape[last] = c->shape[last] * width / wide;
  return wide;
}

// -- Boxes on the GPU

template <class T, class I> static __global__ void copy_each(T *y, const T *x, BoxOf<I> b, I n) {
  for (I i = (I)first_thread(); i < n; i += (I)all_threads()) {
    int64_t x_at, y_at;
    find_element(b, i, &x_at, &y_at);
    y[y_at] = x[x_at];
  }
}

// The last dimension of the box, divided into packs of 16 bytes; the elements of a pack are `step`
// elements apart in x.
template <class T> struct Packed {
  enum { MANY = 16 / sizeof(T) };
};
template <class T, class I>
static __global__ void copy_packs(T *y, const T *x, BoxOf<I> b, I step, I n) {
  constexpr int MANY = Packed<T>::MANY;
  for (I i = (I)first_thread(); i < n; i += (I)all_threads()) {
    int64_t x_at, y_at;
    find_element(b, i, &x_at, &y_at);
    // Reads may be scattered, the write is one.
    Pack<T, MANY> pack;
#pragma unroll
    for (int k = 0; k < MANY; k++)
      pack.at[k] = x[x_at + k * (int64_t)step];
    *(Pack<T, MANY> *)(y + y_at) = pack;
  }
}

// Whether y can be written 16 bytes at a time.
static bool find_packs(const CopyBox &c, int64_t width, const void *y) {
  int last = c.ndim - 1;
  uint64_t bytes = address(y) | (uint64_t)(c.shape[last] * width);
  for (int d = 0; d < last; d++)
    bytes |= (uint64_t)(c.y_stride[d] * width);
  return width < 16 && c.y_stride[last] == 1 && width_of(bytes) == 16;
}

// -- Tiles: (p, q), contiguous along p in x and along q in y, for every element of `outer`

enum { TILE_X = 32, TILE_Y = 8 };

// A row of a tile is 64 bytes of small elements, or 32 elements.
template <class T> struct Tile {
  enum { SIDE = sizeof(T) <= 2 ? 64 : 32 };
};

struct Tiles {
  int64_t p, q;                // lengths
  int64_t x_of_q, y_of_p;      // strides; x along p and y along q have 1
  int64_t p_tiles, q_tiles, n; // n: the tiles of all elements of `outer`
};

template <class T>
static __global__ void copy_tiles(T *y, const T *x, BoxOf<int64_t> outer, Tiles t) {
  constexpr int SIDE = Tile<T>::SIDE;
  __shared__ T tile[SIDE][SIDE + 1]; // padded: avoids bank conflicts on columns
  for (int64_t k = blockIdx.x; k < t.n; k += gridDim.x) {
    int64_t p0 = k % t.p_tiles * SIDE, q0 = k / t.p_tiles % t.q_tiles * SIDE, x_at, y_at;
    find_element(outer, k / t.p_tiles / t.q_tiles, &x_at, &y_at);
    // Adjacent threads read along p.
    for (int j = (int)threadIdx.y; j < SIDE; j += TILE_Y)
      for (int i = (int)threadIdx.x; i < SIDE; i += TILE_X)
        if (p0 + i < t.p && q0 + j < t.q) tile[j][i] = x[x_at + p0 + i + (q0 + j) * t.x_of_q];
    __syncthreads();
    for (int j = (int)threadIdx.y; j < SIDE; j += TILE_Y)
      for (int i = (int)threadIdx.x; i < SIDE; i += TILE_X)
        if (p0 + j < t.p && q0 + i < t.q) y[y_at + (p0 + j) * t.y_of_p + q0 + i] = tile[i][j];
    __syncthreads();
  }
}

static void remove_dimension(CopyBox *c, int d) {
  for (c->ndim--; d < c->ndim; d++) {
    c->shape[d] = c->shape[d + 1];
    c->x_stride[d] = c->x_stride[d + 1];
    c->y_stride[d] = c->y_stride[d + 1];
  }
}

// Removes the two dimensions of tiles from the box; false if it has none.
static bool find_tiles(CopyBox *c, Tiles *t) {
  enum { SHORT = 8 }; // below this most of a tile would be empty
  int last = c->ndim - 1, p = 0;
  while (p < last && c->x_stride[p] != 1)
    p++;
  if (p >= last || c->x_stride[last] == 1 || c->y_stride[last] != 1 || c->shape[p] < SHORT ||
      c->shape[last] < SHORT)
    return false;
  // The other dimensions of the box are `outer`.
  t->p = c->shape[p];
  t->y_of_p = c->y_stride[p];
  t->q = c->shape[last];
  t->x_of_q = c->x_stride[last];
  remove_dimension(c, last);
  remove_dimension(c, p);
  return true;
}

template <class T> static int launch_tiles(void *y, const void *x, const CopyBox &outer, Tiles t) {
  constexpr int SIDE = Tile<T>::SIDE;
  t.p_tiles = (t.p + SIDE - 1) / SIDE;
  t.q_tiles = (t.q + SIDE - 1) / SIDE;
  t.n = t.p_tiles * t.q_tiles * product(outer.shape, outer.ndim);
  int64_t most = (int64_t)1 << 30;
  return launch(copy_tiles<T>, dim3((unsigned)(t.n < most ? t.n : most)), dim3(TILE_X, TILE_Y), 0,
                (T *)y, (const T *)x, box_of<int64_t>(outer), t);
}

static int copy_box(void *y, const void *x, int64_t width, CopyBox c) {
  if (product(c.shape, c.ndim) == 0) return NNRT_OK;
  simplify(&c);
  if (c.ndim == 0) return nnrt_copy(y, x, width);
  if (c.ndim == 1 && c.x_stride[0] == 1 && c.y_stride[0] == 1)
    return nnrt_copy(y, x, c.shape[0] * width);
  Tiles t;
  if (find_tiles(&c, &t))
    return with_size(width,
                     [&](auto element) { return launch_tiles<decltype(element)>(y, x, c, t); });
  // From the fastest kind of copy to the most general.
  width = widen(&c, width, y, x);
  bool packs = find_packs(c, width, y);
  // A pack is one element of a box with `many` times the strides.
  int last = c.ndim - 1;
  int64_t step = c.x_stride[last], many = packs ? 16 / width : 1;
  c.shape[last] /= many;
  c.x_stride[last] *= many;
  c.y_stride[last] *= many;
  int64_t n = product(c.shape, c.ndim), far = n;
  for (int d = 0; d < c.ndim; d++) { // a stride must fit into an index, too
    far = far > c.x_stride[d] ? far : c.x_stride[d];
    far = far > -c.x_stride[d] ? far : -c.x_stride[d];
    far = far > c.y_stride[d] ? far : c.y_stride[d];
    far = far > -c.y_stride[d] ? far : -c.y_stride[d];
  }
  if (packs)
    return with_size(width, [&](auto element) {
      using T = decltype(element);
      return with_index(far, [&](auto index) {
        using I = decltype(index);
        return launch(copy_packs<T, I>, blocks_for(n), BLOCK, 0, (T *)y, (const T *)x, box_of<I>(c),
                      (I)step, (I)n);
      });
    });
  return with_width(width, [&](auto element) {
    using T = decltype(element);
    return with_index(far, [&](auto index) {
      using I = decltype(index);
      return launch(copy_each<T, I>, blocks_for(n), BLOCK, 0, (T *)y, (const T *)x, box_of<I>(c),
                    (I)n);
    });
  });
}

// -- Ops as boxes

int nnrt_box_copy(void *to, const void *from, int64_t width, const Box *b) {
  CopyBox c;
  c.ndim = b->ndim;
  int64_t to_at = nnrt_box_strides(b, b->to_dim, b->to_at, c.y_stride);
  int64_t from_at = nnrt_box_strides(b, b->from_dim, b->from_at, c.x_stride);
  for (int d = 0; d < c.ndim; d++)
    c.shape[d] = b->size[d];
  return copy_box((char *)to + to_at * width, (const char *)from + from_at * width, width, c);
}

static int transpose(void *y, const void *x, int64_t width, int64_t ndim, const int64_t *shape,
                     const int64_t *perm) {
  CopyBox c;
  c.ndim = (int)ndim;
  int64_t x_stride[NNRT_MAX_NDIM];
  strides_of(ndim, shape, x_stride);
  for (int64_t i = 0; i < ndim; i++) {
    // The box has the order of y.
    c.shape[i] = shape[perm[i]];
    c.x_stride[i] = x_stride[perm[i]];
  }
  strides_of(ndim, c.shape, c.y_stride);
  return copy_box(y, x, width, c);
}

// The axes of x are the last of y; those of length 1 have stride 0.
static int broadcast(void *y, const void *x, int64_t width, int64_t y_ndim, const int64_t *y_shape,
                     int64_t x_ndim, const int64_t *x_shape) {
  CopyBox c;
  c.ndim = (int)y_ndim;
  int64_t x_stride[NNRT_MAX_NDIM], missing = y_ndim - x_ndim;
  strides_of(x_ndim, x_shape, x_stride);
  strides_of(y_ndim, y_shape, c.y_stride);
  for (int64_t i = 0; i < y_ndim; i++) {
    // Stride 0 repeats an element.
    c.shape[i] = y_shape[i];
    c.x_stride[i] = i < missing || x_shape[i - missing] == 1 ? 0 : x_stride[i - missing];
  }
  return copy_box(y, x, width, c);
}

// Computes the strides and the offset of the box within `whole` that begins at `starts` with
// `steps`.
static int64_t steps_of(int64_t ndim, const int64_t *whole, const int64_t *starts,
                        const int64_t *steps, int64_t *stride) {
  int64_t at = 0;
  strides_of(ndim, whole, stride);
  for (int64_t i = 0; i < ndim; i++) {
    at += starts[i] * stride[i];
    stride[i] *= steps[i];
  }
  return at;
}

static int slice(void *y, const void *x, int64_t width, int64_t ndim, const int64_t *x_shape,
                 const int64_t *starts, const int64_t *steps, const int64_t *y_shape) {
  CopyBox c;
  c.ndim = (int)ndim;
  int64_t at = steps_of(ndim, x_shape, starts, steps, c.x_stride);
  strides_of(ndim, y_shape, c.y_stride);
  for (int64_t i = 0; i < ndim; i++)
    c.shape[i] = y_shape[i];
  return copy_box(y, (const char *)x + at * width, width, c);
}

static int slice_back(void *dx, const void *dy, int64_t width, int64_t ndim,
                      const int64_t *dy_shape, const int64_t *starts, const int64_t *steps,
                      const int64_t *dx_shape) {
  CopyBox c;
  c.ndim = (int)ndim;
  int64_t at = steps_of(ndim, dx_shape, starts, steps, c.y_stride);
  strides_of(ndim, dy_shape, c.x_stride);
  for (int64_t i = 0; i < ndim; i++)
    c.shape[i] = dy_shape[i];
  // All other elements of dx are 0.
  int64_t bytes = product(dx_shape, ndim) * width;
  int code = bytes > 0 ? nnrt_zero(dx, bytes) : NNRT_OK;
  return code ? code : copy_box((char *)dx + at * width, dy, width, c);
}

// -- concat: y is (outer, row), and operand i some of its columns.  Many operands are one launch.

enum { CONCAT_MOST = 128 };

template <class I> struct ConcatTable {
  const void *from[CONCAT_MOST];
  I end[CONCAT_MOST]; // operand i's end in this launch's columns; it begins at the end of the one
                      // before
  int n;
};

// The first i with value < end[i].
template <class I> static __device__ inline int find_end(const I *end, int n, I value) {
  int low = 0, high = n - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (value < end[middle])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

template <class T, class I>
static __global__ void concat_columns(T *y, ConcatTable<I> t, Divider<I> columns, I n,
                                      int64_t row) {
  for (I i = (I)first_thread(); i < n; i += (I)all_threads()) {
    I column, r = columns.divide(i, &column);
    int k = find_end(t.end, t.n, column);
    I start = k > 0 ? t.end[k - 1] : 0;
    y[(int64_t)r * row + column] =
        ((const T *)t.from[k])[(int64_t)r * (t.end[k] - start) + (column - start)];
  }
}

static int concat(void *y, const void *const *in, int64_t width, int64_t n, int64_t ndim,
                  const int64_t *y_shape, const int64_t *sizes, int64_t axis) {
  Axis a = axis_of(ndim, y_shape, axis);
  if (a.outer * a.n * a.inner == 0) return NNRT_OK;
  uint64_t bytes = address(y);
  for (int64_t i = 0; i < n; i++)
    if (sizes[i] > 0) bytes |= address(in[i]) | (uint64_t)(sizes[i] * a.inner * width);
  // The widest element that divides all rows.
  int64_t wide = width_of(bytes), row = a.n * a.inner * width / wide;
  char *to = (char *)y;
  for (int64_t i = 0; i < n;) {
    // A launch per CONCAT_MOST operands.
    int64_t first = i, columns = 0;
    for (; i < n && i < first + CONCAT_MOST; i++)
      columns += sizes[i] * a.inner * width / wide;
    if (columns == 0) continue;
    int64_t all = a.outer * columns;
    int code = with_width(wide, [&](auto element) {
      using T = decltype(element);
      return with_index(all, [&](auto index) {
        using I = decltype(index);
        ConcatTable<I> t;
        t.n = (int)(i - first);
        int64_t end = 0;
        for (int k = 0; k < t.n; k++) {
          end += sizes[first + k] * a.inner * width / wide;
          t.from[k] = in[first + k];
          t.end[k] = (I)end;
        }
        return launch(concat_columns<T, I>, blocks_for(all), BLOCK, 0, (T *)to, t,
                      Divider<I>(columns), (I)all, row);
      });
    });
    if (code) return code;
    to += columns * wide;
  }
  return NNRT_OK;
}

// -- trilu: keeps columns from i + k on of row i (upper), or up to i + k

template <class T, class I>
static __global__ void keep_triangle(T *y, const T *x, Divider<I> columns, Divider<I> rows, I n,
                                     bool upper, int64_t k) {
  for (I i = (I)first_thread(); i < n; i += (I)all_threads()) {
    I column, row;
    rows.divide(columns.divide(i, &column), &row);
    bool keep = upper ? column >= row + k : column <= row + k;
    y[i] = keep ? x[i] : T();
  }
}

static int trilu(void *y, const void *x, int64_t width, int64_t ndim, const int64_t *shape,
                 bool upper, int64_t k) {
  int64_t n = product(shape, ndim), rows = shape[ndim - 2], columns = shape[ndim - 1];
  if (n == 0) return NNRT_OK;
  // Zero is the same bytes in every type of a size.
  return with_size(width, [&](auto element) {
    using T = decltype(element);
    return with_index(n, [&](auto index) {
      using I = decltype(index);
      return launch(keep_triangle<T, I>, blocks_for(n), BLOCK, 0, (T *)y, (const T *)x,
                    Divider<I>(columns), Divider<I>(rows), (I)n, upper, k);
    });
  });
}

#define SHAPE(size, T)                                                                             \
  int nnrt_transpose_##size(void *y, const void *x, int64_t ndim, const int64_t *shape,            \
                            const int64_t *perm) {                                                 \
    return transpose(y, x, sizeof(T), ndim, shape, perm);                                          \
  }                                                                                                \
  int nnrt_broadcast_##size(void *y, const void *x, int64_t y_ndim, const int64_t *y_shape,        \
                            int64_t x_ndim, const int64_t *x_shape) {                              \
    return broadcast(y, x, sizeof(T), y_ndim, y_shape, x_ndim, x_shape);                           \
  }                                                                                                \
  int nnrt_slice_##size(void *y, const void *x, int64_t ndim, const int64_t *x_shape,              \
                        const int64_t *starts, const int64_t *steps, const int64_t *y_shape) {     \
    return slice(y, x, sizeof(T), ndim, x_shape, starts, steps, y_shape);                          \
  }                                                                                                \
  int nnrt_slice_back_##size(void *dx, const void *dy, int64_t ndim, const int64_t *dy_shape,      \
                             const int64_t *starts, const int64_t *steps,                          \
                             const int64_t *dx_shape) {                                            \
    return slice_back(dx, dy, sizeof(T), ndim, dy_shape, starts, steps, dx_shape);                 \
  }                                                                                                \
  int nnrt_concat_##size(void *y, const void *const *in, int64_t n, int64_t ndim,                  \
                         const int64_t *y_shape, const int64_t *sizes, int64_t axis) {             \
    return concat(y, in, sizeof(T), n, ndim, y_shape, sizes, axis);                                \
  }                                                                                                \
  int nnrt_bit_cast_##size(void *y, const void *x, int64_t n) {                                    \
    return nnrt_copy(y, x, n * (int64_t)sizeof(T));                                                \
  }                                                                                                \
  int nnrt_trilu_##size(void *y, const void *x, int64_t ndim, const int64_t *shape, bool upper,    \
                        int64_t k) {                                                               \
    return trilu(y, x, sizeof(T), ndim, shape, upper, k);                                          \
  }
FOR_SIZES(SHAPE)
