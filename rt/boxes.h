// Copies or adds a box of one tensor to a box of another, at their layouts in memory.
//
//     rows 2-3 of f32[8,6] to rows 0-1 of f32[4,6]     size 2 6   to_dim 4 6 at 0 0   from_dim 8 6 at 2 0
//
// C and CUDA C.  On CPUs cpu/boxes.c, on a GPU cuda/boxes.cu, in the stream of operations.

#ifndef NNRT_BOXES_H
#define NNRT_BOXES_H

#include "nnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Box {
  int ndim;
  const int64_t *size;
  // The tensors' dimensions, and the start of the box in each tensor.  NULL: the whole tensor.
  const int64_t *to_dim, *to_at;
  const int64_t *from_dim, *from_at;
} Box;

// Elements of `width` bytes: 1, 2, 4 or 8.
int nnrt_box_copy(void *to, const void *from, int64_t width, const Box *b);
int nnrt_box_add(void *to, const void *from, NnrtDtype t, const Box *b); // f32 or i64

// Sets row-major strides in elements; returns the offset of the box's first element.
static inline int64_t nnrt_box_strides(const Box *b, const int64_t *dim, const int64_t *at,
                                       int64_t *out_stride) {
  int64_t stride = 1, begin = 0;
  for (int d = b->ndim - 1; d >= 0; d--) {
    out_stride[d] = stride;
    if (at) begin += at[d] * stride;
    stride *= dim ? dim[d] : b->size[d];
  }
  return begin;
}

#ifdef __cplusplus
}
#endif

#endif
