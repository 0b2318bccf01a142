// Pooling over one to three spatial dimensions, channels first or last.
//
// A plane of one channel is a tensor of one channel with channels last, so there is one layout: (n,
// spatial, c), in which channels first has n * c images of one channel.  A thread computes V
// adjacent channels of one element.  Gradients are gathered: a thread reads the results with its
// element in their window, so each sum has one thread, and a fixed order.
//
//     max_pool        reads x, about kernel / strides times from the caches, writes y and at
//     max_pool_back   reads at and dy likewise, writes dx
//     avg_pool, avg_pool_back likewise

#include "rows.cuh"

enum { D = 3 }; // spatial dimensions; missing ones in front have length 1

struct Pool {
  int64_t n, c;
  int64_t x_plane, y_plane;
  int x[D], y[D], kernel[D], stride[D], low[D], high[D], dilation[D];
};

static Pool pool_of(int64_t ndim, const int64_t *x_shape, const int64_t *y_shape,
                    const int64_t *kernel, const int64_t *strides, const int64_t *pads,
                    const int64_t *dilations, bool channels_last) {
  Pool p = {};
  int64_t spatial = ndim - 2, first = channels_last ? 1 : 2;
  p.n = channels_last ? x_shape[0] : x_shape[0] * x_shape[1];
  p.c = channels_last ? x_shape[ndim - 1] : 1;
  p.x_plane = p.y_plane = 1;
  // Missing dimensions, in front, have length 1 and a kernel of 1.
  for (int64_t d = 0; d < D; d++) {
    int64_t i = d - (D - spatial);
    p.x[d] = i < 0 ? 1 : (int)x_shape[first + i];
    p.y[d] = i < 0 ? 1 : (int)y_shape[first + i];
    p.kernel[d] = i < 0 ? 1 : (int)kernel[i];
    p.stride[d] = i < 0 ? 1 : (int)strides[i];
    p.low[d] = i < 0 ? 0 : (int)pads[i];
    p.high[d] = i < 0 ? 0 : (int)pads[spatial + i];
    p.dilation[d] = i < 0 ? 1 : (int)dilations[i];
    // Elements beyond the upper padding never count.
    int64_t most = ((int64_t)p.x[d] + p.low[d] + p.high[d] - 1) / p.dilation[d] + 1;
    p.kernel[d] = p.kernel[d] < most ? p.kernel[d] : (int)most;
    p.x_plane *= p.x[d];
    p.y_plane *= p.y[d];
  }
  return p;
}

// The coordinates of element number i of (n, spatial, c / V): image, position, first channel.
struct At {
  int64_t image;
  int where[D];
  int64_t channel;
};
template <class I> static __device__ inline At at_in(const int *size, I channels, I i) {
  At a;
  a.channel = (int64_t)(i % channels);
  i /= channels;
  for (int d = D - 1; d >= 0; d--) {
    a.where[d] = (int)(i % (I)size[d]);
    i /= (I)size[d];
  }
  a.image = (int64_t)i;
  return a;
}
// 64-bit division is slow on GPUs.
template <int V> static __device__ inline At at_of(const int *size, int64_t c, int64_t i) {
  At a = i < INT32_MAX && c < INT32_MAX ? at_in<uint32_t>(size, (uint32_t)(c / V), (uint32_t)i)
                                        : at_in<int64_t>(size, c / V, i);
  a.channel *= V;
  return a;
}

// The range of window elements k of result `o` that are inside x.
struct Range {
  int from, to;
};
static __device__ inline Range inside(const Pool &p, int d, int o) {
  // The window may begin before x and end after it.
  int start = o * p.stride[d] - p.low[d], by = p.dilation[d];
  int from = start < 0 ? (by - 1 - start) / by : 0;
  int to = start < p.x[d] ? (p.x[d] - 1 - start) / by + 1 : 0;
  return Range{from, to < p.kernel[d] ? to : p.kernel[d]};
}

// The range of results that may have element `at` of x in their window.
static __device__ inline Range reached(const Pool &p, int d, int at) {
  // From the first result whose window ends here or later to the last that begins here or before.
  int last = at + p.low[d], first = last - (p.kernel[d] - 1) * p.dilation[d];
  int from = first > 0 ? (first + p.stride[d] - 1) / p.stride[d] : 0;
  int to = last / p.stride[d] + 1;
  return Range{from, to < p.y[d] ? to : p.y[d]};
}

// Calls body for each (d, h, w) of three ranges.
#define FOR_RANGES(r, d, h, w)                                                                     \
  for (int d = r[0].from; d < r[0].to; d++)                                                        \
    for (int h = r[1].from; h < r[1].to; h++)                                                      \
      for (int w = r[2].from; w < r[2].to; w++)

static __device__ inline int64_t in_plane(const int *size, int d, int h, int w) {
  return ((int64_t)d * size[1] + h) * size[2] + w;
}

// Of equal maxima the first; the first NaN.
template <class T, int V>
static __global__ void max_pool(T *y, int32_t *at, const T *x, Pool p, int64_t total) {
  constexpr int N = V < 4 ? 1 : 4; // indices per access
  for (int64_t i = first_thread(); i < total; i += all_threads()) {
    At o = at_of<V>(p.y, p.c, i);
    Range r[D] = {inside(p, 0, o.where[0]), inside(p, 1, o.where[1]), inside(p, 2, o.where[2])};
    const T *from = x + o.image * p.x_plane * p.c + o.channel;
    // Index -1: none yet.
    float best[V] = {};
    Pack<int32_t, V> best_at;
    UNROLL
    for (int k = 0; k < V; k++)
      best_at.at[k] = -1;
    // The window without padding, so a window of padding only keeps index -1.
    FOR_RANGES(r, d, h, w) {
      int place = (int)in_plane(p.x, o.where[0] * p.stride[0] - p.low[0] + d * p.dilation[0],
                                o.where[1] * p.stride[1] - p.low[1] + h * p.dilation[1],
                                o.where[2] * p.stride[2] - p.low[2] + w * p.dilation[2]);
      Pack<T, V> v = read_pack<T, V>(from + place * p.c);
      UNROLL
      for (int k = 0; k < V; k++) {
        float b = load(&v.at[k]);
        // The first maximum wins, and a NaN wins over all numbers.
        bool larger = b > best[k] || (b != b && best[k] == best[k]);
        if (best_at.at[k] >= 0 && !larger) continue;
        best[k] = b;
        best_at.at[k] = place;
      }
    }
    Pack<T, V> to;
    UNROLL
    for (int k = 0; k < V; k++)
      store(&to.at[k], best[k]);
    write_pack(y + i * V, to);
    UNROLL
    for (int k = 0; k < V; k += N) {
      Pack<int32_t, N> some;
      UNROLL
      for (int j = 0; j < N; j++)
        some.at[j] = best_at.at[(k + j) % V];
      write_pack(at + i * V + k, some);
    }
  }
}

template <class T, int V>
static __global__ void max_pool_back(T *dx, const int32_t *at, const T *dy, Pool p, int64_t total) {
  constexpr int N = V < 4 ? 1 : 4; // indices per access
  for (int64_t i = first_thread(); i < total; i += all_threads()) {
    At e = at_of<V>(p.x, p.c, i);
    Range r[D] = {reached(p, 0, e.where[0]), reached(p, 1, e.where[1]), reached(p, 2, e.where[2])};
    // This element, as the results name it in `at`.
    int place = (int)in_plane(p.x, e.where[0], e.where[1], e.where[2]);
    int64_t from = e.image * p.y_plane * p.c + e.channel;
    float sum[V] = {};
    // A result contributes if its maximum is this element.
    FOR_RANGES(r, d, h, w) {
      int64_t o = from + in_plane(p.y, d, h, w) * p.c;
      Pack<T, V> v = read_pack<T, V>(dy + o);
      UNROLL
      for (int k = 0; k < V; k += N) {
        Pack<int32_t, N> some = read_pack<int32_t, N>(at + o + k);
        UNROLL
        for (int j = 0; j < N; j++)
          sum[(k + j) % V] += some.at[j] == place ? load(&v.at[(k + j) % V]) : 0.0f;
      }
    }
    Pack<T, V> to;
    UNROLL
    for (int k = 0; k < V; k++)
      store(&to.at[k], sum[k]);
    write_pack(dx + i * V, to);
  }
}

// The number of elements of result o's window that count along dimension d.
static __device__ inline int count_along(const Pool &p, int d, int o, bool include_pad) {
  Range r = inside(p, d, o);
  if (!include_pad) return r.to > r.from ? r.to - r.from : 0;
  // The window with padding, without the part that rounding up adds at the end.
  int start = o * p.stride[d] - p.low[d], end = p.x[d] + p.high[d];
  int n = start < end ? (end - 1 - start) / p.dilation[d] + 1 : 0;
  return n < p.kernel[d] ? n : p.kernel[d];
}
static __device__ inline float average_factor(const Pool &p, int d, int h, int w,
                                              bool include_pad) {
  int64_t n = (int64_t)count_along(p, 0, d, include_pad) * count_along(p, 1, h, include_pad) *
              count_along(p, 2, w, include_pad);
  return n ? 1.0f / (float)n : 0.0f;
}

template <class T, int V>
static __global__ void avg_pool(T *y, const T *x, Pool p, int64_t total, bool include_pad) {
  for (int64_t i = first_thread(); i < total; i += all_threads()) {
    At o = at_of<V>(p.y, p.c, i);
    Range r[D] = {inside(p, 0, o.where[0]), inside(p, 1, o.where[1]), inside(p, 2, o.where[2])};
    const T *from = x + o.image * p.x_plane * p.c + o.channel;
    float sum[V] = {};
    FOR_RANGES(r, d, h, w) {
      int64_t place = in_plane(p.x, o.where[0] * p.stride[0] - p.low[0] + d * p.dilation[0],
                               o.where[1] * p.stride[1] - p.low[1] + h * p.dilation[1],
                               o.where[2] * p.stride[2] - p.low[2] + w * p.dilation[2]);
      Pack<T, V> v = read_pack<T, V>(from + place * p.c);
      UNROLL
      for (int k = 0; k < V; k++)
        sum[k] += load(&v.at[k]);
    }
    // The divisor counts padding only with include_pad.
    float factor = average_factor(p, o.where[0], o.where[1], o.where[2], include_pad);
    Pack<T, V> to;
    UNROLL
    for (int k = 0; k < V; k++)
      store(&to.at[k], sum[k] * factor);
    write_pack(y + i * V, to);
  }
}

// Whether element `at` of x is in result o's window.
static __device__ inline bool sees(const Pool &p, int d, int o, int at) {
  return (at + p.low[d] - o * p.stride[d]) % p.dilation[d] == 0;
}

template <class T, int V>
static __global__ void avg_pool_back(T *dx, const T *dy, Pool p, int64_t total, bool include_pad) {
  for (int64_t i = first_thread(); i < total; i += all_threads()) {
    At e = at_of<V>(p.x, p.c, i);
    Range r[D] = {reached(p, 0, e.where[0]), reached(p, 1, e.where[1]), reached(p, 2, e.where[2])};
    const T *from = dy + e.image * p.y_plane * p.c + e.channel;
    float sum[V] = {};
    FOR_RANGES(r, d, h, w) {
      // With dilation and strides, the range also has results that skip the element.
      if (!sees(p, 0, d, e.where[0]) || !sees(p, 1, h, e.where[1]) || !sees(p, 2, w, e.where[2]))
        continue;
      float factor = average_factor(p, d, h, w, include_pad);
      Pack<T, V> v = read_pack<T, V>(from + in_plane(p.y, d, h, w) * p.c);
      UNROLL
      for (int k = 0; k < V; k++)
        sum[k] += load(&v.at[k]) * factor;
    }
    Pack<T, V> to;
    UNROLL
    for (int k = 0; k < V; k++)
      store(&to.at[k], sum[k]);
    write_pack(dx + i * V, to);
  }
}

// -- Choosing

template <class T> static int max_pool_of(T *y, int32_t *at, const T *x, const Pool &p) {
  constexpr int V = Width<T>::most;
  int64_t n = p.n * p.y_plane * p.c;
  // Indices in `at` have 32 bits.
  if (p.x_plane > INT32_MAX)
    return nnrt_error(NNRT_UNSUPPORTED, "max_pool: a plane of %lld elements is too large",
                      (long long)p.x_plane);
  if (n == 0) return NNRT_OK;
  if (in_packs(p.c, V, y, x, at))
    return launch(max_pool<T, V>, blocks_for(n / V), BLOCK, 0, y, at, x, p, n / V);
  return launch(max_pool<T, 1>, blocks_for(n), BLOCK, 0, y, at, x, p, n);
}

template <class T>
static int max_pool_back_of(T *dx, const int32_t *at, const T *dy, const Pool &p) {
  constexpr int V = Width<T>::most;
  int64_t n = p.n * p.x_plane * p.c;
  if (n == 0) return NNRT_OK;
  if (in_packs(p.c, V, dx, dy, at))
    return launch(max_pool_back<T, V>, blocks_for(n / V), BLOCK, 0, dx, at, dy, p, n / V);
  return launch(max_pool_back<T, 1>, blocks_for(n), BLOCK, 0, dx, at, dy, p, n);
}

template <class T> static int avg_pool_of(T *y, const T *x, const Pool &p, bool include_pad) {
  constexpr int V = Width<T>::most;
  int64_t n = p.n * p.y_plane * p.c;
  if (n == 0) return NNRT_OK;
  if (in_packs(p.c, V, y, x))
    return launch(avg_pool<T, V>, blocks_for(n / V), BLOCK, 0, y, x, p, n / V, include_pad);
  return launch(avg_pool<T, 1>, blocks_for(n), BLOCK, 0, y, x, p, n, include_pad);
}

template <class T>
static int avg_pool_back_of(T *dx, const T *dy, const Pool &p, bool include_pad) {
  constexpr int V = Width<T>::most;
  int64_t n = p.n * p.x_plane * p.c;
  if (n == 0) return NNRT_OK;
  if (in_packs(p.c, V, dx, dy))
    return launch(avg_pool_back<T, V>, blocks_for(n / V), BLOCK, 0, dx, dy, p, n / V, include_pad);
  return launch(avg_pool_back<T, 1>, blocks_for(n), BLOCK, 0, dx, dy, p, n, include_pad);
}

#define POOLS(suffix, C, T)                                                                        \
  int nnrt_max_pool_##suffix(C *y, int32_t *at, const C *x, int64_t ndim, const int64_t *x_shape,  \
                             const int64_t *y_shape, const int64_t *kernel,                        \
                             const int64_t *strides, const int64_t *pads,                          \
                             const int64_t *dilations, bool channels_last) {                       \
    return max_pool_of<T>(                                                                         \
        (T *)y, at, (const T *)x,                                                                  \
        pool_of(ndim, x_shape, y_shape, kernel, strides, pads, dilations, channels_last));         \
  }                                                                                                \
  int nnrt_max_pool_back_##suffix(                                                                 \
      C *dx, const int32_t *at, const C *dy, int64_t ndim, const int64_t *y_shape,                 \
      const int64_t *x_shape, const int64_t *kernel, const int64_t *strides, const int64_t *pads,  \
      const int64_t *dilations, bool channels_last) {                                              \
    return max_pool_back_of<T>(                                                                    \
        (T *)dx, at, (const T *)dy,                                                                \
        pool_of(ndim, x_shape, y_shape, kernel, strides, pads, dilations, channels_last));         \
  }                                                                                                \
  int nnrt_avg_pool_##suffix(C *y, const C *x, int64_t ndim, const int64_t *x_shape,               \
                             const int64_t *y_shape, const int64_t *kernel,                        \
                             const int64_t *strides, const int64_t *pads,                          \
                             const int64_t *dilations, bool include_pad, bool channels_last) {     \
    return avg_pool_of<T>(                                                                         \
        (T *)y, (const T *)x,                                                                      \
        pool_of(ndim, x_shape, y_shape, kernel, strides, pads, dilations, channels_last),          \
        include_pad);                                                                              \
  }                                                                                                \
  int nnrt_avg_pool_back_##suffix(                                                                 \
      C *dx, const C *dy, int64_t ndim, const int64_t *y_shape, const int64_t *x_shape,            \
      const int64_t *kernel, const int64_t *strides, const int64_t *pads,                          \
      const int64_t *dilations, bool include_pad, bool channels_last) {                            \
    return avg_pool_back_of<T>(                                                                    \
        (T *)dx, (const T *)dy,                                                                    \
        pool_of(ndim, x_shape, y_shape, kernel, strides, pads, dilations, channels_last),          \
        include_pad);                                                                              \
  }
FOR_FLOATS(POOLS)
