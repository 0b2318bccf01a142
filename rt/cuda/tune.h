// Measured choices: of the ways cuBLASLt knows to do a product, which is the fastest here.
//
// Without --tune a product is done in the way that cuBLASLt's heuristics put first.  That is the
// default because the same plan on the same machine must give the same bits: two ways add up in
// different orders, and which is faster by a hair is not the same today and tomorrow.
//
//     ./train --tune h200.tune        measures each product at start, writes h200.tune, trains
//     ./train --tune h200.tune        takes what is in the file: same ways, same bits, no waiting
//
// The file is text, a line for each product, made by:
//
//     nnaot tune 1
//     cublaslt 130100 sm 90 multiprocessors 132
//     us EPILOGUE ALGORITHM PROBLEM
//     28.7 inside 4200…(64 bytes in hex) bf16 bf16 1 1024 768 768 n t 768 768 768 0 0 0 1 0 bias 16
//     end 2c0f…                                        xxh64 of all before
//
// EPILOGUE says whether cuBLASLt does it (`inside`) or a kernel of ours behind (`apart`).  PROBLEM
// is NnrtGemmSpec in the order of its fields: types, batch, m n k, which are transposed, leading
// dimensions, steps of the batch, alpha, beta, epilogue, alignment.  A file of another version of
// cuBLASLt or another gpu is made anew, and so is a damaged one; a file that is something else is
// left alone, which is an error.  Each choice is shown to cuBLASLt before it is taken
// (cublasLtMatmulAlgoCheck); what it refuses, and products that the file lacks, are measured.
//
// Ranks of one process share choices.  Ranks of several processes each read the file, so that they
// only do the same in the same way once it is there: make it in a run of its own.

#ifndef NNRT_CUDA_TUNE_H
#define NNRT_CUDA_TUNE_H

#include "runtime.h"

enum { NNRT_ALGO_BYTES = 64 };

typedef struct NnrtChoice {
  double us;  // as measured
  bool apart; // the epilogue is left to kernels of our own
  uint8_t algo[NNRT_ALGO_BYTES];
} NnrtChoice;

// Before ranks prepare anything.  NULL: nothing is measured.  False: the file is of another kind,
// or could not be written.
bool nnrt_tune_open(const char *path, Why *w);

// For measure.c.  find and keep are called between begin, which says what is here, and end: there
// no other rank measures.
bool nnrt_tune_on(void);
void nnrt_tune_begin(size_t cublaslt, int sm, int processors);
void nnrt_tune_end(void);
bool nnrt_tune_find(const char *problem, NnrtChoice *out);
void nnrt_tune_keep(const char *problem, const NnrtChoice *c); // and writes the file

#endif
