// Reductions over any axes.
//
// Axes are first merged: adjacent axes that are both kept or both reduced become one, and axes of
// length 1 are dropped, so most reductions become one of
//
//     (kept, reduced)          rows: a warp or a block reads contiguous memory
//     (reduced, kept)          columns: adjacent threads have adjacent columns
//
// and the others are these over further kept and reduced axes.  If there are too few results to
// occupy the GPU, each is computed in parts, into scratch (parts, results), and the parts are
// reduced by columns: the sum of all elements of a tensor runs as thousands of parts.
//
//     x is read once; the results are written once, or the parts written and read.
//
// Sums and products of floats are accumulated in double: a training GPU adds doubles faster than
// its memory delivers floats.

#include <type_traits>

#include "rows.cuh"

// The operations: the initial value, and the combination of two.  T is the element type, Acc the
// type of the accumulator.
template <class T_, class Acc_> struct SumOf {
  typedef T_ T;
  typedef Acc_ Acc;
  static __device__ Acc start() { return 0; }
  static __device__ Acc of(Acc a, Acc b) { return a + b; }
};
template <class T_, class Acc_> struct ProdOf {
  typedef T_ T;
  typedef Acc_ Acc;
  static __device__ Acc start() { return 1; }
  static __device__ Acc of(Acc a, Acc b) { return a * b; }
};
static __device__ inline float lowest(float) {
  return -INFINITY;
}
static __device__ inline int32_t lowest(int32_t) {
  return INT32_MIN;
}
static __device__ inline int64_t lowest(int64_t) {
  return INT64_MIN;
}
static __device__ inline float highest(float) {
  return INFINITY;
}
static __device__ inline int32_t highest(int32_t) {
  return INT32_MAX;
}
static __device__ inline int64_t highest(int64_t) {
  return INT64_MAX;
}
template <class T_> struct MaxOf {
  typedef T_ T;
  typedef T_ Acc;
  static __device__ Acc start() { return lowest(T()); }
  static __device__ Acc of(Acc a, Acc b) { return a > b || a != a ? a : b; } // NaN stays
};
template <class T_> struct MinOf {
  typedef T_ T;
  typedef T_ Acc;
  static __device__ Acc start() { return highest(T()); }
  static __device__ Acc of(Acc a, Acc b) { return a < b || a != a ? a : b; }
};

// x as groups of axes, alternately kept and reduced, outermost first.
struct Groups {
  int n;
  int64_t size[NNRT_MAX_NDIM], stride[NNRT_MAX_NDIM]; // stride in elements of x
  bool reduced[NNRT_MAX_NDIM];
};

static Groups groups_of(int64_t ndim, const int64_t *shape, int64_t n_axes, const int64_t *axes) {
  Groups g = {};
  bool reduced[NNRT_MAX_NDIM] = {};
  for (int64_t i = 0; i < n_axes; i++)
    reduced[axes[i]] = true;
  // Merges adjacent axes of the same kind.
  for (int64_t d = 0; d < ndim; d++) {
    if (shape[d] == 1) continue;
    if (g.n && g.reduced[g.n - 1] == reduced[d]) {
      g.size[g.n - 1] *= shape[d];
    } else {
      g.size[g.n] = shape[d];
      g.reduced[g.n++] = reduced[d];
    }
  }
  // Strides in x, from the innermost group outwards.
  int64_t stride = 1;
  for (int i = g.n - 1; i >= 0; i--) {
    g.stride[i] = stride;
    stride *= g.size[i];
  }
  return g;
}

static int64_t combinations(const Groups &g, bool reduced, int skip) {
  int64_t n = 1;
  for (int d = 0; d < g.n - skip; d++)
    if (g.reduced[d] == reduced) n *= g.size[d];
  return n;
}

// The offset of combination number i of the groups that are `reduced` (or kept), without the
// innermost `skip` groups.
static __device__ inline int64_t place(const Groups &g, bool reduced, int skip, int64_t i) {
  int64_t at = 0;
  for (int d = g.n - 1 - skip; d >= 0; d--) {
    if (g.reduced[d] != reduced) continue;
    // Groups alternate, so one of the first two is the outermost of its kind.
    if (d < 2) return at + i * g.stride[d]; // the outermost of its kind
    at += i % g.size[d] * g.stride[d];
    i /= g.size[d];
  }
  return at;
}

template <class Op> static __device__ inline typename Op::Acc warp_of(typename Op::Acc x) {
  for (int d = WARP / 2; d > 0; d /= 2) {
    typename Op::Acc y = __shfl_xor_sync(0xffffffffu, x, d);
    x = Op::of(x, y);
  }
  return x;
}
template <class Op> static __device__ inline typename Op::Acc block_of(typename Op::Acc x) {
  __shared__ typename Op::Acc part[ROWS];
  x = warp_of<Op>(x);
  __syncthreads();
  if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
  __syncthreads();
  x = part[0];
  for (int i = 1; i < ROWS; i++)
    x = Op::of(x, part[i]);
  return x;
}

// Stores a result in type T, or a part of one in Acc.
template <class Op>
static __device__ inline void put(void *y, int64_t at, typename Op::Acc acc, bool part) {
  if (part)
    ((typename Op::Acc *)y)[at] = acc;
  else
    ((typename Op::T *)y)[at] = (typename Op::T)acc;
}

// Result k of `kept`, part blockIdx.y: y[part * kept + k].  The innermost group is reduced; each
// result has `total` elements, `inner` of them contiguous.  A warp or a block computes one.
template <class Op, int V>
static __global__ void reduce_rows(void *y, const typename Op::T *x, Groups g, int64_t kept,
                                   int64_t total, int64_t inner, int64_t part, bool warps,
                                   bool parts) {
  typedef typename Op::Acc Acc;
  int64_t from = (int64_t)blockIdx.y * part, to = from + part < total ? from + part : total;
  int lane = warps ? group_lane<WARP>() : group_lane<BLOCK>(), step = (warps ? WARP : BLOCK) * V;
  int64_t next = warps ? group_rows<WARP>() : group_rows<BLOCK>();
  for (int64_t k = warps ? group_row<WARP>() : group_row<BLOCK>(); k < kept; k += next) {
    const typename Op::T *row = x + place(g, false, 1, k);
    Acc acc = Op::start();
    // All elements of a result are contiguous.
    if (total == inner) {
      UNROLL_4
      for (int64_t i = from + lane * V; i < to; i += step) {
        Pack<typename Op::T, V> p = read_pack<typename Op::T, V>(row + i);
        UNROLL
        for (int j = 0; j < V; j++)
          acc = Op::of((Acc)p.at[j], acc);
      }
    } else {
      UNROLL_1
      for (int64_t i = from + lane * V; i < to; i += step) {
        int64_t at = place(g, true, 1, i / inner) + i % inner;
        Pack<typename Op::T, V> p = read_pack<typename Op::T, V>(row + at);
        UNROLL
        for (int j = 0; j < V; j++)
          acc = Op::of((Acc)p.at[j], acc);
      }
    }
    // The sums of threads, in a fixed order.
    acc = warps ? warp_of<Op>(acc) : block_of<Op>(acc);
    if (lane == 0) put<Op>(y, (int64_t)blockIdx.y * kept + k, acc, parts);
  }
}

// Columns: the innermost group, of `inner`, is kept.  Part blockIdx.y of each: reduced rows
// blockIdx.y * ROWS …, in steps of all parts.  y (parts, outer, inner).  With one reduced
// group its rows are `stride` apart; with several, stride is 0.
template <class Op, class In>
static __global__ void reduce_columns(void *y, const In *x, Groups g, int64_t outer, int64_t rows,
                                      int64_t inner, int64_t stride, bool parts) {
  typedef typename Op::Acc Acc;
  __shared__ Acc some[ROWS][WARP];
  int64_t column = column_here(), first = (int64_t)blockIdx.y * ROWS + threadIdx.y;
  int64_t step = (int64_t)gridDim.y * ROWS, end = column < inner ? rows : 0;
  for (int64_t k = blockIdx.z; k < outer; k += gridDim.z) {
    const In *from = x + place(g, false, 1, k) + column;
    Acc acc = Op::start();
    // One reduced group: its rows are evenly spaced.
    if (stride) {
      UNROLL_4
      for (int64_t r = first; r < end; r += step)
        acc = Op::of((Acc)from[r * stride], acc);
    } else {
      UNROLL_1
      for (int64_t r = first; r < end; r += step)
        acc = Op::of((Acc)from[place(g, true, 0, r)], acc);
    }
    __syncthreads();
    some[threadIdx.y][threadIdx.x] = acc;
    __syncthreads();
    // The first row of threads adds the sums of the others, in order.
    if (threadIdx.y > 0 || column >= inner) continue;
    for (int i = 1; i < ROWS; i++)
      acc = Op::of(some[i][threadIdx.x], acc);
    put<Op>(y, ((int64_t)blockIdx.y * outer + k) * inner + column, acc, parts);
  }
}

template <class Op, class In>
static int columns(void *y, const In *x, const Groups &g, int64_t outer, int64_t rows,
                   int64_t inner, int64_t parts) {
  dim3 grid((unsigned)ceil_div(inner, WARP), (unsigned)parts, (unsigned)least(outer, 65535));
  // The stride of the only reduced group.
  int64_t stride = 0;
  int n = 0;
  for (int d = 0; d < g.n; d++) {
    if (!g.reduced[d]) continue;
    stride = g.stride[d];
    n++;
  }
  return launch(reduce_columns<Op, In>, grid, dim3(WARP, ROWS), 0, y, x, g, outer, rows, inner,
                n == 1 ? stride : 0, parts > 1);
}

// y (n) from parts (n_parts, n)
template <class Op>
static int from_parts(typename Op::T *y, const typename Op::Acc *parts, int64_t n_parts,
                      int64_t n) {
  Groups g = {};
  g.n = 2;
  g.size[0] = n_parts, g.stride[0] = n, g.reduced[0] = true;
  g.size[1] = n, g.stride[1] = 1, g.reduced[1] = false;
  return columns<Op>(y, parts, g, 1, n_parts, n, 1);
}

template <class Op, int V>
static int rows(typename Op::T *y, const typename Op::T *x, const Groups &g, int64_t kept,
                int64_t total, int64_t inner) {
  typedef typename Op::Acc Acc;
  int64_t enough = 4 * (int64_t)nnrt_gpu()->processors;
  bool warps = total <= WARP * HELD;
  int64_t parts = least(ceil_div(total, BLOCK * HELD), ceil_div(enough, kept));
  // Enough results to occupy the GPU, or short ones.
  if (warps || parts <= 1)
    return launch(reduce_rows<Op, V>, blocks_for_rows(kept, warps ? (int)ROWS : 1), BLOCK, 0, y, x,
                  g, kept, total, inner, total, warps, false);
  // Parts are whole packs.
  int64_t part = ceil_div(ceil_div(total, parts), V) * V;
  parts = ceil_div(total, part);
  Acc *some = (Acc *)nnrt_gpu_scratch(parts * kept * (int64_t)sizeof(Acc));
  if (!some) return NNRT_MEMORY;
  int code = launch(reduce_rows<Op, V>, dim3((unsigned)kept, (unsigned)parts), BLOCK, 0, some, x, g,
                    kept, total, inner, part, false, true);
  return code ? code : from_parts<Op>(y, some, parts, kept);
}

template <class Op>
static int reduce(typename Op::T *y, const typename Op::T *x, int64_t ndim, const int64_t *shape,
                  int64_t n_axes, const int64_t *axes) {
  typedef typename Op::Acc Acc;
  // Integer reductions are rare and small: one element at a time.
  constexpr int V =
      std::is_floating_point<typename Op::T>::value ? (int)Width<typename Op::T>::most : 1;
  Groups g = groups_of(ndim, shape, n_axes, axes);
  int64_t kept = combinations(g, false, 0), total = combinations(g, true, 0);
  if (kept == 0) return NNRT_OK;
  // Nothing is reduced.
  if (g.n == 0 || (g.n == 1 && !g.reduced[0])) return nnrt_copy(y, x, kept * (int64_t)sizeof *y);
  int64_t inner = g.size[g.n - 1];
  if (g.reduced[g.n - 1])
    return in_packs(inner, V, x) ? rows<Op, V>(y, x, g, kept, total, inner)
                                 : rows<Op, 1>(y, x, g, kept, total, inner);
  // Columns, in parts if there are few.
  int64_t outer = kept / inner;
  int64_t parts = least(65535, parts_for(total, kept, WARP, 4 * ROWS));
  if (parts == 1) return columns<Op>(y, x, g, outer, total, inner, 1);
  Acc *some = (Acc *)nnrt_gpu_scratch(parts * kept * (int64_t)sizeof(Acc));
  if (!some) return NNRT_MEMORY;
  int code = columns<Op>(some, x, g, outer, total, inner, parts);
  return code ? code : from_parts<Op>(y, some, parts, kept);
}

// T is the element type, or the unsigned integer of its bits, which wraps around.
#define REDUCE(op, name, type, T, ...)                                                             \
  int nnrt_reduce_##op##_##name(type *y, const type *x, int64_t ndim, const int64_t *shape,        \
                                int64_t n_axes, const int64_t *axes) {                             \
    return reduce<__VA_ARGS__>((T *)y, (const T *)x, ndim, shape, n_axes, axes);                   \
  }
REDUCE(sum, f32, float, float, SumOf<float, double>)
REDUCE(sum, f64, double, double, SumOf<double, double>)
REDUCE(sum, i32, int32_t, uint32_t, SumOf<uint32_t, uint32_t>)
REDUCE(sum, i64, int64_t, uint64_t, SumOf<uint64_t, uint64_t>)
REDUCE(max, f32, float, float, MaxOf<float>)
REDUCE(max, i32, int32_t, int32_t, MaxOf<int32_t>)
REDUCE(max, i64, int64_t, int64_t, MaxOf<int64_t>)
REDUCE(min, f32, float, float, MinOf<float>)
REDUCE(min, i32, int32_t, int32_t, MinOf<int32_t>)
REDUCE(min, i64, int64_t, int64_t, MinOf<int64_t>)
REDUCE(prod, f32, float, float, ProdOf<float, double>)
REDUCE(prod, i32, int32_t, uint32_t, ProdOf<uint32_t, uint32_t>)
REDUCE(prod, i64, int64_t, uint64_t, ProdOf<uint64_t, uint64_t>)
