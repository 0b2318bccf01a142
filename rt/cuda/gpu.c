// The GPU of the calling thread's rank, and its services for kernels.  See gpu.h.

#include "gpu.h"

#include "device.h"

static _Thread_local NnrtGpu *current;

NnrtGpu *nnrt_gpu(void) {
  return current;
}

void nnrt_gpu_use(NnrtGpu *g) {
  current = g;
}

int nnrt_cuda(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return NNRT_OK;
  // A later call reports the errors of a kernel.
  if (error >= cudaErrorIllegalAddress && error <= cudaErrorLaunchFailure)
    return nnrt_error(
        NNRT_LIBRARY,
        "%s: %s\nhint: it may come from an operation before; CUDA_LAUNCH_BLOCKING=1 in "
        "the environment makes it name the one",
        what, cudaGetErrorString(error));
  // Running out of memory has its own code, and hints.
  if (error == cudaErrorMemoryAllocation)
    return nnrt_error(NNRT_MEMORY, "%s\n" NNRT_MEMORY_HINT, what);
  return nnrt_error(NNRT_LIBRARY, "%s: %s", what, cudaGetErrorString(error));
}

void *nnrt_gpu_scratch(int64_t bytes) {
  NnrtGpu *g = current;
  if (bytes <= g->scratch_bytes) return g->scratch;
  if (g->recording) {
    nnrt_error(NNRT_MEMORY, "scratch of %lld bytes is asked for while the step is recorded",
               (long long)bytes);
    return NULL;
  }
  // Work in the stream may still use the old block.
  int code = nnrt_cuda(cudaStreamSynchronize(g->stream), "waiting for the stream");
  if (!code) code = nnrt_cuda(cudaFree(g->scratch), "freeing scratch");
  g->scratch = NULL;
  g->scratch_bytes = 0;
  void *at = NULL;
  char what[64];
  snprintf(what, sizeof what, "scratch of %s", nnrt_amount((double)bytes).text);
  if (!code) code = nnrt_cuda(cudaMalloc(&at, (size_t)bytes), what);
  if (code) return NULL;
  g->scratch = at;
  g->scratch_bytes = bytes;
  return at;
}

void nnrt_prep_free(NnrtPrep *p) {
  if (p) p->free(p);
}

// -- device.h: the limits of a GPU are not measured ----------------------------------------------

NnrtPeak nnrt_device_peak(NnrtRank *r, NnrtDtype type) {
  (void)r;
  (void)type;
  return (NnrtPeak){0};
}

int nnrt_device_copies(NnrtRank *r, NnrtPeak out_copy[NNRT_COPIES]) {
  (void)r;
  (void)out_copy;
  return 0;
}
