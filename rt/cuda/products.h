// Matrix products on a GPU, by cuBLASLt: prepared once, run every step.
//
//     D = alpha op(A) op(B) + beta C, then the epilogue
//
// All matrices are row-major.  cuBLASLt is column-major: our (m, n) by rows is to it a matrix of n
// rows and m columns, the transpose.  So it computes D' = op(B)' op(A)', and no data is transposed:
//
//     ours:      A (m, k)        B (k, n)        D (m, n)       trans_a: A is stored (k, m)
//                a a a           b b b b         d d d d        trans_b: B is stored (n, k)
//                a a a           b b b b         d d d d
//                                b b b b
//     cuBLASLt:  "A" = B         "B" = A         "D" = D        rows n, k, n; columns k, m, m;
//                n × k           k × m           n × m          leading dimensions unchanged
//
// Products are deterministic: algorithms with an unfixed order of addition are excluded, and the
// choice of the algorithm is the same every time (tune.h).
//
// C and CUDA C.

#ifndef NNRT_CUDA_PRODUCTS_H
#define NNRT_CUDA_PRODUCTS_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// The operation on D before it is stored.  A row of D has n elements, and so has `bias`, which is
// of D's type.  `aux` is (m, n), packed, of D's type.
typedef enum NnrtEpilogue {
  NNRT_EPILOGUE_none,
  NNRT_EPILOGUE_bias,      // D += bias
  NNRT_EPILOGUE_gelu_bias, // aux = D + bias; D = gelu_tanh(aux)
  NNRT_EPILOGUE_gelu_back, // D = D * gelu_tanh'(aux)
  NNRT_EPILOGUE_sum_a,     // bias (m), written: the sum of op(A) over k
  NNRT_EPILOGUE_sum_b,     // bias (n), written: the sum of op(B) over k
  NNRT_N_EPILOGUES
} NnrtEpilogue;

typedef struct NnrtGemmSpec {
  int64_t batch, m, n, k;
  bool trans_a, trans_b;
  NnrtDtype in, out;     // of A and B; of C and D: the same, or f32.  f32, bf16 or f16
  int64_t lda, ldb, ldd; // row stride in elements (C as D)
  int64_t a_step, b_step,
      d_step;            // stride in elements between matrices of the batch; 0: all equal
  float alpha, beta;     // beta is 0 or 1; C is D
  NnrtEpilogue epilogue; // only for a batch of one
  int align;             // bytes: all operands are aligned to at least this
} NnrtGemmSpec;

typedef struct NnrtGemm NnrtGemm;

// Packed matrices, one after the other; alpha 1, beta 0, no epilogue, 16 bytes.
NnrtGemmSpec nnrt_gemm_packed(NnrtDtype in, NnrtDtype out, int64_t batch, int64_t m, int64_t n,
                              int64_t k, bool trans_a, bool trans_b);
// Returns NULL with nnrt_error set if cuBLASLt does not support the product.
NnrtGemm *nnrt_gemm_new(const NnrtGemmSpec *s);
void nnrt_gemm_free(NnrtGemm *g); // NULL is allowed

// Bytes of scratch for a run; at most 32 MiB, or 4 per sum that it writes.
int64_t nnrt_gemm_scratch(const NnrtGemm *g);
// `scratch` is at a multiple of 256; NULL: it uses nnrt_gpu_scratch, which the caller must not use
// then.  bias, aux: NULL if the epilogue has none.
int nnrt_gemm_run(NnrtGemm *g, void *d, const void *a, const void *b, void *bias, void *aux,
                  void *scratch);

// Whether f32 products may be computed in TF32, with 10 bits of fraction: only with --tf32, and
// unless NVIDIA_TF32_OVERRIDE=0 forbids it.
bool nnrt_gpu_tf32(void);
void nnrt_gpu_tf32_set(bool on); // before ranks prepare anything

// Frees the cuBLASLt handle of the GPU, after all its products.
void nnrt_gpu_blas_free(NnrtGpu *gpu);

#ifdef __cplusplus
}
#endif

#endif
