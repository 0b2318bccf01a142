// Sketches of arrays: see sketch.h.

#include "sketch.h"

#include "runtime.h"
#include "word_sum.h"

void nnrt_sketch_add(double s[SKETCH], NnrtDtype type, const void *at, int64_t first, int64_t n) {
#pragma omp parallel for reduction(+ : s[:SKETCH]) if (n > 1 << 16)
  for (int64_t i = 0; i < n; i++) {
    uint64_t hash = word_mix(0, (uint64_t)(first + i));
    double x = nnrt_element_at(at, type, i);
    // The highest bits of the hash are mixed best.
    s[hash >> 56] += hash >> 55 & 1 ? -x : x;
  }
}

double nnrt_sketch_square(const double x[SKETCH], const double y[SKETCH]) {
  double sum = 0;
  for (int i = 0; i < SKETCH; i++) {
    double d = y ? x[i] - y[i] : x[i];
    sum += d * d;
  }
  return sum;
}
