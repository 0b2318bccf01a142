// Copies of graphs, inside a module or into another one.
//
// A copy in another module shares nothing with the original but large constants: names, locations,
// attributes and the bytes of weights are copied too, since the original's arena may be freed
// first.

#include <stdlib.h>
#include <string.h>

#include "ir/annotations.h"
#include "ir/graph.h"
#include "ir/intern.h"
#include "ir/op.h"
#include "ir/schedule.h"

// Locations already copied, so that one shared by many ops stays shared.
typedef struct LocMap {
  const Loc *key;
  Loc *copy;
} LocMap;

typedef struct Clone {
  Module *to;
  bool deep; // into another module
  Arena *scratch;
  LocMap *locs; // [n_slots], open addressing
  int n_locs, n_slots;
} Clone;

static LocMap *loc_slot(Clone *c, const Loc *loc) {
  int i = (int)((uintptr_t)loc / 16 * 0x9e3779b1u & (uintptr_t)(c->n_slots - 1));
  // Linear probing; the table is never more than half full.
  while (c->locs[i].key && c->locs[i].key != loc)
    i = (i + 1) & (c->n_slots - 1);
  return &c->locs[i];
}

static const Loc *clone_loc(Clone *c, const Loc *loc) {
  if (!c->deep || !loc) return loc;
  // The table doubles when it is half full.
  if (2 * c->n_locs >= c->n_slots) {
    LocMap *old = c->locs;
    int n_old = c->n_slots;
    c->n_slots = n_old ? 2 * n_old : 64;
    c->locs = arena_array(c->scratch, LocMap, c->n_slots);
    for (int i = 0; i < n_old; i++)
      if (old[i].key) *loc_slot(c, old[i].key) = old[i];
  }
  LocMap *slot = loc_slot(c, loc);
  if (slot->key) return slot->copy;
  // A new location, with the chain of derivations that it ends.
  Arena *a = c->to->arena;
  Loc *copy = arena_copy(a, loc, sizeof *loc);
  *slot = (LocMap){loc, copy};
  c->n_locs++;
  copy->file = str_copy(a, loc->file);
  copy->node = str_copy(a, loc->node);
  copy->why = str_copy(a, loc->why);
  copy->source = NULL; // the text may be freed
  copy->from = clone_loc(c, loc->from);
  return copy;
}

static void clone_value(Clone *c, const Value *v, Value *copy) {
  copy->type = c->deep ? type_new(c->to, v->type->dtype, v->type->ndim, v->type->dim) : v->type;
  copy->layout = v->layout;
  // Types and layouts are interned by module; the mesh of a layout is found by name.
  if (v->layout && c->deep) {
    const Mesh *mesh = v->layout->mesh ? module_find_mesh(c->to, v->layout->mesh->name) : NULL;
    copy->layout = layout_new(c->to, mesh, v->layout->axis);
  }
  copy->offset = v->offset;
  copy->slots = v->slots;
  copy->stride = v->stride;
}

static void clone_param(Clone *c, const Value *v, Graph *g, Value **map) {
  const Type *t = c->deep ? type_new(c->to, v->type->dtype, v->type->ndim, v->type->dim) : v->type;
  Value *copy = graph_param(g, v->name, t, v->role, clone_loc(c, v->loc));
  clone_value(c, v, copy);
  // Fields of parameters only.
  copy->label = str_copy(c->to->arena, v->label);
  if (v->as) copy->as = c->deep ? type_new(c->to, v->as->dtype, v->as->ndim, v->as->dim) : v->as;
  copy->whole = v->whole;
  copy->train = v->train;
  copy->host = v->host;
  copy->host_gradient = v->host_gradient;
  copy->each_slice = v->each_slice;
  // Initial contents: a copy in the same module shares them.
  copy->init = v->init;
  if (v->init && c->deep) {
    Init *init = arena_copy(c->to->arena, v->init, sizeof *v->init);
    init->path = str_copy(c->to->arena, v->init->path);
    if (init->kind == INIT_bytes)
      init->bytes = arena_copy(c->to->arena, v->init->bytes, (size_t)v->init->length);
    copy->init = init;
  }
  map[v->id] = copy;
}

static void clone_op(Clone *c, const Op *op, Graph *g, Value **map) {
  Value **in = arena_array(c->scratch, Value *, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    in[i] = map[op->in[i].value->id];
  Origin origin = op_origin(op);
  origin.loc = clone_loc(c, op->loc);
  Op *copy = op_draft(g, op->kind, in, op->n_in, op->n_out, origin);
  copy->attrs = c->deep ? attrs_interned(c->to, op->kind, op->attrs) : op->attrs;
  copy->callee = op->callee;
  memcpy(copy->split, op->split, sizeof copy->split);
  copy->segment = op->segment;
  copy->deferred = op->deferred;
  // op_insert gives the op its ids and links its operands.
  op_insert(copy, NULL);
  for (int i = 0; i < op->n_out; i++) {
    clone_value(c, op->out[i], copy->out[i]);
    value_set_name(copy->out[i], op->out[i]->name);
    map[op->out[i]->id] = copy->out[i];
  }
}

static Graph *clone_graph(Clone *c, const Graph *g, const char *name) {
  Graph *copy = graph_new(c->to, name, g->entry);
  // [v->id] is the copy of value v.
  Value **map = arena_array(c->scratch, Value *, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    clone_param(c, g->params[i], copy, map);
  for_each_op(op, g)
    clone_op(c, op, copy, map);
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    Value *v = map[r->use.value->id];
    if (r->target)
      graph_update(copy, map[r->target->id], v);
    else
      graph_output(copy, v, r->label);
  }
  // The schedule: segments keep their numbers, and received values become those of the copy.
  for (int i = 0; g->schedule && i < g->schedule->segment.n; i++)
    schedule_segment(copy, g->schedule->segment.at[i]);
  for (int i = 0; g->schedule && i < g->schedule->run.n; i++) {
    const RankRun *run = &g->schedule->run.at[i];
    RankRun to = {.n_devices = run->n_devices};
    to.device = arena_copy(c->to->arena, run->device, (size_t)run->n_devices * sizeof *run->device);
    for (int k = 0; k < run->action.n; k++) {
      Action action = run->action.at[k];
      if (action.get) action.get = map[action.get->id];
      vec_push(c->to->arena, &to.action, action);
    }
    vec_push(c->to->arena, &graph_schedule(copy)->run, to);
  }
  return copy;
}

Graph *graph_clone(Graph *g, const char *name) {
  Clone c = {.to = g->module, .scratch = arena_new()};
  Graph *copy = clone_graph(&c, g, name);
  arena_free(c.scratch);
  return copy;
}

Module *module_clone(const Module *m) {
  Module *copy = module_new();
  copy->source = str_copy(copy->arena, m->source);
  copy->slab_bytes = m->slab_bytes;
  copy->host_bytes = m->host_bytes;
  copy->phase = m->phase;
  copy->schedule = str_copy(copy->arena, m->schedule);
  copy->schedule_loc = loc_copy(copy->arena, m->schedule_loc);
  copy->cross_barrier = m->cross_barrier;
  copy->optimizer_in_backward = m->optimizer_in_backward;
  copy->early_updates = m->early_updates;
  // Meshes come first, since layouts refer to them.
  for_each_mesh(mesh, m) {
    Mesh *to = arena_copy(copy->arena, mesh, sizeof *mesh);
    to->name = str_copy(copy->arena, mesh->name);
    for (int i = 0; i < mesh->n_axes; i++)
      to->axis[i].name = str_copy(copy->arena, mesh->axis[i].name);
    to->device =
        arena_copy(copy->arena, mesh->device, (size_t)mesh->n_devices * sizeof *mesh->device);
    module_add_mesh(copy, to);
  }
  copy->annotations = annotations_clone(copy->arena, m->annotations);
  // Graphs in their order; a deep copy shares nothing.
  Clone c = {.to = copy, .deep = true, .scratch = arena_new()};
  for_each_graph(g, m)
    clone_graph(&c, g, g->name);
  // Callees still point into the original, because a callee may follow its callers.
  for_each_graph(g, copy) {
    for_each_op(op, g) {
      if (op->callee) op->callee = graph_find(copy, op->callee->name);
    }
  }
  arena_free(c.scratch);
  return copy;
}
