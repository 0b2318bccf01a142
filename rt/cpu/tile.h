// Products of small tiles, for attention: all data is in the L1 or L2 cache, and nothing is packed.
//
//     c[r][l] (+)= sum over k of a(r, k) b[k][l]        a(r, k) = a[r a_row + k a_step]
//
// Vectors go along l, which is a multiple of TILE_LANES.  Elements of `a` are read one by one, so
// `a` may be a tensor in memory with any strides, transposed or not.

#ifndef NNRT_TILE_H
#define NNRT_TILE_H

#include <stdbool.h>
#include <stdint.h>

enum { TILE_LANES = 32 };

typedef struct TileProduct {
  float *c;
  int64_t c_row;
  const float *a;
  int64_t a_row, a_step;
  const float *b;
  int64_t b_row;
  int64_t rows, lanes, steps;
  bool add;
} TileProduct;

void tile_product(const TileProduct *p);

#endif
