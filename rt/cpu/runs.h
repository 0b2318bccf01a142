// The indices, in the whole tensor, of the elements of a part of it, for kernels whose random
// numbers depend on them: runs of elements that are adjacent in both.

#ifndef NNRT_CPU_RUNS_H
#define NNRT_CPU_RUNS_H

#include "kernel.h"

typedef struct Runs {
  int64_t runs, n;     // runs of n elements
  int64_t ndim, inner; // each run spans the axes from `inner` on
  const int64_t *shape, *whole, *start, *piece_start;
} Runs;

// The part of `shape` begins at `start` in a tensor of shape `whole`, or, if that is a piece, at
// piece_start + start in one of shape `piece_of`.
static inline Runs runs_of(int64_t ndim, const int64_t *shape, const int64_t *whole,
                           const int64_t *start, const int64_t *piece_of,
                           const int64_t *piece_start) {
  // A piece has the random numbers of the tensor that it is a piece of.
  Runs r = {.n = 1, .ndim = ndim, .inner = ndim, .shape = shape, .start = start};
  r.whole = piece_of ? piece_of : whole;
  r.piece_start = piece_of ? piece_start : NULL;
  // Inner axes that are complete form contiguous runs.
  while (r.inner > 0 && shape[r.inner - 1] == r.whole[r.inner - 1])
    r.n *= shape[--r.inner];
  if (r.inner > 0) r.n *= shape[--r.inner];
  r.runs = product(shape, r.inner);
  return r;
}

// Returns the index in the whole tensor of the first element of run `i`.
static inline int64_t run_start(const Runs *r, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int64_t k = r->ndim - 1; k >= 0; k--) {
    at += (r->start[k] + (r->piece_start ? r->piece_start[k] : 0)) * stride;
    if (k < r->inner) {
      at += i % r->shape[k] * stride;
      i /= r->shape[k];
    }
    stride *= r->whole[k];
  }
  return at;
}

#endif
