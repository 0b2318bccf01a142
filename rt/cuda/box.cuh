// A box of elements that two tensors share, each with a stride per dimension.
//
//     rows 2-3 of x (8, 6), rows 0-1 of y (4, 6)     shape 2 6     x strides 6 1     y strides 6 1
//
// simplify minimises its dimensions: it drops dimensions of 1, and merges adjacent dimensions that
// are contiguous in both tensors.

#ifndef NNRT_CUDA_BOX_CUH
#define NNRT_CUDA_BOX_CUH

#include "move.cuh"

typedef struct CopyBox {
  int ndim;
  int64_t shape[NNRT_MAX_NDIM], x_stride[NNRT_MAX_NDIM], y_stride[NNRT_MAX_NDIM];
} CopyBox;

// Drops dimensions of 1, and merges those that are contiguous in both tensors.
static void simplify(CopyBox *c) {
  int n = 0;
  for (int d = 0; d < c->ndim; d++) {
    if (c->shape[d] == 1) continue;
    // The dimension continues the one before, in both.
    if (n > 0 && c->x_stride[n - 1] == c->x_stride[d] * c->shape[d] &&
        c->y_stride[n - 1] == c->y_stride[d] * c->shape[d])
      c->shape[n - 1] *= c->shape[d];
    else
      c->shape[n++] = c->shape[d];
    c->x_stride[n - 1] = c->x_stride[d];
    c->y_stride[n - 1] = c->y_stride[d];
  }
  c->ndim = n;
}

// The same on the GPU, with indices of type I.
template <class I> struct BoxOf {
  int ndim;
  Divider<I> size[NNRT_MAX_NDIM];
  I x_stride[NNRT_MAX_NDIM], y_stride[NNRT_MAX_NDIM];
};

template <class I> static BoxOf<I> box_of(const CopyBox &c) {
  BoxOf<I> b;
  b.ndim = c.ndim;
  for (int d = 0; d < c.ndim; d++) {
    b.size[d] = Divider<I>(c.shape[d]);
    b.x_stride[d] = (I)c.x_stride[d];
    b.y_stride[d] = (I)c.y_stride[d];
  }
  return b;
}

// Computes the offsets of element `i` of the box in the two tensors.
template <class I>
static __device__ inline void find_element(const BoxOf<I> &b, I i, int64_t *x_at, int64_t *y_at) {
  *x_at = *y_at = 0;
  for (int d = b.ndim - 1; d > 0; d--) {
    I at;
    i = b.size[d].divide(i, &at);
    *x_at += (int64_t)at * b.x_stride[d];
    *y_at += (int64_t)at * b.y_stride[d];
  }
  // The outermost index is the rest, without a division.
  if (b.ndim > 0) {
    *x_at += (int64_t)i * b.x_stride[0];
    *y_at += (int64_t)i * b.y_stride[0];
  }
}

#endif
