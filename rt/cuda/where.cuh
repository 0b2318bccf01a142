// The indices of local elements in the global tensor, for kernels whose random numbers depend on
// them.

#ifndef NNRT_CUDA_WHERE_CUH
#define NNRT_CUDA_WHERE_CUH

#include "rows.cuh"

// The position of the local elements in the global tensor: `runs` runs of n adjacent elements, the
// first at `base`.
struct Where {
  int64_t runs, n, base;
  int ndim; // of the axes that number the runs
  int64_t shape[NNRT_MAX_NDIM], stride[NNRT_MAX_NDIM];
};

static Where where_of(int64_t ndim, const int64_t *shape, const int64_t *whole,
                      const int64_t *start, const int64_t *piece_of, const int64_t *piece_start) {
  if (piece_of) whole = piece_of;
  // Complete inner axes form runs of adjacent elements, with the axis before them.
  int64_t inner = ndim, stride = 1;
  Where w = {};
  w.n = 1;
  while (inner > 0 && shape[inner - 1] == whole[inner - 1])
    w.n *= shape[--inner];
  if (inner > 0) w.n *= shape[--inner];
  w.runs = product(shape, inner);
  w.ndim = (int)inner;
  // The first element, and the strides in the global tensor.
  for (int64_t d = ndim - 1; d >= 0; d--) {
    w.base += (start[d] + (piece_of ? piece_start[d] : 0)) * stride;
    w.shape[d] = shape[d];
    w.stride[d] = stride;
    stride *= whole[d];
  }
  return w;
}

static __device__ inline int64_t run_start(const Where &w, int64_t run) {
  int64_t at = w.base;
  for (int d = w.ndim - 1; d >= 0; d--) {
    at += run % w.shape[d] * w.stride[d];
    run /= w.shape[d];
  }
  return at;
}

#endif
