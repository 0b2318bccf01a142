// Copies boxes of elements: see copy.h.
//
// First the axes are simplified: those of length 1 are dropped, neighbours that are one axis in
// both tensors are merged.  Then the innermost axis of y decides.  If x has stride 1 along it too,
// it is a contiguous run; if x has stride 0, a fill.  If x has stride 1 along another axis of the
// box, that axis and this one are transposed in tiles, so that both tensors are read and written in
// whole cache lines.

#include "copy.h"

typedef uint8_t __attribute__((may_alias)) b1;
typedef uint16_t __attribute__((may_alias)) b2;
typedef uint32_t __attribute__((may_alias)) b4;
typedef uint64_t __attribute__((may_alias)) b8;

enum { TILE = 32 };

void strides_of(int64_t ndim, const int64_t *shape, int64_t *stride) {
  int64_t n = 1;
  for (int64_t i = ndim - 1; i >= 0; i--) {
    stride[i] = n;
    n *= shape[i];
  }
}

// Removes axis `d` from the outer loops, for a leaf.
static void drop_axis(Copy *c, int64_t d) {
  c->ndim--;
  // The leaf loops over this axis itself.
  for (int64_t i = d; i < c->ndim; i++) {
    c->shape[i] = c->shape[i + 1];
    c->y_stride[i] = c->y_stride[i + 1];
    c->x_stride[i] = c->x_stride[i + 1];
  }
}

static void place(const Copy *c, int64_t i, int64_t *y, int64_t *x) {
  *y = *x = 0;
  // The number of the iteration, as digits of the outer axes.
  for (int64_t d = c->ndim - 1; d >= 0; d--) {
    *y += i % c->shape[d] * c->y_stride[d];
    *x += i % c->shape[d] * c->x_stride[d];
    i /= c->shape[d];
  }
}

// line: n elements with strides.  tile: y[i * ys + j] = x[j * xs + i] for i < rows, j < columns; it
// goes through a copy, since rows of x a power of two apart would conflict in the same sets of the
// cache.
#define LEAVES(size)                                                                               \
  NNRT_CLONES static void line_##size(size *y, const size *x, int64_t n, int64_t ys, int64_t xs) { \
    if (ys == 1 && xs == 1) {                                                                      \
      memcpy(y, x, (size_t)n * sizeof *y);                                                         \
    } else if (ys == 1 && xs == 0) {                                                               \
      size v = *x;                                                                                 \
      for (int64_t i = 0; i < n; i++)                                                              \
        y[i] = v;                                                                                  \
    } else {                                                                                       \
      for (int64_t i = 0; i < n; i++)                                                              \
        y[i * ys] = x[i * xs];                                                                     \
    }                                                                                              \
  }                                                                                                \
  NNRT_CLONES static void tile_##size(size *restrict y, const size *restrict x, int64_t rows,      \
                                      int64_t columns, int64_t ys, int64_t xs) {                   \
    size near[TILE][TILE];                                                                         \
    for (int64_t j = 0; j < columns; j++)                                                          \
      for (int64_t i = 0; i < rows; i++)                                                           \
        near[j][i] = x[j * xs + i];                                                                \
    for (int64_t i = 0; i < rows; i++)                                                             \
      for (int64_t j = 0; j < columns; j++)                                                        \
        y[i * ys + j] = near[j][i];                                                                \
  }
NNRT_BY_SIZE(LEAVES)

static void line(char *y, const char *x, int64_t width, int64_t n, int64_t ys, int64_t xs) {
  switch (width) {
  case 1: line_b1((b1 *)y, (const b1 *)x, n, ys, xs); break;
  case 2: line_b2((b2 *)y, (const b2 *)x, n, ys, xs); break;
  case 4: line_b4((b4 *)y, (const b4 *)x, n, ys, xs); break;
  default: line_b8((b8 *)y, (const b8 *)x, n, ys, xs); break;
  }
}

static void tile(char *y, const char *x, int64_t width, int64_t rows, int64_t columns, int64_t ys,
                 int64_t xs) {
  switch (width) {
  case 1: tile_b1((b1 *)y, (const b1 *)x, rows, columns, ys, xs); break;
  case 2: tile_b2((b2 *)y, (const b2 *)x, rows, columns, ys, xs); break;
  case 4: tile_b4((b4 *)y, (const b4 *)x, rows, columns, ys, xs); break;
  default: tile_b8((b8 *)y, (const b8 *)x, rows, columns, ys, xs); break;
  }
}

static void copy_tiles(char *y, const char *x, int64_t width, Copy c, int64_t across, int threads) {
  int64_t last = c.ndim - 1;
  int64_t rows = c.shape[across], ys = c.y_stride[across];
  int64_t columns = c.shape[last], xs = c.x_stride[last];
  // The two axes of a tile are the leaf's; the last is removed first, as it is after the other.
  drop_axis(&c, last);
  drop_axis(&c, across);
  int64_t outer = product(c.shape, c.ndim);
#pragma omp parallel for collapse(3) num_threads(threads)
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < rows; i += TILE)
      for (int64_t j = 0; j < columns; j += TILE) {
        // Tiles at the edge are smaller.
        int64_t y_at, x_at;
        place(&c, o, &y_at, &x_at);
        tile(y + (y_at + i * ys + j) * width, x + (x_at + j * xs + i) * width, width,
             rows - i < TILE ? rows - i : TILE, columns - j < TILE ? columns - j : TILE, ys, xs);
      }
}

void copy_box(void *y, const void *x, int64_t width, const Copy *copy) {
  // Axes of length 1 are dropped, and neighbours that are one axis in both tensors are merged.
  Copy c = {0};
  for (int64_t i = 0; i < copy->ndim; i++) {
    if (copy->shape[i] == 1) continue;
    int64_t n = copy->shape[i], ys = copy->y_stride[i], xs = copy->x_stride[i], last = c.ndim - 1;
    if (c.ndim && c.y_stride[last] == n * ys && c.x_stride[last] == n * xs) {
      c.shape[last] *= n;
      c.y_stride[last] = ys;
      c.x_stride[last] = xs;
      continue;
    }
    c.shape[c.ndim] = n;
    c.y_stride[c.ndim] = ys;
    c.x_stride[c.ndim++] = xs;
  }
  if (!c.ndim) c = (Copy){.ndim = 1, .shape = {1}, .y_stride = {1}, .x_stride = {1}};
  char *to = y;
  const char *from = x;
  int threads = threads_for(product(c.shape, c.ndim) * width / 4);
  // The axis along which x is contiguous, if it is not y's innermost.
  int64_t last = c.ndim - 1, across = -1;
  bool crosses = c.y_stride[last] == 1 && c.x_stride[last] != 1 && c.x_stride[last] != 0;
  for (int64_t d = 0; d < last && crosses && across < 0; d++)
    if (c.x_stride[d] == 1) across = d;
  if (across >= 0) {
    copy_tiles(to, from, width, c, across, threads);
    return;
  }
  int64_t n = c.shape[last], ys = c.y_stride[last], xs = c.x_stride[last];
  drop_axis(&c, last);
  int64_t outer = product(c.shape, c.ndim);
  // A single long line is split; otherwise threads take lines.
  int64_t pieces = outer >= threads ? 1 : threads;
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < pieces; i++) {
      int64_t y_at, x_at;
      place(&c, o, &y_at, &x_at);
      Part p = part_of(n, 64, i, pieces);
      line(to + (y_at + p.from * ys) * width, from + (x_at + p.from * xs) * width, width,
           p.to - p.from, ys, xs);
    }
}

int nnrt_zero(void *y, int64_t bytes) {
  char *at = y;
  int threads = threads_for(bytes / 4);
#pragma omp parallel for num_threads(threads)
  for (int i = 0; i < threads; i++) {
    // Units of a page: threads do not meet in one.
    Part p = part_of(bytes, 4096, i, threads);
    memset(at + p.from, 0, (size_t)(p.to - p.from));
  }
  return NNRT_OK;
}

int nnrt_copy(void *y, const void *x, int64_t bytes) {
  memcpy(y, x, (size_t)bytes);
  return NNRT_OK;
}
