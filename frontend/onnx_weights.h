// Tensors of a model: their type, and where their bytes lie.

#ifndef FRONTEND_ONNX_WEIGHTS_H
#define FRONTEND_ONNX_WEIGHTS_H

#include "frontend/onnx_read.h"
#include "ir/op.h"

typedef struct OnnxTensor {
  DType dtype; // of the file
  int rank;
  int64_t dim[MAX_RANK];
  int64_t count, bytes;
  Init init; // INIT_file or INIT_bytes
} OnnxTensor;

// The element type that a TensorProto.DataType stands for, if we have it; and how messages call it.
bool onnx_dtype(int data_type, DType *out);
const char *onnx_dtype_name(int data_type);
// f16, bf16 and f64 are f32 unless they are to be kept.
DType onnx_compute_dtype(DType dtype, bool keep);

// Says where the bytes of `t` are, without reading them.  External data may lie in the folder of
// the model or in `external_dir`, unless that is NULL.
bool onnx_tensor(const OnnxFile *f, const char *external_dir, const Onnx__TensorProto *t, Arena *a,
                 const Loc *loc, OnnxTensor *out, Diag *d);
// Reads it, converted to `type`, which has its shape.
bool onnx_tensor_load(const OnnxFile *f, const OnnxTensor *t, const Type *type, Arena *a,
                      const Loc *loc, Tensor *out, Diag *d);
// Copies its bytes to `to`.
bool onnx_tensor_bytes(const OnnxFile *f, const OnnxTensor *t, void *to, const Loc *loc, Diag *d);

#endif
