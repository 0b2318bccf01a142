// Reads the multi-device annotations of nodes, of IR version 11.
//
//     configuration { name: "tp" num_devices: 2 }
//     node { op_type: "MatMul" input: "x" input: "w" output: "h"
//            device_configurations {
//              configuration_id: "tp"
//              sharding_spec { tensor_name: "w" device: 0 device: 1
//                              sharded_dim { axis: 1 simple_sharding { num_shards: 2 } } }
//              sharding_spec { tensor_name: "x" device: -1
//                              index_to_device_group_map { key: -1 value: 0 value: 1 } } } }
//
//   =>  node "/fc1/MatMul" in %w {S(1)}, %x {B}
//
// The configuration with as many devices as there are ranks is used.  `device` has an entry for
// every shard: a device, or a group of devices that replicate the shard.  Shards are numbered with
// the first of the sharded dimensions as the slowest.
//
// A node may be in a pipeline stage.  Stages are renumbered from 0, without gaps; no node may read
// a result of a later stage.  All errors are reported in one run, at their nodes.

#include "frontend/onnx_devices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "devices.pb-c.h"

// -- The configurations ------------------------------------------------------------------------

static bool check_configuration(Import *im, Devices *all, const Device__Configuration *c) {
  const char *name = onnx_str(c->name);
  const Loc *loc = im->file->loc;
  if (!*name) return diag_error(im->d, loc, "a configuration of devices has no name");
  if (!name_map_add(&all->ids, str_copy(im->a, name), 0))
    return diag_error(im->d, loc, "the configuration '%s' of devices is there twice", name);
  if (c->num_devices < 1 || c->num_devices > MAX_DEVICES)
    return diag_error(im->d, loc, "the configuration '%s' cannot have %d devices", name,
                      c->num_devices);
  // The names of devices are optional.
  if (c->n_device && c->n_device != (size_t)c->num_devices)
    return diag_error(im->d, loc, "the configuration '%s' has %d devices and the names of %zu",
                      name, c->num_devices, c->n_device);
  return true;
}

bool onnx_devices_begin(Import *im) {
  if (im->o->annotated) {
    unsigned first = 0;
    ProtobufCMessage *any =
        onnx_devices_message(im->file->message, &first, &device__configuration__descriptor);
    *im->o->annotated = any != NULL;
    if (any) protobuf_c_message_free_unpacked(any, NULL);
  }
  // Without a plan that follows annotations they are not read.
  if (!im->o->devices) return true;
  Devices *all = arena_one(im->a, Devices);
  all->n = (int)im->o->devices;
  all->ids = all->symbol_names = (NameMap){.arena = im->a};
  im->devices = all;
  // All configurations are checked; the first one for the requested number of devices is taken.
  const ProtobufCMessage *model = im->file->message, *message;
  StrBuf others = {.arena = im->a};
  unsigned at = 0;
  bool ok = true;
  // All configurations are checked, and listed for the error.
  while ((message = onnx_devices_message(model, &at, &device__configuration__descriptor))) {
    const Device__Configuration *c = (const void *)message;
    bool good = check_configuration(im, all, c);
    ok = ok && good;
    if (good && !all->configuration && c->num_devices == im->o->devices)
      all->configuration = str_copy(im->m->arena, c->name);
    if (good)
      strbuf_addf(&others, "%s%d ('%s')", others.n ? ", " : "", c->num_devices, onnx_str(c->name));
    protobuf_c_message_free_unpacked((ProtobufCMessage *)(uintptr_t)message, NULL);
  }
  // A model without annotations is fine; one for other numbers of devices is not.
  if (!ok || all->configuration || !others.n) return ok;
  diag_error(im->d, im->file->loc,
             "is annotated for another number of devices than there are ranks, %" PRId64 ": for %s",
             im->o->devices, others.at);
  diag_hint(im->d,
            "give that number with -g, or another --plan, which does not follow annotations");
  return false;
}

// -- One node ----------------------------------------------------------------------------------

typedef struct Reader {
  Import *im;
  Devices *all;
  AnnotatedNode *node;
  NameMap tensors, seen; // of the node; its annotated ones
  const char *tensor;    // the current tensor
  const Type *type;      // of the current tensor
} Reader;

static bool wrong(Reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool wrong(Reader *r, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  onnx_problem(r->im, PROBLEM_annotations, r->node->loc, str_vformat(r->im->a, fmt, args), NULL);
  va_end(args);
  r->all->failed = true;
  return false;
}

void onnx_devices_input(Import *im, const Onnx__ValueInfoProto *input, const Type *type) {
  Devices *all = im->devices;
  for (int i = 0; all && i < type->ndim; i++) {
    const Onnx__TensorShapeProto__Dimension *dim = input->type->tensor_type->shape->dim[i];
    // Factors of sharded dimensions may be given by the symbols of inputs.
    bool symbol = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    if (symbol && name_map_add(&all->symbol_names, onnx_str(dim->dim_param), all->symbol_size.n))
      vec_push(im->a, &all->symbol_size, type->dim[i]);
  }
}

// Sets the lengths of a dimension's factors; one may be unspecified.
static bool factor_sizes(Reader *r, const Device__Dim *dim, int64_t length, int64_t *size) {
  int open = -1;
  int64_t known = 1;
  for (int i = 0; i < (int)dim->n_simple_sharding; i++) {
    const Device__Cut *cut = dim->simple_sharding[i];
    size[i] = -1;
    if (cut->dim_case == DEVICE__CUT__DIM_DIM_VALUE) size[i] = cut->dim_value;
    if (cut->dim_case == DEVICE__CUT__DIM_DIM_PARAM) {
      int symbol = name_map_find(&r->all->symbol_names, onnx_str(cut->dim_param));
      if (symbol >= 0) size[i] = r->all->symbol_size.at[symbol]; // else no input has it
    }
    if (cut->dim_case == DEVICE__CUT__DIM_DIM_VALUE && size[i] < 1)
      return wrong(r, "'%s': a sharded dimension cannot be %" PRId64, r->tensor, size[i]);
    // The length of the dimension determines one unknown factor, not two.
    if (size[i] < 0 && open >= 0)
      return wrong(r, "'%s': the sizes of two factors of a sharded dimension are not known",
                   r->tensor);
    if (size[i] < 0)
      open = i;
    else if (__builtin_mul_overflow(known, size[i], &known))
      known = INT64_MAX;
  }
  // The unspecified factor is the rest of the dimension.
  if (open >= 0 && length % known == 0) size[open] = length / known;
  if (open >= 0 ? length % known == 0 : length == known) return true;
  return wrong(r, "'%s': a dimension of %" PRId64 " is annotated as one of %s%" PRId64, r->tensor,
               length, open >= 0 ? "multiples of " : "", known);
}

// Sets the number of parts of the dimension.  Factors are split from the first on; every split
// factor but the last must be split completely, or a part would not be contiguous.
static bool read_cut(Reader *r, const Device__Dim *dim, int at, int *out) {
  enum { MAX_CUTS = 8 };
  int64_t size[MAX_CUTS], length = r->type->dim[at], parts = 1;
  bool through = true;
  int n = (int)dim->n_simple_sharding;
  if (dim->n_simple_sharding < 1 || dim->n_simple_sharding > MAX_CUTS)
    return wrong(r, "'%s': dimension %d is sharded as %zu factors; there are 1 to %d", r->tensor,
                 at, dim->n_simple_sharding, MAX_CUTS);
  if (!factor_sizes(r, dim, length, size)) return false;
  // `through`: all factors so far are split completely.
  for (int i = 0; i < n; i++) {
    int64_t shards = dim->simple_sharding[i]->num_shards;
    if (!dim->simple_sharding[i]->has_num_shards || shards < 1)
      return wrong(r, "'%s': dimension %d is in %" PRId64 " shards", r->tensor, at, shards);
    if (size[i] % shards != 0 || size[i] < shards)
      return wrong(r, "'%s': a dimension of %" PRId64 " cannot be split into %" PRId64 " shards",
                   r->tensor, size[i], shards);
    // A part would be in several pieces.
    if (shards > 1 && !through)
      return wrong(r, "'%s': the shards of dimension %d are not in one piece", r->tensor, at);
    through = shards == size[i];
    parts *= shards; // at most the length of the dimension
  }
  if (parts > MAX_DEVICES)
    return wrong(r, "'%s': dimension %d is in %" PRId64 " shards", r->tensor, at, parts);
  *out = (int)parts;
  return true;
}

static bool read_cuts(Reader *r, const Device__Sharding *s, Sharding *out, int64_t *n_shards) {
  bool cut[MAX_NDIM] = {false};
  int ndim = r->type->ndim;
  *n_shards = 1;
  for (size_t i = 0; i < s->n_sharded_dim; i++) {
    int64_t axis = s->sharded_dim[i]->axis;
    int parts = 1;
    if (axis < -ndim || axis >= ndim)
      return wrong(r, "'%s': there is no dimension %" PRId64 " of %s", r->tensor, axis,
                   type_text(r->im->a, r->type));
    // Negative axes count from the end.
    int at = (int)(axis < 0 ? axis + ndim : axis);
    if (cut[at]) return wrong(r, "'%s': dimension %d is sharded twice", r->tensor, at);
    cut[at] = true;
    if (!read_cut(r, s->sharded_dim[i], at, &parts)) return false;
    out->cut[out->n_cuts].dim = at;
    out->cut[out->n_cuts++].parts = parts;
    // The product is checked at each factor, so it cannot overflow.
    *n_shards *= parts;
    if (*n_shards > MAX_DEVICES)
      return wrong(r, "'%s' is in more than %d shards", r->tensor, MAX_DEVICES);
  }
  return true;
}

static const char *key_text(Arena *a, int64_t key) {
  return str_format(a, "%" PRId64, key);
}

typedef Vec(int64_t) Placed; // devices and their shards: device * MAX_DEVICES + shard

static bool place(Reader *r, Placed *placed, int64_t device, int64_t shard) {
  if (device < 0 || device >= r->all->n)
    return wrong(r, "'%s': there is no device %" PRId64 " among the %d of '%s'", r->tensor, device,
                 r->all->n, r->all->configuration);
  vec_push(r->im->a, placed, device * MAX_DEVICES + shard);
  return true;
}

static int upwards(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return (a > b) - (a < b);
}

static bool read_devices(Reader *r, const Device__Sharding *s, int64_t n_shards, Sharding *out) {
  Arena *a = r->im->a;
  NameMap groups = {.arena = a};
  Placed placed = {0};
  // Groups of devices are found by their keys.
  for (size_t i = 0; i < s->n_index_to_device_group_map; i++) {
    const Device__Group *group = s->index_to_device_group_map[i];
    if (!name_map_add(&groups, key_text(a, group->key), (int)i))
      return wrong(r, "'%s': the device group %" PRId64 " is there twice", r->tensor, group->key);
    if (!group->n_value)
      return wrong(r, "'%s': the device group %" PRId64 " is empty", r->tensor, group->key);
  }
  if (s->n_device != (size_t)n_shards)
    return wrong(r, "'%s' is in %" PRId64 " shard%s, on %zu devices or groups of them", r->tensor,
                 n_shards, n_shards == 1 ? "" : "s", s->n_device);
  for (size_t i = 0; i < s->n_device; i++) {
    // An entry is the key of a group, or a device.
    int at = name_map_find(&groups, key_text(a, s->device[i]));
    const Device__Group *group = at < 0 ? NULL : s->index_to_device_group_map[at];
    if (!group && !place(r, &placed, s->device[i], (int64_t)i)) return false;
    for (size_t k = 0; group && k < group->n_value; k++)
      if (!place(r, &placed, group->value[k], (int64_t)i)) return false;
  }
  // Sorted by device, so a device listed twice is next to itself.
  qsort(placed.at, (size_t)placed.n, sizeof *placed.at, upwards);
  out->n_devices = placed.n;
  out->device = arena_array(a, int, placed.n);
  out->shard = arena_array(a, int, placed.n);
  for (int i = 0; i < placed.n; i++) {
    out->device[i] = (int)(placed.at[i] / MAX_DEVICES);
    out->shard[i] = (int)(placed.at[i] % MAX_DEVICES);
    if (i && out->device[i] == out->device[i - 1])
      return wrong(r, "'%s': device %d is listed twice", r->tensor, out->device[i]);
  }
  return true;
}

// The operands and results of a node.
enum { READS, MAKES };

static bool read_sharding(Reader *r, const Scope *scope, const Device__Sharding *s) {
  Sharding out = {.tensor = str_copy(r->im->a, onnx_str(s->tensor_name))};
  r->tensor = out.tensor;
  int what = *out.tensor ? name_map_find(&r->tensors, out.tensor) : -1;
  // Only operands and results can be annotated.
  if (what < 0)
    return wrong(r, "the annotation gives a layout of '%s', which the node neither reads nor makes",
                 out.tensor);
  out.result = what == MAKES;
  if (!name_map_add(&r->seen, out.tensor, 0))
    return wrong(r, "the layout of '%s' is annotated twice", out.tensor);
  const Binding *b = onnx_lookup(scope, out.tensor);
  if (!b || !b->v) return true; // it is unused, or the error has been reported
  // Dimensions are those of the value in the IR.
  r->type = b->v->type;
  out.value = b->v->name ? str_copy(r->im->m->arena, b->v->name) : NULL;
  int64_t n_shards;
  if (!read_cuts(r, s, &out, &n_shards) || !read_devices(r, s, n_shards, &out)) return false;
  vec_push(r->im->a, &r->node->shardings, out);
  return true;
}

// -- Stages ------------------------------------------------------------------------------------

static int64_t *stage_of(Import *im, const Value *v) {
  Devices *all = im->devices;
  // 0: no stage; else the stage plus one.
  while (all->stage.n <= (int)v->id)
    vec_push(im->a, &all->stage, 0);
  return &all->stage.at[v->id];
}

// -- Nodes -------------------------------------------------------------------------------------

static void read_node(Reader *r, const Scope *scope, const Onnx__NodeProto *proto,
                      const Device__Node *message, bool *seen) {
  const char *id = onnx_str(message->configuration_id);
  r->tensor = "";
  if (name_map_find(&r->all->ids, id) < 0) {
    wrong(r, "it is annotated for '%s', which is no configuration of the model", id);
    return;
  }
  // Annotations for other numbers of devices are skipped.
  if (!str_equal(id, r->all->configuration)) return;
  if (*seen) {
    wrong(r, "it is annotated twice for '%s'", id);
    return;
  }
  *seen = true;
  if (message->has_pipeline_stage) r->node->stage = message->pipeline_stage;
  if (message->has_pipeline_stage && message->pipeline_stage < 0)
    wrong(r, "it cannot be in stage %d", message->pipeline_stage);
  if (message->n_sharding_spec) {
    // A sharding is of an operand or a result; a tensor that is both counts as a result.
    r->tensors = r->seen = (NameMap){.arena = r->im->a};
    for (size_t i = 0; i < proto->n_output; i++)
      name_map_add(&r->tensors, onnx_str(proto->output[i]), MAKES);
    for (size_t i = 0; i < proto->n_input; i++)
      name_map_add(&r->tensors, onnx_str(proto->input[i]), READS);
  }
  for (size_t i = 0; i < message->n_sharding_spec; i++)
    read_sharding(r, scope, message->sharding_spec[i]);
}

void onnx_devices_node(Import *im, const Scope *scope, const Onnx__NodeProto *proto,
                       const Loc *loc) {
  if (!im->devices) return;
  ProtobufCMessage *message;
  AnnotatedNode *node = arena_one(im->a, AnnotatedNode);
  Reader r = {.im = im, .all = im->devices, .node = node};
  unsigned at = 0;
  bool seen = false;
  node->loc = loc;
  // A node has at most one message for the configuration.
  node->stage = -1;
  while ((message = onnx_devices_message(&proto->base, &at, &device__node__descriptor))) {
    read_node(&r, scope, proto, (const void *)message, &seen);
    protobuf_c_message_free_unpacked(message, NULL);
  }
  // No operand may be made in a later stage; a result is of the latest stage that it depends on.
  int64_t stage = node->stage, latest = stage + 1;
  for (size_t i = 0; i < proto->n_input; i++) {
    const char *name = onnx_str(proto->input[i]);
    const Binding *b = *name ? onnx_lookup(scope, name) : NULL;
    if (!b || !b->v) continue;
    int64_t needs = *stage_of(im, b->v);
    if (needs > latest) latest = needs;
    if (stage >= 0 && needs > stage + 1)
      wrong(&r, "it is in stage %" PRId64 " and reads '%s', which is made in stage %" PRId64, stage,
            name, needs - 1);
  }
  for (size_t i = 0; i < proto->n_output; i++) {
    const char *name = onnx_str(proto->output[i]);
    const Binding *b = *name ? onnx_lookup(scope, name) : NULL;
    if (b && b->v && *stage_of(im, b->v) < latest) *stage_of(im, b->v) = latest;
  }
  if (node->shardings.n || node->stage >= 0) vec_push(im->a, &im->devices->nodes, node);
}

bool onnx_devices_end(Import *im) {
  Devices *all = im->devices;
  if (!all || !all->nodes.n) return true;
  return !all->failed && onnx_grid(im, all);
}
