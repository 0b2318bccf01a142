// The emulator's <cuda_runtime.h>, for kernels compiled as C++.
//
//     g++ -std=c++17 -x c++ -I tests/gpu/emulator/include -I /usr/local/cuda/include -c copy.cu
//
// Types and host functions are those of the real toolkit; this adds nvcc's built-ins.  A kernel's
// threads are fibres of one thread of the machine (block.c), so threadIdx is a thread-local
// variable, and a __shared__ variable a static thread-local one.

#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#ifdef __cplusplus

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>

#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __noinline__ // it conflicts with __attribute__((__noinline__))
#define __shared__   static thread_local
#define __constant__ static const
#define __launch_bounds__(...)

// ---- Thread and block indices

struct EmulatedPosition {
  uint3 thread, block, block_dim, grid_dim;
  void *dynamic_shared;
};
extern "C" __thread struct EmulatedPosition emulated_position_;
#define threadIdx (emulated_position_.thread)
#define blockIdx  (emulated_position_.block)
#define blockDim  (emulated_position_.block_dim)
#define gridDim   (emulated_position_.grid_dim)
#define warpSize  32

// ---- Architectures of this file

// Set by ../nvcc.in from -gencode; without it, as nnaot compiles the library by itself.
#ifndef EMULATED_CODE
#define EMULATED_CODE "sm_80 sm_90 sm_100 compute_100"
#endif
// Returns an error, and sets the last one, if there is no code for the GPU.
extern "C" cudaError_t emulated_need_code(const char *code);
extern "C" cudaError_t emulated_attributes(struct cudaFuncAttributes *out, const void *kernel,
                                           const char *code);
// The query needs the architectures of the file with the kernel.
#define cudaFuncGetAttributes(out, kernel) emulated_attributes(out, kernel, EMULATED_CODE)

// ---- Launching

extern "C" void emulated_launch_kernel(dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                       const void *kernel, size_t argument_bytes,
                                       void (*call)(void *arguments), void (*free)(void *arguments),
                                       void *arguments);

template <class... P, class... A>
static inline void emulated_launch(dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                   void (*kernel)(P...), A... args) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> args;
  };
  if (emulated_need_code(EMULATED_CODE) != cudaSuccess) return;
  emulated_launch_kernel(
      grid, block, shared, stream, (const void *)kernel, sizeof(std::tuple<P...>),
      [](void *c) { std::apply(((Call *)c)->kernel, ((Call *)c)->args); },
      [](void *c) { delete (Call *)c; }, new Call{kernel, std::tuple<P...>((P)args...)});
}

#define EMULATED_DYNAMIC_SHARED(type, name) type *name = (type *)emulated_position_.dynamic_shared

// ---- Synchronisation of a block and of a warp

extern "C" void emulated_block_barrier(void);
enum { EMULATED_SYNC, EMULATED_SHUFFLE, EMULATED_BALLOT };
// Waits for all threads in `mask`; returns the value of lane `from`, or for a ballot, the lanes
// with one.
extern "C" uint64_t emulated_warp(int what, unsigned mask, uint64_t value, int from);
extern "C" int emulated_lane(void);

static inline void __syncthreads() {
  emulated_block_barrier();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulated_warp(EMULATED_SYNC, mask, 0, 0);
}
static inline unsigned __ballot_sync(unsigned mask, int yes) {
  return (unsigned)emulated_warp(EMULATED_BALLOT, mask, yes != 0, 0);
}
static inline int __any_sync(unsigned mask, int yes) {
  return __ballot_sync(mask, yes) != 0;
}
static inline int __all_sync(unsigned mask, int yes) {
  return __ballot_sync(mask, !yes) == 0;
}
template <class T> static inline T emulated_shuffle(unsigned mask, T x, int from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &x, sizeof x);
  bits = emulated_warp(EMULATED_SHUFFLE, mask, bits, from);
  memcpy(&x, &bits, sizeof x);
  return x;
}
// Lanes are in groups of `width`; a lane that would read outside its group keeps its value.
template <class T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
  int group = emulated_lane() / width * width;
  return emulated_shuffle(mask, x, group + (from & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32) {
  int lane = emulated_lane(), end = lane / width * width + width, from = lane ^ with;
  return emulated_shuffle(mask, x, from < end ? from : lane);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32) {
  int lane = emulated_lane(), group = lane / width * width, from = lane - (int)by;
  return emulated_shuffle(mask, x, from >= group ? from : lane);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32) {
  int lane = emulated_lane(), end = lane / width * width + width, from = lane + (int)by;
  return emulated_shuffle(mask, x, from < end ? from : lane);
}

// ---- Atomics.  Other machine threads may run kernels of other ranks on the same memory.

template <class T, class F> static inline T emulated_atomic(T *p, F change) {
  T old;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  for (;;) {
    T next = change(old);
    if (__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return old;
  }
}
#define EMULATED_ATOMICS(T)                                                                        \
  static inline T atomicExch(T *p, T x) {                                                          \
    return emulated_atomic(p, [=](T) { return x; });                                               \
  }                                                                                                \
  static inline T atomicAdd(T *p, T x) {                                                           \
    return emulated_atomic(p, [=](T old) { return (T)(old + x); });                                \
  }
#define EMULATED_INTEGER_ATOMICS(T)                                                                \
  EMULATED_ATOMICS(T)                                                                              \
  static inline T atomicMax(T *p, T x) {                                                           \
    return emulated_atomic(p, [=](T old) { return old > x ? old : x; });                           \
  }                                                                                                \
  static inline T atomicMin(T *p, T x) {                                                           \
    return emulated_atomic(p, [=](T old) { return old < x ? old : x; });                           \
  }                                                                                                \
  static inline T atomicOr(T *p, T x) {                                                            \
    return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST);                                              \
  }                                                                                                \
  static inline T atomicAnd(T *p, T x) {                                                           \
    return __atomic_fetch_and(p, x, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  static inline T atomicXor(T *p, T x) {                                                           \
    return __atomic_fetch_xor(p, x, __ATOMIC_SEQ_CST);                                             \
  }                                                                                                \
  static inline T atomicCAS(T *p, T expected, T x) {                                               \
    __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    return expected;                                                                               \
  }
EMULATED_INTEGER_ATOMICS(int)
EMULATED_INTEGER_ATOMICS(unsigned)
EMULATED_INTEGER_ATOMICS(unsigned long long)
EMULATED_ATOMICS(float)
static inline double atomicAdd(double *p, double x) {
  return emulated_atomic(p, [=](double old) { return old + x; });
}
static inline int atomicSub(int *p, int x) {
  return atomicAdd(p, -x);
}
// As in hardware: counts up to `last`, then from 0.
static inline unsigned atomicInc(unsigned *p, unsigned last) {
  return emulated_atomic(p, [=](unsigned old) { return old >= last ? 0 : old + 1; });
}
static inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_block() {
  __threadfence();
}
static inline void __threadfence_system() {
  __threadfence();
}

// ---- Memory and bits

template <class T> static inline T __ldg(const T *p) {
  return *p;
}
template <class T> static inline T __ldcs(const T *p) {
  return *p;
}
template <class T> static inline T __ldcg(const T *p) {
  return *p;
}
template <class T> static inline void __stcs(T *p, T x) {
  *p = x;
}
template <class T> static inline void __stcg(T *p, T x) {
  *p = x;
}
template <class To, class From> static inline To emulated_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "the bits of one must fit the other");
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static inline unsigned __float_as_uint(float x) {
  return emulated_bits<unsigned>(x);
}
static inline int __float_as_int(float x) {
  return emulated_bits<int>(x);
}
static inline float __uint_as_float(unsigned x) {
  return emulated_bits<float>(x);
}
static inline float __int_as_float(int x) {
  return emulated_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
  return emulated_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
  return emulated_bits<double>(x);
}
static inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}
static inline int __clz(int x) {
  return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x) {
  return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x) {
  return __builtin_ffs(x);
}
static inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
static inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++)
    y |= (x >> i & 1) << (31 - i);
  return y;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// ---- Arithmetic

#define EMULATED_LESS(T)                                                                           \
  static inline T min(T a, T b) {                                                                  \
    return a < b ? a : b;                                                                          \
  }                                                                                                \
  static inline T max(T a, T b) {                                                                  \
    return a > b ? a : b;                                                                          \
  }
EMULATED_LESS(int)
EMULATED_LESS(unsigned)
EMULATED_LESS(long)
EMULATED_LESS(unsigned long)
EMULATED_LESS(long long)
EMULATED_LESS(unsigned long long)
// For a number and NaN, the number.
static inline float min(float a, float b) {
  return fminf(a, b);
}
static inline float max(float a, float b) {
  return fmaxf(a, b);
}
static inline double min(double a, double b) {
  return fmin(a, b);
}
static inline double max(double a, double b) {
  return fmax(a, b);
}
static inline float rsqrtf(float x) {
  return 1 / sqrtf(x);
}
static inline double rsqrt(double x) {
  return 1 / sqrt(x);
}
// The C library declares functions of these names.
#define __expf(x)    expf(x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __powf(x, y) powf(x, y)
static inline float __fdividef(float a, float b) {
  return a / b;
}
static inline float __saturatef(float x) {
  return x > 0 ? x < 1 ? x : 1 : 0;
}
static inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
// Not to be contracted into a multiplication and addition.
static inline float __fadd_rn(float a, float b) {
  return a + b;
}
static inline float __fsub_rn(float a, float b) {
  return a - b;
}
static inline float __fmul_rn(float a, float b) {
  return a * b;
}
static inline float __fdiv_rn(float a, float b) {
  return a / b;
}
static inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
static inline float __frcp_rn(float x) {
  return 1 / x;
}
static inline int __float2int_rn(float x) {
  return (int)rintf(x);
}
static inline int __float2int_rz(float x) {
  return (int)x;
}
static inline float __int2float_rn(int x) {
  return (float)x;
}

// ---- Host functions, for kernels and pointers of any type

template <class T> static inline cudaError_t cudaMalloc(T **p, size_t bytes) {
  return cudaMalloc((void **)(void *)p, bytes);
}
template <class T>
static inline cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}

#endif
#endif
