// Parts of ONNX's test data: tensors in files of their own (input_0.pb), and models of one node.

#ifndef FRONTEND_ONNX_TENSOR_H
#define FRONTEND_ONNX_TENSOR_H

#include "frontend/onnx_strings.h"
#include "ir/op.h"

// Reads a TensorProto.  Its elements keep their type with `keep`, otherwise f16, bf16 and f64
// become f32, as in onnx_import.  Strings become their numbers in the list, NULL: they are refused.
// The tensor is allocated in `a`, its type in `m`.  False after a report.
bool onnx_tensor_read(const char *path, bool keep, OnnxStrings *strings, Module *m, Arena *a,
                      Tensor *out, Diag *d);

// A value of a model's interface, of a file: a tensor, the tensors of a sequence, or an optional of
// either, which may be absent.
typedef struct OnnxDatum {
  int n;
  Tensor *at; // [n]
  bool is_sequence, is_absent;
} OnnxDatum;

// Reads the files of the first `n` inputs, or outputs, of the model, by their declared types.
// Elements keep their types, and strings become their numbers.  False after a report.
bool onnx_data_read(const char *model, bool outputs, const char *const *path, int n,
                    OnnxStrings *strings, Module *m, Arena *a, OnnxDatum *out, Diag *d);

// Returns the op of the model in `path` if it has only one node besides constants; otherwise NULL,
// also for an unreadable file.
const char *onnx_subject(const char *path, Arena *a);

#endif
