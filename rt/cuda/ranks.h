// Kernels that the runtime needs where ranks work together.  C and CUDA C.

#ifndef NNRT_CUDA_RANKS_H
#define NNRT_CUDA_RANKS_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// Are there kernels for the chosen gpu: those of the library, those of the program (fused.cuh)?
bool nnrt_gpu_runs_here(void);
bool nnrt_program_runs_here(void);

enum { NNRT_MOST_THREADS = 32 }; // ranks that nnrt_gpu_add adds up

// y = x[0] + x[1] + … in this order.  f32 and i64.
int nnrt_gpu_add(void *y, const void *const *x, int n, int64_t count, NnrtDtype t,
                 cudaStream_t stream);

// In pinned memory; the gpu writes.
typedef struct Progress {
  long long begun, done; // collectives, of all time
  int op;                // of the last that began
} Progress;
// Writes that a collective begins, or ends, when the stream gets there.
int nnrt_gpu_announce(Progress *p, int op, bool begin, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
