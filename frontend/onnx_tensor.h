// What the test data of ONNX consists of: tensors in files of their own (input_0.pb), and models
// of one node.

#ifndef FRONTEND_ONNX_TENSOR_H
#define FRONTEND_ONNX_TENSOR_H

#include "ir/op.h"

// Reads a TensorProto.  Its elements keep their type with `keep`, otherwise f16, bf16 and f64
// become f32, as in onnx_import.  The tensor lives in `a`, its type in `m`.  False when it has
// reported why not.
bool onnx_tensor_read(const char *path, bool keep, Module *m, Arena *a, Tensor *out, Diag *d);

// The op that the model in `path` is about, when it has only one node besides constants; otherwise
// NULL, also for what cannot be read.
const char *onnx_subject(const char *path, Arena *a);

#endif
