// 16-bit tensors in kernels that compute in f32.  A thread converts some rows at a time to f32, in
// blocks of scratch that stay in its L1 cache, and runs there the leaf for f32:
//
//     Wide w;
//     if (!wide_new(&w, type, m, n, threads, 2, 0)) return NNRT_MEMORY;
//     …
//     for (int64_t r = p.from; r < p.to; r += w.rows) {
//       int64_t some = wide_some(&w, p.to - r);
//       const float *xr = wide_read(&w, x, r * n, some * n, wide_block(&w, i, 0));
//       float *yr = wide_place(&w, y, r * n, wide_block(&w, i, 1));
//       leaf(yr, xr, some, n);
//       wide_write(&w, y, r * n, some * n, yr);
//     }
//
// A tensor of f32 is read and written where it is, in one piece.  A kernel for bf16 or f16 gives
// the results of the kernel for f32 between casts, unless it adds a row longer than a block in
// pieces.

#ifndef NNRT_WIDE_H
#define NNRT_WIDE_H

#include "kernel.h"

enum { WIDE_BLOCK = 2048 }; // elements of a block, unless a row is longer

typedef struct Wide {
  NnrtDtype type; // f32, bf16 or f16
  int64_t rows;   // of a block; of f32 all
  int64_t stride; // floats from one block to the next
  int blocks;     // of a thread
  float *at;      // (threads, blocks, stride); NULL for f32
  float *own;     // the floats that the kernel asked for
} Wide;

// Takes `blocks` blocks for each of `threads` threads, of rows of n elements of a tensor with `all`
// rows, and `own` floats for the kernel itself, which may be none: all of the kernel's scratch.
// False: reports that there is no memory.
bool wide_new(Wide *w, NnrtDtype type, int64_t all, int64_t n, int threads, int blocks,
              int64_t own);

// y (n) = x (n), between f32 and bf16 or f16
void wide_from(NnrtDtype type, float *y, const void *x, int64_t n);
void wide_to(NnrtDtype type, void *y, const float *x, int64_t n);

static inline float *wide_block(const Wide *w, int thread, int block) {
  return w->at ? w->at + (thread * w->blocks + block) * w->stride : NULL;
}

// The rows of the next block, of those that are left.
static inline int64_t wide_some(const Wide *w, int64_t left) {
  return left < w->rows ? left : w->rows;
}

// Returns elements at .. at + n of x as f32: in x itself, or converted in `block`.
static inline const float *wide_read(const Wide *w, const void *x, int64_t at, int64_t n,
                                     float *block) {
  if (w->type == NNRT_f32) return (const float *)x + at;
  wide_from(w->type, block, (const uint16_t *)x + at, n);
  return block;
}

// Returns the place for elements from `at` on of y as f32: in y itself, or `block`, which
// wide_write converts.
static inline float *wide_place(const Wide *w, void *y, int64_t at, float *block) {
  return w->type == NNRT_f32 ? (float *)y + at : block;
}
static inline void wide_write(const Wide *w, void *y, int64_t at, int64_t n, const float *place) {
  if (w->type != NNRT_f32) wide_to(w->type, (uint16_t *)y + at, place, n);
}

#endif
