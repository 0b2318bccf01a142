// Products of matrices by kernels of our own: packed operands, and tiles of sums in registers.
//
//     y (m, n) = a b     for 1024 columns of y, for 256 steps of k: pack these of b in panels of 32
//                          for some 224 rows: pack these of a in panels of 14
//                            for each panel of b, for each of a: a tile of 14 x 32 sums
//
// A panel has for each step the elements of its columns (of a: rows) side by side, as the tile
// reads them, so a matrix with rows a power of two apart is as fast as any other.  The numbers are
// those of AVX-512; see gemm.c.  After K. Goto, R. van de Geijn, Anatomy of High-Performance Matrix
// Multiplication, and F. van Zee, R. van de Geijn, BLIS: A Framework for Rapidly Instantiating BLAS
// Functionality.
//
// Operands of 16 bits become f32 as they are packed; all sums are f32, and a result of 16 bits is
// rounded once.  Each element adds its products in the same order for every number of threads.

#ifndef NNRT_GEMM_H
#define NNRT_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "tile.h"

// y (batch, m, n) = a (batch, m, k) b (batch, k, n).  y is row-major; the strides of a's and b's
// rows and columns are in elements, and one of two is 1.
typedef struct Gemm {
  int64_t batch, m, n, k;
  int64_t a_row, a_column, b_row, b_column;
  GemmType in, out;
} Gemm;

// Runs with at most `threads` threads, in the rank's scratch.  Returns 0 or a code.
int gemm_run(const Gemm *g, int threads, void *y, const void *a, const void *b);

#endif
