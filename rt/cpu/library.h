// The library of kernels that the CPU target is linked with: oneDNN, in the files dnnl*.c.  It runs
// the products and convolutions of the shapes for which it is faster than our own kernels.  On
// processors without it, no_library.c takes its place: it has no kernels, and all are our own.
// isa.h has the instruction sets and the version of the library.

#ifndef NNRT_LIBRARY_H
#define NNRT_LIBRARY_H

#include "conv.h"
#include "gemm.h"
#include "kernel.h"

// ---- Products

// Whether the library runs this product, which it does if it is the faster one.
bool library_has_product(const Gemm *g);
// Prepares one; NULL, with an error: it failed.
NnrtPrep *library_product_prep(const char *name, const Gemm *g);
int library_product_run(NnrtPrep *p, void *y, const void *a, const void *b);
// c (m, n) = a (m, k) b (k, n) in f32, without preparation, by our own kernel if there is no
// library.  Transposed operands are (k, m) and (n, k) in memory; rows in memory are a_row and b_row
// apart, those of c n.
int library_multiply(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                     int64_t a_row, const float *b, int64_t b_row, float *c);

// ---- Convolutions of f32 and bf16

bool library_has_conv(NnrtDtype type, const Conv *c, Direction direction);
NnrtPrep *library_conv_prep(const char *name, NnrtDtype type, const Conv *c, Direction direction);
// Computes `result` from the two other tensors, in the order x, w, y.
int library_conv_run(NnrtPrep *p, void *result, const void *first, const void *second);

#endif
