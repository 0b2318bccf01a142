// Kernels in CUDA C, linked with this program and the emulated gpu.  See machine.h.

#include "machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "cuda/gpu.h"

enum { MAX_BLOCKS = 256 };

Kernel *generated_kernel(const char *name); // in the code

static NnrtGpu gpu;
static void *blocks[MAX_BLOCKS];
static int n_blocks;

static void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  printf("%s\n", cudaGetErrorString(error));
  exit(1);
}

bool machine_open(const char *code) {
  (void)code;
  must(cudaStreamCreate(&gpu.stream));
  gpu.sm = 90;
  gpu.processors = 4;
  nnrt_gpu_use(&gpu);
  return true;
}

Kernel *machine_kernel(const char *name) {
  return generated_kernel(name);
}

void *machine_new(const void *from, int64_t bytes) {
  if (n_blocks == MAX_BLOCKS) abort();
  void **at = &blocks[n_blocks++];
  must(cudaMalloc(at, (size_t)bytes + 1));
  must(cudaMemcpyAsync(*at, from, (size_t)bytes, cudaMemcpyHostToDevice, gpu.stream));
  return *at;
}

void machine_read(void *to, const void *at, int64_t bytes) {
  must(cudaMemcpyAsync(to, at, (size_t)bytes, cudaMemcpyDeviceToHost, gpu.stream));
  must(cudaStreamSynchronize(gpu.stream));
}

void machine_free_all(void) {
  must(cudaStreamSynchronize(gpu.stream));
  while (n_blocks > 0)
    must(cudaFree(blocks[--n_blocks]));
}
