// Rows of u put into the places of a table that indices name, or combined with the rows there.
//
// The table is copied first, unless the result is in its place.  No two threads write the same
// element, and each goes through the rows of u in their order: threads take slices of the outer
// axes, else columns, else, for short rows, ranges of rows.

#include "indices.h"

// Combines rows of u with an index in `rows` of y, in some columns.
typedef void RowsFn(void *y, const void *u, const Indices *at, int64_t inner, Part columns,
                    Part rows);

static int scatter(void *y, const void *x, const void *at, const void *u, int64_t x_ndim,
                   const int64_t *x_shape, int64_t at_ndim, const int64_t *at_shape, int64_t width,
                   const NnrtScatter *attrs, int64_t from, int64_t all, RowsFn *combine,
                   int64_t size) {
  Axis a = axis_of(x_ndim, x_shape, attrs->axis);
  int64_t count = product(at_shape, at_ndim);
  Indices indices = indices_of(at, count, width, attrs->batch, from, all, &a);
  int code = check_indices(&indices);
  if (code) return code;
  if (y != x) nnrt_copy(y, x, a.outer * a.n * a.inner * size);
  int threads = threads_for(a.outer * count * a.inner);
  bool by_slice = a.outer >= threads, by_column = a.inner >= 64 * threads;
  int64_t column_parts = by_slice || !by_column ? 1 : threads;
  int64_t row_parts = by_slice || by_column ? 1 : threads;
#pragma omp parallel for collapse(3) num_threads(threads)
  for (int64_t o = 0; o < a.outer; o++)
    for (int64_t c = 0; c < column_parts; c++)
      for (int64_t r = 0; r < row_parts; r++)
        combine((char *)y + o * a.n * a.inner * size, (const char *)u + o * count * a.inner * size,
                &indices, a.inner, part_of(a.inner, 16, c, column_parts),
                part_of(a.n, 1, r, row_parts));
  return NNRT_OK;
}

#define ROWS(name, type, of)                                                                       \
  NNRT_CLONES static void rows_##name(void *y, const void *u, const Indices *at, int64_t inner,    \
                                      Part columns, Part rows) {                                   \
    for (int64_t i = 0; i < at->count; i++) {                                                      \
      int64_t row = row_at(at, i);                                                                 \
      if (row < rows.from || row >= rows.to) continue;                                             \
      type *restrict to = (type *)y + row * inner;                                                 \
      const type *restrict more = (const type *)u + i * inner;                                     \
      for (int64_t j = columns.from; j < columns.to; j++)                                          \
        to[j] = of(type, to[j], more[j]);                                                          \
    }                                                                                              \
  }
#define SCATTER(name, interface, type, of)                                                         \
  ROWS(name, type, of)                                                                             \
  int nnrt_##name(interface *y, const interface *x, const void *at, const interface *u,            \
                  int64_t x_ndim, const int64_t *x_shape, int64_t at_ndim,                         \
                  const int64_t *at_shape, int64_t width, const NnrtScatter *attrs, int64_t from,  \
                  int64_t all) {                                                                   \
    return scatter(y, x, at, u, x_ndim, x_shape, at_ndim, at_shape, width, attrs, from, all,       \
                   rows_##name, (int64_t)sizeof(type));                                            \
  }

#define SET(type, y, u)    (u)
#define SCATTER_SIZE(size) SCATTER(scatter_##size, void, size, SET)
NNRT_BY_SIZE(SCATTER_SIZE)

// Sums and products of integers wrap around; a NaN stays.
#define ADD(type, y, u) ((type)((y) + (u)))
#define MUL(type, y, u) ((type)((y) * (u)))
#define MIN(type, y, u) ((y) < (u) || (y) != (y) ? (y) : (u))
#define MAX(type, y, u) ((y) > (u) || (y) != (y) ? (y) : (u))
#define SCATTERS(name, type, ring)                                                                 \
  SCATTER(scatter_add_##name, type, ring, ADD)                                                     \
  SCATTER(scatter_mul_##name, type, ring, MUL)                                                     \
  SCATTER(scatter_min_##name, type, type, MIN)                                                     \
  SCATTER(scatter_max_##name, type, type, MAX)
SCATTERS(f32, float, float)
SCATTERS(i32, int32_t, uint32_t)
SCATTERS(i64, int64_t, uint64_t)
