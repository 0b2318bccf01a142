// Shared by the kernels that only copy elements: indices, and the width of accesses.
//
// A kernel over a box of several dimensions divides a running index by their sizes many times.
// GPUs have no instruction for that, so a Divider multiplies instead.  64-bit multiplication is
// slow, too, so indices have 32 bits for tensors that are small enough: kernels are templates over
// I, the type of an index.
//
//     with_index(n, [&](auto index) { return launch(kernel<decltype(index)>, …); })

#ifndef NNRT_CUDA_MOVE_CUH
#define NNRT_CUDA_MOVE_CUH

#include <type_traits>

#include "device.cuh"

template <class I> struct Divider;

// q = n / d by the high half of a product; for n below 2^31.  (Granlund and Montgomery, Division by
// Invariant Integers using Multiplication, section 4.)
template <> struct Divider<int32_t> {
  uint32_t magic, d;
  int shift;
  Divider() : magic(1), d(1), shift(0) {}
  explicit Divider(int64_t by) : d((uint32_t)by), shift(0) {
    while (((uint64_t)1 << shift) < (uint64_t)by)
      shift++;
    magic = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << shift) - d)) / d + 1);
  }
  // Returns n / d and stores n % d in `rest`.
  __host__ __device__ int32_t divide(int32_t n, int32_t *rest) const {
    uint32_t high = (uint32_t)((uint64_t)(uint32_t)n * magic >> 32);
    int32_t q = (int32_t)((high + (uint32_t)n) >> shift);
    *rest = n - q * (int32_t)d;
    return q;
  }
};

template <> struct Divider<int64_t> {
  int64_t d;
  Divider() : d(1) {}
  explicit Divider(int64_t by) : d(by) {}
  __host__ __device__ int64_t divide(int64_t n, int64_t *rest) const {
    int64_t q = n / d;
    *rest = n - q * d;
    return q;
  }
};

// Calls f with an index type that can count to `n` plus the stride of a grid.
template <class F> static int with_index(int64_t n, F f) {
  return n < (int64_t)1 << 30 ? f(int32_t()) : f(int64_t());
}

// -- Elements.  For copying, an element is its bytes; several adjacent ones form a wider one.

typedef Pack<uint32_t, 4> b16;

// Calls f with an element of `width` bytes: those of one element, or also 16 of several.
template <class F> static int with_size(int64_t width, F f) {
  switch (width) {
  case 1: return f(uint8_t());
  case 2: return f(uint16_t());
  case 4: return f(uint32_t());
  default: return f(uint64_t());
  }
}
template <class F> static int with_width(int64_t width, F f) {
  return width == sizeof(b16) ? f(b16()) : with_size(width, f);
}

// The largest power of two, up to 16, that divides the addresses and sizes in `bytes`, or'ed.
static inline int64_t width_of(uint64_t bytes) {
  uint64_t lowest = bytes & (0 - bytes);
  return lowest == 0 || lowest > 16 ? 16 : (int64_t)lowest;
}

static inline uint64_t address(const void *p) {
  return (uint64_t)(uintptr_t)p;
}

#endif
