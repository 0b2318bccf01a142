// Padding: maps each position of y to a position of x, along each axis.
//
//     reflect, low 2, of a b c      c b | a b c | b a
//     wrap                          b c | a b c | a b
//     edge                          a a | a b c | c c
//
// A negative width removes elements; the others then pad the remaining ones.

#include <string.h>

#include "move.cuh"

enum Mode { CONSTANT, REFLECT, EDGE, WRAP, N_MODES };
enum { PADDING = -1 };

static Mode mode_of(const char *name) {
  static const char *const names[N_MODES] = {"constant", "reflect", "edge", "wrap"};
  for (int i = 0; i < N_MODES; i++)
    if (!strcmp(name, names[i])) return (Mode)i;
  return N_MODES;
}

// The index among `n` elements for position i, which may be before or after them.
static __device__ inline int64_t source(Mode mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (mode == CONSTANT) return PADDING;
  if (mode == EDGE) return i < 0 ? 0 : n - 1;
  // reflect goes back and forth without repeating the ends.
  int64_t period = mode == REFLECT ? 2 * (n - 1) : n;
  if (period == 0) return 0;
  i = (i % period + period) % period;
  return i < n ? i : period - i;
}

template <class I> struct Padding {
  int ndim;
  Mode mode;
  Divider<I> y_size[NNRT_MAX_NDIM];
  // Of the remaining part of x: its offset in y, its offset in x, its length.
  int64_t low[NNRT_MAX_NDIM], cut[NNRT_MAX_NDIM], left[NNRT_MAX_NDIM];
  int64_t x_stride[NNRT_MAX_NDIM];
};

template <class T, class I>
static __global__ void pad_each(T *y, const T *x, Padding<I> p, I n, T value) {
  for (I i = (I)first_thread(); i < n; i += (I)all_threads()) {
    int64_t at = 0;
    bool outside = false;
    I rest = i;
    for (int d = p.ndim - 1; d >= 0; d--) {
      I position;
      rest = p.y_size[d].divide(rest, &position);
      // Constant padding along one axis makes the element constant.
      int64_t from = source(p.mode, position - p.low[d], p.left[d]);
      outside = outside || from == PADDING;
      at += (from + p.cut[d]) * p.x_stride[d];
    }
    y[i] = outside ? value : x[at];
  }
}

template <class I>
static Padding<I> padding_of(int64_t ndim, const int64_t *x_shape, const int64_t *low,
                             const int64_t *y_shape, Mode mode) {
  Padding<I> p;
  p.ndim = (int)ndim;
  p.mode = mode;
  int64_t stride = 1;
  for (int d = (int)ndim - 1; d >= 0; d--) {
    // A negative width cuts elements off x.
    int64_t cut = low[d] < 0 ? -low[d] : 0, high = y_shape[d] - x_shape[d] - low[d];
    p.y_size[d] = Divider<I>(y_shape[d]);
    p.cut[d] = cut;
    p.low[d] = low[d] + cut;
    p.left[d] = x_shape[d] - cut + (high < 0 ? high : 0);
    p.x_stride[d] = stride;
    stride *= x_shape[d];
  }
  return p;
}

template <class T>
static int pad(T *y, const T *x, int64_t ndim, const int64_t *x_shape, const int64_t *low,
               const int64_t *y_shape, const char *mode_name, double value) {
  Mode mode = mode_of(mode_name);
  if (mode == N_MODES) return nnrt_error(NNRT_UNSUPPORTED, "pad: mode '%s' is unknown", mode_name);
  int64_t n = product(y_shape, ndim);
  if (n == 0) return NNRT_OK;
  return with_index(n, [&](auto index) {
    using I = decltype(index);
    return launch(pad_each<T, I>, blocks_for(n), BLOCK, 0, y, x,
                  padding_of<I>(ndim, x_shape, low, y_shape, mode), (I)n, (T)value);
  });
}

#define PAD(name, T)                                                                               \
  int nnrt_pad_##name(T *y, const T *x, int64_t ndim, const int64_t *x_shape, const int64_t *low,  \
                      const int64_t *y_shape, const char *mode, double value) {                    \
    return pad(y, x, ndim, x_shape, low, y_shape, mode, value);                                    \
  }
PAD(f32, float)
PAD(f64, double)
PAD(i32, int32_t)
PAD(i64, int64_t)
