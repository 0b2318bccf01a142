// Dropout.  Whether an element is kept depends on seed, step, key and its index in the whole
// tensor, so it is the same on any number of ranks, and the gradient is the same function of dy.

#include "nnrt_random.h"
#include "runs.h"

enum { BLOCKS = 32 }; // of four random words, done together

// random[4 b + w] = word w of block `first` + b
NNRT_CLONES static void random_words(uint32_t *restrict words, uint64_t first, uint64_t step,
                                     uint32_t key0, uint32_t key1) {
  uint32_t c0[BLOCKS], c1[BLOCKS], c2[BLOCKS], c3[BLOCKS];
  for (int b = 0; b < BLOCKS; b++) {
    // The counter of a block is its number and the step.
    c0[b] = (uint32_t)(first + (uint64_t)b);
    c1[b] = (uint32_t)((first + (uint64_t)b) >> 32);
    c2[b] = (uint32_t)step;
    c3[b] = (uint32_t)(step >> 32);
  }
  // nnrt_random_philox, on vectors
  for (int round = 0; round < 10; round++) {
    // One round on all blocks.
    for (int b = 0; b < BLOCKS; b++) {
      uint64_t p0 = (uint64_t)0xd2511f53u * c0[b], p1 = (uint64_t)0xcd9e8d57u * c2[b];
      c0[b] = (uint32_t)(p1 >> 32) ^ c1[b] ^ key0;
      c1[b] = (uint32_t)p1;
      c2[b] = (uint32_t)(p0 >> 32) ^ c3[b] ^ key1;
      c3[b] = (uint32_t)p0;
    }
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  for (int b = 0; b < BLOCKS; b++) {
    words[4 * b] = c0[b];
    words[4 * b + 1] = c1[b];
    words[4 * b + 2] = c2[b];
    words[4 * b + 3] = c3[b];
  }
}

// y = x scale if the upper 24 bits of the word are at least `limit`, else 0; in place
NNRT_CLONES static void keep(float *y, const float *x, const uint32_t *words, int64_t n,
                             uint32_t limit, float scale) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++)
    y[i] = words[i] >> 8 >= limit ? x[i] * scale : 0.0f;
}

typedef struct Draw {
  uint64_t key, step;
  uint32_t limit;
  float scale;
} Draw;

// Computes n elements, from index `at` of the whole on.
static void run(float *y, const float *x, int64_t at, int64_t n, const Draw *d) {
  uint32_t words[4 * BLOCKS];
  while (n > 0) {
    // A range may begin in the middle of a block of four words.
    int64_t skip = at % 4, some = 4 * BLOCKS - skip < n ? 4 * BLOCKS - skip : n;
    random_words(words, (uint64_t)(at / 4), d->step, (uint32_t)d->key, (uint32_t)(d->key >> 32));
    keep(y, x, words + skip, some, d->limit, d->scale);
    y += some;
    x += some;
    at += some;
    n -= some;
  }
}

int nnrt_dropout_f32(float *y, const float *x, const int64_t *step, const int64_t *seed,
                     int64_t ndim, const int64_t *shape, const int64_t *whole, const int64_t *start,
                     const int64_t *piece_of, const int64_t *piece_start, double ratio,
                     int64_t key) {
  // A uniform number is a multiple of 2^-24: it is below the ratio when the integer is below this.
  Draw d = {.key = nnrt_random_mix(nnrt_random_mix((uint64_t)*seed) ^ (uint64_t)key),
            .step = (uint64_t)*step,
            .limit = (uint32_t)ceil(ratio * 0x1p24),
            .scale = (float)(1.0 / (1.0 - ratio))};
  Runs r = runs_of(ndim, shape, whole, start, piece_of, piece_start);
  int threads = threads_for(r.runs * r.n);
  int64_t pieces = r.runs >= threads ? 1 : threads;
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i = 0; i < r.runs; i++)
    for (int64_t j = 0; j < pieces; j++) {
      int64_t at = run_start(&r, i);
      Part p = part_of(r.n, 4 * BLOCKS, j, pieces);
      run(y + i * r.n + p.from, x + i * r.n + p.from, at + p.from, p.to - p.from, &d);
    }
  return NNRT_OK;
}
