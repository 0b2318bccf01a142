// A rank's gpu: what kernels and library calls find it by.
//
// Every rank is a thread; what it computes with is in its NnrtGpu, which device.c makes.  A kernel
// of nnrt_kernels.h here takes pointers to the gpu's memory and puts its work in `stream`; it
// returns before that is done, and never waits for it: the calls of a step are recorded into a CUDA
// graph. So everything that takes time or memory, or that the recording does not allow, is done
// when a kernel is prepared, or the first time it runs: the first step is never recorded.
//
// C and CUDA C.

#ifndef NNRT_CUDA_GPU_H
#define NNRT_CUDA_GPU_H

#include <cuda_runtime_api.h>

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a kernel found wrong in the data, in the gpu's memory; read when a step is done.  The first
// one stays.
typedef struct NnrtFinding {
  int code; // NNRT_OK, NNRT_INDEX
  int op;   // of the running graph
  enum NnrtFound kind;
  long long value, place; // the label of which row, the index with which number
  long long least, limit; // it should have been in least .. limit - 1
} NnrtFinding;

typedef struct NnrtGpu {
  int index;           // which gpu of this machine
  int sm, processors;  // 90 of sm_90; how many multiprocessors
  cudaStream_t stream; // of the step
  cudaStream_t comm;   // of collectives; of higher priority, as the next
  cudaStream_t ahead;  // of moves that are ahead
  NnrtFinding *finding;
  int op;      // the one being put into the stream (RUN)
  int64_t row; // of the operation: where the part begins that is put in
  char *scratch;
  int64_t scratch_bytes;
  bool recording;       // the step's calls become a CUDA graph
  const char *planning; // NULL; or properties of a gpu, as cuDNN writes them in JSON: there is none
                        // here, only the plans of cuDNN are made (plans.h)
  struct cublasLtContext *blas; // made when first asked for, by products.c
  struct cudnnContext *dnn;     // nnrt_gpu_dnn
} NnrtGpu;

NnrtGpu *nnrt_gpu(void);       // of the calling thread's rank
void nnrt_gpu_use(NnrtGpu *g); // from now on, in this thread

// Memory for what a kernel needs only while it runs, at a multiple of 256.  Every kernel that asks
// gets the same; work in the stream that used it before is done before.  NULL, having said why by
// nnrt_error, when there is none.  What is needed at most must be asked for when the kernel is
// prepared or first run; while recording it does not grow.
void *nnrt_gpu_scratch(int64_t bytes);

// What lies side by side in one block of memory begins at such multiples.
static inline int64_t round_256(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// For libraries that take as void * what they only read.
static inline void *unconst(const void *p) {
  return (void *)(uintptr_t)p;
}

// A code of nnrt.h for what the CUDA runtime says; 0 for success.
int nnrt_cuda(cudaError_t error, const char *what);

// Rounds n numbers to bf16 or f16, in the stream (narrow.cu).
int nnrt_gpu_narrow(void *y, NnrtDtype type, const float *x, int64_t n);

// What every prepared kernel begins with.
struct NnrtPrep {
  void (*free)(struct NnrtPrep *p);
};

#ifdef __cplusplus
}
#endif

#endif
