// Kernels for communication between ranks.  C and CUDA C.

#ifndef NNRT_CUDA_RANKS_H
#define NNRT_CUDA_RANKS_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whether there are kernels for the chosen GPU, in the library and in the program (fused.cuh).
bool nnrt_gpu_runs_here(void);
bool nnrt_program_runs_here(void);

enum { NNRT_MOST_THREADS = 32 }; // maximal operands of nnrt_gpu_add

// y = x[0] + x[1] + … in this order.  f32 and i64.
int nnrt_gpu_add(void *y, const void *const *x, int n, int64_t count, NnrtDtype t,
                 cudaStream_t stream);

// In pinned memory, written by the GPU.
typedef struct Progress {
  long long begun, done; // collectives since the start
  int op;                // of the last collective that began
} Progress;
// Enqueues the report that a collective begins or ends.
int nnrt_gpu_announce(Progress *p, int op, bool begin, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
