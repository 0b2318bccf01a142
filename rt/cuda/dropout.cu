// Dropout.  Whether an element is kept depends on seed, step, key and its index in the global
// tensor, so it is the same on any number of ranks, and the gradient is the same function of dy.
//
// Four elements that are adjacent in the global tensor share a block of random words.  A thread
// generates the blocks of V elements and stores none: it reads x and writes y, in place if
// requested.  If the local part does not begin at a multiple of four, elements are processed one by
// one.

#include "nnrt_random.h"
#include "where.cuh"

// Whether all runs, and packs in them, begin at a multiple of four.
static bool in_blocks(const Where &w) {
  bool ok = w.base % 4 == 0 && w.n % 4 == 0;
  for (int d = 0; d < w.ndim; d++)
    ok = ok && (w.shape[d] == 1 || w.stride[d] % 4 == 0);
  return ok;
}

template <class T, int V>
static __global__ void drop(T *y, const T *x, const int64_t *step, const int64_t *seed, Where w,
                            uint32_t limit, float scale, int64_t key) {
  int64_t total = w.runs * w.n, the_step = *step, the_seed = *seed;
  for (int64_t i = first_thread() * V; i < total; i += all_threads() * V) {
    // The index in the global tensor.
    int64_t at = w.runs == 1 ? w.base + i : run_start(w, i / w.n) + i % w.n;
    Pack<T, V> p = read_pack<T, V>(x + i);
    uint32_t words[4];
    UNROLL
    for (int k = 0; k < V; k++) {
      if (k % 4 == 0) nnrt_random_block(the_seed, the_step, key, (at + k) / 4, words);
      uint32_t word = V == 1 ? words[at % 4] : words[k % 4];
      // A uniform number is a multiple of 2^-24: it is below the ratio when the integer is below
      // the limit.
      store(&p.at[k], word >> 8 >= limit ? load(&p.at[k]) * scale : 0.0f);
    }
    write_pack(y + i, p);
  }
}

template <class T>
static int dropout(T *y, const T *x, const int64_t *step, const int64_t *seed, int64_t ndim,
                   const int64_t *shape, const int64_t *whole, const int64_t *start,
                   const int64_t *piece_of, const int64_t *piece_start, double ratio, int64_t key) {
  constexpr int V = Width<T>::most;
  Where w = where_of(ndim, shape, whole, start, piece_of, piece_start);
  int64_t n = w.runs * w.n;
  // Random words have 24 bits that count.
  uint32_t limit = (uint32_t)ceil(ratio * 0x1p24);
  float scale = ratio < 1 ? (float)(1.0 / (1.0 - ratio)) : 0.0f;
  if (n == 0) return NNRT_OK;
  if (in_packs(w.n, V, y, x) && in_blocks(w))
    return launch(drop<T, V>, blocks_for(n / V), BLOCK, 0, y, x, step, seed, w, limit, scale, key);
  return launch(drop<T, 1>, blocks_for(n), BLOCK, 0, y, x, step, seed, w, limit, scale, key);
}

#define DROPOUT(suffix, C, T)                                                                      \
  int nnrt_dropout_##suffix(C *y, const C *x, const int64_t *step, const int64_t *seed,            \
                            int64_t ndim, const int64_t *shape, const int64_t *whole,              \
                            const int64_t *start, const int64_t *piece_of,                         \
                            const int64_t *piece_start, double ratio, int64_t key) {               \
    return dropout<T>((T *)y, (const T *)x, step, seed, ndim, shape, whole, start, piece_of,       \
                      piece_start, ratio, key);                                                    \
  }
FOR_FLOATS(DROPOUT)
