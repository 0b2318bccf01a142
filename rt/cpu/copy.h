// Copies boxes of elements between strided tensors: the core of transpose, broadcast, slice and
// concat.
//
//     transpose 0213 of (b, t, h, d)     shape (b, h, t, d), x strides (t h d, d, h d, 1)
//     broadcast (3) to (2, 3)            shape (2, 3),       x strides (0, 1)
//     slice, every second, backwards     shape (n),          x strides (-2)
//
// and y is row-major.

#ifndef NNRT_COPY_H
#define NNRT_COPY_H

#include "kernel.h"

// A box of y filled from x; strides in elements.
typedef struct Copy {
  int64_t ndim;
  int64_t shape[NNRT_MAX_NDIM], y_stride[NNRT_MAX_NDIM], x_stride[NNRT_MAX_NDIM];
} Copy;

// Copies elements of `width` bytes (1, 2, 4 or 8).
void copy_box(void *y, const void *x, int64_t width, const Copy *copy);

void strides_of(int64_t ndim, const int64_t *shape, int64_t *stride); // row-major

#endif
