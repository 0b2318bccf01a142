// Autotuning of matrix products: measures cuBLASLt's algorithms and saves the fastest.
//
// Without --tune a product uses the first algorithm of cuBLASLt's heuristics.  That is the default
// because the same plan on the same machine must give the same bits: two algorithms add in
// different orders, and small differences in speed are not reproducible.
//
//     ./train --tune h200.tune        measures each product at start, writes h200.tune, trains
//     ./train --tune h200.tune        reads the file: same algorithms, same bits, no measurement
//
// The file is text, a line per product:
//
//     nnaot tune 1
//     cublaslt 130100 sm 90 multiprocessors 132
//     us EPILOGUE ALGORITHM PROBLEM
//     28.7 inside 4200…(64 bytes in hex) bf16 bf16 1 1024 768 768 n t 768 768 768 0 0 0 1 0 bias 16
//     end 2c0f…                                        xxh64 of all before
//
// EPILOGUE is `inside` if cuBLASLt fuses it, or `apart` if a kernel of ours runs after it.  PROBLEM
// is NnrtGemmSpec in the order of its fields: types, batch, m n k, transposes, leading dimensions,
// strides of the batch, alpha, beta, epilogue, alignment.  A damaged file, or one for another
// version of cuBLASLt or another GPU, is rewritten; a file of another format is left alone, which
// is an error. cuBLASLt checks each choice before it is used (cublasLtMatmulAlgoCheck).  Refused
// choices, and products that the file lacks, are measured.
//
// Ranks of one process share choices.  Each rank of several processes reads the file, so they use
// the same algorithms only if it already exists: create it in a separate run.  With other choices
// ranks round differently, which --check-replicas takes into account (rounding_agreement.c).

#ifndef NNRT_CUDA_TUNE_H
#define NNRT_CUDA_TUNE_H

#include "runtime.h"

enum { NNRT_ALGO_BYTES = 64 };

typedef struct NnrtChoice {
  double us;  // median
  bool apart; // a kernel of ours computes the epilogue
  uint8_t algo[NNRT_ALGO_BYTES];
} NnrtChoice;

// Called before ranks prepare anything.  NULL: nothing is measured.  Returns false if the file has
// another format, or could not be written.
bool nnrt_tune_open(const char *path, Why *w);
// Adds the choices of this process so far, without their times.
void nnrt_tune_terms(Terms *t);

// For measure.c.  find and keep are called between begin, which gives this machine's properties,
// and end: no other rank measures meanwhile.
bool nnrt_tune_on(void);
void nnrt_tune_begin(size_t cublaslt, int sm, int processors);
void nnrt_tune_end(void);
bool nnrt_tune_find(const char *problem, NnrtChoice *out);
void nnrt_tune_keep(const char *problem, const NnrtChoice *c); // and writes the file

#endif
