// Interfaces between the parts of the emulated cuBLASLt.
//
//     cublaslt.c         the library; descriptors and their attributes
//     cublaslt_check.c   checks of a product's descriptors, and its algorithms
//     cublaslt_run.c     runs products, and checks their addresses

#ifndef EMULATOR_CUBLASLT_INTERNAL_H
#define EMULATOR_CUBLASLT_INTERNAL_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of an element; 0 for unknown types.
static inline int size_of(int32_t type) {
  switch (type) {
  case CUDA_R_16F:
  case CUDA_R_16BF: return 2;
  case CUDA_R_32F: return 4;
  case CUDA_R_64F: return 8;
  }
  return 0;
}

// ---- cublaslt.c: descriptors, in the memory of the opaque ones

struct cublasLtContext {
  int device;
};

typedef struct Layout {
  int32_t type, order, batch, batch_mode;
  uint64_t rows, columns;
  int64_t ld, step;
} Layout;

typedef struct Desc {
  int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c, fill, bias_type, aux_type;
  uint32_t epilogue;
  void *bias, *aux;
  int64_t bias_step, aux_ld, aux_step;
  int32_t sm_count;
  int8_t fast_accum;
} Desc;

typedef struct Preference {
  uint64_t workspace;
  uint32_t search, reductions, align[4];
} Preference;

// The contents of a cublasLtMatmulAlgo_t.
typedef struct Algo {
  uint64_t magic;
  int32_t id, parts;
  uint32_t reduction;
  uint32_t align[4]; // of A, B, C, D
  uint32_t problem;  // the problem it was proposed for; 0: any
} Algo;

enum { N_ALGOS = 3, ALIGN = 16 };

// ---- cublaslt_check.c

typedef struct Problem {
  Desc how;
  Layout a, b, c, d;
  int64_t m, n, k;
  bool bias_in, bias_out, relu, gelu, drelu, dgelu, aux_in, aux_out;
  int32_t bias_type, aux_type;
  int64_t bias_length;
  uint32_t hash; // of all properties that an algorithm depends on; not 0
} Problem;

// Shared by the heuristic, cublasLtMatmulAlgoCheck and cublasLtMatmul.
cublasStatus_t cublaslt_check(Problem *p, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                              cublasLtMatrixLayout_t d);
cublasStatus_t cublaslt_check_algo(const Problem *p, const Algo *algo);
size_t cublaslt_workspace_of(const Problem *p, const Algo *algo); // bytes
void cublaslt_make_algo(Algo *out, int id, const uint32_t *align, uint32_t problem);

#endif
