// The shapes of a convolution, which its kernels read: oneDNN (dnnl_conv.c), the products per tap
// (taps.c) and our own of all shapes (conv_own.c).

#ifndef NNRT_CONV_H
#define NNRT_CONV_H

#include <stdbool.h>
#include <stdint.h>

enum {
  MAX_DIMS = 5,  // batch, channels and three spatial, and one more for the groups of weights
  CONV_DIMS = 12 // of oneDNN's arrays
};

// The tensor that is computed: y, the gradient of x, or that of w.
typedef enum Direction { FORWARD, BACK_X, BACK_W } Direction;

typedef struct Conv {
  int64_t ndim, group;
  int64_t x[CONV_DIMS], w[CONV_DIMS],
      y[CONV_DIMS]; // in oneDNN's order: channels before spatial dimensions
  int64_t w_ndim;
  int64_t stride[CONV_DIMS], low[CONV_DIMS], high[CONV_DIMS];
  int64_t dilation[CONV_DIMS]; // as in oneDNN, 0 is a dense filter
  bool channels_last;
} Conv;

#endif
