// Products for kernels that are one inside: those of linear.c, of which the kernels linear, matmul
// and linear_back_w take `fpmath` and others do not.

#ifndef NNRT_LINEAR_H
#define NNRT_LINEAR_H

#include "gemm.h"
#include "kernel.h"

// As nnrt_linear_prep_f32 and so on, of operands of type t; --fpmath holds if `fpmath`.  NULL, with
// an error: it failed.
NnrtPrep *linear_prep(GemmType t, int64_t m, int64_t k, int64_t n, bool trans, bool fpmath);
NnrtPrep *linear_back_w_prep(GemmType t, int64_t m, int64_t k, int64_t n, bool trans, bool fpmath);
NnrtPrep *matmul_prep(GemmType t, int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,
                      bool trans_b, bool fpmath);
// y = a b, or dw = a' b, of the operands of these preparations.
int product_run(NnrtPrep *p, void *y, const void *a, const void *b);

#endif
