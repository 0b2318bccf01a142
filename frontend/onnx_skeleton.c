// The model as a template for --export: every initializer that is a weight of the executable
// becomes inline raw data, zeros here, and `holes` are the ranges of these bytes.
//
//     initializer { dims: 2 dims: 3 data_type: 1 name: "w"       initializer { dims: 2 dims: 3 …
//                   float_data: 0.5 float_data: … }         =>                 raw_data: 24 zeros }
//
// A weight in a Constant node (onnx_constant_weights.c) becomes an initializer.  Nodes are as in
// inference (onnx_inference.c); the rest is copied byte for byte, also fields that are newer than
// our onnx.proto.  External tensors become inline as well, so that the export needs no other file.
// The message is written twice, the first time only to be measured.  Above 2 GiB it would not be a
// valid ONNX file: then there is no template.

#include <string.h>

#include "frontend/onnx.h"
#include "frontend/onnx_constant_weights.h"
#include "frontend/onnx_inference.h"
#include "frontend/onnx_names.h"
#include "frontend/onnx_weights.h"
#include "frontend/onnx_wire.h"

// Field numbers of onnx.proto.
enum {
  MODEL_GRAPH = 7,
  MODEL_FUNCTION = 25,
  GRAPH_NODE = 1,
  GRAPH_INITIALIZER = 5,
  FUNCTION_NODE = 7,
  FUNCTION_ATTRIBUTE_PROTO = 11,
  NODE_ATTRIBUTE = 5,
  ATTRIBUTE_TENSOR = 5,
  TENSOR_NAME = 8,
  TENSOR_RAW_DATA = 9,
};

typedef struct Writer {
  const OnnxFile *f;
  const char *external_dir;
  Arena *a;
  Diag *d;
  const NameMap *labels;
  WireWriter to;
  InferenceWriter nodes;
  OnnxSkeleton *out;
} Writer;

static const int data_fields[] = {4, 5, 7, TENSOR_RAW_DATA, 10, 11, 13, 14}; // of a tensor

// Writes an initializer with inline data.  `name`: replaces its own; or NULL.
static bool write_inline(Writer *w, const OnnxTensor *t, const char *label, const WireField *field,
                         const char *name, const Loc *loc) {
  int64_t start = wire_open(&w->to, GRAPH_INITIALIZER);
  for (int64_t pos = field->data; pos < field->end;) {
    WireField part = wire_read(w->f->at, pos);
    // The fields that hold or describe the elements are left out.
    bool data = false;
    for (size_t i = 0; i < sizeof data_fields / sizeof *data_fields; i++)
      data |= part.number == data_fields[i];
    if (!data && !(name && part.number == TENSOR_NAME))
      wire_put(&w->to, w->f->at + part.start, part.end - part.start);
    pos = part.end;
  }
  if (name) wire_string(&w->to, TENSOR_NAME, name);
  wire_varint(&w->to, TENSOR_RAW_DATA << 3 | 2);
  wire_varint(&w->to, (uint64_t)t->bytes);
  // A hole for a weight; other tensors keep their values.
  if (label && w->to.at)
    w->out->holes[w->out->n_holes++] = (OnnxHole){label, t->dtype, w->to.n, t->bytes};
  else if (w->to.at && !onnx_tensor_bytes(w->f, t, w->to.at + w->to.n, loc, w->d))
    return false;
  w->to.n += t->bytes;
  wire_close(&w->to, start);
  return true;
}

static bool write_initializer(Writer *w, const WireField *field, const Onnx__TensorProto *proto) {
  const char *name = onnx_str(proto->name);
  bool hole = name_map_find(w->labels, name) >= 0;
  bool external = proto->has_data_location &&
                  proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  // Inline tensors that are no weights are copied.
  if (!hole && !external) {
    wire_put(&w->to, w->f->at + field->start, field->end - field->start);
    return true;
  }
  const Loc *loc = onnx_place(w->f, w->a, name);
  OnnxTensor t;
  return onnx_tensor(w->f, w->external_dir, proto, w->a, loc, &t, w->d) &&
         write_inline(w, &t, hole ? str_copy(w->a, name) : NULL, field, NULL, loc);
}

static WireField find_field(const Writer *w, const WireField *in, int number) {
  for (int64_t at = in->data; at < in->end;) {
    WireField part = wire_read(w->f->at, at);
    if (part.number == number) return part;
    at = part.end;
  }
  return (WireField){0};
}

// The attribute `value` of a Constant node is its only one.
static bool write_constant(Writer *w, const WireField *node, const Onnx__TensorProto *proto,
                           const char *name) {
  const Loc *loc = onnx_place(w->f, w->a, name);
  WireField attribute = find_field(w, node, NODE_ATTRIBUTE);
  WireField tensor = find_field(w, &attribute, ATTRIBUTE_TENSOR);
  OnnxTensor t;
  return onnx_tensor(w->f, w->external_dir, proto, w->a, loc, &t, w->d) &&
         write_inline(w, &t, str_copy(w->a, name), &tensor, name, loc);
}

static bool write_graph(Writer *w, const WireField *field, const Onnx__GraphProto *graph) {
  int64_t start = wire_open(&w->to, MODEL_GRAPH);
  size_t node = 0, initializer = 0;
  for (int64_t at = field->data; at < field->end;) {
    WireField part = wire_read(w->f->at, at);
    at = part.end;
    const Onnx__NodeProto *one = part.number == GRAPH_NODE ? graph->node[node++] : NULL;
    // A weight in a Constant node.
    const char *label = NULL;
    if (one && onnx_constant_tensor(one) && one->n_attribute == 1) label = onnx_str(one->output[0]);
    if (label && name_map_find(w->labels, label) < 0) label = NULL;
    if (label && !write_constant(w, &part, onnx_constant_tensor(one), label)) return false;
    if (label) continue;
    // Nodes as in inference; weights with their bytes inline.
    if (one)
      inference_put_node(&w->nodes, GRAPH_NODE, &part, one);
    else if (part.number != GRAPH_INITIALIZER)
      wire_put(&w->to, w->f->at + part.start, part.end - part.start);
    else if (!write_initializer(w, &part, graph->initializer[initializer++]))
      return false;
  }
  wire_close(&w->to, start);
  return true;
}

static bool write_model(Writer *w) {
  const Onnx__ModelProto *model = onnx_model(w->f);
  size_t function = 0;
  w->to.n = 0;
  for (int64_t pos = 0; pos < w->f->n;) {
    WireField field = wire_read(w->f->at, pos);
    pos = field.end;
    if (field.number == MODEL_FUNCTION) {
      const Onnx__FunctionProto *f = model->functions[function++];
      int64_t start = wire_open(&w->to, MODEL_FUNCTION);
      size_t node = 0;
      for (int64_t at = field.data; at < field.end;) {
        WireField part = wire_read(w->f->at, at);
        at = part.end;
        // onnx_open turns a default attribute into a node without op_type.
        node += part.number == FUNCTION_ATTRIBUTE_PROTO;
        if (part.number == FUNCTION_NODE)
          inference_put_node(&w->nodes, FUNCTION_NODE, &part, f->node[node++]);
        else
          wire_put(&w->to, w->f->at + part.start, part.end - part.start);
      }
      wire_close(&w->to, start);
    } else if (field.number != MODEL_GRAPH)
      wire_put(&w->to, w->f->at + field.start, field.end - field.start);
    else if (!write_graph(w, &field, model->graph))
      return false;
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
  for (size_t i = 0; i < graph->n_node; i++)
    if (onnx_constant_tensor(graph->node[i]))
      name_map_add(&names, onnx_str(graph->node[i]->output[0]), 0);
  // Every weight of the executable must have its bytes in the file.
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
  w.nodes = (InferenceWriter){.file = f.at, .to = &w.to, .reads = {.arena = a}};
  bool ok = check_labels(&f, labels, n_must, a, d);
  if (ok) inference_reads(&w.nodes, onnx_model(&f));
  // The first pass measures, the second writes.
  ok = ok && write_model(&w);
  if (ok && w.to.n > INT32_MAX) {
    diag_warning(d, f.loc,
                 "is above 2 GiB with its weights inline, the limit of the format: the "
                 "executable cannot --export it");
    diag_hint(d, "--save writes the weights alone");
  } else if (ok) {
    out->n = w.to.n;
    out->bytes = w.to.at = arena_alloc(a, (size_t)w.to.n);
    // At most one hole per weight.
    out->holes = arena_array(a, OnnxHole, n_labels);
    ok = write_model(&w);
  }
  onnx_close(&f);
  return ok;
}
