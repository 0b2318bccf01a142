// For reference functions that move elements: tensors by their indices.
//
//     int64_t at[MAX_NDIM] = {0}, i = 0;
//     do element_copy(out, i++, &in[0], …); while (index_next(out->type, at));

#ifndef IR_OPS_INDEX_H
#define IR_OPS_INDEX_H

#include <string.h>

#include "ir/op.h"

static inline void element_copy(Tensor *to, int64_t i, const Tensor *from, int64_t j) {
  int size = dtype_bytes[to->type->dtype];
  memcpy((char *)to->data + i * size, (const char *)from->data + j * size, (size_t)size);
}

// The distance between neighbours along each dimension, in elements.
static inline void strides_of(const Type *t, int64_t *stride) {
  int64_t n = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    stride[i] = n;
    n *= t->dim[i];
  }
}

// Advances to the next index in row-major order; after the last, returns false and resets to zeros.
static inline bool index_next(const Type *t, int64_t *at) {
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (++at[i] < t->dim[i]) return true;
    at[i] = 0;
  }
  return false;
}

static inline int64_t index_offset(const int64_t *at, const int64_t *stride, int ndim) {
  int64_t offset = 0;
  for (int i = 0; i < ndim; i++)
    offset += at[i] * stride[i];
  return offset;
}

#endif
