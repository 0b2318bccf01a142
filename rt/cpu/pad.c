// Padding.  Along each axis, a table has the position of x for each position of y, or OUTSIDE.
//
//     reflect, low 2, of a b c      c b | a b c | b a
//     wrap                          b c | a b c | a b
//     edge                          a a | a b c | c c
//
// A negative width removes elements; the other padding then applies to the rest.

#include "kernel.h"

enum { OUTSIDE = -1 };

typedef enum Mode { CONSTANT, REFLECT, EDGE, WRAP, N_MODES } Mode;

static int64_t source(Mode mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  // reflect does not repeat the edge: a period has two elements less.
  int64_t period = mode == REFLECT ? 2 * (n - 1) : n;
  switch (mode) {
  case REFLECT:
    if (period == 0) return 0;
    i = (i % period + period) % period;
    return i < n ? i : period - i;
  case EDGE: return i < 0 ? 0 : n - 1;
  case WRAP: return (i % period + period) % period;
  case CONSTANT:
  case N_MODES: break;
  }
  return OUTSIDE;
}

static Mode mode_of(const char *name) {
  static const char *const names[N_MODES] = {"constant", "reflect", "edge", "wrap"};
  for (int i = 0; i < N_MODES; i++)
    if (!strcmp(name, names[i])) return (Mode)i;
  return N_MODES;
}

// Fills table (all axes of y, concatenated), and the strides of x.
static void tables(int64_t *table, int64_t *stride, int64_t ndim, const int64_t *x_shape,
                   const int64_t *low, const int64_t *y_shape, Mode mode) {
  int64_t n = 1;
  for (int64_t d = ndim - 1; d >= 0; d--) {
    stride[d] = n;
    n *= x_shape[d];
  }
  for (int64_t d = 0; d < ndim; d++) {
    // Negative widths cut elements off; padding is that of the remaining ones.
    int64_t cut = low[d] < 0 ? -low[d] : 0, high = y_shape[d] - x_shape[d] - low[d];
    int64_t left = x_shape[d] - cut + (high < 0 ? high : 0);
    for (int64_t i = 0; i < y_shape[d]; i++) {
      int64_t from = source(mode, i - low[d] - cut, left);
      *table++ = from == OUTSIDE ? OUTSIDE : from + cut;
    }
  }
}

// Returns the start in x of line `i` of y, or OUTSIDE.
static int64_t line_at(const int64_t *table, const int64_t *stride, int64_t ndim,
                       const int64_t *y_shape, int64_t i) {
  int64_t at = 0;
  const int64_t *axis[NNRT_MAX_NDIM];
  for (int64_t d = 0; d < ndim; d++) {
    // The tables of all axes follow each other.
    axis[d] = table;
    table += y_shape[d];
  }
  for (int64_t d = ndim - 2; d >= 0; d--) {
    int64_t from = axis[d][i % y_shape[d]];
    // One axis outside, and the whole line is padding.
    if (from == OUTSIDE) return OUTSIDE;
    at += from * stride[d];
    i /= y_shape[d];
  }
  return at;
}

#define PAD(name, type)                                                                            \
  NNRT_CLONES static void line_##name(type *restrict y, const type *restrict x,                    \
                                      const int64_t *restrict from, int64_t n, type value) {       \
    for (int64_t i = 0; i < n; i++)                                                                \
      y[i] = from[i] == OUTSIDE ? value : x[from[i]];                                              \
  }                                                                                                \
  int nnrt_pad_##name(type *y, const type *x, int64_t ndim, const int64_t *x_shape,                \
                      const int64_t *low, const int64_t *y_shape, const char *mode,                \
                      double value) {                                                              \
    Mode m = mode_of(mode);                                                                        \
    if (m == N_MODES) return nnrt_error(NNRT_UNSUPPORTED, "pad: mode '%s' is unknown", mode);      \
    if (ndim == 0) {                                                                               \
      *y = *x;                                                                                     \
      return NNRT_OK;                                                                              \
    }                                                                                              \
    int64_t n = y_shape[ndim - 1], lines = product(y_shape, ndim - 1), entries = 0;                \
    for (int64_t d = 0; d < ndim; d++)                                                             \
      entries += y_shape[d];                                                                       \
    int64_t *table = kernel_scratch((size_t)entries * sizeof *table), stride[NNRT_MAX_NDIM];       \
    if (!table) return scratch_failed((size_t)entries * sizeof *table);                            \
    tables(table, stride, ndim, x_shape, low, y_shape, m);                                         \
    const int64_t *along = table + entries - n;                                                    \
    int threads = threads_for(lines * n);                                                          \
    _Pragma("omp parallel for num_threads(threads)") for (int64_t i = 0; i < lines; i++) {         \
      int64_t at = line_at(table, stride, ndim, y_shape, i);                                       \
      if (at == OUTSIDE)                                                                           \
        for (int64_t j = 0; j < n; j++)                                                            \
          y[i * n + j] = (type)value;                                                              \
      else                                                                                         \
        line_##name(y + i * n, x + at, along, n, (type)value);                                     \
    }                                                                                              \
    return NNRT_OK;                                                                                \
  }
PAD(f32, float)
PAD(f64, double)
PAD(i32, int32_t)
PAD(i64, int64_t)
