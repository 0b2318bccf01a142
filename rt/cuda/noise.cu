// x plus random numbers.  The number of an element depends on seed, step, key and its index in the
// global tensor, so it is the same on any number of ranks.

#include "nnrt_random.h"
#include "where.cuh"

template <class T>
static __global__ void add_numbers(T *y, const T *x, const int64_t *step, const int64_t *seed,
                                   Where w, double scale, bool normal, int64_t key) {
  int64_t total = w.runs * w.n, the_step = *step, the_seed = *seed;
  for (int64_t i = first_thread(); i < total; i += all_threads()) {
    int64_t at = run_start(w, i / w.n) + i % w.n;
    double number = normal ? nnrt_random_normal(the_seed, the_step, key, at)
                           : nnrt_random_uniform(the_seed, the_step, key, at);
    store(y + i, (float)((double)load(x + i) + scale * number));
  }
}

template <class T>
static int noise(T *y, const T *x, const int64_t *step, const int64_t *seed, int64_t ndim,
                 const int64_t *shape, const int64_t *whole, const int64_t *start,
                 const int64_t *piece_of, const int64_t *piece_start, const NnrtNoise *attrs) {
  Where w = where_of(ndim, shape, whole, start, piece_of, piece_start);
  if (w.runs * w.n == 0) return NNRT_OK;
  return launch(add_numbers<T>, blocks_for(w.runs * w.n), BLOCK, 0, y, x, step, seed, w,
                attrs->scale, attrs->normal, attrs->key);
}

#define NOISE(suffix, C, T)                                                                        \
  int nnrt_noise_##suffix(C *y, const C *x, const int64_t *step, const int64_t *seed,              \
                          int64_t ndim, const int64_t *shape, const int64_t *whole,                \
                          const int64_t *start, const int64_t *piece_of,                           \
                          const int64_t *piece_start, const NnrtNoise *attrs) {                    \
    return noise<T>((T *)y, (const T *)x, step, seed, ndim, shape, whole, start, piece_of,         \
                    piece_start, attrs);                                                           \
  }
FOR_FLOATS(NOISE)
