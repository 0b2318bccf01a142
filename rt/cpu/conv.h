// The shapes of a convolution, which oneDNN (conv.c) and the products per tap (taps.c) read.

#ifndef NNRT_CONV_H
#define NNRT_CONV_H

#include "dnnl.h"

enum { MAX_DIMS = 5 }; // batch, channels and three spatial, and one more for the groups of weights

// The tensor that is computed: y, the gradient of x, or that of w.
typedef enum Direction { FORWARD, BACK_X, BACK_W } Direction;

typedef struct Conv {
  int64_t ndim, group;
  dnnl_dims_t x, w, y; // in oneDNN's order: channels before spatial dimensions
  int64_t w_ndim;
  dnnl_dims_t stride, dilation, low, high; // in oneDNN a dilation of 0 is a dense filter
  bool channels_last;
} Conv;

#endif
