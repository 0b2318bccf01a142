// Shared by the unit tests of GPU kernels: a GPU, its memory, and comparison.  A machine with a GPU
// may lack cmocka, so these tests do without: a test is a function, and
//
//     CHECK(x == 1, "x is %d", x);
//
// counts and reports failures.  The last line is "N checks, N failed".

#ifndef GPU_CHECK_H
#define GPU_CHECK_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/gpu.h"
#include "nnrt.h"
#include "nnrt_random.h"

static int n_checks, n_failed;

#define CHECK(condition, ...)                                                                      \
  do {                                                                                             \
    n_checks++;                                                                                    \
    if (!(condition)) {                                                                            \
      n_failed++;                                                                                  \
      printf("%s:%d: ", __FILE__, __LINE__);                                                       \
      printf(__VA_ARGS__);                                                                         \
      printf("\n");                                                                                \
    }                                                                                              \
  } while (0)

#define MUST_CUDA(call)                                                                            \
  do {                                                                                             \
    cudaError_t error_ = (call);                                                                   \
    if (error_ != cudaSuccess) {                                                                   \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));            \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static NnrtGpu gpu;

static inline void gpu_open(void) {
  int major, minor;
  MUST_CUDA(cudaSetDevice(0));
  MUST_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  MUST_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  MUST_CUDA(cudaDeviceGetAttribute(&gpu.processors, cudaDevAttrMultiProcessorCount, 0));
  gpu.sm = 10 * major + minor;
  MUST_CUDA(cudaStreamCreate(&gpu.stream));
  MUST_CUDA(cudaMalloc((void **)&gpu.finding, sizeof *gpu.finding));
  MUST_CUDA(cudaMemset(gpu.finding, 0, sizeof *gpu.finding));
  nnrt_gpu_use(&gpu);
}

static inline int gpu_close(void) {
  MUST_CUDA(cudaStreamSynchronize(gpu.stream));
  if (gpu.scratch) MUST_CUDA(cudaFree(gpu.scratch));
  MUST_CUDA(cudaFree(gpu.finding));
  MUST_CUDA(cudaStreamDestroy(gpu.stream));
  printf("%d checks, %d failed\n", n_checks, n_failed);
  return n_failed > 0;
}

// The finding since the last call.
static inline NnrtFinding gpu_finding(void) {
  NnrtFinding f;
  MUST_CUDA(cudaStreamSynchronize(gpu.stream));
  MUST_CUDA(cudaMemcpy(&f, gpu.finding, sizeof f, cudaMemcpyDeviceToHost));
  MUST_CUDA(cudaMemset(gpu.finding, 0, sizeof *gpu.finding));
  return f;
}

// -- Memory of the GPU, to be freed by gpu_free

static inline void *gpu_put(const void *from, int64_t bytes) {
  void *at;
  MUST_CUDA(cudaMalloc(&at, (size_t)(bytes > 0 ? bytes : 1)));
  MUST_CUDA(cudaMemcpy(at, from, (size_t)bytes, cudaMemcpyHostToDevice));
  return at;
}

// Filled with NaN, so that unwritten elements show.
static inline void *gpu_new(int64_t bytes) {
  void *at;
  MUST_CUDA(cudaMalloc(&at, (size_t)(bytes > 0 ? bytes : 1)));
  MUST_CUDA(cudaMemset(at, 0xff, (size_t)bytes));
  return at;
}

// A copy of GPU memory after all work in the stream; to be freed.
static inline void *gpu_get(const void *from, int64_t bytes) {
  void *at = malloc((size_t)(bytes > 0 ? bytes : 1));
  MUST_CUDA(cudaStreamSynchronize(gpu.stream));
  MUST_CUDA(cudaMemcpy(at, from, (size_t)bytes, cudaMemcpyDeviceToHost));
  return at;
}

static inline void gpu_free(void *at) {
  MUST_CUDA(cudaStreamSynchronize(gpu.stream));
  MUST_CUDA(cudaFree(at));
}

// -- Elements

static inline int64_t size_of(NnrtDtype t) {
  return t == NNRT_f32 ? 4 : 2;
}

static inline const char *name_of(NnrtDtype t) {
  return t == NNRT_f32 ? "f32" : t == NNRT_bf16 ? "bf16" : "f16";
}

static inline double element(const void *x, NnrtDtype t, int64_t i) {
  if (t == NNRT_f32) return (double)((const float *)x)[i];
  uint16_t h = ((const uint16_t *)x)[i];
  return (double)(t == NNRT_bf16 ? m_from_bf16(h) : m_from_f16(h));
}

// n numbers from -1 to 1; the same for the same seed.
static inline void *numbers(NnrtDtype t, int64_t n, int64_t seed) {
  void *x = malloc((size_t)((n > 0 ? n : 1) * size_of(t)));
  for (int64_t i = 0; i < n; i++) {
    float v = (float)(2 * nnrt_random_uniform(seed, 0, 0, i) - 1);
    if (t == NNRT_f32)
      ((float *)x)[i] = v;
    else
      ((uint16_t *)x)[i] = t == NNRT_bf16 ? m_to_bf16(v) : m_to_f16(v);
  }
  return x;
}

// |got - want| / |want| as norms.  A NaN fails.
static inline double distance(const void *got, NnrtDtype t, const double *want, int64_t n) {
  double off = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = element(got, t, i) - want[i];
    off += d * d;
    size += want[i] * want[i];
  }
  return sqrt(off) / (sqrt(size) > 0 ? sqrt(size) : 1);
}

// The maximal distance of a kernel from its definition.
static inline double tolerance(NnrtDtype t) {
  return t == NNRT_f32 ? 1e-5 : t == NNRT_bf16 ? 1e-2 : 2e-3;
}

static inline void check_near(const char *what, const void *on_gpu, NnrtDtype t, const double *want,
                              int64_t n, double most) {
  void *got = gpu_get(on_gpu, n * size_of(t));
  double off = distance(got, t, want, n);
  CHECK(off <= most, "%s, %s: off by %g as a relative norm", what, name_of(t), off);
  free(got);
}

#endif
