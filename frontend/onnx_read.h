// Files of ONNX messages: mapped, checked, and given to protobuf-c without the bytes of tensors.

#ifndef FRONTEND_ONNX_READ_H
#define FRONTEND_ONNX_READ_H

#include "base/diag.h"

#include "onnx.pb-c.h"

typedef struct OnnxFile {
  const char *path;  // as given
  const uint8_t *at; // the whole of it, mapped
  int64_t n;
  ProtobufCMessage *message;
  const Loc *loc;       // the file as a place in messages
  bool unread;          // no weights will be read, so files of external data may be missing
  const char **missing; // the file of external data that was reported last as missing
} OnnxFile;

// Opens `path`, which holds one message of the given type.  In what protobuf-c makes of it, the
// raw_data of a tensor is absent, and its `segment` says where in the file it lies; the overload
// of a node or a function is part of its name ("Name:overload"), and the default attributes of a
// function are those of a node in it without op_type.  The
// doc_string of a value is "KIND:SOURCES" where PyTorch's exporter says what it is, an input of
// what kind and folded from which values, and that of a node the module and the call that it was
// exported from (see onnx_torch.c); otherwise they are absent.  False when it has reported why not.
bool onnx_open(OnnxFile *f, const char *path, const ProtobufCMessageDescriptor *type, Arena *a,
               Diag *d);
void onnx_close(OnnxFile *f);

// The message of devices.proto that the next of the unknown fields of a node or a model holds, from
// number *i on, and *i behind it; NULL where there is none.  The caller frees it.
enum { ONNX_DEVICES_FIELD = 19000000 };
ProtobufCMessage *onnx_devices_message(const ProtobufCMessage *in, unsigned *i,
                                       const ProtobufCMessageDescriptor *type);

// A node or tensor of the file as a place in messages.  These, and comments of generated code, are
// lines: what could end one is replaced.
const Loc *onnx_place(const OnnxFile *f, Arena *a, const char *name);

static inline const Onnx__ModelProto *onnx_model(const OnnxFile *f) {
  return (const Onnx__ModelProto *)(const void *)f->message;
}
static inline const Onnx__TensorProto *onnx_tensor_message(const OnnxFile *f) {
  return (const Onnx__TensorProto *)(const void *)f->message;
}

// Absent strings of a message are empty.
static inline const char *onnx_str(const char *s) {
  return s ? s : "";
}

#endif
