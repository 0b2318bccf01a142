// Zeros, copies, and the sum over micro-batches.

#include "device.cuh"

template <class T> static __global__ void add_all(T *y, const T *x, int64_t n) {
  for (int64_t i = first_thread(); i < n; i += all_threads())
    y[i] += x[i];
}

template <class T> static int accumulate(T *y, const T *x, int64_t n) {
  if (n == 0) return NNRT_OK;
  return launch(add_all<T>, blocks_for(n), BLOCK, 0, y, x, n);
}

int nnrt_zero(void *y, int64_t bytes) {
  return nnrt_cuda(cudaMemsetAsync(y, 0, (size_t)bytes, nnrt_gpu()->stream), "zeroing memory");
}

int nnrt_copy(void *y, const void *x, int64_t bytes) {
  // An op that may run in place copies nothing then.
  if (y == x || bytes == 0) return NNRT_OK;
  return nnrt_cuda(
      cudaMemcpyAsync(y, x, (size_t)bytes, cudaMemcpyDeviceToDevice, nnrt_gpu()->stream),
      "copying memory");
}

int nnrt_accumulate_f32(float *y, const float *x, int64_t n) {
  return accumulate(y, x, n);
}

int nnrt_accumulate_i64(int64_t *y, const int64_t *x, int64_t n) {
  return accumulate(y, x, n);
}
