// The kernel of all products of our own: tiles of sums in registers, of matrices (gemm.h), of taps
// of a filter (taps.c), of scores (attention.h) and of recurrent weights (recurrent.h).
//
//     c[r][l] (+)= sum over pairs i, over steps k, of a_i(r, k) b_i[k][l]
//
//     a_i(r, k) = a[i a_matrix + r a_row + k a_step]       b_i[k][l] = b[i b_matrix + k b_row + l]
//
// Vectors go along l.  Elements of `a` are read one by one, so that `a` may be a tensor in memory
// with any strides, transposed or not.  Sums over pairs stay in registers: the batch-reduce GEMM of
// Georganas et al., "Harnessing Deep Learning via a Single Building Block".  Each element adds its
// products in the order of pairs and steps, in every version and for any number of rows.
//
// tile_of.h has the kernel for one kind of processor, and kinds.h the list of kinds.

#ifndef NNRT_TILE_H
#define NNRT_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "nnrt_math.h"

// Lanes are a multiple of TILE_UNIT.  TILE_LANES is a multiple of the lanes of each version's tile.
enum { TILE_UNIT = 16, TILE_LANES = 32 };

// Two matrices, by their numbers among the a and the b.
typedef struct TilePair {
  int64_t a, b;
} TilePair;

typedef struct TileProduct {
  float *c;
  int64_t c_row;
  const float *a;
  int64_t a_row, a_step, a_matrix;
  const float *b;
  int64_t b_row, b_matrix;
  const TilePair *pair; // NULL: a and b are one pair
  int64_t pairs;
  int64_t rows, lanes, steps;
  bool add;
} TileProduct;

// The types of elements in memory.  Those of 16 bits become f32 as they are packed.
typedef enum GemmType { GEMM_f32, GEMM_bf16, GEMM_f16 } GemmType;

// `lanes` vectors of a matrix of `steps` elements each, to be copied to panels of `width` lanes:
// (panels, steps, width).  Without `padded` the last panel has as many lanes as are left; with it
// the rest are zeros.
typedef struct TilePack {
  const void *from;
  int64_t lane, step; // strides, in elements: one of them is 1
  int64_t lanes, steps, width;
  int64_t panel; // floats from one panel to the next
  bool padded;
} TilePack;

// The version for one kind of processor.
typedef struct TileKind {
  int rows, lanes; // that fill the vector registers with sums
  int depth;       // the most steps of a panel of `lanes` that stays in the L1 cache
  void (*product)(const TileProduct *p);
  // y (rows, lanes) (+)= a b, with a (k, rows) and b (k, lanes) packed; at most `rows` rows
  void (*panels)(int rows, int64_t k, const float *a, const float *b, float *y, int64_t y_row,
                 bool add);
  void (*pack)(GemmType type, const TilePack *p, float *to);
  // n elements of y = sum, rounded
  void (*store)(GemmType type, void *y, const float *sum, int64_t n);
  // n elements of y = x
  void (*load)(GemmType type, float *y, const void *x, int64_t n);
} TileKind;

// The version for the instruction set in use.
const TileKind *tile_kind(void);

// Whether it has versions for the vectors of this processor; clang compiles those of SSE alone.
bool tile_is_wide(void);

void tile_product(const TileProduct *p);

static inline int64_t type_bytes(GemmType t) {
  return t == GEMM_f32 ? 4 : 2;
}

static inline float element_at(GemmType type, const void *x, int64_t i) {
  if (type == GEMM_f32) return ((const float *)x)[i];
  uint16_t h = ((const uint16_t *)x)[i];
  return type == GEMM_bf16 ? m_from_bf16(h) : m_from_f16(h);
}

#endif
