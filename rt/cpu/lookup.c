// Gathers rows of a table by indices; the gradient adds up the rows' gradients.
// For a row of another shard gather writes zeros, and gather_back adds nothing.

#include "indices.h"
#include "wide.h"

#define GATHER(size)                                                                               \
  int nnrt_gather_##size(void *y, const void *x, const void *at, int64_t x_ndim,                   \
                         const int64_t *x_shape, int64_t at_ndim, const int64_t *at_shape,         \
                         int64_t width, const NnrtGather *attrs, int64_t from, int64_t all) {      \
    Axis a = axis_of(x_ndim, x_shape, attrs->axis);                                                \
    Indices indices =                                                                              \
        indices_of(at, product(at_shape, at_ndim), width, attrs->batch, from, all, &a);            \
    if (attrs->embedding) indices.low = 0;                                                         \
    int code = check_indices(&indices);                                                            \
    if (code) return code;                                                                         \
    size##_rows(y, x, &indices, a, threads_for(a.outer *indices.count *a.inner));                  \
    return NNRT_OK;                                                                                \
  }
#define ROWS(size)                                                                                 \
  static void size##_rows(size *y, const size *x, const Indices *at, Axis a, int threads) {        \
    int64_t count = at->count;                                                                     \
    _Pragma("omp parallel for collapse(2) num_threads(threads)") for (int64_t o = 0; o < a.outer;  \
                                                                      o++) for (int64_t i = 0;     \
                                                                                i < count; i++) {  \
      int64_t row = row_at(at, i);                                                                 \
      size *to = y + (o * count + i) * a.inner;                                                    \
      const size *from = x + (o * a.n + row) * a.inner;                                            \
      if (row < 0)                                                                                 \
        memset(to, 0, (size_t)a.inner * sizeof *to);                                               \
      else if (a.inner == 1)                                                                       \
        *to = *from;                                                                               \
      else                                                                                         \
        memcpy(to, from, (size_t)a.inner * sizeof *to);                                            \
    }                                                                                              \
  }
NNRT_BY_SIZE(ROWS)
NNRT_BY_SIZE(GATHER)

// Adds columns from .. to of the rows of dy with an index in rows low .. high of dx.
NNRT_CLONES static void add_rows(float *restrict dx, const float *restrict dy, const Indices *at,
                                 Axis a, Part columns, Part rows) {
  // The range is zeroed by the thread that adds to it: whole rows at once, as a call for each short
  // row of a table takes longer than the zeros.
  int64_t n = columns.to - columns.from;
  bool whole = n == a.inner;
  int64_t step = whole ? rows.to - rows.from : 1;
  for (int64_t r = rows.from; r < rows.to; r += step)
    memset(dx + r * a.inner + columns.from, 0, (size_t)(step * n) * sizeof *dx);
  for (int64_t i = 0; i < at->count; i++) {
    int64_t row = row_at(at, i);
    // Every thread reads all indices, and takes those of its range.
    if (row < rows.from || row >= rows.to) continue;
    float *to = dx + row * a.inner;
    const float *from = dy + i * a.inner;
    for (int64_t j = columns.from; j < columns.to; j++)
      to[j] += from[j];
  }
}

// No two threads add to the same element, and each adds in the order of dy: threads take slices of
// the outer axes, else columns, else, for short rows, ranges of rows.
static int gather_back(NnrtDtype type, float *dx, const void *at, const void *dy, int64_t at_ndim,
                       const int64_t *at_shape, int64_t width, int64_t x_ndim,
                       const int64_t *x_shape, int64_t axis, int64_t batch, int64_t from,
                       int64_t all) {
  Axis a = axis_of(x_ndim, x_shape, axis);
  int64_t count = product(at_shape, at_ndim);
  Indices indices = indices_of(at, count, width, batch, from, all, &a);
  int code = check_indices(&indices);
  if (code) return code;
  int64_t n = a.outer * count * a.inner; // elements of dy: with batch dimensions `a` has changed
  // There are few rows of dy, compared with the rows of dx that are zeroed: all are converted
  // first.
  Wide w;
  if (!wide_new(&w, type, 1, n, 1, 1, 0)) return NNRT_MEMORY;
  const float *rows = wide_read(&w, dy, 0, n, wide_block(&w, 0, 0));
  int threads = threads_for(n + a.outer * a.n * a.inner);
  // Sums are in the order of dy for any number of threads.
  bool by_slice = a.outer >= threads, by_column = a.inner >= 64 * threads;
  int64_t column_parts = by_slice || !by_column ? 1 : threads;
  int64_t row_parts = by_slice || by_column ? 1 : threads;
#pragma omp parallel for collapse(3) num_threads(threads)
  for (int64_t o = 0; o < a.outer; o++)
    for (int64_t c = 0; c < column_parts; c++)
      for (int64_t r = 0; r < row_parts; r++)
        add_rows(dx + o * a.n * a.inner, rows + o * count * a.inner, &indices, a,
                 part_of(a.inner, 16, c, column_parts), part_of(a.n, 1, r, row_parts));
  return NNRT_OK;
}

#define KERNELS(type, T)                                                                           \
  int nnrt_gather_back_##type(float *dx, const void *at, const T *dy, int64_t at_ndim,             \
                              const int64_t *at_shape, int64_t width, int64_t x_ndim,              \
                              const int64_t *x_shape, int64_t axis, int64_t batch, int64_t from,   \
                              int64_t all) {                                                       \
    return gather_back(NNRT_##type, dx, at, dy, at_ndim, at_shape, width, x_ndim, x_shape, axis,   \
                       batch, from, all);                                                          \
  }
KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)
