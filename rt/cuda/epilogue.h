// Epilogues of a product that cuBLASLt cannot fuse: one-pass kernels that products.c runs after the
// product.
//
// C and CUDA C.

#ifndef NNRT_CUDA_EPILOGUE_H
#define NNRT_CUDA_EPILOGUE_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// d (m, n), with row stride `ldd` in elements; bias (n); aux (m, n) packed.  All of type t.
int nnrt_add_bias(NnrtDtype t, void *d, int64_t ldd, const void *bias, int64_t m, int64_t n);
// aux += bias; d = gelu_tanh(aux)
int nnrt_add_bias_gelu(NnrtDtype t, void *d, int64_t ldd, void *aux, const void *bias, int64_t m,
                       int64_t n);
// d *= gelu_tanh'(aux)
int nnrt_mul_gelu_back(NnrtDtype t, void *d, int64_t ldd, const void *aux, int64_t m, int64_t n);

// sums (n) of type `out` = the sums of the columns of x (m, n).  In f32, in a fixed order.
int nnrt_column_sums(NnrtDtype out, void *sums, NnrtDtype in, const void *x, int64_t ldx, int64_t m,
                     int64_t n, void *scratch);
// In bytes; at most 1 MiB, or 4 per column.
int64_t nnrt_column_sums_scratch(int64_t m, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
