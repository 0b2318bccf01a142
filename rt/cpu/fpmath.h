// --fpmath: products of f32 whose operands are rounded to bf16, or split into two numbers of bf16.
//
//     bf16      y = hi(a) hi(b)
//     bf16x3    y = hi(a) hi(b) + hi(a) lo(b) + lo(a) hi(b)      hi(x) = bf16(x)
//                                                                lo(x) = bf16(x - hi(x))
//
// Sums are f32, as are operands and results in memory: a product converts its operands in scratch,
// 2 bytes an element (bf16x3: 6), and multiplies these.  The three products of bf16x3 are one of
// three times as many steps:
//
//     [hi(a) hi(a) lo(a)] [hi(b) lo(b) hi(b)]'
//
// Relative norms of the error, of normal random operands and 512 steps: 2.4e-3 and 4.6e-6, for f32
// 4e-7.  The product of both low parts, which is left out, is as small as the rounding of lo.  See
// G. Henry, P. Tang, A. Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype For
// Higher-Precision Computations (ARITH 2019).  An infinite operand makes results of bf16x3 NaN.
//
// Every product of linear, linear_back_w and matmul is rounded, also a small one, which gains
// nothing: ranks with shards of a product then round like a rank with the whole of it, which
// --check-against compares.
//
// A processor without instructions for bf16 multiplies the same operands as f32 (gemm.h), and gets
// the same results up to the order of sums.
//
// Time of f32 by that of the flag, of one core of a Zen 5, conversions included; bf16 and bf16x3:
//
//     m: k > n               AVX512-BF16     AVX-512         AVX2
//     1024: 384 > 1536  dx   1.96   0.64     0.97   0.32     0.98   0.33
//     2048: 256 > 1024  dw   1.90   0.64     0.97   0.33     1.03   0.34
//     1024: 384 > 50257 dw   1.63   0.59
//     128: 512 > 512    fwd  1.72   0.60     0.88   0.30     0.94   0.32
//     128: 512 > 10     fwd  1.07   0.43
//     16: 64 > 64       fwd  0.64   0.46
//
// AMX has not been measured.

#ifndef NNRT_FPMATH_H
#define NNRT_FPMATH_H

#include "gemm.h"

// In the order of the flag's values.
typedef enum Fpmath { FPMATH_f32, FPMATH_bf16, FPMATH_bf16x3 } Fpmath;

// Of all ranks of this process; before any of them prepares a kernel.
void fpmath_set(Fpmath fpmath);

// Returns the product of g's converted operands.  *out_products is the number of products of bf16
// in place of one of f32; 0: g is not rounded, and is returned.
Gemm fpmath_gemm(const Gemm *g, int *out_products);

// Converts the operands of the product g, which fpmath_gemm has returned, in outer scratch, where
// *a and *b point then.  Returns 0 or a code.
int fpmath_convert(const Gemm *g, int products, bool one_thread, const void **a, const void **b);

#endif
