// What generated kernels are made of (kernels.cu of a program, which alone includes this): elements
// several at a time, and sums.
//
// A sum is made in two steps where one block would not do: every block adds up a part in what is
// computed in, and add_parts adds the parts up in double.  How many parts there are is in the
// program, and each step has a fixed order: the same program gives the same bits on every gpu.

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

// n neighbours, read and written at once; the address is a multiple of their size.
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

// Of each run of `lanes` threads of a warp, in all of them.
template <int lanes, class S> static __device__ inline S lanes_sum(S x) {
  for (int d = lanes / 2; d > 0; d /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}

// Of those threads of a block whose numbers are the same modulo `columns`, in the first `columns`.
template <int columns, int n, class S> static __device__ inline void block_sums(S (&s)[n]) {
  __shared__ S part[n][BLOCK];
  const int i = (int)threadIdx.x;
  __syncthreads(); // nobody reads `part` of the sums before any more
  for (int j = 0; j < n; j++)
    part[j][i] = s[j];
  for (int d = BLOCK / 2; d >= columns; d /= 2) {
    __syncthreads();
    for (int j = 0; j < n && i < d; j++)
      part[j][i] += part[j][i + d];
  }
  for (int j = 0; j < n && i < columns; j++)
    s[j] = part[j][i];
}

// What parts are added up in.
template <class S> struct Wide { typedef double type; };
template <> struct Wide<long long> { typedef long long type; };

// y[i] = part[i] + part[n + i] + … : `columns` of them by each block.
template <int columns, class T, class S>
static __global__ void add_parts(T *y, const S *part, int64_t n, int64_t parts) {
  const int64_t i = (int64_t)blockIdx.x * columns + threadIdx.x % columns;
  typename Wide<S>::type s[1] = {0};
  for (int64_t p = threadIdx.x / columns; p < parts && i < n; p += BLOCK / columns)
    s[0] += part[p * n + i];
  block_sums<columns>(s);
  if (threadIdx.x < columns && i < n) store_one(y + i, s[0]);
}

// -- What the program was compiled for, which the library's kernels do not know

static __global__ void nothing() {}

extern "C" bool nnrt_program_runs_here(void) {
  cudaFuncAttributes ignored;
  bool runs = cudaFuncGetAttributes(&ignored, (const void *)nothing) == cudaSuccess;
  cudaGetLastError();
  return runs;
}

#endif
