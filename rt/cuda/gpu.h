// A rank's GPU, as seen by kernels and library calls.
//
// Every rank is a thread with an NnrtGpu, created by device.c.  A kernel of nnrt_kernels.h takes
// pointers to GPU memory and launches into `stream`.  The call returns before the kernel ran, and
// never waits for it: the calls of a step are captured into a CUDA graph.  So allocations, slow
// calls and calls that capture forbids belong to the preparation or the first run of a kernel: the
// first step is never captured.
//
// C and CUDA C.

#ifndef NNRT_CUDA_GPU_H
#define NNRT_CUDA_GPU_H

#include <cuda_runtime_api.h>

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

// An error that a kernel found in the data, in GPU memory; read at the end of a step.  The first
// one is kept.
typedef struct NnrtFinding {
  int code; // NNRT_OK, NNRT_INDEX
  int op;   // in the running graph
  enum NnrtFound kind;
  long long value, place; // the label and its row, or the index and its number
  long long least, limit; // the valid range is least .. limit - 1
} NnrtFinding;

typedef struct NnrtGpu {
  int index;           // of the GPU on this machine
  int sm, processors;  // 90 for sm_90; number of multiprocessors
  cudaStream_t stream; // of the step
  cudaStream_t comm;   // of collectives; of higher priority, like the next
  cudaStream_t ahead;  // of moves between segments
  NnrtFinding *finding;
  int op;      // the op being launched (RUN)
  int64_t row; // first row of the part of the op being launched
  char *scratch;
  int64_t scratch_bytes;
  bool recording;       // the step's calls are captured into a CUDA graph
  const char *planning; // NULL; or properties of a GPU, in cuDNN's JSON: there is no GPU here, and
                        // only cuDNN plans are built (cudnn_plans.h)
  struct cublasLtContext *blas; // created on first use, by products.c
  struct cudnnContext *dnn;     // nnrt_gpu_dnn
} NnrtGpu;

NnrtGpu *nnrt_gpu(void);       // of the calling thread's rank
void nnrt_gpu_use(NnrtGpu *g); // sets the GPU of this thread

// Temporary memory for one kernel, at a multiple of 256.  All kernels get the same block; earlier
// work in the stream that used it completes first.  Returns NULL with nnrt_error set if there is
// none.  A kernel must request its maximum when it is prepared or first run; during capture scratch
// does not grow.
void *nnrt_gpu_scratch(int64_t bytes);

// Rounds up to the alignment of sections in one block of memory.
static inline int64_t round_256(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// For libraries that declare their inputs as void *.
static inline void *unconst(const void *p) {
  return (void *)(uintptr_t)p;
}

// Returns a code of nnrt.h for a CUDA error; 0 for success.
int nnrt_cuda(cudaError_t error, const char *what);

// Rounds n numbers to bf16 or f16, in the stream (narrow.cu).
int nnrt_gpu_narrow(void *y, NnrtDtype type, const float *x, int64_t n);
// Adds the checksum of a range at a multiple of 8 to *sum, in the stream (checksums.cu).
int nnrt_gpu_checksum(uint64_t *sum, const void *at, int64_t bytes);

// The first member of every prepared kernel.
struct NnrtPrep {
  void (*free)(struct NnrtPrep *p);
};

#ifdef __cplusplus
}
#endif

#endif
