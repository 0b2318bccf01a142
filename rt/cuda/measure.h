// Autotuning: the fastest algorithm for a product is measured once, and saved (tune.h).
//
// products.c asks cuBLASLt for algorithms, and measure.c times each on random operands in memory of
// their own: the median of some runs, after warm-up runs.

#ifndef NNRT_CUDA_MEASURE_H
#define NNRT_CUDA_MEASURE_H

#include <cublasLt.h>

#include "products.h"

// The workspace limit for cuBLASLt, as NVIDIA recommends for sm_90; split-k needs it.
enum { NNRT_GEMM_WORKSPACE = 32 << 20 };

// An algorithm for a product.
typedef struct GemmAlgo {
  cublasLtMatmulAlgo_t algo;
  int64_t workspace;
  NnrtEpilogue inside; // the epilogue that cuBLASLt fuses: all of it, or none
} GemmAlgo;

static inline bool nnrt_epilogue_has_aux(NnrtEpilogue e) {
  return e == NNRT_EPILOGUE_gelu_bias || e == NNRT_EPILOGUE_gelu_back;
}

// Defined in products.c: sets the algorithm of the product.
int nnrt_gemm_take(NnrtGemm *g, const GemmAlgo *algo);
// Whether cuBLASLt accepts the algorithm; sets its workspace.
bool nnrt_gemm_accepts(NnrtGemm *g, GemmAlgo *algo);

// Defined in measure.c: returns the choice of the tune file for `problem`, or the fastest of n
// algorithms, which it saves.
GemmAlgo nnrt_fastest_algo(NnrtGemm *g, const NnrtGemmSpec *s, const char *problem,
                           const GemmAlgo *algo, int n);

#ifdef __cplusplus
extern "C" {
#endif
// Defined in random.cu: sets n elements between -1 and 1, determined by the seed.
int nnrt_fill_random(NnrtDtype t, void *y, int64_t n, uint64_t seed);
#ifdef __cplusplus
}
#endif

#endif
