// Random operands, for measuring products (measure.h).

#include "device.cuh"
#include "measure.h"

template <class T> static __global__ void fill_random(T *y, int64_t n, uint64_t seed) {
  for (int64_t i = first_thread(); i < n; i += all_threads()) {
    uint64_t z = (uint64_t)i + seed * 0x9e3779b97f4a7c15u; // splitmix64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    store(y + i, (float)(int32_t)(z >> 32) * 0x1p-31f);
  }
}

int nnrt_fill_random(NnrtDtype t, void *y, int64_t n, uint64_t seed) {
  if (n == 0) return NNRT_OK;
  return with_type(t, [&](auto element) {
    using T = decltype(element);
    return launch(fill_random<T>, blocks_for(n), BLOCK, 0, (T *)y, n, seed);
  });
}
