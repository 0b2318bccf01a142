// Files of ONNX messages: mapped, checked, and given to protobuf-c without the bytes of tensors.

#ifndef FRONTEND_ONNX_READ_H
#define FRONTEND_ONNX_READ_H

#include "base/diag.h"

#include "onnx.pb-c.h"

// The file of external data that a tensor was found in last; most models have one for all tensors.
typedef struct ExternalFile {
  const char *location, *dir; // in the tensor, and of --external-data-dir
  const char *path;           // NULL: none yet
  int64_t size;
  int fd;
} ExternalFile;

typedef struct OnnxFile {
  const char *path;  // as given
  const uint8_t *at; // the whole file, mapped
  int64_t n;
  ProtobufCMessage *message;
  const Loc *loc;       // the file as a location in messages
  bool unread;          // no weights will be read, so files of external data may be missing
  const char **missing; // the last file of external data that was reported as missing
  ExternalFile *external;
  Arena *arena; // of `external`: it outlives a tensor
} OnnxFile;

// Opens `path`, which holds one message of the given type.  The message from protobuf-c differs
// from the file.  The raw_data of a tensor is absent, and its `segment` is the range of these bytes
// in the file.  The overload of a node or a function is part of its name ("Name:overload").  The
// default attributes of a function are those of a node in it without op_type.  The doc_string of a
// value is "KIND:SOURCES" if PyTorch's exporter gives the kind of input it is and the values it was
// folded from.  The doc_string of a node is the module and the call that it was exported from (see
// onnx_torch.c).  Other doc_strings are absent.  Returns false after reporting an error.
bool onnx_open(OnnxFile *f, const char *path, const ProtobufCMessageDescriptor *type, Arena *a,
               Diag *d);
void onnx_close(OnnxFile *f);

// Returns the message of devices.proto in the next unknown field of a node or a model, from number
// *i on, and sets *i after it; NULL if there is none.  The caller frees it.
enum { ONNX_DEVICES_FIELD = 19000000 };
ProtobufCMessage *onnx_devices_message(const ProtobufCMessage *in, unsigned *i,
                                       const ProtobufCMessageDescriptor *type);

// Returns a node or tensor of the file as a location in messages.  Locations, and comments of
// generated code, are single lines: characters that could end a line are replaced.
const Loc *onnx_place(const OnnxFile *f, Arena *a, const char *name);

static inline const Onnx__ModelProto *onnx_model(const OnnxFile *f) {
  return (const Onnx__ModelProto *)(const void *)f->message;
}
static inline const Onnx__TensorProto *onnx_tensor_message(const OnnxFile *f) {
  return (const Onnx__TensorProto *)(const void *)f->message;
}

// The domain of operators for training.
#define ONNX_TRAINING_DOMAIN "ai.onnx.preview.training"

// A string of an attribute, which may hold any bytes.
static inline const char *onnx_text(Arena *a, ProtobufCBinaryData s) {
  return str_copy_n(a, (const char *)s.data, s.len);
}

// Absent strings of a message are empty.
static inline const char *onnx_str(const char *s) {
  return s ? s : "";
}

#endif
