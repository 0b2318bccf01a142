// Products of bf16 by a packed weight, with AVX512-BF16: an instruction multiplies 16 pairs of
// numbers, and adds both products of a pair to a sum of f32.
//
//     c[r][l] (+)= sum over pairs i of  a[r][2i] b[i][l][0] + a[r][2i + 1] b[i][l][1]
//
// A panel has PAIR_LANES columns of the weight, and for each pair of rows the elements of a column
// side by side.  Denormal numbers count as 0, as in oneDNN's products of bf16.

#ifndef NNRT_PAIRS_H
#define NNRT_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

enum { PAIR_LANES = 32 };

// Whether the instruction set in use has these products.
bool pairs_here(void);

// Packs the panel of w (k, n) from column `j` on, with zeros after the last column, or of its
// transpose (n, k) if `trans`: k * PAIR_LANES elements; k is even.
void pairs_pack(uint16_t *panel, const uint16_t *w, int64_t k, int64_t n, int64_t j, bool trans);

// c (rows, PAIR_LANES) = a (rows, 2 pairs) b, or is increased by it, with `b` from a pair of the
// panel on.  c_row and a_row: the distance of rows, in elements.
void pairs_product(float *c, int64_t c_row, const uint16_t *a, int64_t a_row, const uint16_t *b,
                   int64_t rows, int64_t pairs, bool add);

#endif
