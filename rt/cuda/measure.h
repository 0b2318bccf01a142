// Which way to do a product is the fastest here: measured once, and kept (tune.h).
//
// products.c asks cuBLASLt for ways, and measure.c times each on random operands in memory of their
// own: the median of some runs, after some that only warm up.

#ifndef NNRT_CUDA_MEASURE_H
#define NNRT_CUDA_MEASURE_H

#include <cublasLt.h>

#include "products.h"

// What cuBLASLt may use.  NVIDIA recommends as much for sm_90; splitting a sum needs it.
enum { NNRT_GEMM_WORKSPACE = 32 << 20 };

// One way to do a product.
typedef struct GemmAlgo {
  cublasLtMatmulAlgo_t algo;
  int64_t workspace;
  NnrtEpilogue inside; // what cuBLASLt does of the epilogue: all, or none
} GemmAlgo;

static inline bool nnrt_epilogue_has_aux(NnrtEpilogue e) {
  return e == NNRT_EPILOGUE_gelu_bias || e == NNRT_EPILOGUE_gelu_back;
}

// By products.c: from now on the product is done in this way.
int nnrt_gemm_take(NnrtGemm *g, const GemmAlgo *way);
// Whether cuBLASLt can do it so; sets the way's workspace.
bool nnrt_gemm_accepts(NnrtGemm *g, GemmAlgo *way);

// By measure.c: what the tune file says for `problem`, or the fastest of n ways, which it keeps.
GemmAlgo nnrt_fastest_way(NnrtGemm *g, const NnrtGemmSpec *s, const char *problem,
                          const GemmAlgo *way, int n);

#ifdef __cplusplus
extern "C" {
#endif
// By random.cu: n elements between -1 and 1, other ones for another seed.
int nnrt_fill_random(NnrtDtype t, void *y, int64_t n, uint64_t seed);
#ifdef __cplusplus
}
#endif

#endif
