// Rows of u put into the places of a table that indices name, or combined with the rows there.
//
// The table is copied first, unless the result is in its place.  Rows with the same place must be
// combined in their order, without atomics.  So the indices are sorted, each with its position in
// u, and a thread goes through the rows of one place, for one column.
//
// Scratch: 16 bytes per index for sorting, and half a byte for counting digits.

#include "indices.cuh"

template <class T> struct SetOf {
  static __device__ T of(T, T u) { return u; }
};
template <class T> struct AddOf {
  static __device__ T of(T y, T u) { return y + u; }
};
template <class T> struct MulOf {
  static __device__ T of(T y, T u) { return y * u; }
};
template <class T> struct MinOf {
  static __device__ T of(T y, T u) { return y < u || y != y ? y : u; } // a NaN stays
};
template <class T> struct MaxOf {
  static __device__ T of(T y, T u) { return y > u || y != y ? y : u; }
};

// y (outer, n, inner), u (outer, count, inner); a column is an element of a row of one of the outer
// tables.
template <class Op, class T>
static __global__ void combine_rows(T *y, const T *u, const uint32_t *keys, const uint32_t *places,
                                    int64_t count, int64_t n, int64_t inner, int64_t columns) {
  for (int64_t i = first_thread(); i < count * columns; i += all_threads()) {
    int64_t first = i / columns, c = i % columns, outer = c / inner, column = c % inner;
    uint32_t key = keys[first];
    // The first index of its place; an index without a place here has key n.
    if (key >= n || (first > 0 && keys[first - 1] == key)) continue;
    T *to = y + (outer * n + key) * inner + column, value = *to;
    for (int64_t k = first; k < count && keys[k] == key; k++)
      value = Op::of(value, u[(outer * count + places[k]) * inner + column]);
    *to = value;
  }
}

template <class Op, class T>
static int scatter(T *y, const T *x, const void *at, const T *u, int64_t x_ndim,
                   const int64_t *x_shape, int64_t at_ndim, const int64_t *at_shape, int64_t width,
                   const NnrtScatter *attrs, int64_t from, int64_t all) {
  Axis a = axis_of(x_ndim, x_shape, attrs->axis);
  int64_t count = product(at_shape, at_ndim);
  Indices indices = indices_of(at, count, width, attrs->batch, from, all, &a);
  int64_t columns = a.outer * a.inner;
  // Keys and places have 32 bits.
  if (count >= (int64_t)1 << 30 || a.n >= (int64_t)1 << 31)
    return nnrt_error(NNRT_UNSUPPORTED, "scatter: %lld indices into %lld rows are too many",
                      (long long)count, (long long)a.n);
  if (a.n * columns == 0) return NNRT_OK;
  int code = y == x ? NNRT_OK : nnrt_copy(y, x, a.n * columns * (int64_t)sizeof *y);
  if (code || count == 0) return code;
  SortLists lists;
  if (!sort_lists(count, 0, &lists)) return NNRT_MEMORY;
  int where;
  code = launch(make_keys, blocks_for(count), BLOCK, 0, lists.keys[0], lists.places[0], indices,
                a.n, (int)count, finder());
  if (!code) code = sort(&lists, (int)count, a.n, &where);
  if (code) return code;
  return launch(combine_rows<Op, T>, blocks_for(count * columns), BLOCK, 0, y, u, lists.keys[where],
                lists.places[where], count, a.n, a.inner, columns);
}

// T is the element type, or the unsigned integer of its bits: sums and products wrap around.
#define SCATTER(name, interface, T, Op)                                                            \
  int nnrt_##name(interface *y, const interface *x, const void *at, const interface *u,            \
                  int64_t x_ndim, const int64_t *x_shape, int64_t at_ndim,                         \
                  const int64_t *at_shape, int64_t width, const NnrtScatter *attrs, int64_t from,  \
                  int64_t all) {                                                                   \
    return scatter<Op<T>>((T *)y, (const T *)x, at, (const T *)u, x_ndim, x_shape, at_ndim,        \
                          at_shape, width, attrs, from, all);                                      \
  }
#define SCATTER_SIZE(size, T) SCATTER(scatter_##size, void, T, SetOf)
FOR_SIZES(SCATTER_SIZE)
#define SCATTERS(name, type, ring)                                                                 \
  SCATTER(scatter_add_##name, type, ring, AddOf)                                                   \
  SCATTER(scatter_mul_##name, type, ring, MulOf)                                                   \
  SCATTER(scatter_min_##name, type, type, MinOf)                                                   \
  SCATTER(scatter_max_##name, type, type, MaxOf)
SCATTERS(f32, float, float)
SCATTERS(i32, int32_t, uint32_t)
SCATTERS(i64, int64_t, uint64_t)
