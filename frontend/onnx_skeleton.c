// The model as a form to be filled in: for --export, every initializer that a run has becomes raw
// data inline, zeros here, and `holes` say where its bytes go.
//
//     initializer { dims: 2 dims: 3 data_type: 1 name: "w"       initializer { dims: 2 dims: 3 …
//                   float_data: 0.5 float_data: … }         =>                 raw_data: 24 zeros }
//
// The rest is copied byte for byte, also what our onnx.proto is too old to know.  Tensors that
// other files hold come inline as well, so that the export stands alone.  It is written twice, the
// first time only to be measured.  Above 2 GiB it would be no ONNX any more: then there is none.

#include <string.h>

#include "frontend/onnx.h"
#include "frontend/onnx_names.h"
#include "frontend/onnx_weights.h"

// Field numbers of onnx.proto.
enum {
  MODEL_GRAPH = 7,
  GRAPH_INITIALIZER = 5,
  TENSOR_RAW_DATA = 9,
};

typedef struct Writer {
  const OnnxFile *f;
  const char *external_dir;
  Arena *a;
  Diag *d;
  const NameMap *labels;
  uint8_t *at; // NULL: only measured
  int64_t n;
  OnnxSkeleton *out;
  size_t initializer; // the next one, in the file's order
} Writer;

static void put(Writer *w, const void *bytes, int64_t n) {
  if (w->at && n > 0) memcpy(w->at + w->n, bytes, (size_t)n);
  w->n += n;
}

static void put_varint(Writer *w, uint64_t x) {
  uint8_t byte[10];
  int n = 0;
  for (; x >= 0x80; x >>= 7)
    byte[n++] = (uint8_t)(x | 0x80);
  byte[n++] = (uint8_t)x;
  put(w, byte, n);
}

// The length of a message takes five bytes, whatever it is, and is put in when it is known.
static int64_t open_message(Writer *w, int field) {
  put_varint(w, (uint64_t)field << 3 | 2);
  w->n += 5;
  return w->n;
}

static void close_message(Writer *w, int64_t start) {
  uint64_t n = (uint64_t)(w->n - start);
  for (int i = 0; i < 5 && w->at; i++)
    w->at[start - 5 + i] = (uint8_t)((n >> (7 * i) & 0x7f) | (i < 4 ? 0x80 : 0));
}

// One field of a message that onnx_open has found well formed.
typedef struct Field {
  int number, wire;
  int64_t start, data, end; // the tag, what it holds, what follows
} Field;

static uint64_t read_varint(const uint8_t *at, int64_t *pos) {
  uint64_t x = 0;
  for (int shift = 0;; shift += 7) {
    uint8_t byte = at[(*pos)++];
    x |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return x;
  }
}

static Field read_field(const uint8_t *at, int64_t start) {
  Field f = {.start = start};
  int64_t pos = start;
  uint64_t tag = read_varint(at, &pos);
  f.number = (int)(tag >> 3);
  f.wire = (int)(tag & 7);
  f.data = pos;
  if (f.wire == 0)
    read_varint(at, &pos);
  else if (f.wire == 1)
    pos += 8;
  else if (f.wire == 5)
    pos += 4;
  else {
    int64_t n = (int64_t)read_varint(at, &pos);
    f.data = pos;
    pos += n;
  }
  f.end = pos;
  return f;
}

// What holds or describes a tensor's elements; the rest of the message is what it is.
static bool is_data(int number) {
  static const int numbers[] = {4, 5, 7, TENSOR_RAW_DATA, 10, 11, 13, 14};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (number == numbers[i]) return true;
  return false;
}

static bool write_inline(Writer *w, const OnnxTensor *t, const char *label, const Field *field,
                         const Loc *loc) {
  int64_t start = open_message(w, GRAPH_INITIALIZER);
  for (int64_t pos = field->data; pos < field->end;) {
    Field part = read_field(w->f->at, pos);
    if (!is_data(part.number)) put(w, w->f->at + part.start, part.end - part.start);
    pos = part.end;
  }
  put_varint(w, TENSOR_RAW_DATA << 3 | 2);
  put_varint(w, (uint64_t)t->bytes);
  if (label && w->at)
    w->out->holes[w->out->n_holes++] = (OnnxHole){label, t->dtype, w->n, t->bytes};
  else if (w->at && !onnx_tensor_bytes(w->f, t, w->at + w->n, loc, w->d))
    return false;
  w->n += t->bytes;
  close_message(w, start);
  return true;
}

static bool write_initializer(Writer *w, const Field *field) {
  const Onnx__TensorProto *proto = onnx_model(w->f)->graph->initializer[w->initializer++];
  const char *name = onnx_str(proto->name);
  bool hole = name_map_find(w->labels, name) >= 0;
  bool external = proto->has_data_location &&
                  proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  if (!hole && !external) {
    put(w, w->f->at + field->start, field->end - field->start);
    return true;
  }
  const Loc *loc = onnx_place(w->f, w->a, name);
  OnnxTensor t;
  return onnx_tensor(w->f, w->external_dir, proto, w->a, loc, &t, w->d) &&
         write_inline(w, &t, hole ? str_copy(w->a, name) : NULL, field, loc);
}

static bool write_model(Writer *w) {
  w->n = 0;
  w->initializer = 0;
  for (int64_t pos = 0; pos < w->f->n;) {
    Field field = read_field(w->f->at, pos);
    pos = field.end;
    if (field.number != MODEL_GRAPH) {
      put(w, w->f->at + field.start, field.end - field.start);
      continue;
    }
    int64_t start = open_message(w, MODEL_GRAPH);
    for (int64_t at = field.data; at < field.end;) {
      Field part = read_field(w->f->at, at);
      at = part.end;
      if (part.number != GRAPH_INITIALIZER)
        put(w, w->f->at + part.start, part.end - part.start);
      else if (!write_initializer(w, &part))
        return false;
    }
    close_message(w, start);
  }
  return true;
}

static bool check_labels(const OnnxFile *f, const char *const *labels, int n_labels, Arena *a,
                         Diag *d) {
  const Onnx__GraphProto *graph = onnx_model(f)->graph;
  if (!graph) return diag_error(d, f->loc, "has no graph");
  NameMap names = {.arena = a};
  for (size_t i = 0; i < graph->n_initializer; i++)
    name_map_add(&names, onnx_str(graph->initializer[i]->name), 0);
  for (int i = 0; i < n_labels; i++)
    if (name_map_find(&names, labels[i]) < 0)
      return diag_error(d, onnx_place(f, a, labels[i]),
                        "is not an initializer of the graph, so that it cannot be exported");
  return true;
}

bool onnx_skeleton(const char *path, const OnnxOptions *o, const char *const *labels, int n_labels,
                   int n_must, Arena *a, OnnxSkeleton *out, Diag *d) {
  OnnxFile f;
  *out = (OnnxSkeleton){0};
  if (!onnx_open(&f, path, &onnx__model_proto__descriptor, a, d)) return false;
  NameMap map = {.arena = a};
  for (int i = 0; i < n_labels; i++)
    name_map_add(&map, labels[i], 0);
  Writer w = {
      .f = &f, .external_dir = o->external_data_dir, .a = a, .d = d, .labels = &map, .out = out};
  bool ok = check_labels(&f, labels, n_must, a, d) && write_model(&w);
  if (ok && w.n > INT32_MAX) {
    diag_warning(d, f.loc,
                 "is above 2 GiB with its weights inline, the limit of the format: the "
                 "executable cannot --export it");
    diag_hint(d, "--save writes the weights alone");
  } else if (ok) {
    out->n = w.n;
    out->bytes = w.at = arena_alloc(a, (size_t)w.n);
    out->holes = arena_array(a, OnnxHole, n_labels);
    ok = write_model(&w);
  }
  onnx_close(&f);
  return ok;
}
