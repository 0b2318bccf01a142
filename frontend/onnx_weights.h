// Tensors of a model: their type, and the location of their bytes.

#ifndef FRONTEND_ONNX_WEIGHTS_H
#define FRONTEND_ONNX_WEIGHTS_H

#include "frontend/onnx_read.h"
#include "ir/op.h"

// An element type of 8 bits or less of a file.  Its tensors are f32 in the module, rounded to the
// format, or i8 and u8; in files several elements share a byte, the first one in its low bits.
typedef struct OnnxNarrow {
  int bits;
  int format; // of op `narrow`; -1: an integer
} OnnxNarrow;

typedef struct OnnxTensor {
  DType dtype;              // of the file
  const OnnxNarrow *narrow; // NULL if dtype is all of it
  int ndim;
  int64_t dim[MAX_NDIM];
  int64_t count, bytes; // bytes of the file
  Init init;            // INIT_file or INIT_bytes; only without `narrow` as the module reads it
} OnnxTensor;

// Sets the element type for a TensorProto.DataType, if we have it; returns its form in files if
// that is another one, else NULL; and returns its name for messages.
bool onnx_dtype(int data_type, DType *out);
const OnnxNarrow *onnx_narrow(int data_type);
const char *onnx_dtype_name(int data_type);
// Returns f32 for f16, bf16 and f64, unless they are to be kept.
DType onnx_compute_dtype(DType dtype, bool keep);

// Finds the bytes of `t` without reading them.  External data may be in the folder of the model or
// in `external_dir`, unless that is NULL.
bool onnx_tensor(const OnnxFile *f, const char *external_dir, const Onnx__TensorProto *t, Arena *a,
                 const Loc *loc, OnnxTensor *out, Diag *d);
// Reads the tensor, converted to `type`, which has its shape.
bool onnx_tensor_load(const OnnxFile *f, const OnnxTensor *t, const Type *type, Arena *a,
                      const Loc *loc, Tensor *out, Diag *d);
// Copies the tensor's bytes to `to`.
bool onnx_tensor_bytes(const OnnxFile *f, const OnnxTensor *t, void *to, const Loc *loc, Diag *d);

#endif
