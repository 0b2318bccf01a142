// A sum of products of matrices, for convolutions on small maps (taps.c):
//
//     c (rows, lanes) (+)= sum over the pairs i of a_i b_i        a_i (rows, steps), b_i (steps, lanes)
//
// The sums stay in registers over all pairs.  The form is the batch-reduce GEMM of Georganas et
// al., "Harnessing Deep Learning via a Single Building Block".  The order of the additions, pair by
// pair and step by step, is the same for any number of rows.

#ifndef NNRT_TAP_PRODUCT_H
#define NNRT_TAP_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

// Two matrices, by their numbers among the a and the b.
typedef struct TapPair {
  int64_t a, b;
} TapPair;

typedef struct TapProduct {
  float *c; // its rows are dense: `lanes` apart
  const float *a;
  int64_t a_matrix, a_row, a_step; // distances of matrices, rows and steps
  const float *b;                  // matrices one after another, (steps, lanes) each
  int64_t b_matrix;                // their distance
  const TapPair *pair;
  int64_t pairs, rows, steps; // at most tap_rows() rows
  bool add;
} TapProduct;

// The sizes that fill the vector registers of the instruction set in use.
int64_t tap_lanes(void);
int64_t tap_rows(void);

void tap_product(const TapProduct *p);

#endif
