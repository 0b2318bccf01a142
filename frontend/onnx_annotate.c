// Writes a plan into the model as multi-device annotations: --emit onnx.
//
//     node "/fc1/MatMul" stage=0 in %w {S(1), B} out %h {S(1), B}      axes d0=2, d1=2
//
//   =>  node { op_type: "MatMul" … device_configurations {
//         configuration_id: "dp=2,tp=2"  pipeline_stage: 0
//         sharding_spec { tensor_name: "w" device: -1 device: -2
//                         index_to_device_group_map { key: -1 value: 0 value: 1 } …
//                         sharded_dim { axis: 1 simple_sharding { num_shards: 2 } } } … } }
//
// All other bytes are copied, also fields that are newer than our onnx.proto; previous annotations
// are removed.  The bytes of weights stay in their place: inline or in other files.  The choices
// that the standard leaves open are made so that onnx_devices.c reads the plan back.

#include <string.h>

#include "frontend/onnx_walk.h"
#include "frontend/onnx_wire.h"
#include "ir/annotations.h"

// Field numbers of onnx.proto.
enum {
  MODEL_IR_VERSION = 1,
  MODEL_GRAPH = 7,
  MODEL_CONFIGURATION = 26,
  GRAPH_NODE = 1,
  NODE_DEVICES = 10,
  CONFIGURATION_NAME = 1,
  CONFIGURATION_NUM_DEVICES = 2,
  CONFIGURATION_DEVICE = 3,
  DEVICES_CONFIGURATION = 1,
  DEVICES_SHARDING = 2,
  DEVICES_STAGE = 3,
  SHARDING_TENSOR = 1,
  SHARDING_DEVICE = 2,
  SHARDING_GROUP = 3,
  SHARDING_DIM = 4,
  GROUP_KEY = 1,
  GROUP_VALUE = 2,
  DIM_AXIS = 1,
  DIM_CUT = 2,
  CUT_SHARDS = 3,
  IR_VERSION = 11, // the first with annotations
};

typedef struct Annotate {
  WireWriter out;
  Arena *a;
  const OnnxFile *file;
  const Annotations *all;
  NameMap nodes, results; // to `at`; to the results of nodes
  Vec(const Annotation *) at;
  Vec(const AnnotatedValue *) made;
  Vec(int) stage_of_made;
  int n_devices;
} Annotate;

static void copy(Annotate *w, const WireField *field) {
  wire_put(&w->out, w->file->at + field->start, field->end - field->start);
}

// -- Devices -----------------------------------------------------------------------------------

// The sharded dimensions, in order, and their numbers of parts.
typedef struct Cuts {
  int n, dim[MAX_NDIM], parts[MAX_NDIM], shards;
} Cuts;

// Returns the shard of a device; -1: the device is not in the stage.
static int shard_of(const Annotations *all, const AnnotatedValue *v, const Cuts *c, int stage,
                    int device) {
  int place[MAX_AXES], shard = 0;
  for (int i = all->n_axes - 1; i >= 0; i--) {
    place[i] = device % all->axis[i].size;
    device /= all->axis[i].size;
  }
  // The coordinate on the axis of stages decides.
  if (stage >= 0 && place[all->stages] != stage) return -1;
  for (int k = 0; k < c->n; k++) {
    // The parts of a dimension are numbered with the outermost axis as the slowest.
    int part = 0;
    for (int i = 0; i < all->n_axes; i++)
      if (v->axis[i].kind == SBP_S && v->axis[i].dim == c->dim[k])
        part = part * all->axis[i].size + place[i];
    shard = shard * c->parts[k] + part;
  }
  return shard;
}

typedef Vec(int) Group; // of devices

static void write_sharding(Annotate *w, const char *tensor, const AnnotatedValue *v, int stage) {
  // The axes that split a dimension multiply the number of its parts.
  const Annotations *all = w->all;
  Cuts c = {.shards = 1};
  for (int dim = 0; dim < MAX_NDIM; dim++) {
    int parts = 1;
    for (int k = 0; k < all->n_axes; k++)
      if (v->axis[k].kind == SBP_S && v->axis[k].dim == dim) parts *= all->axis[k].size;
    if (parts == 1) continue;
    c.dim[c.n] = dim;
    c.parts[c.n++] = parts;
    c.shards *= parts;
  }
  int64_t start = wire_open(&w->out, DEVICES_SHARDING);
  wire_string(&w->out, SHARDING_TENSOR, tensor);
  // A shard on one device names it; replicated shards name groups of devices, with negative keys.
  Group *of = arena_array(w->a, Group, c.shards);
  int most = 0;
  for (int device = 0; device < w->n_devices; device++) {
    int shard = shard_of(w->all, v, &c, stage, device);
    if (shard < 0) continue;
    vec_push(w->a, &of[shard], device);
    if (of[shard].n > most) most = of[shard].n;
  }
  for (int i = 0; i < c.shards; i++)
    wire_int(&w->out, SHARDING_DEVICE, most > 1 ? -1 - i : of[i].at[0]);
  for (int i = 0; i < c.shards && most > 1; i++) {
    int64_t group = wire_open(&w->out, SHARDING_GROUP);
    wire_int(&w->out, GROUP_KEY, -1 - i);
    for (int k = 0; k < of[i].n; k++)
      wire_int(&w->out, GROUP_VALUE, of[i].at[k]);
    wire_close(&w->out, group);
  }
  for (int i = 0; i < c.n; i++) {
    // One simple sharding per dimension: no dimension is several factors.
    int64_t dim = wire_open(&w->out, SHARDING_DIM);
    wire_int(&w->out, DIM_AXIS, c.dim[i]);
    int64_t cut = wire_open(&w->out, DIM_CUT);
    wire_int(&w->out, CUT_SHARDS, c.parts[i]);
    wire_close(&w->out, cut);
    wire_close(&w->out, dim);
  }
  wire_close(&w->out, start);
}

// -- Nodes -------------------------------------------------------------------------------------

// Finds a result, which another node's op may compute if the original op is gone.
static int find_result(const Annotate *w, const char *tensor) {
  return name_map_find(&w->results, onnx_value_name(w->a, tensor));
}

static void write_node(Annotate *w, const Onnx__NodeProto *node) {
  static const Scope whole = {.prefix = ""};
  const char *name = onnx_place(w->file, w->a, onnx_node_name(w->a, &whole, node))->node;
  int at = name_map_find(&w->nodes, name);
  const Annotation *one = at < 0 ? NULL : w->at.at[at];
  // The op of another node may compute a result whose own op is gone.
  int stage = one ? one->stage : -1;
  for (size_t i = 0; i < node->n_output && !one; i++) {
    int found = find_result(w, onnx_str(node->output[i]));
    if (found >= 0) stage = w->stage_of_made.at[found];
  }
  int64_t start = wire_open(&w->out, NODE_DEVICES), empty;
  wire_string(&w->out, DEVICES_CONFIGURATION, w->all->name);
  empty = w->out.n;
  NameMap seen = {.arena = w->a};
  // A tensor that is read twice has one annotation.
  for (size_t i = 0; i < node->n_input; i++) {
    const char *tensor = onnx_str(node->input[i]);
    const char *operand = onnx_value_name(w->a, tensor);
    const AnnotatedValue *v = NULL;
    for (int k = 0; one && k < one->n_values && !v; k++)
      if (!one->value[k].result && str_equal(one->value[k].name, operand)) v = &one->value[k];
    if (v && name_map_add(&seen, tensor, 0)) write_sharding(w, tensor, v, stage);
  }
  for (size_t i = 0; i < node->n_output; i++) {
    const char *tensor = onnx_str(node->output[i]);
    // Results are annotated with the node that makes them, in the stage of their op.
    int made = *tensor ? find_result(w, tensor) : -1;
    if (made >= 0 && w->stage_of_made.at[made] == stage)
      write_sharding(w, tensor, w->made.at[made], stage);
  }
  if (stage >= 0) wire_int(&w->out, DEVICES_STAGE, stage);
  // A node without annotations gets no message.
  if (w->out.n > empty)
    wire_close(&w->out, start);
  else
    wire_undo(&w->out, NODE_DEVICES, start);
}

static void write_graph(Annotate *w, const WireField *graph) {
  const Onnx__GraphProto *proto = onnx_model(w->file)->graph;
  int64_t start = wire_open(&w->out, MODEL_GRAPH);
  size_t n = 0;
  for (int64_t at = graph->data; at < graph->end;) {
    WireField field = wire_read(w->file->at, at);
    at = field.end;
    // Initializers, inputs and outputs stay as they are.
    if (field.number != GRAPH_NODE) {
      copy(w, &field);
      continue;
    }
    int64_t node = wire_open(&w->out, GRAPH_NODE);
    // All fields of a node except its previous annotations.
    for (int64_t part = field.data; part < field.end;) {
      WireField one = wire_read(w->file->at, part);
      part = one.end;
      if (one.number != NODE_DEVICES) copy(w, &one);
    }
    write_node(w, proto->node[n++]);
    wire_close(&w->out, node);
  }
  wire_close(&w->out, start);
}

// -- The model ---------------------------------------------------------------------------------

static void write_model(Annotate *w) {
  int64_t version = onnx_model(w->file)->ir_version;
  wire_int(&w->out, MODEL_IR_VERSION, version < IR_VERSION ? IR_VERSION : version);
  for (int64_t at = 0; at < w->file->n;) {
    WireField field = wire_read(w->file->at, at);
    at = field.end;
    // The version was written first, the configuration follows at the end: fields may be in any
    // order.
    if (field.number == MODEL_GRAPH)
      write_graph(w, &field);
    else if (field.number != MODEL_IR_VERSION && field.number != MODEL_CONFIGURATION)
      copy(w, &field);
  }
  // The devices are the ranks, in their order.
  int64_t start = wire_open(&w->out, MODEL_CONFIGURATION);
  wire_string(&w->out, CONFIGURATION_NAME, w->all->name);
  wire_int(&w->out, CONFIGURATION_NUM_DEVICES, w->n_devices);
  for (int i = 0; i < w->n_devices; i++)
    wire_string(&w->out, CONFIGURATION_DEVICE, str_format(w->a, "rank%d", i));
  wire_close(&w->out, start);
}

// External data is found beside the model only.
static void warn_of_external(const Annotate *w, const char *to, Diag *d) {
  const Onnx__GraphProto *graph = onnx_model(w->file)->graph;
  const char *from = w->file->path, *slash = strrchr(from, '/'), *to_slash = strrchr(to, '/');
  size_t n = slash ? (size_t)(slash - from) : 0, to_n = to_slash ? (size_t)(to_slash - to) : 0;
  // In the same folder the locations stay valid.
  if (n == to_n && !memcmp(from, to, n)) return;
  for (size_t i = 0; i < graph->n_initializer; i++) {
    if (graph->initializer[i]->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
      continue;
    diag_warning(d, w->file->loc,
                 "has weights in other files, which must be beside '%s' to be read", to);
    return;
  }
}

bool onnx_annotate(const char *path, const Annotations *all, const char *to, Arena *a,
                   const uint8_t **bytes, int64_t *n, Diag *d) {
  OnnxFile f;
  if (!onnx_open(&f, path, &onnx__model_proto__descriptor, a, d)) return false;
  Annotate w = {.a = a, .file = &f, .all = all};
  // Annotations are found by the name of their node, results by their own.
  w.nodes = w.results = (NameMap){.arena = a};
  w.n_devices = 1;
  for (int i = 0; i < all->n_axes; i++)
    w.n_devices *= all->axis[i].size;
  for (const Annotation *one = all->first; one; one = one->next) {
    if (name_map_add(&w.nodes, one->node, w.at.n)) vec_push(a, &w.at, one);
    for (int i = 0; i < one->n_values; i++) {
      if (!one->value[i].result || !name_map_add(&w.results, one->value[i].name, w.made.n))
        continue;
      vec_push(a, &w.made, &one->value[i]);
      vec_push(a, &w.stage_of_made, one->stage);
    }
  }
  bool ok = onnx_model(&f)->graph || diag_error(d, f.loc, "has no graph");
  // Twice: the first pass only measures.
  if (ok) write_model(&w);
  if (ok && w.out.n > INT32_MAX)
    ok = diag_error(d, f.loc, "is above 2 GiB with its annotations, the limit of the format");
  if (ok) {
    w.out.at = arena_alloc(a, (size_t)w.out.n);
    w.out.n = 0;
    write_model(&w);
    warn_of_external(&w, to, d);
  }
  *bytes = w.out.at;
  *n = w.out.n;
  onnx_close(&f);
  return ok;
}
