// Shared by all CUDA kernels: element types, launches, sums over a warp and a block, errors.
//
//     template <class T> __global__ void scale_all(T *y, const T *x, int64_t n, float by) {
//       for (int64_t i = first_thread(); i < n; i += all_threads())
//         store(y + i, by * load(x + i));
//     }
//     …
//     return launch(scale_all<bf16>, blocks_for(n), 256, 0, y, x, n, by);
//
// Kernels compute in float and store once.  They are deterministic: no atomic sums of
// floating-point numbers; partial sums of several blocks go through scratch, and one of the blocks,
// or a second kernel, adds them in order.  They use plain CUDA C of one thread, block and grid:
// __shared__ arrays, DYNAMIC_SHARED, __syncthreads, __syncwarp, __shfl_xor_sync, __shfl_up_sync,
// __shfl_down_sync, __shfl_sync, __ballot_sync, __popc, __ffs, atomicAdd of integers, atomicCAS,
// atomicMax, atomicMin; no cooperative groups, no dynamic parallelism, no textures, no printf, no
// inline PTX outside this header.  So they also run without a GPU: tests/gpu/emulator compiles them
// as C++, with a cuda_runtime.h of its own, with every thread of a block as a fibre.

#ifndef NNRT_CUDA_DEVICE_CUH
#define NNRT_CUDA_DEVICE_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "gpu.h"
#include "nnrt_math.h"

// 16-bit elements as types of their own; in the interface they are uint16_t.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

#ifdef __CUDA_ARCH__
static __device__ inline float load(const bf16 *p) {
  return __uint_as_float((uint32_t)p->bits << 16);
}
static __device__ inline void store(bf16 *p, float x) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(p->bits) : "f"(x));
}
static __device__ inline float load(const f16 *p) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(p->bits));
  return x;
}
static __device__ inline void store(f16 *p, float x) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p->bits) : "f"(x));
}
#else
static __host__ __device__ inline float load(const bf16 *p) {
  return m_from_bf16(p->bits);
}
static __host__ __device__ inline void store(bf16 *p, float x) {
  p->bits = m_to_bf16(x);
}
static __host__ __device__ inline float load(const f16 *p) {
  return m_from_f16(p->bits);
}
static __host__ __device__ inline void store(f16 *p, float x) {
  p->bits = m_to_f16(x);
}
#endif
static __host__ __device__ inline float load(const float *p) {
  return *p;
}
static __host__ __device__ inline void store(float *p, float x) {
  *p = x;
}

// n elements that are read or written at once: a 16-byte access if they fill one.  The address must
// be a multiple of their size.
template <class T, int n> struct alignas(sizeof(T) * n) Pack { T at[n]; };

// -- Shapes

static inline int64_t product(const int64_t *shape, int64_t n) {
  int64_t p = 1;
  for (int64_t i = 0; i < n; i++)
    p *= shape[i];
  return p;
}

// A tensor as (outer, n, inner), with n = shape[axis].
struct Axis {
  int64_t outer, n, inner;
};
static inline Axis axis_of(int64_t ndim, const int64_t *shape, int64_t axis) {
  return Axis{product(shape, axis), shape[axis], product(shape + axis + 1, ndim - axis - 1)};
}

// -- Launching

enum { WARP = 32, BLOCK = 256 };

static __device__ inline int64_t first_thread() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ inline int64_t all_threads() {
  return (int64_t)gridDim.x * blockDim.x;
}

// The number of blocks of BLOCK threads for n elements; a thread takes several if n is very large.
static inline int blocks_for(int64_t n) {
  // Enough to occupy the GPU several times.
  int64_t blocks = (n + BLOCK - 1) / BLOCK, most = 32 * (int64_t)nnrt_gpu()->processors;
  return (int)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

// Launches a kernel into the rank's stream.  The arguments are converted to the kernel's parameters
// here.  A grid or block without threads is an error; an empty kernel must not be launched.
#ifdef __CUDACC__
template <class... P, class... A>
static int launch(void (*kernel)(P...), dim3 grid, dim3 block, int64_t shared, A... args) {
  // More shared memory than every GPU has must be asked for.
  if (shared > 48 * 1024) {
    int code = nnrt_cuda(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
        "a kernel's shared memory");
    if (code) return code;
  }
  kernel<<<grid, block, (size_t)shared, nnrt_gpu()->stream>>>((P)args...);
  return nnrt_cuda(cudaPeekAtLastError(), "launching a kernel");
}
#define DYNAMIC_SHARED(type, name)                                                                 \
  extern __shared__ __align__(16) unsigned char dynamic_shared_[];                                 \
  type *name = (type *)dynamic_shared_
#else // the emulator's cuda_runtime.h has emulated_launch and EMULATED_DYNAMIC_SHARED
template <class... P, class... A>
static int launch(void (*kernel)(P...), dim3 grid, dim3 block, int64_t shared, A... args) {
  emulated_launch(grid, block, (size_t)shared, nnrt_gpu()->stream, kernel, (P)args...);
  return nnrt_cuda(cudaPeekAtLastError(), "launching a kernel");
}
#define DYNAMIC_SHARED(type, name) EMULATED_DYNAMIC_SHARED(type, name)
#endif

// Dispatches on a type that is known only at launch: calls f with an element of it.
//
//     with_type(t, [&](auto element) { return launch(kernel<decltype(element)>, …); })
template <class F> static int with_type(NnrtDtype t, F f) {
  if (t == NNRT_f32) return f(float());
  if (t == NNRT_bf16) return f(bf16());
  if (t == NNRT_f16) return f(f16());
  return nnrt_error(NNRT_UNSUPPORTED, "elements are neither f32, bf16 nor f16");
}
// The same for a 16-bit type.
template <class F> static int with_short_type(NnrtDtype t, F f) {
  if (t == NNRT_bf16) return f(bf16());
  if (t == NNRT_f16) return f(f16());
  return nnrt_error(NNRT_UNSUPPORTED, "elements are neither bf16 nor f16");
}

// -- Sums and maxima of all threads of a warp or of a block of whole warps; all threads get them.
// The order is fixed.

static __device__ inline float warp_sum(float x) {
  for (int d = WARP / 2; d > 0; d /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, d);
  return x;
}
static __device__ inline float warp_max(float x) {
  for (int d = WARP / 2; d > 0; d /= 2) {
    float y = __shfl_xor_sync(0xffffffffu, x, d);
    x = x > y || x != x ? x : y; // NaN stays
  }
  return x;
}
static __device__ inline float block_sum(float x) {
  __shared__ float part[WARP];
  int warps = (int)(blockDim.x / WARP), warp = (int)(threadIdx.x / WARP);
  x = warp_sum(x);
  __syncthreads(); // all reads of `part` by the previous sum are done
  if (threadIdx.x % WARP == 0) part[warp] = x;
  __syncthreads();
  // The sums of warps, added in order by every thread.
  float sum = 0;
  for (int i = 0; i < warps; i++)
    sum += part[i];
  return sum;
}
static __device__ inline float block_max(float x) {
  __shared__ float part[WARP];
  int warps = (int)(blockDim.x / WARP), warp = (int)(threadIdx.x / WARP);
  // As block_sum; NaN stays.
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % WARP == 0) part[warp] = x;
  __syncthreads();
  float most = part[0];
  for (int i = 1; i < warps; i++)
    most = most > part[i] || most != most ? most : part[i];
  return most;
}

// -- Indices, and findings

// The label or index number `i` of an array with elements of `width` bytes.
static __device__ inline int64_t index_at(const void *at, int64_t width, int64_t i) {
  return width == 4 ? ((const int32_t *)at)[i] : ((const int64_t *)at)[i];
}

// The target of a kernel's findings; built on the host, passed by value.
struct Finder {
  NnrtFinding *finding;
  int op;
  int64_t row; // the kernel's row 0
};
static inline Finder finder() {
  return (Finder){nnrt_gpu()->finding, nnrt_gpu()->op, nnrt_gpu()->row};
}
static __device__ inline bool find_first(Finder f) {
  return atomicCAS(&f.finding->code, (int)NNRT_OK, (int)NNRT_INDEX) == (int)NNRT_OK;
}
// Reports the label of a row that is outside of 0 .. classes - 1.
static __device__ inline void find_label(Finder f, int64_t label, int64_t row, int64_t classes) {
  if (find_first(f)) *f.finding = {NNRT_INDEX, f.op, FOUND_label, label, f.row + row, 0, classes};
}
// Reports the length of a row that is outside of 0 .. steps.
static __device__ inline void find_length(Finder f, int64_t length, int64_t row, int64_t steps) {
  if (find_first(f))
    *f.finding = {NNRT_INDEX, f.op, FOUND_length, length, f.row + row, 0, steps + 1};
}
// Reports the count of elements that a row selects, which is beyond the bound.
static __device__ inline void find_count(Finder f, int64_t count, int64_t row, int64_t bound) {
  if (find_first(f))
    *f.finding = {NNRT_CAPACITY, f.op, FOUND_count, count, f.row + row, 0, bound + 1};
}
// Reports a group with more rows for a part of the experts than its capacity.
static __device__ inline void find_capacity(Finder f, int64_t part, int64_t group,
                                            int64_t capacity) {
  if (find_first(f))
    *f.finding = {NNRT_CAPACITY, f.op, FOUND_capacity, part, group, 0, capacity + 1};
}
// Reports index number `number`, which is outside of low .. n - 1.
static __device__ inline void find_index(Finder f, int64_t index, int64_t number, int64_t low,
                                         int64_t n) {
  if (find_first(f)) *f.finding = {NNRT_INDEX, f.op, FOUND_index, index, number, low, n};
}

// -- The interface: M(suffix, type in the interface, type in kernels) for each floating-point type

#define FOR_FLOATS(M) M(f32, float, float) M(bf16, uint16_t, bf16) M(f16, uint16_t, f16)
// For each element size, with an unsigned type of that size.
#define FOR_SIZES(M) M(b1, uint8_t) M(b2, uint16_t) M(b4, uint32_t) M(b8, uint64_t)

#endif
