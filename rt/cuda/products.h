// Products of matrices on a gpu, by cuBLASLt: prepared once, run every step.
//
//     D = alpha op(A) op(B) + beta C, then the epilogue
//
// All matrices are row-major.  cuBLASLt thinks in columns: what we store as (m, n) by rows is to it
// a matrix of n rows and m columns, the transposed one.  So it is asked for D' = op(B)' op(A)', and
// nothing is moved:
//
//     ours:      A (m, k)        B (k, n)        D (m, n)       trans_a: A is stored (k, m)
//                a a a           b b b b         d d d d        trans_b: B is stored (n, k)
//                a a a           b b b b         d d d d
//                                b b b b
//     cuBLASLt:  "A" = B         "B" = A         "D" = D        rows n, k, n; columns k, m, m;
//                n × k           k × m           n × m          leading dimensions as they are
//
// Products are deterministic: of the ways to do one, those that add up parts of a sum in an order
// that is not fixed are left out, and the same way is taken every time (tune.h).
//
// C and CUDA C.

#ifndef NNRT_CUDA_PRODUCTS_H
#define NNRT_CUDA_PRODUCTS_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// What is done to D before it is stored.  A row of D has n elements, and so has `bias`, which is of
// D's type.  `aux` is (m, n), packed, of D's type.
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
  int64_t lda, ldb, ldd; // elements from one stored row to the next (of C as of D)
  int64_t a_step, b_step,
      d_step;            // elements from one matrix of the batch to the next; 0: all the same
  float alpha, beta;     // beta is 0 or 1; C is D
  NnrtEpilogue epilogue; // only for a batch of one
  int align;             // bytes: all operands lie at multiples of it, at least
} NnrtGemmSpec;

typedef struct NnrtGemm NnrtGemm;

// Packed matrices, one after the other; alpha 1, beta 0, no epilogue, 16 bytes.
NnrtGemmSpec nnrt_gemm_packed(NnrtDtype in, NnrtDtype out, int64_t batch, int64_t m, int64_t n,
                              int64_t k, bool trans_a, bool trans_b);
// NULL, having said why by nnrt_error: cuBLASLt cannot do it.
NnrtGemm *nnrt_gemm_new(const NnrtGemmSpec *s);
void nnrt_gemm_free(NnrtGemm *g); // NULL is fine

// Bytes of scratch it needs while it runs; at most 32 MiB, or 4 for each sum that it writes.
int64_t nnrt_gemm_scratch(const NnrtGemm *g);
// `scratch` is at a multiple of 256; NULL: nnrt_gpu_scratch, which is then not the caller's.
// bias, aux: NULL where the epilogue has none.
int nnrt_gemm_run(NnrtGemm *g, void *d, const void *a, const void *b, void *bias, void *aux,
                  void *scratch);

// May products of f32 be computed in TF32, with 10 bits of fraction?  Only where --tf32 says so,
// and NVIDIA_TF32_OVERRIDE=0 does not forbid it.
bool nnrt_gpu_tf32(void);
void nnrt_gpu_tf32_set(bool on); // before ranks prepare anything

// Frees what products made for the gpu, when no product of it is left.
void nnrt_gpu_blas_free(NnrtGpu *gpu);

#ifdef __cplusplus
}
#endif

#endif
