// Parts of ONNX's test data: tensors in files of their own (input_0.pb), and models of one node.

#ifndef FRONTEND_ONNX_TENSOR_H
#define FRONTEND_ONNX_TENSOR_H

#include "ir/op.h"

// Reads a TensorProto.  Its elements keep their type with `keep`, otherwise f16, bf16 and f64
// become f32, as in onnx_import.  The tensor is allocated in `a`, its type in `m`.  False after a
// report.
bool onnx_tensor_read(const char *path, bool keep, Module *m, Arena *a, Tensor *out, Diag *d);

// Returns the op of the model in `path` if it has only one node besides constants; otherwise NULL,
// also for an unreadable file.
const char *onnx_subject(const char *path, Arena *a);

#endif
