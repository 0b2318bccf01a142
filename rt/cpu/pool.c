// Pooling over one to three spatial dimensions, channels first or last.
//
// Channels first, a leaf computes one row of results: for each element of the window, the results
// that have it inside x are one range of the row, and vectors go along it (for maxima, first along
// the rows of x).  Channels last, a leaf computes the channels of one result, and vectors go across
// them.

#include "kernel.h"

enum { D = 3 }; // spatial dimensions; missing ones in front have length 1

typedef struct Pool {
  int64_t n, c;
  bool channels_last;
  int64_t x[D], y[D], kernel[D], stride[D], low[D], high[D], dilation[D];
  int64_t x_plane, y_plane;
} Pool;

static Pool pool_of(int64_t ndim, const int64_t *x_shape, const int64_t *y_shape,
                    const int64_t *kernel, const int64_t *strides, const int64_t *pads,
                    const int64_t *dilations, bool channels_last) {
  Pool p = {.n = x_shape[0], .c = x_shape[channels_last ? ndim - 1 : 1]};
  p.channels_last = channels_last;
  int64_t spatial = ndim - 2, first = channels_last ? 1 : 2;
  p.x_plane = p.y_plane = 1;
  for (int64_t d = 0; d < D; d++) {
    // Missing dimensions are in front, with length and kernel 1.
    int64_t i = d - (D - spatial);
    p.x[d] = i < 0 ? 1 : x_shape[first + i];
    p.y[d] = i < 0 ? 1 : y_shape[first + i];
    p.kernel[d] = i < 0 || !kernel ? 1 : kernel[i];
    p.stride[d] = i < 0 || !strides ? 1 : strides[i];
    p.low[d] = i < 0 || !pads ? 0 : pads[i];
    p.high[d] = i < 0 || !pads ? 0 : pads[spatial + i];
    p.dilation[d] = i < 0 || !dilations ? 1 : dilations[i];
    // Elements beyond the upper padding never count.
    int64_t most = (p.x[d] + p.low[d] + p.high[d] - 1) / p.dilation[d] + 1;
    p.kernel[d] = p.kernel[d] < most ? p.kernel[d] : most;
    p.x_plane *= p.x[d];
    p.y_plane *= p.y[d];
  }
  return p;
}

// Returns the position along dimension d of element k of result o's window; inside x if 0 <= it <
// x[d].
static inline int64_t position(const Pool *p, int d, int64_t o, int64_t k) {
  return o * p->stride[d] - p->low[d] + k * p->dilation[d];
}

static inline bool inside(const Pool *p, int d, int64_t at) {
  return at >= 0 && at < p->x[d];
}

// Returns the range of results along dimension d with element k inside x.
static inline Part range(const Pool *p, int d, int64_t k) {
  int64_t s = p->stride[d], first = -position(p, d, 0, k);
  // The first and the last result whose window holds x, by rounding up and down.
  int64_t from = first > 0 ? (first + s - 1) / s : 0;
  int64_t last = p->x[d] - 1 + first;
  int64_t to = last < 0 ? 0 : last / s + 1;
  to = to < p->y[d] ? to : p->y[d];
  return (Part){from < to ? from : to, to};
}

static inline void nothing_yet(float *y, int32_t *at, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    y[i] = -INFINITY;
    at[i] = -1;
  }
}

// Updates the maximum so far and its index, for a whole row of x with its first element at index
// `place`.  `at` is -1 before the first element.  Of equal ones the first is kept.
static inline void max_over_rows(float *restrict top, int32_t *restrict at, const float *restrict x,
                                 int64_t n, int32_t place) {
  for (int64_t i = 0; i < n; i++) {
    float v = x[i], best = top[i];
    int32_t was = at[i];
    // Without branches, so that the loop vectorises; a NaN wins.
    bool take = (was < 0) | (v > best) | ((v != v) & (best == best));
    top[i] = take ? v : best;
    at[i] = take ? place + (int32_t)i : was;
  }
}

// Combines every stride-th of those maxima into results.  A maximum further left may come from a
// lower row, so the lesser index wins among equal ones.
static inline void max_over_columns(float *restrict y, int32_t *restrict at,
                                    const float *restrict top, const int32_t *restrict top_at,
                                    int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; i++) {
    float v = top[i * stride], best = y[i];
    int32_t is = top_at[i * stride], was = at[i];
    bool equal = (v == best) | ((v != v) & (best != best));
    bool larger = (v > best) | ((v != v) & (best == best));
    bool take = (is >= 0) & ((was < 0) | larger | (equal & (is < was)));
    y[i] = take ? v : best;
    at[i] = take ? is : was;
  }
}

NNRT_CLONES static void max_channels(float *restrict y, int32_t *restrict at,
                                     const float *restrict x, int64_t n, int32_t place) {
  for (int64_t i = 0; i < n; i++) {
    float v = x[i], best = y[i];
    int32_t was = at[i];
    bool take = (was < 0) | (v > best) | ((v != v) & (best == best));
    y[i] = take ? v : best;
    at[i] = take ? place : was;
  }
}

// Computes row (d, h) of results of one plane: first maxima down the columns of x, then along the
// row. top, top_at: one row of x.
NNRT_CLONES static void max_pool_row(const Pool *p, float *y, int32_t *at, const float *x,
                                     int64_t d, int64_t h, float *top, int32_t *top_at) {
  nothing_yet(top, top_at, p->x[2]);
  for (int64_t i = 0; i < p->kernel[0]; i++) {
    int64_t xd = position(p, 0, d, i);
    if (!inside(p, 0, xd)) continue;
    for (int64_t j = 0; j < p->kernel[1]; j++) {
      int64_t xh = position(p, 1, h, j), place = (xd * p->x[1] + xh) * p->x[2];
      if (inside(p, 1, xh)) max_over_rows(top, top_at, x + place, p->x[2], (int32_t)place);
    }
  }
  // Along the row: the window's columns.
  nothing_yet(y, at, p->y[2]);
  for (int64_t k = 0; k < p->kernel[2]; k++) {
    // Results whose element k of the window is inside x.
    Part r = range(p, 2, k);
    int64_t from = position(p, 2, r.from, k);
    if (r.from < r.to)
      max_over_columns(y + r.from, at + r.from, top + from, top_at + from, r.to - r.from,
                       p->stride[2]);
  }
}

// Calls body for each element of the window of result (d, h, w) inside x; `place` is its index in
// its plane.
#define FOR_WINDOW(p, d, h, w, body)                                                               \
  for (int64_t i_ = 0; i_ < (p)->kernel[0]; i_++) {                                                \
    int64_t xd_ = position(p, 0, d, i_);                                                           \
    if (!inside(p, 0, xd_)) continue;                                                              \
    for (int64_t j_ = 0; j_ < (p)->kernel[1]; j_++) {                                              \
      int64_t xh_ = position(p, 1, h, j_);                                                         \
      if (!inside(p, 1, xh_)) continue;                                                            \
      for (int64_t k_ = 0; k_ < (p)->kernel[2]; k_++) {                                            \
        int64_t xw_ = position(p, 2, w, k_);                                                       \
        if (!inside(p, 2, xw_)) continue;                                                          \
        int64_t place = (xd_ * (p)->x[1] + xh_) * (p)->x[2] + xw_;                                 \
        body;                                                                                      \
      }                                                                                            \
    }                                                                                              \
  }

int nnrt_max_pool_f32(float *y, int32_t *at, const float *x, int64_t ndim, const int64_t *x_shape,
                      const int64_t *y_shape, const int64_t *kernel, const int64_t *strides,
                      const int64_t *pads, const int64_t *dilations, bool channels_last) {
  Pool p = pool_of(ndim, x_shape, y_shape, kernel, strides, pads, dilations, channels_last);
  // The index of a maximum has 32 bits.
  if (p.x_plane > INT32_MAX)
    return nnrt_error(NNRT_UNSUPPORTED, "max_pool: a plane of %lld elements is too large",
                      (long long)p.x_plane);
  int threads = threads_for(p.n * p.c * p.y_plane * product(p.kernel, D));
  int64_t lines = p.y[0] * p.y[1];
  if (!channels_last) {
    size_t row = round_64((size_t)p.x[2] * sizeof(float)), bytes = 2 * row * (size_t)threads;
    char *memory = kernel_scratch(bytes); // (threads, top and top_at)
    if (!memory) return scratch_failed(bytes);
#pragma omp parallel for collapse(2) num_threads(threads)
    for (int64_t nc = 0; nc < p.n * p.c; nc++)
      for (int64_t l = 0; l < lines; l++) {
        int64_t to = nc * p.y_plane + l * p.y[2];
        char *mine = memory + 2 * row * (size_t)omp_get_thread_num();
        max_pool_row(&p, y + to, at + to, x + nc * p.x_plane, l / p.y[1], l % p.y[1], (float *)mine,
                     (int32_t *)(mine + row));
      }
    return NNRT_OK;
  }
#pragma omp parallel for collapse(3) num_threads(threads)
  for (int64_t n = 0; n < p.n; n++)
    for (int64_t l = 0; l < lines; l++)
      for (int64_t w = 0; w < p.y[2]; w++) {
        int64_t to = (n * p.y_plane + l * p.y[2] + w) * p.c;
        const float *from = x + n * p.x_plane * p.c;
        nothing_yet(y + to, at + to, p.c);
        FOR_WINDOW(&p, l / p.y[1], l % p.y[1], w,
                   max_channels(y + to, at + to, from + place * p.c, p.c, (int32_t)place))
      }
  return NNRT_OK;
}

// Windows overlap, so gradients add up in dx; threads take planes, or channels of them.
int nnrt_max_pool_back_f32(float *dx, const int32_t *at, const float *dy, int64_t ndim,
                           const int64_t *y_shape, const int64_t *x_shape, const int64_t *kernel,
                           const int64_t *strides, const int64_t *pads, const int64_t *dilations,
                           bool channels_last) {
  Pool p = pool_of(ndim, x_shape, y_shape, kernel, strides, pads, dilations, channels_last);
  int threads = threads_for(p.n * p.c * (p.x_plane + p.y_plane));
  if (!channels_last) {
#pragma omp parallel for num_threads(threads)
    for (int64_t nc = 0; nc < p.n * p.c; nc++) {
      float *to = dx + nc * p.x_plane;
      memset(to, 0, (size_t)p.x_plane * sizeof *to);
      for (int64_t i = nc * p.y_plane; i < (nc + 1) * p.y_plane; i++)
        // A window outside of x has no maximum.
        if (at[i] >= 0) to[at[i]] += dy[i];
    }
    return NNRT_OK;
  }
  // Few images: threads take ranges of channels.
  int64_t pieces = p.n >= threads ? 1 : threads;
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t n = 0; n < p.n; n++)
    for (int64_t j = 0; j < pieces; j++) {
      // Ranges of whole cache lines.
      Part part = part_of(p.c, 16, j, pieces);
      float *to = dx + n * p.x_plane * p.c;
      for (int64_t i = 0; i < p.x_plane; i++)
        memset(to + i * p.c + part.from, 0, (size_t)(part.to - part.from) * sizeof *to);
      for (int64_t i = n * p.y_plane; i < (n + 1) * p.y_plane; i++)
        for (int64_t c = part.from; c < part.to; c++)
          if (at[i * p.c + c] >= 0) to[at[i * p.c + c] * p.c + c] += dy[i * p.c + c];
    }
  return NNRT_OK;
}

// Returns the number of elements of result o's window that count along dimension d.
static int64_t count_along(const Pool *p, int d, int64_t o, bool include_pad) {
  int64_t n = 0;
  for (int64_t k = 0; k < p->kernel[d]; k++) {
    int64_t at = position(p, d, o, k);
    // Positions beyond the upper padding never count.
    n += include_pad ? at < p->x[d] + p->high[d] : inside(p, d, at);
  }
  return n;
}

// y += x, with strides; below, with a factor per element, or one for all
static inline void add_from(float *restrict y, const float *restrict x, int64_t n,
                            int64_t x_stride) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i * x_stride];
}
static inline void add_scaled(float *restrict y, const float *restrict x,
                              const float *restrict factor, int64_t n, int64_t y_stride) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    y[i * y_stride] += x[i] * factor[i];
}
NNRT_CLONES static void add_times(float *restrict y, const float *restrict x, float factor,
                                  int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] += x[i] * factor;
}
static inline void multiply(float *restrict y, const float *restrict factor, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] *= factor[i];
}

// Computes one row of results (forward: y from x) or of gradients (dx from dy), of one plane.
NNRT_CLONES static void avg_row(const Pool *p, float *y, float *dx, const float *x, const float *dy,
                                const float *factor, int64_t d, int64_t h) {
  if (y) memset(y, 0, (size_t)p->y[2] * sizeof *y);
  for (int64_t i = 0; i < p->kernel[0]; i++) {
    int64_t xd = position(p, 0, d, i);
    if (!inside(p, 0, xd)) continue;
    for (int64_t j = 0; j < p->kernel[1]; j++) {
      int64_t xh = position(p, 1, h, j);
      if (!inside(p, 1, xh)) continue;
      for (int64_t k = 0; k < p->kernel[2]; k++) {
        // One element of the window, for all results of the row at once.
        Part r = range(p, 2, k);
        if (r.from >= r.to) continue;
        int64_t at = (xd * p->x[1] + xh) * p->x[2] + position(p, 2, r.from, k);
        if (y)
          add_from(y + r.from, x + at, r.to - r.from, p->stride[2]);
        else
          add_scaled(dx + at, dy + r.from, factor + r.from, r.to - r.from, p->stride[2]);
      }
    }
  }
  // Divided once, after the sum.
  if (y) multiply(y, factor, p->y[2]);
}

// Returns the inverse of each result's divisor, in scratch.
static float *all_factors(const Pool *p, bool include_pad) {
  float *factor = kernel_scratch((size_t)p->y_plane * sizeof *factor);
  for (int64_t l = 0; factor && l < p->y[0] * p->y[1]; l++) {
    int64_t line = count_along(p, 0, l / p->y[1], include_pad);
    line *= count_along(p, 1, l % p->y[1], include_pad);
    for (int64_t w = 0; w < p->y[2]; w++) {
      int64_t n = line * count_along(p, 2, w, include_pad);
      factor[l * p->y[2] + w] = n ? 1.0f / (float)n : 0.0f;
    }
  }
  return factor;
}

int nnrt_avg_pool_f32(float *y, const float *x, int64_t ndim, const int64_t *x_shape,
                      const int64_t *y_shape, const int64_t *kernel, const int64_t *strides,
                      const int64_t *pads, const int64_t *dilations, bool include_pad,
                      bool channels_last) {
  Pool p = pool_of(ndim, x_shape, y_shape, kernel, strides, pads, dilations, channels_last);
  int threads = threads_for(p.n * p.c * p.y_plane * product(p.kernel, D));
  int64_t lines = p.y[0] * p.y[1];
  // Divisors are the same for all planes.
  float *factor = all_factors(&p, include_pad);
  if (!factor) return scratch_failed((size_t)p.y_plane * sizeof *factor);
  if (!channels_last) {
#pragma omp parallel for collapse(2) num_threads(threads)
    for (int64_t nc = 0; nc < p.n * p.c; nc++)
      for (int64_t l = 0; l < lines; l++)
        avg_row(&p, y + nc * p.y_plane + l * p.y[2], NULL, x + nc * p.x_plane, NULL,
                factor + l * p.y[2], l / p.y[1], l % p.y[1]);
    return NNRT_OK;
  }
#pragma omp parallel for collapse(3) num_threads(threads)
  for (int64_t n = 0; n < p.n; n++)
    for (int64_t l = 0; l < lines; l++)
      for (int64_t w = 0; w < p.y[2]; w++) {
        float *to = y + (n * p.y_plane + l * p.y[2] + w) * p.c;
        const float *from = x + n * p.x_plane * p.c;
        memset(to, 0, (size_t)p.c * sizeof *to);
        FOR_WINDOW(&p, l / p.y[1], l % p.y[1], w,
                   add_times(to, from + place * p.c, factor[l * p.y[2] + w], p.c))
      }
  return NNRT_OK;
}

int nnrt_avg_pool_back_f32(float *dx, const float *dy, int64_t ndim, const int64_t *y_shape,
                           const int64_t *x_shape, const int64_t *kernel, const int64_t *strides,
                           const int64_t *pads, const int64_t *dilations, bool include_pad,
                           bool channels_last) {
  Pool p = pool_of(ndim, x_shape, y_shape, kernel, strides, pads, dilations, channels_last);
  int threads = threads_for(p.n * p.c * p.y_plane * product(p.kernel, D));
  int64_t lines = p.y[0] * p.y[1];
  float *factor = all_factors(&p, include_pad);
  if (!factor) return scratch_failed((size_t)p.y_plane * sizeof *factor);
  // A plane belongs to one thread: windows overlap.
  if (!channels_last) {
#pragma omp parallel for num_threads(threads)
    for (int64_t nc = 0; nc < p.n * p.c; nc++) {
      float *to = dx + nc * p.x_plane;
      memset(to, 0, (size_t)p.x_plane * sizeof *to);
      for (int64_t l = 0; l < lines; l++)
        avg_row(&p, NULL, to, NULL, dy + nc * p.y_plane + l * p.y[2], factor + l * p.y[2],
                l / p.y[1], l % p.y[1]);
    }
    return NNRT_OK;
  }
  // Few images: threads take ranges of channels.
  int64_t pieces = p.n >= threads ? 1 : threads;
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t n = 0; n < p.n; n++)
    for (int64_t j = 0; j < pieces; j++) {
      Part part = part_of(p.c, 16, j, pieces);
      float *to = dx + n * p.x_plane * p.c + part.from;
      for (int64_t i = 0; i < p.x_plane; i++)
        memset(to + i * p.c, 0, (size_t)(part.to - part.from) * sizeof *to);
      for (int64_t i = 0; i < p.y_plane; i++) {
        const float *from = dy + (n * p.y_plane + i) * p.c + part.from;
        int64_t l = i / p.y[2];
        FOR_WINDOW(&p, l / p.y[1], l % p.y[1], i % p.y[2],
                   add_times(to + place * p.c, from, factor[i], part.to - part.from))
      }
    }
  return NNRT_OK;
}
