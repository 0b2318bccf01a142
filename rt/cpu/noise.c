// x plus random numbers.  The number of an element depends on seed, step, key and its index in the
// whole tensor, so it is the same on any number of ranks.

#include "nnrt_random.h"
#include "runs.h"

enum { BLOCK = 256 };

// Adds to n elements the numbers from index `at` of the whole on.
static void add_numbers(float *y, const float *x, int64_t at, int64_t n, int64_t seed, int64_t step,
                        const NnrtNoise *attrs) {
  for (int64_t i = 0; i < n; i++) {
    double number = attrs->normal ? nnrt_random_normal(seed, step, attrs->key, at + i)
                                  : nnrt_random_uniform(seed, step, attrs->key, at + i);
    y[i] = (float)((double)x[i] + attrs->scale * number);
  }
}

int nnrt_noise_f32(float *y, const float *x, const int64_t *step, const int64_t *seed, int64_t ndim,
                   const int64_t *shape, const int64_t *whole, const int64_t *start,
                   const int64_t *piece_of, const int64_t *piece_start, const NnrtNoise *attrs) {
  Runs r = runs_of(ndim, shape, whole, start, piece_of, piece_start);
  int threads = threads_for(16 * r.runs * r.n); // a number costs as much as many moved elements
  int64_t pieces = r.runs >= threads ? 1 : threads;
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i = 0; i < r.runs; i++)
    for (int64_t j = 0; j < pieces; j++) {
      Part p = part_of(r.n, BLOCK, j, pieces);
      int64_t first = i * r.n + p.from;
      add_numbers(y + first, x + first, run_start(&r, i) + p.from, p.to - p.from, *seed, *step,
                  attrs);
    }
  return NNRT_OK;
}
