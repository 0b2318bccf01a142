// Reads a file of ONNX messages, which may be malicious.
//
// protobuf-c copies every byte of its input to its heap and trusts lengths more than we do, so it
// never sees the file.  The file is mapped, and a walk over it, guided by the descriptors that
// protoc-c generated, writes a second, slim message:
//
//     file                                          slim
//     initializer { name: "w"                       initializer { name: "w"
//                   dims: 512 dims: 512                           dims: 512 dims: 512
//                   raw_data: 1 MiB of bytes }                    segment { begin: 71 … } }
//
// The walk checks facts that protobuf-c trusts: varints and lengths end inside the message around
// them, a field has the wire type of its declaration, a singular field occurs once, strings hold no
// zero byte, the nesting of messages is limited, and so is the heap that the message will need.
// Fields without a declaration are left out; fields newer than Debian's onnx.proto are rewritten
// into declared ones (see onnx_read.h).

#include "frontend/onnx_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices.pb-c.h"
#include "rt/utf8.h"

enum {
  WIRE_varint = 0,
  WIRE_64bit = 1,
  WIRE_bytes = 2,
  WIRE_32bit = 5,
  MAX_DEPTH = 100, // the limit of protobuf's own readers
  LENGTH_BYTES = 5,
};

// Heap bytes per repeated element or string, besides its own.
enum { HEAP_PER_PIECE = 48 };

typedef struct Slim {
  const uint8_t *at; // the file
  StrBuf out;
  int64_t heap, heap_limit; // the approximate need of protobuf-c
  const char *wrong;        // NULL: no error
  int64_t wrong_at;
} Slim;

static bool fail(Slim *s, int64_t at, const char *what) {
  if (!s->wrong) {
    s->wrong = what;
    s->wrong_at = at;
  }
  return false;
}

static bool read_varint(Slim *s, int64_t *at, int64_t end, uint64_t *out) {
  int64_t start = *at;
  *out = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (*at >= end) return fail(s, start, "a number is truncated");
    uint8_t byte = s->at[(*at)++];
    // The tenth byte has one bit.
    if (shift == 63 && byte > 1) return fail(s, start, "a number has more than 64 bits");
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return fail(s, start, "a number has more than 64 bits");
}

static void put_varint(Slim *s, uint64_t x) {
  char byte[10];
  size_t n = 0;
  for (; x >= 0x80; x >>= 7)
    byte[n++] = (char)(x | 0x80);
  byte[n++] = (char)x;
  strbuf_add_n(&s->out, byte, n);
}

static void put_bytes(Slim *s, int64_t from, int64_t to) {
  strbuf_add_n(&s->out, (const char *)s->at + from, (size_t)(to - from));
}

// Opens a message.  Its length precedes it and is known after it: five bytes are reserved for it.
static size_t open_message(Slim *s, uint64_t field) {
  put_varint(s, field << 3 | WIRE_bytes);
  size_t at = s->out.n;
  strbuf_add_n(&s->out, "\0\0\0\0\0", LENGTH_BYTES);
  return at;
}

static void close_message(Slim *s, size_t at) {
  size_t n = s->out.n - at - LENGTH_BYTES;
  for (int i = 0; i < LENGTH_BYTES; i++)
    s->out.at[at + (size_t)i] = (char)((n >> (7 * i) & 0x7f) | (i < LENGTH_BYTES - 1 ? 0x80 : 0));
}

static int wire_type(ProtobufCType type) {
  // The declared types, by their encodings.
  switch (type) {
  case PROTOBUF_C_TYPE_SFIXED32:
  case PROTOBUF_C_TYPE_FIXED32:
  case PROTOBUF_C_TYPE_FLOAT: return WIRE_32bit;
  case PROTOBUF_C_TYPE_SFIXED64:
  case PROTOBUF_C_TYPE_FIXED64:
  case PROTOBUF_C_TYPE_DOUBLE: return WIRE_64bit;
  case PROTOBUF_C_TYPE_STRING:
  case PROTOBUF_C_TYPE_BYTES:
  case PROTOBUF_C_TYPE_MESSAGE: return WIRE_bytes;
  case PROTOBUF_C_TYPE_INT32:
  case PROTOBUF_C_TYPE_SINT32:
  case PROTOBUF_C_TYPE_INT64:
  case PROTOBUF_C_TYPE_SINT64:
  case PROTOBUF_C_TYPE_UINT32:
  case PROTOBUF_C_TYPE_UINT64:
  case PROTOBUF_C_TYPE_BOOL:
  case PROTOBUF_C_TYPE_ENUM: return WIRE_varint;
  }
  return -1;
}

// Checks a packed list of numbers.
static bool check_packed(Slim *s, int wire, int64_t from, int64_t to) {
  if (wire == WIRE_32bit || wire == WIRE_64bit) {
    // Fixed sizes need no walk.
    int64_t size = wire == WIRE_32bit ? 4 : 8;
    s->heap += to - from;
    return (to - from) % size == 0 || fail(s, from, "a list ends inside a number");
  }
  for (int64_t at = from; at < to; s->heap += 8) {
    uint64_t ignored;
    if (!read_varint(s, &at, to, &ignored)) return false;
  }
  return true;
}

// Fields newer than the declaration, and the fields they are rewritten into.
enum {
  NODE_OP_TYPE = 4,
  NODE_ATTRIBUTE = 5,
  NODE_DOC_STRING = 6,
  NODE_OVERLOAD = 8,
  NODE_METADATA = 9,
  FUNCTION_NAME = 1,
  FUNCTION_NODE = 7,
  FUNCTION_ATTRIBUTE_PROTO = 11,
  FUNCTION_OVERLOAD = 13,
  TENSOR_RAW_DATA = 9,
  VALUE_DOC_STRING = 3,
  VALUE_METADATA = 4,
  ENTRY_KEY = 1,
  ENTRY_VALUE = 2,
  NODE_DEVICES = 10,
  MODEL_CONFIGURATION = 26,
};

typedef struct Span {
  int64_t from, to;
} Span;

// Fields that are combined and so written last: the name of a node's op or of a function, with its
// overload; of a value, its kind according to PyTorch's exporter, with the sources it was folded
// from; in the doc_string of a node, the module and the call that it was exported from, a line
// each.
typedef struct Named {
  uint64_t name_field, overload_field;
  Span name, overload, module, call;
} Named;

// Adds text of the file, which is UTF-8 from here on: names that were not become so, and differ as
// before.
static void add_text(const Slim *s, StrBuf *out, Span span) {
  const char *text = (const char *)s->at + span.from;
  strbuf_add(out, str_utf8(s->out.arena, text, (size_t)(span.to - span.from)));
}

static void put_string(Slim *s, uint64_t field, const StrBuf *text) {
  put_varint(s, field << 3 | WIRE_bytes);
  put_varint(s, text->n);
  strbuf_add_n(&s->out, text->at, text->n);
  s->heap += (int64_t)text->n;
}

static bool slim_message(Slim *s, const ProtobufCMessageDescriptor *type, int64_t from, int64_t to,
                         int depth);

static bool slim_bytes(Slim *s, const ProtobufCMessageDescriptor *type,
                       const ProtobufCFieldDescriptor *field, Named *named, Span span, int depth) {
  uint64_t id = field->id;
  int wire = wire_type(field->type);
  if (wire != WIRE_bytes) {
    if (field->label != PROTOBUF_C_LABEL_REPEATED)
      return fail(s, span.from, "a number is written as bytes");
    if (!check_packed(s, wire, span.from, span.to)) return false;
  } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
    // A message is walked in turn.
    size_t at = open_message(s, id);
    if (!slim_message(s, field->descriptor, span.from, span.to, depth + 1)) return false;
    close_message(s, at);
    return true;
  } else if (type == &onnx__tensor_proto__descriptor && id == TENSOR_RAW_DATA) {
    size_t at = open_message(s, 3);
    // The bytes stay in the file: only their range is written.
    put_varint(s, 1 << 3 | WIRE_varint);
    put_varint(s, (uint64_t)span.from);
    put_varint(s, 2 << 3 | WIRE_varint);
    put_varint(s, (uint64_t)span.to);
    close_message(s, at);
    s->heap += (int64_t)sizeof(Onnx__TensorProto__Segment);
    return true;
  } else {
    // A string or bytes.
    s->heap += span.to - span.from + HEAP_PER_PIECE;
    if (field->type == PROTOBUF_C_TYPE_STRING &&
        memchr(s->at + span.from, 0, (size_t)(span.to - span.from)))
      return fail(s, span.from, "a string holds a zero byte");
    if (type == &onnx__value_info_proto__descriptor && id == VALUE_DOC_STRING) return true;
    if (type == &onnx__node_proto__descriptor && id == NODE_DOC_STRING) return true;
    // Written last, together with its overload.
    if (id == named->name_field) {
      named->name = span;
      return true;
    }
  }
  // The file names of external data are bytes, too.
  bool is_text =
      field->type == PROTOBUF_C_TYPE_STRING && type != &onnx__string_string_entry_proto__descriptor;
  if (is_text) {
    StrBuf text = {.arena = s->out.arena};
    add_text(s, &text, span);
    put_string(s, id, &text);
    return true;
  }
  put_varint(s, id << 3 | WIRE_bytes);
  put_varint(s, (uint64_t)(span.to - span.from));
  put_bytes(s, span.from, span.to);
  return true;
}

static bool span_is(const Slim *s, Span span, const char *text) {
  size_t n = strlen(text);
  return (size_t)(span.to - span.from) == n && memcmp(s->at + span.from, text, n) == 0;
}

// Reads a key and its value; four keys are used.
static bool read_metadata(Slim *s, Span span, Named *named) {
  Span part[3] = {{0, 0}, {0, 0}, {0, 0}};
  for (int64_t at = span.from; at < span.to;) {
    uint64_t tag, n;
    int64_t start = at;
    if (!read_varint(s, &at, span.to, &tag) || !read_varint(s, &at, span.to, &n)) return false;
    if ((tag & 7) != WIRE_bytes || n > (uint64_t)(span.to - at))
      return fail(s, start, "a field is not of its declared type");
    uint64_t id = tag >> 3;
    if (id == ENTRY_KEY || id == ENTRY_VALUE) part[id] = (Span){at, at + (int64_t)n};
    at += (int64_t)n;
  }
  Span value = part[ENTRY_VALUE];
  if (memchr(s->at + value.from, 0, (size_t)(value.to - value.from)))
    return fail(s, value.from, "a string holds a zero byte");
  // A value has the first two keys, a node the others.
  if (span_is(s, part[ENTRY_KEY], "pkg.torch.export.graph_signature.InputSpec.kind"))
    named->name = value;
  if (span_is(s, part[ENTRY_KEY], "pkg.onnxscript.optimizer.folded_from")) named->overload = value;
  if (span_is(s, part[ENTRY_KEY], "pkg.torch.onnx.name_scopes")) named->module = value;
  if (span_is(s, part[ENTRY_KEY], "pkg.torch.onnx.fx_node")) named->call = value;
  return true;
}

// Returns the message of devices.proto that the field holds, or NULL.
static const ProtobufCMessageDescriptor *device_message(const ProtobufCMessageDescriptor *type,
                                                        uint64_t id) {
  if (type == &onnx__node_proto__descriptor && id == NODE_DEVICES) return &device__node__descriptor;
  if (type == &onnx__model_proto__descriptor && id == MODEL_CONFIGURATION)
    return &device__configuration__descriptor;
  return NULL;
}

// Rewrites a field that the declaration lacks.
static bool slim_newer(Slim *s, const ProtobufCMessageDescriptor *type, uint64_t id, Named *named,
                       Span span, int depth) {
  if (named->overload_field && id == named->overload_field) {
    if (memchr(s->at + span.from, 0, (size_t)(span.to - span.from)))
      return fail(s, span.from, "a string holds a zero byte");
    named->overload = span;
  } else if (device_message(type, id)) {
    // Rewritten into an undeclared field, which protobuf-c keeps as bytes.
    size_t at = open_message(s, ONNX_DEVICES_FIELD);
    s->heap += span.to - span.from;
    if (!slim_message(s, device_message(type, id), span.from, span.to, depth + 1)) return false;
    close_message(s, at);
  } else if ((type == &onnx__value_info_proto__descriptor && id == VALUE_METADATA) ||
             (type == &onnx__node_proto__descriptor && id == NODE_METADATA)) {
    return read_metadata(s, span, named);
  } else if (type == &onnx__function_proto__descriptor && id == FUNCTION_ATTRIBUTE_PROTO) {
    size_t node = open_message(s, FUNCTION_NODE);
    size_t attribute = open_message(s, NODE_ATTRIBUTE);
    s->heap += (int64_t)sizeof(Onnx__NodeProto);
    if (!slim_message(s, &onnx__attribute_proto__descriptor, span.from, span.to, depth + 1))
      return false;
    close_message(s, attribute);
    close_message(s, node);
  }
  return true;
}

static void put_name(Slim *s, const ProtobufCMessageDescriptor *type, const Named *named) {
  StrBuf origin = {.arena = s->out.arena}, name = {.arena = s->out.arena};
  // The module and the call of the exporter, a line each.
  add_text(s, &origin, named->module);
  strbuf_add(&origin, "\n");
  add_text(s, &origin, named->call);
  if (origin.n > 1 && type == &onnx__node_proto__descriptor)
    put_string(s, NODE_DOC_STRING, &origin);
  if (!named->name_field || (named->name.to == 0 && named->overload.to == 0)) return;
  // The name, and after a colon its overload.
  add_text(s, &name, named->name);
  if (named->overload.to > named->overload.from) strbuf_add(&name, ":");
  add_text(s, &name, named->overload);
  put_string(s, named->name_field, &name);
}

// Returns false if the field stands twice and may stand once.  Members of a oneof share a mark,
// that of the first.  `seen`: the marks by index of the field.
static bool mark_seen(Slim *s, const ProtobufCMessageDescriptor *type,
                      const ProtobufCFieldDescriptor *field, bool *seen, int64_t at) {
  if (field->label == PROTOBUF_C_LABEL_REPEATED) return true;
  // The first member of the oneof has the mark.
  const ProtobufCFieldDescriptor *mark = field;
  if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
    for (mark = type->fields; mark->quantifier_offset != field->quantifier_offset ||
                              !(mark->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);)
      mark++;
  bool *own = &seen[mark - type->fields];
  if (*own) return fail(s, at, "a field that may stand once stands twice");
  *own = true;
  return true;
}

static bool slim_message(Slim *s, const ProtobufCMessageDescriptor *type, int64_t from, int64_t to,
                         int depth) {
  if (depth > MAX_DEPTH) return fail(s, from, "messages nest too deep");
  s->heap += (int64_t)type->sizeof_message + HEAP_PER_PIECE;
  Named named = {0};
  if (type == &onnx__node_proto__descriptor)
    named = (Named){.name_field = NODE_OP_TYPE, .overload_field = NODE_OVERLOAD};
  if (type == &onnx__function_proto__descriptor)
    named = (Named){.name_field = FUNCTION_NAME, .overload_field = FUNCTION_OVERLOAD};
  if (type == &onnx__value_info_proto__descriptor) named.name_field = VALUE_DOC_STRING;
  // A mark per declared field.  They need less memory than the message, which s->heap counts.
  bool *seen = arena_array(s->out.arena, bool, type->n_fields);
  for (int64_t at = from; at < to;) {
    // A small file must not make protobuf-c allocate without limit.
    if (s->heap > s->heap_limit) return fail(s, at, "it has far more pieces than a model has");
    int64_t start = at;
    uint64_t tag, x;
    if (!read_varint(s, &at, to, &tag)) return false;
    uint64_t id = tag >> 3;
    int wire = (int)(tag & 7);
    if (id == 0 || id > 0x1fffffff) return fail(s, start, "a field has no valid number");
    const ProtobufCFieldDescriptor *field =
        device_message(type, id) ? NULL
                                 : protobuf_c_message_descriptor_get_field(type, (unsigned)id);
    if (device_message(type, id) && wire != WIRE_bytes)
      return fail(s, start, "a field is not of its declared type");
    // The slim message uses a tensor's segment for the range of its raw_data; no writer of models
    // uses it.
    if (field && field->type == PROTOBUF_C_TYPE_MESSAGE &&
        field->descriptor == &onnx__tensor_proto__segment__descriptor)
      return fail(s, start, "a tensor in segments is not supported");
    if (field && !mark_seen(s, type, field, seen, start)) return false;
    // Lists of numbers may be packed into bytes.
    bool packed = field && wire == WIRE_bytes && field->label == PROTOBUF_C_LABEL_REPEATED;
    if (field && wire != wire_type(field->type) && !packed)
      return fail(s, start, "a field is not of its declared type");
    switch (wire) {
    case WIRE_varint:
      if (!read_varint(s, &at, to, &x)) return false;
      if (field) {
        put_varint(s, tag);
        put_varint(s, x);
        s->heap += 8;
      }
      break;
    case WIRE_64bit:
    case WIRE_32bit: {
      int64_t size = wire == WIRE_64bit ? 8 : 4;
      if (to - at < size) return fail(s, start, "a number is truncated");
      if (field) {
        put_varint(s, tag);
        put_bytes(s, at, at + size);
        s->heap += 8;
      }
      at += size;
      break;
    }
    case WIRE_bytes: {
      if (!read_varint(s, &at, to, &x)) return false;
      if (x > (uint64_t)(to - at)) return fail(s, start, "a field is longer than the rest");
      Span span = {at, at + (int64_t)x};
      if (!(field ? slim_bytes(s, type, field, &named, span, depth)
                  : slim_newer(s, type, id, &named, span, depth)))
        return false;
      at = span.to;
      break;
    }
    default: return fail(s, start, "a field has no valid type");
    }
  }
  put_name(s, type, &named);
  return true;
}

const Loc *onnx_place(const OnnxFile *f, Arena *a, const char *name) {
  StrBuf safe = {.arena = a};
  strbuf_add(&safe, "");
  for (int n; *name; name += n) {
    uint32_t code;
    n = nnrt_utf8(name, &code);
    bool shown = n > 0 && !nnrt_utf8_obeyed(code) && code != '\\';
    strbuf_add_n(&safe, shown ? name : "?", shown ? (size_t)n : 1);
    if (n == 0) n = 1;
  }
  return loc_node(a, f->path, safe.at);
}

static bool map_file(OnnxFile *f, Diag *d) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return diag_error(d, f->loc, "cannot open: %s", strerror(errno));
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return diag_error(d, f->loc, "is not a regular file");
  }
  // mmap refuses an empty file.
  if (st.st_size == 0) {
    close(fd);
    return diag_error(d, f->loc, "is empty");
  }
  void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  int code = errno;
  close(fd);
  if (at == MAP_FAILED) return diag_error(d, f->loc, "cannot map: %s", strerror(code));
  f->at = at;
  f->n = st.st_size;
  return true;
}

bool onnx_open(OnnxFile *f, const char *path, const ProtobufCMessageDescriptor *type, Arena *a,
               Diag *d) {
  *f = (OnnxFile){.path = path,
                  .loc = loc_node(a, path, NULL),
                  .missing = arena_one(a, const char *),
                  .external = arena_one(a, ExternalFile),
                  .arena = a};
  if (!map_file(f, d)) return false;
  Arena *scratch = arena_new();
  Slim s = {.at = f->at, .out = {.arena = scratch}, .heap_limit = (64 << 20) + 16 * f->n};
  bool ok = slim_message(&s, type, 0, f->n, 0);
  if (ok && s.out.n > INT32_MAX) ok = fail(&s, 0, "it is above 2 GiB without its weights");
  if (!ok) {
    // Text, a plan or a summary for example, has no control characters except white space; files of
    // exporters begin with one, the tag of ir_version.
    bool text = true;
    for (int64_t i = 0; i < f->n && i < 256 && text; i++)
      text = f->at[i] >= ' ' || memchr("\t\n\r\f", f->at[i], 4);
    diag_error(d, f->loc, "is not a well-formed ONNX file: at byte %lld, %s", (long long)s.wrong_at,
               s.wrong);
    diag_hint(d, text ? "it is text, and models are binary; plans and clusters in Lua are for "
                        "--plan and --cluster"
                      : "the file may be truncated or of another format");
  } else {
    // Everything that protobuf-c trusts has been checked.
    f->message = protobuf_c_message_unpack(type, NULL, s.out.n, (const uint8_t *)s.out.at);
    ok = f->message || diag_error(d, f->loc, "is not a well-formed ONNX file");
  }
  arena_free(scratch);
  if (!ok) onnx_close(f);
  return ok;
}

ProtobufCMessage *onnx_devices_message(const ProtobufCMessage *in, unsigned *i,
                                       const ProtobufCMessageDescriptor *type) {
  for (; *i < in->n_unknown_fields; ++*i) {
    const ProtobufCMessageUnknownField *field = &in->unknown_fields[*i];
    // The length in front of a message has a fixed size here.
    if (field->tag != ONNX_DEVICES_FIELD || field->len < LENGTH_BYTES) continue;
    ++*i;
    return protobuf_c_message_unpack(type, NULL, field->len - LENGTH_BYTES,
                                     field->data + LENGTH_BYTES);
  }
  return NULL;
}

void onnx_close(OnnxFile *f) {
  if (f->message) protobuf_c_message_free_unpacked(f->message, NULL);
  if (f->at) munmap((void *)(uintptr_t)f->at, (size_t)f->n);
  if (f->external && f->external->path) close(f->external->fd);
  f->message = NULL;
  f->at = NULL;
  f->external = NULL;
}
