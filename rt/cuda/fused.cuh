// The building blocks of generated kernels (kernels.cu of a program, its only user): vectorised
// access to elements, and sums.
//
// A sum has two steps if it needs several blocks: each block adds a part in the type of the
// computation, and add_parts adds the parts in double.  The program gives the number of parts, and
// each step has a fixed order: the same program yields the same bits on every GPU.

#ifndef NNRT_CUDA_FUSED_CUH
#define NNRT_CUDA_FUSED_CUH

#include "device.cuh"

// -- Elements: 16-bit ones are computed in float, all others as they are

template <class T> static __device__ inline T load_one(const T *p) {
  return *p;
}
static __device__ inline float load_one(const bf16 *p) {
  return load(p);
}
static __device__ inline float load_one(const f16 *p) {
  return load(p);
}
template <class T, class S> static __device__ inline void store_one(T *p, S x) {
  *p = (T)x;
}
template <class S> static __device__ inline void store_one(bf16 *p, S x) {
  store(p, (float)x);
}
template <class S> static __device__ inline void store_one(f16 *p, S x) {
  store(p, (float)x);
}

// n adjacent elements, read and written at once; the address is a multiple of their size.
template <int n, class C, class T> static __device__ inline void load_all(C (&u)[n], const T *x) {
  const Pack<T, n> pack = *(const Pack<T, n> *)x;
  for (int j = 0; j < n; j++)
    u[j] = load_one(&pack.at[j]);
}
template <int n, class C, class T> static __device__ inline void store_all(T *y, const C (&w)[n]) {
  Pack<T, n> pack;
  for (int j = 0; j < n; j++)
    store_one(&pack.at[j], w[j]);
  *(Pack<T, n> *)y = pack;
}

// -- Sums

// The sum of each run of `lanes` threads of a warp, in all of them.
template <int lanes, class S> static __device__ inline S lanes_sum(S x) {
  for (int d = lanes / 2; d > 0; d /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

// Sums over the threads of a block with equal numbers modulo `columns`, in the first `columns`.
template <int columns, int n, class S> static __device__ inline void block_sums(S (&s)[n]) {
  __shared__ S part[n][BLOCK];
  const int i = (int)threadIdx.x;
  __syncthreads(); // all reads of `part` by the previous sums are done
  for (int j = 0; j < n; j++)
    part[j][i] = s[j];
  // Halves of the block are added until `columns` are left.
  for (int d = BLOCK / 2; d >= columns; d /= 2) {
    __syncthreads();
    for (int j = 0; j < n && i < d; j++)
      part[j][i] += part[j][i + d];
  }
  for (int j = 0; j < n && i < columns; j++)
    s[j] = part[j][i];
}

// The type in which parts are added.
template <class S> struct Wide { typedef double type; };
template <> struct Wide<long long> { typedef long long type; };

// y[i] = part[i] + part[n + i] + … : `columns` of them per block.
template <int columns, class T, class S>
static __global__ void add_parts(T *y, const S *part, int64_t n, int64_t parts) {
  const int64_t i = (int64_t)blockIdx.x * columns + threadIdx.x % columns;
  typename Wide<S>::type s[1] = {0};
  for (int64_t p = threadIdx.x / columns; p < parts && i < n; p += BLOCK / columns)
    s[0] += part[p * n + i];
  block_sums<columns>(s);
  if (threadIdx.x < columns && i < n) store_one(y + i, s[0]);
}

// -- Architectures of the program, which may differ from those of the library

static __global__ void nothing() {}

extern "C" bool nnrt_program_runs_here(void) {
  cudaFuncAttributes ignored;
  bool runs = cudaFuncGetAttributes(&ignored, (const void *)nothing) == cudaSuccess;
  cudaGetLastError();
  return runs;
}

#endif
