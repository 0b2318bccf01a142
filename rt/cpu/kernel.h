// Helpers of all kernels: the number of threads for an amount of work, and the view of a tensor as
// (outer, n, inner) around one axis.
//
// The pattern is always the same.  A public function splits its rows among threads and calls a
// static leaf function, marked NNRT_CLONES, that is plain loops over some of them:
//
//     NNRT_CLONES static void scale_rows(float *y, const float *x, int64_t n) { loops }
//
//     #pragma omp parallel for num_threads(threads_for(m * n))
//     for (int64_t i = 0; i < m; i++) scale_rows(y + i * n, x + i * n, n);
//
// Floating-point sums are vectorised by `omp simd reduction`, which permits the change of order;
// the order depends on the processor but not on the number of threads.

#ifndef NNRT_KERNEL_H
#define NNRT_KERNEL_H

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "nnrt.h"

// Starting a team costs some microseconds; below this many elements per thread it does not pay.
enum { NNRT_GRAIN = 16384 };

static inline int threads_for(int64_t elements) {
  int64_t most = omp_get_max_threads();
  int64_t n = elements / NNRT_GRAIN;
  return (int)(n < 1 ? 1 : n < most ? n : most);
}

// Whether one thread runs a product or convolution of `products` multiplications on tensors of
// `elements` elements.  With two idle cores a product of 2^20 multiplications gains 3 of its 9
// microseconds from the second one, and one of half that size nothing.  An element that comes from
// memory costs as much as many multiplications: a vector times a matrix of 2^20 elements takes 100.
static inline bool kernel_small(int64_t products, int64_t elements) {
  return (double)products + 16 * (double)elements < 1 << 20;
}

// The i-th of n even parts of 0 .. size, in units of `unit`; the last unit may be shorter.
typedef struct Part {
  int64_t from, to;
} Part;

static inline Part part_of(int64_t size, int64_t unit, int64_t i, int64_t n) {
  int64_t units = (size + unit - 1) / unit;
  int64_t from = units * i / n * unit, to = units * (i + 1) / n * unit;
  return (Part){from < size ? from : size, to < size ? to : size};
}

static inline int64_t product(const int64_t *shape, int64_t n) {
  int64_t p = 1;
  for (int64_t i = 0; i < n; i++)
    p *= shape[i];
  return p;
}

// A tensor as (outer, n, inner), with n = shape[axis].
typedef struct Axis {
  int64_t outer, n, inner;
} Axis;

static inline Axis axis_of(int64_t ndim, const int64_t *shape, int64_t axis) {
  return (Axis){product(shape, axis), shape[axis], product(shape + axis + 1, ndim - axis - 1)};
}

// The first member of every prepared kernel.
struct NnrtPrep {
  void (*free)(NnrtPrep *p); // frees its contents and itself
};

// Returns memory for one call: at least `bytes`, at a multiple of 64, NULL if out of memory. It
// belongs to the calling thread and grows to the largest request, so that a rank's kernels share
// one block.  A kernel asks once; OpenMP threads get parts of their master's block.
void *kernel_scratch(size_t bytes);
// The same in a second block, which lasts while the kernel runs others.
void *kernel_outer_scratch(size_t bytes);
int scratch_failed(size_t bytes); // reports it

// Whether there is memory for a library to prepare a kernel: oneDNN uses some of its allocations
// without a check.  False: reports it.
bool kernel_memory_left(const char *kernel);

static inline size_t round_64(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Returns index number `i` of an array of elements of `width` bytes.
static inline int64_t index_at(const void *at, int64_t width, int64_t i) {
  return width == 4 ? ((const int32_t *)at)[i] : ((const int64_t *)at)[i];
}

#endif
