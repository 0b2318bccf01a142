// Windows of convolutions and poolings: their attributes in all spellings.

#ifndef FRONTEND_ONNX_WINDOW_H
#define FRONTEND_ONNX_WINDOW_H

#include "frontend/onnx_node.h"

typedef struct Geometry {
  int n; // spatial dimensions
  int64_t kernel[MAX_NDIM], stride[MAX_NDIM], dilation[MAX_NDIM], pad[2 * MAX_NDIM];
  int64_t out[MAX_NDIM]; // of a pooling
} Geometry;

// Reads the attributes of a node with this kernel; NULL: `kernel_shape`.  auto_pad: enough padding
// for a result of the input divided by the stride, rounded up.  Without `pads` they are left to the
// caller.
bool window_read(Node *n, const int64_t *kernel, bool pads, Geometry *g);
// Checks that the weight has as many dimensions as the input.  The attribute may repeat its kernel,
// but not contradict it.
bool window_check_kernel(Node *n);
// Adds one number per channel to the result, broadcast over the spatial dimensions.
bool window_add_bias(Node *n, Value *bias, int n_spatial);

#endif
