// Helpers of the kernels' tests: operands, and comparison with a naive result in double.

#ifndef KERNELS_TEST_H
#define KERNELS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above first.
#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "groups.h"
#include "nnrt.h"
#include "nnrt_random.h"

// Returns numbers from -1 to 1; the same for the same seed.
static inline float *floats(int64_t n, int64_t seed) {
  float *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(2 * nnrt_random_uniform(seed, 0, 0, i) - 1);
  return x;
}

// Results begin as NaN, which shows elements that are not written.
static inline float *results(int64_t n) {
  float *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++)
    x[i] = NAN;
  return x;
}

static inline double *zeros(int64_t n) {
  return calloc((size_t)n, sizeof(double));
}

// Checks |got - want| / |want| as norms.  A NaN fails.
static inline void assert_near(const char *what, const float *got, const double *want, int64_t n,
                               double tolerance) {
  double off = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    off += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  double error = sqrt(off) / (sqrt(size) > 0 ? sqrt(size) : 1);
  if (!(error <= tolerance)) fail_msg("%s: off by %g as a relative norm", what, error);
}

static inline void assert_same_bits(const char *what, const void *x, const void *y, size_t bytes) {
  if (memcmp(x, y, bytes) != 0) fail_msg("%s: not the same bits", what);
}

#endif
