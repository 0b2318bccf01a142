// The collectives of a step: see collectives.h.

#include "collectives.h"

#include "ir/analysis/deferred.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "ir/split.h"

const char *const step_part_name[N_STEP_PARTS] = {"begin", "micro", "update"};

const OpKind collective_kinds[N_COLLECTIVE_KINDS] = {
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) OP_##op,
#include "rt/collectives.def"
    OP_move,
};

bool op_is_collective(const Op *op) {
  for (int k = 0; k < N_COLLECTIVE_KINDS; k++)
    if (op->kind == collective_kinds[k]) return true;
  return false;
}

StepPart *graph_step_parts(const Graph *g, Arena *a) {
  const PartOps ops = graph_part_ops(g, a);
  StepPart *part = arena_array(a, StepPart, g->n_ops);
  DeferredGroups deferred = {0};
  for_each_op(op, g)
    part[op->id] = ops.begin[op->id] ? STEP_begin : ops.update[op->id] ? STEP_update : STEP_micro;
  // Deferred updates run in the next step, in the part of the op that they are due before.
  graph_deferred_groups(g, a, &deferred);
  for (int i = 0; i < deferred.n; i++) {
    const Op *op = deferred.at[i].first;
    for (int k = 0; k < deferred.at[i].n; k++, op = op->next)
      part[op->id] = part[deferred.at[i].due->id];
  }
  return part;
}

// -- Participants ----------------------------------------------------------------------------

static MeshAxes axes_of(const Op *op) {
  MeshAxes axes;
  if (!op_axes(op, &axes, NULL)) BUG("an axis that is not there, in a module that verifies");
  return axes;
}

int collective_size(const Op *op) {
  MeshAxes axes = axes_of(op);
  return axes_size(op_mesh(op), &axes);
}

Groups collective_groups(Arena *a, const Op *op) {
  const Mesh *mesh = op_mesh(op);
  MeshAxes axes = axes_of(op);
  Groups groups = {.size = axes_size(mesh, &axes)};
  groups.n = mesh->n_devices / groups.size;
  groups.device = arena_array(a, int, mesh->n_devices);
  for (int i = 0; i < mesh->n_devices; i++) {
    Place at = mesh_place(mesh, i, 0);
    int group = 0, member = 0;
    for (int x = 0; x < mesh->n_axes; x++) {
      // The axes of the collective number the members of a group, all others the groups.
      if (mesh->axis[x].time) continue;
      int *number = axes_have(&axes, x) ? &member : &group;
      *number = *number * mesh->axis[x].size + at.coord[x];
    }
    groups.device[group * groups.size + member] = mesh->device[i];
  }
  return groups;
}

bool gathers_ahead(const Cluster *c, const Op *op) {
  bool gathers = op->kind == OP_all_gather || op->kind == OP_all_to_all;
  if (!c->prefetch || !gathers || op->part == PART_update || op->deferred) return false;
  int64_t skip;
  const Value *v = view_root(op->in[0].value, &skip);
  // Between nodes a weight is gathered in several steps.
  while (v->def && op_is_collective(v->def) && v->def->kind != OP_reduce_scatter)
    v = view_root(v->def->in[0].value, &skip);
  return !v->def && (v->role == ROLE_weight || v->role == ROLE_copy);
}

int64_t *gathered_ahead_bytes(const Module *m, const Cluster *c, Arena *a) {
  int n = module_n_meshes(m);
  int64_t *most = arena_array(a, int64_t, n ? n : 1);
  if (!c->prefetch || !m->graphs) return most;
  // The last `prefetch` gathers of each mesh, in a ring, and their sum: one more is in use.
  int64_t *last = arena_array(a, int64_t, (n ? n : 1) * c->prefetch);
  int64_t *sum = arena_array(a, int64_t, n ? n : 1);
  int *seen = arena_array(a, int, n ? n : 1);
  for_each_op(op, m->graphs) {
    if (!gathers_ahead(c, op)) continue;
    int mesh = value_mesh_id(op->out[0]);
    int64_t *oldest = &last[mesh * c->prefetch + seen[mesh]++ % c->prefetch];
    sum[mesh] += type_bytes(op->out[0]->type) - *oldest;
    *oldest = type_bytes(op->out[0]->type);
    if (sum[mesh] > most[mesh]) most[mesh] = sum[mesh];
  }
  return most;
}

Messages messages_of(Arena *a, const Op *move) {
  const Value *in = move->in[0].value, *out = move->out[0];
  Messages messages = {0};
  move_messages(type_whole(out->graph->module, in->type, in->layout), in->layout, out->layout, NULL,
                a, &messages);
  return messages;
}

void visit_messages(const Op *move, MessageVisitor *visit, void *context) {
  const Value *in = move->in[0].value, *out = move->out[0];
  move_visit(type_whole(out->graph->module, in->type, in->layout), in->layout, out->layout, NULL,
             visit, context);
}

// -- Bytes -----------------------------------------------------------------------------------

// Returns the bytes of all messages of a move between different devices.
static int64_t moved_bytes(const Op *move) {
  const Value *in = move->in[0].value, *out = move->out[0];
  Module *m = out->graph->module;
  const Type *whole = type_whole(m, in->type, in->layout);
  return dtype_bytes[out->type->dtype] * module_move_elements(m, whole, in->layout, out->layout);
}

void collectives_find(Arena *a, const Module *m, Collectives *out) {
  const Graph *g = m->graphs;
  if (!g || m->phase < PHASE_local) return;
  const StepPart *part = graph_step_parts(g, a);
  for_each_op(op, g) {
    if (!op_is_collective(op)) continue;
    Collective c = {.op = op, .part = op->deferred ? STEP_update : part[op->id]};
    c.count = c.part == STEP_micro ? module_slices(m) : 1;
    if (op->kind == OP_move) {
      c.bytes = c.all_bytes = moved_bytes(op);
      if (c.bytes == 0) continue;
    } else {
      if (collective_size(op) == 1) continue;
      // The larger buffer counts: the reduced, the gathered or the exchanged tensor.
      int64_t sent = type_bytes(op->in[0].value->type), received = type_bytes(op->out[0]->type);
      c.bytes = sent > received ? sent : received;
      c.all_bytes = c.bytes * op_mesh(op)->n_devices;
    }
    vec_push(a, out, c);
  }
}
