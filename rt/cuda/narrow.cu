// Rounds f32 weights to the 16 bits that matrix products read, at the start of training.  Later the
// optimizers write the 16-bit copies themselves, and generated kernels do other casts.
//
//     reads 4 bytes and writes 2 for an element

#include "rows.cuh"

template <class T> static __global__ void narrow(T *y, const float *x, int64_t n) {
  int64_t packs = ((uintptr_t)y | (uintptr_t)x) % 16 == 0 ? n / 8 : 0;
  for (int64_t i = first_thread(); i < packs; i += all_threads()) {
    // 16 bytes of results from 32 of operands.
    float v[8];
    read_floats(v, x + 8 * i);
    Pack<T, 8> q;
    UNROLL
    for (int k = 0; k < 8; k++)
      store(&q.at[k], v[k]);
    write_pack(y + 8 * i, q);
  }
  // The rest, or all without alignment.
  for (int64_t i = 8 * packs + first_thread(); i < n; i += all_threads())
    store(y + i, x[i]);
}

int nnrt_gpu_narrow(void *y, NnrtDtype type, const float *x, int64_t n) {
  if (n == 0) return NNRT_OK;
  return with_short_type(type, [&](auto element) {
    using T = decltype(element);
    return launch(narrow<T>, blocks_for((n + 7) / 8), BLOCK, 0, (T *)y, x, n);
  });
}
