// See place.h.
//
// Live ranges are computed from the last op to the first, so the range of a view precedes that of
// its source.  Then follow devices, in-place execution, and the parts begin and update: all of them
// walks over the graph, with arrays by op and value id.

#include "place.h"

#include "boxes.h"
#include "in_flight.h"
#include "ir/op.h"
#include "ir/split.h"
#include "live_ranges.h"
#include "loops.h"

int64_t op_time(const Op *op) {
  return (int64_t)op->id + 1;
}

int64_t graph_end(const Graph *g) {
  return (int64_t)g->n_ops + 1;
}

static int64_t later(int64_t a, int64_t b) {
  return a > b ? a : b;
}

// Whether the user's result is a view of this operand.
static bool use_views(const Use *u) {
  return (op_info[u->user->kind].traits & VIEW) && u->index == 0;
}

int64_t value_first_read(const Value *v) {
  int64_t first = graph_end(v->graph);
  for_each_use(u, v) {
    if (!u->user) continue;
    // A view is no read, but its readers are.
    bool view = use_views(u);
    int64_t at = view ? value_first_read(u->user->out[0]) : op_time(u->user);
    if (at < first) first = at;
  }
  return first;
}

// The time of the last read of `v` or of its views, which already have their ranges.
static int64_t last_read(const Value *v, const Life *lives) {
  int64_t to = lives[v->id].from;
  for_each_use(u, v) {
    if (!u->user) return graph_end(v->graph);
    to = later(to, op_time(u->user));
    if (use_views(u)) to = later(to, lives[u->user->out[0]->id].to);
  }
  return to;
}

bool param_kept(const Value *param) {
  return value_lasts(param) || param->role == ROLE_scalar;
}

Life *graph_lives(const Graph *g, Arena *a) {
  Life *lives = arena_array(a, Life, g->n_values);
  for (const Op *op = g->last; op; op = op->prev)
    for (int i = 0; i < op->n_out; i++) {
      Life *life = &lives[op->out[i]->id];
      // A sum over slices, and a value that leaves its slice, live from the start.
      bool all_slices = value_accumulates(op->out[i]) || (g->schedule && value_escapes(op->out[i]));
      life->from = all_slices ? 0 : op_time(op);
      life->to = last_read(op->out[i], lives);
      // A dead result of a collective is waited for at the end.
      if (op_is_async(op)) life->to = later(life->to, value_first_read(op->out[i]));
      if (value_accumulates(op->out[i])) life->to = later(life->to, op_time(op));
    }
  // Parameters exist before the step, and persistent ones after it.
  for (int i = 0; i < g->n_params; i++) {
    const Value *p = g->params[i];
    lives[p->id].to = param_kept(p) ? graph_end(g) : last_read(p, lives);
  }
  // Results of begin that the loop reads live to the end of the loop.
  const bool *begin = graph_begin_ops(g, a);
  const Op *start = graph_update_start(g);
  int64_t n_begin = 0, update = start ? op_time(start) : graph_end(g);
  for_each_op(op, g)
    n_begin += begin[op->id];
  for_each_op(op, g)
    for (int i = 0; begin[op->id] && i < op->n_out; i++) {
      Life *life = &lives[op->out[i]->id];
      if (life->to > n_begin) life->to = later(life->to, update);
    }
  return lives;
}

Value *view_root(Value *v, int64_t *bytes) {
  *bytes = 0;
  while (v->def && (op_info[v->def->kind].traits & VIEW)) {
    // Only unpack moves the start.
    if (v->def->kind == OP_unpack) *bytes += attr_i(v->def, "offset") * dtype_bytes[v->type->dtype];
    v = v->def->in[0].value;
  }
  return v;
}

bool value_on_host(const Value *v) {
  while (v->def && (op_info[v->def->kind].traits & VIEW))
    v = v->def->in[0].value;
  if (!v->def) return v->host;
  return v->def->kind == OP_swap_out || v->def->kind == OP_swap_out_accumulate;
}

// -- Devices -----------------------------------------------------------------------------------

int value_mesh_id(const Value *v) {
  return v->layout && v->layout->mesh ? v->layout->mesh->id : 0;
}

// Counts the single device of a module without meshes as one.
static int count_meshes(const Module *m) {
  return m->meshes ? module_n_meshes(m) : 1;
}

Meets module_meets(const Module *m, Arena *a) {
  int n = count_meshes(m);
  bool *pair = arena_array(a, bool, n *n);
  pair[0] = true;
  for_each_mesh(x, m)
    for_each_mesh(y, m)
      pair[x->id * n + y->id] = mesh_meets(x, y);
  return (Meets){n, pair};
}

bool gradient_on_host(const Value *v) {
  const Op *op = v->def;
  if (!op) return false;
  if (op->kind == OP_accumulate) return op->offload_group != 0;
  if (op->kind != OP_pack)
    return (op_info[op->kind].traits & (VIEW | COMM)) && gradient_on_host(op->in[0].value);
  for (int i = 0; i < op->n_in; i++)
    if (gradient_on_host(op->in[i].value)) return true;
  return false;
}

bool values_meet(const Meets *meets, const Value *a, const Value *b) {
  return meets->pair[value_mesh_id(a) * meets->n + value_mesh_id(b)] &&
         value_on_host(a) == value_on_host(b);
}

static void end_with(int64_t *ends, const Value *v) {
  int64_t *end = &ends[value_mesh_id(v)];
  int64_t slots = v->slots > 1 ? (v->slots - 1) * v->stride : 0;
  if (v->offset >= 0) *end = later(*end, v->offset + slots + type_bytes(v->type));
}

static int64_t *find_ends(const Module *m, bool host, Arena *a) {
  int64_t *ends = arena_array(a, int64_t, count_meshes(m));
  for_each_graph(g, m) {
    if (!g->entry) continue;
    for (int i = 0; i < g->n_params; i++)
      // The slab of the device, or that of the host.
      if (value_on_host(g->params[i]) == host) end_with(ends, g->params[i]);
    for_each_op(op, g)
      for (int i = 0; i < op->n_out; i++)
        if (value_on_host(op->out[i]) == host) end_with(ends, op->out[i]);
  }
  return ends;
}

int64_t *mesh_ends(const Module *m, Arena *a) {
  return find_ends(m, false, a);
}

int64_t *mesh_host_ends(const Module *m, Arena *a) {
  return find_ends(m, true, a);
}

int64_t device_end(const Module *m, const int64_t *ends, int device) {
  if (!m->meshes) return ends[0];
  int64_t end = 0;
  for_each_mesh(mesh, m)
    if (mesh_has(mesh, device)) end = later(end, ends[mesh->id]);
  return end;
}

// -- In place ----------------------------------------------------------------------------------

bool op_inplace(const Op *op, int result, int operand, Arena *scratch) {
  if (type_bytes(op->out[result]->type) != type_bytes(op->in[operand].value->type)) return false;
  if (op->kind == OP_fused) {
    Body body;
    return body_read(op->callee, &body, scratch) && body_inplace(&body, result, operand);
  }
  // Of a batch: the body's op that computes the result, if it is the only reader.
  if (op->kind == OP_multi_tensor) {
    const Value *made = op->callee->results[result]->use.value;
    const Use *use = op->callee->params[operand]->uses;
    return made->def && use && !use->next && use->user == made->def &&
           op_inplace(made->def, made->index, use->index, scratch);
  }
  // A move that moves nothing.
  if (op->kind == OP_move) {
    const Value *x = op->in[0].value;
    return module_move_stays(op->graph->module, value_whole(x), x->layout, op->out[0]->layout);
  }
  // An optimizer's states are operands and results in the same order.
  int traits = op_info[op->kind].traits;
  if (result > 0) return (traits & STATES) && operand == result + 1;
  return (traits & INPLACE) && operand == 0;
}

// -- Begin and update --------------------------------------------------------------------------

static bool whole_in_time(const Value *v) {
  for (int i = 0; v->layout && i < v->layout->n_axes; i++)
    if (v->layout->mesh->axis[i].time && v->layout->axis[i].kind != SBP_B) return false;
  return true;
}

// Whether only collectives and pins read the results, so that a pin holds what they gather.
static bool leads_to_pin(const Op *op) {
  if (!(op_info[op->kind].traits & COMM)) return false;
  const Use *u = op->out[0]->uses;
  for (; u; u = u->next)
    if (!u->user || !(op_is_pin(u->user) || leads_to_pin(u->user))) return false;
  return op->out[0]->uses != NULL;
}

static bool begins(const Op *op, const bool *begin) {
  int64_t bytes = 0;
  if ((op_info[op->kind].traits & ACCUMULATES) || (op->n_in == 0 && op->kind != OP_constant))
    return false;
  // Operands that are the same in every slice; results no larger in total.
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    bool same = v->def ? begin[v->def->id] : value_lasts(v) && !v->each_slice;
    if (!same || !whole_in_time(v)) return false;
    bytes += type_bytes(v->type);
  }
  for (int i = 0; i < op->n_out; i++) {
    if (!whole_in_time(op->out[i])) return false;
    bytes -= type_bytes(op->out[i]->type);
  }
  return bytes >= 0 || op->kind == OP_constant || leads_to_pin(op);
}

PartOps graph_part_ops(const Graph *g, Arena *a) {
  bool *begin = arena_array(a, bool, g->n_ops), *update = graph_update_ops(g, a);
  if (module_slices(g->module) > 1)
    for_each_op(op, g)
      begin[op->id] = !update[op->id] && begins(op, begin);
  return (PartOps){begin, update};
}

bool *graph_begin_ops(const Graph *g, Arena *a) {
  if (module_slices(g->module) == 1) return arena_array(a, bool, g->n_ops);
  return graph_part_ops(g, a).begin;
}

// Marks the ops that compute the next value of a parameter, by op id: per step, or with
// `each_slice` per slice.  Returns whether there are any.
static bool parameter_makers(const Graph *g, bool each_slice, bool *makes) {
  bool any = false;
  for (int i = 0; i < g->n_results; i++) {
    const Value *target = g->results[i]->target;
    const Op *def = g->results[i]->use.value->def;
    if (!target || !def || target->each_slice != each_slice) continue;
    any = makes[def->id] = true;
  }
  return any;
}

// The update ops that run in every slice, by op id: all ops that lead to each_slice updates.
static bool *updates_each_slice(const Graph *g, Arena *a) {
  bool *each = arena_array(a, bool, g->n_ops), *makes = arena_array(a, bool, g->n_ops);
  if (!parameter_makers(g, true, makes)) return each;
  for (const Op *op = g->last; op; op = op->prev) {
    if (op->part != PART_update) continue;
    // From the last op back: all readers are known.
    bool leads = makes[op->id];
    for (int i = 0; i < op->n_out; i++)
      for_each_use(u, op->out[i])
        leads |= u->user && each[u->user->id];
    each[op->id] = leads;
  }
  return each;
}

// The ops with the same result in every slice, by op id: those that may begin, and fills.
static bool *steady_ops(const Graph *g, Arena *a) {
  bool *steady = arena_array(a, bool, g->n_ops);
  for_each_op(op, g) {
    bool fills = op->n_in == 0;
    for (int i = 0; i < op->n_out; i++)
      fills &= whole_in_time(op->out[i]);
    steady[op->id] = fills || begins(op, steady);
  }
  return steady;
}

// Whether the op serves only the update and has the same result in every slice: of the learning
// rate, for example, or of the loss scale that was sent to the mesh of the loss.
static bool only_updates(const Op *op, const bool *steady) {
  if (op->part != PART_update) return false;
  bool made = false; // an operand is the result of an op
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (v->def ? !steady[v->def->id] : !param_kept(v)) return false;
    made |= v->def != NULL;
  }
  // Other readers would run before the update.
  for (int i = 0; i < op->n_out; i++) {
    for_each_use(u, op->out[i])
      if (made && u->user && u->user->part != PART_update) return false;
    if (!whole_in_time(op->out[i])) return false;
  }
  return true;
}

// An accumulation over time runs in every micro-batch, regardless of the uses of its sum, and so
// does the end of its copy to host memory.
static bool starts_update(const Op *op, const bool *steady, const bool *each_slice,
                          const bool *makes) {
  if (op->deferred) return true;
  if ((op_info[op->kind].traits & ACCUMULATES) || op_waits_for_sum(op)) return false;
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (value_accumulates(v) || (v->def && op_waits_for_sum(v->def))) return true;
  }
  return !each_slice[op->id] && (makes[op->id] || only_updates(op, steady));
}

bool *graph_update_ops(const Graph *g, Arena *a) {
  bool *late = arena_array(a, bool, g->n_ops);
  if (g->module->early_updates) return late;
  const bool *steady = steady_ops(g, a), *each_slice = updates_each_slice(g, a);
  bool *makes = arena_array(a, bool, g->n_ops);
  parameter_makers(g, false, makes);
  for_each_op(op, g) {
    late[op->id] = starts_update(op, steady, each_slice, makes);
    // Readers of late results are late.
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value->def) late[op->id] |= late[op->in[i].value->def->id];
  }
  return late;
}

Op *graph_update_start(const Graph *g) {
  Arena *a = arena_new();
  const bool *update = graph_update_ops(g, a);
  Op *start = g->first;
  while (start && !update[start->id])
    start = start->next;
  arena_free(a);
  return start;
}

const Op *graph_out_of_order(const Graph *g) {
  int order = 0;
  for_each_op(op, g) {
    if (op->order && op->order < order) return op;
    if (op->order) order = op->order;
  }
  return NULL;
}

const Op *graph_out_of_parts(const Graph *g) {
  enum { BEGIN, LOOP, UPDATE };
  int now = BEGIN;
  Arena *a = arena_new();
  const PartOps ops = graph_part_ops(g, a);
  const Op *found = NULL;
  for (const Op *op = g->first; op && !found; op = op->next) {
    int part = ops.begin[op->id] ? BEGIN : ops.update[op->id] ? UPDATE : LOOP;
    if (part < now) found = op;
    now = part;
  }
  arena_free(a);
  return found;
}
