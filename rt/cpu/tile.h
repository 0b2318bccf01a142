// Products of small tiles, for attention: everything is in the nearest caches, nothing is packed.
//
//     c[r][l] (+)= sum over k of a(r, k) b[k][l]        a(r, k) = a[r a_row + k a_step]
//
// Vectors go along l, which is a multiple of TILE_LANES; elements of `a` are taken one by one, so
// that it may be a tensor in memory, as it lies or transposed.

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
