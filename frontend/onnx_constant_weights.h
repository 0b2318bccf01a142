// See onnx_constant_weights.c.

#ifndef FRONTEND_ONNX_CONSTANT_WEIGHTS_H
#define FRONTEND_ONNX_CONSTANT_WEIGHTS_H

#include "frontend/onnx_read.h"

// Returns the tensor of a Constant node, or NULL.
const Onnx__TensorProto *onnx_constant_tensor(const Onnx__NodeProto *node);

#endif
