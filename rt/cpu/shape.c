// Kernels that only move elements, by element size.  All but trilu, which copies parts of rows,
// copy boxes between strided tensors (copy.h).

#include "copy.h"

static int transpose(void *y, const void *x, int64_t width, int64_t ndim, const int64_t *shape,
                     const int64_t *perm) {
  Copy c = {.ndim = ndim};
  int64_t x_stride[NNRT_MAX_NDIM];
  strides_of(ndim, shape, x_stride);
  for (int64_t i = 0; i < ndim; i++) {
    c.shape[i] = shape[perm[i]];
    // The box has the shape of y; x is read in another order.
    c.x_stride[i] = x_stride[perm[i]];
  }
  strides_of(ndim, c.shape, c.y_stride);
  copy_box(y, x, width, &c);
  return NNRT_OK;
}

// Axes of x are the last of y; those of length 1 get stride 0.
static int broadcast(void *y, const void *x, int64_t width, int64_t y_ndim, const int64_t *y_shape,
                     int64_t x_ndim, const int64_t *x_shape) {
  Copy c = {.ndim = y_ndim};
  int64_t x_stride[NNRT_MAX_NDIM], missing = y_ndim - x_ndim;
  strides_of(x_ndim, x_shape, x_stride);
  strides_of(y_ndim, y_shape, c.y_stride);
  for (int64_t i = 0; i < y_ndim; i++) {
    c.shape[i] = y_shape[i];
    c.x_stride[i] = i < missing || x_shape[i - missing] == 1 ? 0 : x_stride[i - missing];
  }
  copy_box(y, x, width, &c);
  return NNRT_OK;
}

// Sets the strides of the box within `whole` that begins at `starts` and advances by `steps`;
// returns its offset.
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
  Copy c = {.ndim = ndim};
  int64_t at = steps_of(ndim, x_shape, starts, steps, c.x_stride);
  strides_of(ndim, y_shape, c.y_stride);
  // Steps are part of the strides, so the box has the shape of y.
  memcpy(c.shape, y_shape, (size_t)ndim * sizeof *y_shape);
  copy_box(y, (const char *)x + at * width, width, &c);
  return NNRT_OK;
}

static int slice_back(void *dx, const void *dy, int64_t width, int64_t ndim,
                      const int64_t *dy_shape, const int64_t *starts, const int64_t *steps,
                      const int64_t *dx_shape) {
  Copy c = {.ndim = ndim};
  int64_t at = steps_of(ndim, dx_shape, starts, steps, c.y_stride);
  strides_of(ndim, dy_shape, c.x_stride);
  memcpy(c.shape, dy_shape, (size_t)ndim * sizeof *dy_shape);
  // Elements outside of the slice have gradient 0.
  nnrt_zero(dx, product(dx_shape, ndim) * width);
  copy_box((char *)dx + at * width, dy, width, &c);
  return NNRT_OK;
}

static int concat(void *y, const void *const *in, int64_t width, int64_t n, int64_t ndim,
                  const int64_t *y_shape, const int64_t *sizes, int64_t axis) {
  Axis a = axis_of(ndim, y_shape, axis);
  char *to = y;
  for (int64_t i = 0; i < n; i++) {
    // A block of y with the operand's whole length along the axis.
    Copy c = {.ndim = 2,
              .shape = {a.outer, sizes[i] * a.inner},
              .y_stride = {a.n * a.inner, 1},
              .x_stride = {sizes[i] * a.inner, 1}};
    copy_box(to, in[i], width, &c);
    to += sizes[i] * a.inner * width;
  }
  return NNRT_OK;
}

// Keeps columns from i + k on of row i (upper), or up to i + k.
static int trilu(void *y, const void *x, int64_t width, int64_t ndim, const int64_t *shape,
                 bool upper, int64_t k) {
  int64_t outer = product(shape, ndim - 2), m = shape[ndim - 2], n = shape[ndim - 1];
  int threads = threads_for(outer * m * n);
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < m; i++) {
      // The diagonal of this row, within the row.
      int64_t edge = upper ? i + k : i + k + 1;
      edge = edge < 0 ? 0 : edge > n ? n : edge;
      int64_t from = upper ? edge : 0, to = upper ? n : edge;
      char *row = (char *)y + (o * m + i) * n * width;
      const char *x_row = (const char *)x + (o * m + i) * n * width;
      memset(row, 0, (size_t)(from * width));
      memcpy(row + from * width, x_row + from * width, (size_t)((to - from) * width));
      memset(row + to * width, 0, (size_t)((n - to) * width));
    }
  return NNRT_OK;
}

// Packs operands into a bucket, at multiples of 64 bytes.  An operand that was computed in its
// place is not copied.  The gaps are zero, so the sum over a bucket is the sum over its operands.
static int pack(void *y, const void *const *in, int64_t width, int64_t n, const int64_t *sizes) {
  char *to = y;
  for (int64_t i = 0; i < n; i++) {
    Copy c = {.ndim = 1, .shape = {sizes[i]}, .y_stride = {1}, .x_stride = {1}};
    size_t bytes = (size_t)(sizes[i] * width);
    if (in[i] != to) copy_box(to, in[i], width, &c);
    memset(to + bytes, 0, round_64(bytes) - bytes);
    to += round_64(bytes);
  }
  return NNRT_OK;
}

#define SHAPE(size, width)                                                                         \
  int nnrt_transpose_##size(void *y, const void *x, int64_t ndim, const int64_t *shape,            \
                            const int64_t *perm) {                                                 \
    return transpose(y, x, width, ndim, shape, perm);                                              \
  }                                                                                                \
  int nnrt_broadcast_##size(void *y, const void *x, int64_t y_ndim, const int64_t *y_shape,        \
                            int64_t x_ndim, const int64_t *x_shape) {                              \
    return broadcast(y, x, width, y_ndim, y_shape, x_ndim, x_shape);                               \
  }                                                                                                \
  int nnrt_slice_##size(void *y, const void *x, int64_t ndim, const int64_t *x_shape,              \
                        const int64_t *starts, const int64_t *steps, const int64_t *y_shape) {     \
    return slice(y, x, width, ndim, x_shape, starts, steps, y_shape);                              \
  }                                                                                                \
  int nnrt_slice_back_##size(void *dx, const void *dy, int64_t ndim, const int64_t *dy_shape,      \
                             const int64_t *starts, const int64_t *steps,                          \
                             const int64_t *dx_shape) {                                            \
    return slice_back(dx, dy, width, ndim, dy_shape, starts, steps, dx_shape);                     \
  }                                                                                                \
  int nnrt_concat_##size(void *y, const void *const *in, int64_t n, int64_t ndim,                  \
                         const int64_t *y_shape, const int64_t *sizes, int64_t axis) {             \
    return concat(y, in, width, n, ndim, y_shape, sizes, axis);                                    \
  }                                                                                                \
  int nnrt_bit_cast_##size(void *y, const void *x, int64_t n) {                                    \
    memcpy(y, x, (size_t)(n * width));                                                             \
    return NNRT_OK;                                                                                \
  }                                                                                                \
  int nnrt_trilu_##size(void *y, const void *x, int64_t ndim, const int64_t *shape, bool upper,    \
                        int64_t k) {                                                               \
    return trilu(y, x, width, ndim, shape, upper, k);                                              \
  }                                                                                                \
  int nnrt_pack_##size(void *y, const void *const *in, int64_t n, const int64_t *sizes) {          \
    return pack(y, in, width, n, sizes);                                                           \
  }
SHAPE(b1, 1)
SHAPE(b2, 2)
SHAPE(b4, 4)
SHAPE(b8, 8)
