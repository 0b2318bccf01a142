// The kernels of convolution (conv_kernels.cu) for conv.c: weights and padding in cuDNN's form, and
// convolution without cuDNN.

#ifndef NNRT_CUDA_CONV_H
#define NNRT_CUDA_CONV_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

// to (o, window, c) = from (o, c, window), both of `type`.
int conv_weights_last(NnrtDtype type, void *to, const void *from, int64_t o, int64_t c,
                      int64_t window);
// to (o, c, window) f32 = from (o, window, c) of `type`, or (o, c, window) if `last` is false
int conv_weights_back(NnrtDtype type, float *to, const void *from, int64_t o, int64_t c,
                      int64_t window, bool last);

// Zeros around the spatial dimensions of a tensor (outer, size, inner): with them it is (outer,
// padded, inner), with `before` zeros at the beginning.
typedef struct ConvPad {
  int64_t outer, inner;
  int64_t size[3], padded[3], before[3];
} ConvPad;
// to (padded) = from (size) and zeros; to (size) = from (padded) without them
int conv_pad(NnrtDtype type, void *to, const void *from, const ConvPad *e);
int conv_crop(NnrtDtype type, void *to, const void *from, const ConvPad *e);

// A convolution of three spatial dimensions; missing ones are 1.
typedef struct ConvShape {
  int64_t n, c, o, group;
  int64_t x[3], w[3], y[3];
  int64_t stride[3], dilation[3], low[3];
  int64_t x_stride[5], y_stride[5]; // of n, channels, spatial
} ConvShape;
int conv_direct(NnrtDtype type, const ConvShape *s, void *y, const void *x, const void *w);
int conv_direct_back_x(NnrtDtype type, const ConvShape *s, void *dx, const void *w, const void *dy);
int conv_direct_back_w(NnrtDtype type, const ConvShape *s, float *dw, const void *x,
                       const void *dy);

#ifdef __cplusplus
}
#endif

#endif
