// Elements and their indices, for tests of kernels that move elements: by definition, one index at
// a time.

#ifndef TESTS_RT_PLACES_H
#define TESTS_RT_PLACES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nnrt.h"
#include "nnrt_random.h"

static int64_t count(int64_t ndim, const int64_t *shape) {
  int64_t n = 1;
  for (int64_t d = 0; d < ndim; d++)
    n *= shape[d];
  return n;
}

// Converts element number i of a tensor of `shape` to its index, and back.
static void index_of(int64_t ndim, const int64_t *shape, int64_t i, int64_t *index) {
  for (int64_t d = ndim - 1; d >= 0; d--) {
    index[d] = i % shape[d];
    i /= shape[d];
  }
}

static int64_t place_of(int64_t ndim, const int64_t *shape, const int64_t *index) {
  int64_t at = 0;
  for (int64_t d = 0; d < ndim; d++)
    at = at * shape[d] + index[d];
  return at;
}

// Returns n elements of `width` bytes; the value of element i depends on i.
static char *elements(int64_t n, int64_t width) {
  char *x = malloc((size_t)(n * width) + 1);
  for (int64_t i = 0; i < n; i++) {
    uint64_t v = nnrt_random_mix((uint64_t)i);
    memcpy(x + i * width, &v, (size_t)width);
  }
  return x;
}

// Calls the kernel for elements of `width` bytes.
#define BY_WIDTH(name, width, ...)                                                                 \
  ((width) == 1   ? nnrt_##name##_b1(__VA_ARGS__)                                                  \
   : (width) == 2 ? nnrt_##name##_b2(__VA_ARGS__)                                                  \
   : (width) == 4 ? nnrt_##name##_b4(__VA_ARGS__)                                                  \
                  : nnrt_##name##_b8(__VA_ARGS__))

#endif
