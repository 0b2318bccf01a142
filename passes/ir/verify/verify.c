// What holds of a module, checked after every pass.
//
// In every phase (typed):
//
//    1  The list of ops is doubly linked, and every op, value, use and result knows where it
//       stands.
//    2  A value's list of uses holds every operand and result that reads it, once, and nothing
//       else.
//    3  A value is a parameter or the result of an op; what an op reads is defined before it, in
//       its own graph, and by no op of a later part of the step (TrainPart), so that what is made
//       for a gradient cannot forget to say so.  Only what was put together of ops of several parts
//       (a bucket, a fused op) is of the last of these, and read from earlier ones.  Ops of an entry
//       graph that have a turn (Origin) stand in the order of their turns.
//    4  Names are unique in their graph, and found by graph_find_value; ids are unique and below
//       n_values and n_ops.
//    5  Results have the types that the op's row, or its callee, gives them.  An attribute `shape`
//       is the shape of result 0.
//    6  Parameters of an entry graph have a role and those of other graphs none.  Weights and
//       states, and nothing else, have initial contents, of the size of their type, where the
//       type is that of the whole.  Only weights are trained; scalars have no dimensions.  A copy
//       has the label, the dimensions and the layout of an f32 weight, which has no other, and is
//       updated if that is (with what, is not looked at); and the first entry graph, whose copies
//       the runtime makes, has it too.
//    7  A result of an entry graph is an output with a label of its own, or the one update of a
//       weight, state or copy, of its type.  Results of other graphs are neither.
//    8  `fused`, `batch` and `call`, and no other op, have a callee.  It is in the module, no entry,
//       and calls neither itself nor anything that calls it.  That of `batch` holds ops of one kind,
//       with the same attributes, that read parameters only; and behind some of them, where the kind
//       allows it (NARROWS), a cast of result 0, of all to the same type of 16 bits.  It returns all
//       that they make.
//    9  Meshes have names of their own, and so have the axes of a mesh.  A mesh names no device
//       twice, and its axes that are not of time have as many places as it has devices.  At most
//       one is of time, and all meshes that have one cut time in equally many slices: it is the
//       same loop.
//
// From sharded on:
//
//   10  Every value of an entry graph has a layout, on a mesh of the module, with an axis for each
//       of that, and none before.  S(d) names a dimension that the axes splitting it divide.  A
//       parameter is no partial sum; one that lasts is not cut along time.
//   11  An op's split names, for each axis, a letter of its einsum that may be split, `+` if the op
//       passes partial sums on, or nothing.  Of a `+` all operands are partial sums, or one is and
//       the op is linear in each.  Its results have the layouts that this gives them, all on one
//       mesh.  Before, nothing is split.
//   12  Ops that move data between ranks, or add it up over time, are there from local on only.
//       All but `move` are over an axis of their mesh.  What is added up over time has a part in
//       every slice.
//
// From local on:
//
//   13  Types are of one rank's part, so 5 holds of the parts.  Every operand is on the mesh of its
//       op, and has the layout that the op wants, and a collective gives what its rule says
//       (collective.h).  What `move` reads may be on any mesh and have any layout; it is as a whole
//       what the result is, and along time it is cut in the same way: what a slice makes is moved
//       in that slice.  A bucket lies as all that is packed into it; a fill is no partial sum.
//   14  An output is no partial sum, and an update lies as its parameter does.  What runs for every
//       slice of time reads nothing that is known after the last: no sum over them.
//
//   Where a graph has a schedule (schedule.h):
//
//   15  It is an entry.  Ops that run in every slice have a segment, others none.  Those of a segment
//       stand together, but for ops that run once, and are on the same devices.
//   16  A device that is on the mesh of a segment is in one run.  The run has each of the device's
//       segments as often as there are slices, and so each get of what the device only gets.  A
//       segment comes after what makes what it reads, and after its gets.
//   17  No two wait for each other, even where sending ends when somebody has got it.
//
//   Where values go to host memory (verify_swap.c):
//
//   21  swap_out, swap_in and swap_wait are there from local on only.  Each of the first two is read by
//       one swap_wait, which has what it copies too, so that this stays there until it is copied; and by
//       nothing else, so that nobody reads what is not there yet.  A swap_wait is of one of them, in the
//       same segment.  What is in host memory, and waited for, is read by swap_in alone, and swap_in
//       reads nothing else.  That holds of parameters that are there from planned on: only weights and
//       states are, and what they hold after the step is there as well.
//
//   Where weights are updated in every slice (versions.h):
//
//   22  What changes in every slice lasts, is there from local on only, and an op of the loop makes
//       what it is next.  Where there is a schedule, all that a slice reads of it but for updates, is
//       one version.  From planned on, what it is next lies where it is.
//
//   Where a step owes updates to the next one (deferred.h):
//
//   23  What is owed is of the update of an entry graph without a schedule, there from local on only,
//       and stands behind all that is not.  Of ops that move data between ranks it is all_reduce alone.
//       Parameters that it updates last, and from planned on it makes them where they lie.  Those
//       that it reads last, too, and no other op updates them; what else it reads the step makes not
//       before the op that it is due before, or it makes that itself.
//
//   Where updates are early (optimizer_in_backward.c):
//
//   24  The module is local or planned and cut into no slices of time, so that all of a step is one order
//       of ops, with no schedule, and owes nothing to the next one.
//
// From planned on:
//
//   18  Every value of an entry graph has a place inside the slab, aligned to 64 bytes; constants
//       need none, as they are part of the program, and values of other graphs have none.
//       Before, no value has one.
//   19  The result of a view lies where the view says, in its operand.
//   20  Two values alive at once on meshes that have a device in common do not overlap, except a
//       view and what it views; a result and an operand that is not read later, where the op may run
//       in place (ir/analysis/place.h); a bucket and what is packed into it; an update and its parameter, from
//       the last read of that on.  What an all_reduce reads elsewhere than it writes lives until
//       somebody reads the sum.  Where ranks are in several slices at once, that holds of every two slices that are there at
//       the same time (ir/analysis/live_ranges.h).  Only what each slice has of its own may have slots.

#include "verify.h"

#include <string.h>

#include "base/table.h"
#include "ir/analysis/deferred.h"
#include "ir/analysis/place.h"
#include "ir/intern.h"
#include "ir/op.h"

const char *value_text(Arena *a, const Value *v) {
  return v->name ? str_format(a, "%%%s", v->name) : str_format(a, "%%%u", v->id);
}

// -- 1 and 2: links --------------------------------------------------------------------------

static bool check_use(const Graph *g, const Use *u, const Op *user, int index, Diag *d) {
  const Loc *loc = user ? user->loc : NULL;
  if (!u->value || u->value->graph != g)
    return diag_error(d, loc, "an operand or result of '@%s' is a value of another graph", g->name);
  if (u->user != user || u->index != index)
    return diag_error(d, loc, "a use of '@%s' does not know where it stands", g->name);
  if (u->prev ? u->prev->next != u : u->value->uses != u)
    return diag_error(d, loc, "a use of '@%s' is not among its value's uses", g->name);
  return true;
}

// `n_uses` counts, for each value, the uses that the graph has.
static bool check_uses_of(const Value *v, const int *n_uses, Diag *d) {
  int n = 0;
  for_each_use(u, v) {
    if (u->value != v || (u->next && u->next->prev != u))
      return diag_error(d, v->loc, "the list of uses of a value is broken");
    n++;
  }
  if (n != n_uses[v->id])
    return diag_error(d, v->loc, "a value has %d uses and lists %d", n_uses[v->id], n);
  return true;
}

static bool check_result_of(const Op *op, int i, Diag *d) {
  const Value *v = op->out[i];
  if (v->def != op || v->index != i || v->graph != op->graph)
    return diag_error(d, op->loc, "%s: result %d does not know its op", op_info[op->kind].name, i);
  return true;
}

// Of an op: that it is where the list has it, and that its operands and results know it.
static bool check_links(const Graph *g, const Op *op, const Op *prev, Diag *d) {
  if (op->prev != prev || op->graph != g)
    return diag_error(d, op->loc, "the list of ops of '@%s' is broken", g->name);
  for (int i = 0; i < op->n_in; i++)
    if (!check_use(g, &op->in[i], op, i, d)) return false;
  for (int i = 0; i < op->n_out; i++)
    if (!check_result_of(op, i, d)) return false;
  return true;
}

static bool check_uses(const Graph *g, const int *n_uses, Diag *d) {
  for (int i = 0; i < g->n_params; i++)
    if (!check_uses_of(g->params[i], n_uses, d)) return false;
  for_each_op(op, g) {
    for (int i = 0; i < op->n_out; i++)
      if (!check_uses_of(op->out[i], n_uses, d)) return false;
  }
  return true;
}

// -- 3 and 4: definitions, names and ids -----------------------------------------------------

static bool check_value(const Value *v, bool *defined, const Loc *loc, Diag *d) {
  if (v->id >= v->graph->n_values || defined[v->id])
    return diag_error(d, loc, "two values have the id %u", v->id);
  defined[v->id] = true;
  if (v->name && name_find(v->graph, v->name) != v)
    return diag_error(d, loc, "two values are named '%%%s'", v->name);
  return true;
}

// Runs before anything that indexes by the op's id, or by those of its results.
static bool check_ids(const Graph *g, const Op *op, bool *op_seen, bool *defined, Diag *d) {
  if (op->id >= g->n_ops || op_seen[op->id])
    return diag_error(d, op->loc, "two ops have the id %u", op->id);
  op_seen[op->id] = true;
  for (int i = 0; i < op->n_out; i++)
    if (!check_value(op->out[i], defined, op->loc, d)) return false;
  return true;
}

// May results be of earlier parts than the op?
static bool is_of_several_parts(const Op *op) {
  return op->callee || op->kind == OP_classifier_back;
}

static bool reads_later_part(const Op *op, const Value *v) {
  return v->def && v->def->part > op->part && !is_of_several_parts(v->def) && op->kind != OP_unpack;
}

// `defined`: what is defined before the op.
static bool check_order(const Op *op, const bool *defined, Arena *a, Diag *d) {
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (v->id >= v->graph->n_values || !defined[v->id])
      return diag_error(d, op->loc, "%s: '%s' is read before it is defined", op_info[op->kind].name,
                        value_text(a, v));
    if (reads_later_part(op, v))
      return diag_error(d, op->loc, "%s: is part of %s and reads '%s', which is part of %s",
                        op_info[op->kind].name, train_part_name[op->part], value_text(a, v),
                        train_part_name[v->def->part]);
  }
  return true;
}

static bool check_turns(const Graph *g, Diag *d) {
  const Op *late = g->entry ? graph_out_of_turn(g) : NULL;
  return !late || diag_error(d, late->loc, "%s: has turn %d and stands behind a later one",
                             op_info[late->kind].name, late->turn);
}

// -- 5: types --------------------------------------------------------------------------------

static bool check_shape_attr(const Op *op, Arena *a, Diag *d) {
  if (!op_has_attr(op, "shape")) return true;
  const Type *t = op->out[0]->type;
  int n = attr_n(op, "shape");
  if (n == t->rank &&
      (n == 0 || memcmp(attr_list(op, "shape"), t->dim, (size_t)n * sizeof *t->dim) == 0))
    return true;
  return diag_error(d, op->loc, "%s: '%s' is %s, which is not what its attribute 'shape' says",
                    op_info[op->kind].name, value_text(a, op->out[0]), type_text(a, t));
}

static bool check_types(const Op *op, Arena *a, Diag *d) {
  const Type **types = arena_array(a, const Type *, op->n_out);
  if (!op_infer(op, types, d)) return false;
  for (int i = 0; i < op->n_out; i++)
    if (op->out[i]->type != types[i])
      return diag_error(d, op->loc, "%s: '%s' is %s, its op makes %s", op_info[op->kind].name,
                        value_text(a, op->out[i]), type_text(a, op->out[i]->type),
                        type_text(a, types[i]));
  return check_shape_attr(op, a, d);
}

// -- All of them -----------------------------------------------------------------------------

// What is known of a graph as far as it has been walked through.
typedef struct Walk {
  Arena *a;
  bool *defined, *op_seen; // by value and op id
  int *n_uses;             // by value id
  bool turns, calls;       // some op has a turn, or a callee
  Calls *called;
} Walk;

// All that an op promises by itself and to what stands before it: one walk for all of it, as most
// of the time goes into fetching ops from memory.
static bool check_op(Walk *w, const Graph *g, const Op *op, const Op *prev, Diag *d) {
  if (!check_links(g, op, prev, d) || !check_order(op, w->defined, w->a, d) ||
      !check_ids(g, op, w->op_seen, w->defined, d) || !calls_check(w->called, op, d) ||
      !check_types(op, w->a, d))
    return false;
  for (int i = 0; i < op->n_in; i++)
    w->n_uses[op->in[i].value->id]++;
  w->turns |= op->turn != 0;
  w->calls |= op->callee != NULL;
  return true;
}

static bool check_params(Walk *w, const Graph *g, Diag *d) {
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->def || v->index != i || v->graph != g)
      return diag_error(d, v->loc, "parameter %d of '@%s' does not know it", i, g->name);
    if (!check_value(v, w->defined, v->loc, d)) return false;
  }
  return true;
}

static bool check_ends(Walk *w, const Graph *g, Diag *d) {
  for (int i = 0; i < g->n_results; i++) {
    const Use *u = &g->results[i]->use;
    if (!check_use(g, u, NULL, i, d)) return false;
    if (u->value->id >= g->n_values || !w->defined[u->value->id])
      return diag_error(d, NULL, "result %d of '@%s' is not defined in it", i, g->name);
    w->n_uses[u->value->id]++;
  }
  return true;
}

static bool check_ops(Walk *w, const Graph *g, Diag *d) {
  const Op *prev = NULL;
  for_each_op(op, g) {
    if (!check_op(w, g, op, prev, d)) return false;
    prev = op;
  }
  return g->last == prev || diag_error(d, NULL, "the list of ops of '@%s' is broken", g->name);
}

bool verify_typed(const Graph *g, Diag *d) {
  Arena *a = arena_new();
  Walk w = {.a = a, .called = calls_new(a, g)};
  w.defined = arena_array(a, bool, g->n_values);
  w.op_seen = arena_array(a, bool, g->n_ops);
  w.n_uses = arena_array(a, int, g->n_values);
  bool ok = check_params(&w, g, d) && check_ops(&w, g, d) && check_ends(&w, g, d) &&
            check_uses(g, w.n_uses, d) && (!w.turns || check_turns(g, d)) &&
            (!w.calls || calls_end(w.called, d)) && verify_ends(g, a, d);
  arena_free(a);
  return ok;
}

// -- 9: meshes -------------------------------------------------------------------------------

static bool check_devices(const Mesh *mesh, Diag *d) {
  int64_t places = 1;
  for (int i = 0; i < mesh->n_axes; i++)
    if (!mesh->axis[i].time && __builtin_mul_overflow(places, mesh->axis[i].size, &places))
      places = INT64_MAX;
  if (places != mesh->n_devices)
    return diag_error(d, NULL, "the axes of '@%s' need %lld devices, and it has %d", mesh->name,
                      (long long)places, mesh->n_devices);
  int twice;
  return !mesh_repeats(mesh, &twice) ||
         diag_error(d, NULL, "'@%s' names device %d twice", mesh->name, twice);
}

// `time` is the axis of time of the meshes before, its size 0 when none has one.
static bool check_mesh(const Mesh *mesh, MeshAxis *time, Diag *d) {
  int n_time = 0;
  for (int i = 0; i < mesh->n_axes; i++) {
    const MeshAxis *axis = &mesh->axis[i];
    if (mesh_find_axis(mesh, axis->name) != i)
      return diag_error(d, NULL, "two axes of '@%s' are called '%s'", mesh->name, axis->name);
    if (!axis->time) continue;
    if (++n_time > 1)
      return diag_error(d, NULL, "'@%s' has two axes of time: one is enough", mesh->name);
    if (time->size && time->size != axis->size)
      return diag_error(d, NULL, "time has %d slices along '%s' of '@%s', and %d along '%s' before",
                        axis->size, axis->name, mesh->name, time->size, time->name);
    *time = *axis;
  }
  return check_devices(mesh, d);
}

static bool check_meshes(const Module *m, Diag *d) {
  MeshAxis time = {0};
  for_each_mesh(mesh, m) {
    if (module_find_mesh(m, mesh->name) != mesh)
      return diag_error(d, NULL, "two meshes are named '@%s'", mesh->name);
    if (!check_mesh(mesh, &time, d)) return false;
  }
  return true;
}

static bool check_names(const Module *m, Diag *d) {
  Arena *a = arena_new();
  Table *names = table_new(a);
  bool ok = true;
  for_each_graph(g, m)
    if (ok && table_add(names, 0, g->name, g))
      ok = diag_error(d, NULL, "two graphs are named '@%s'", g->name);
  arena_free(a);
  return ok;
}

static bool check_early(const Module *m, Diag *d) {
  const char *why = NULL;
  if (!m->early_updates) return true;
  if (m->phase < PHASE_local) why = "ops are not those of a rank yet";
  if (module_slices(m) > 1) why = "the step has several slices of time";
  for_each_graph(g, m) {
    if (g->schedule) why = "ranks run a schedule";
    if (graph_first_owed(g)) why = "updates are owed to the next step";
  }
  return !why || diag_error(d, NULL, "updates cannot be early: %s", why);
}

bool module_verify(const Module *m, Diag *d) {
  static bool (*const verify[N_PHASES])(const Graph *, Diag *) = {
#define PHASE(name, means) verify_##name,
#include "ir/phases.def"
#undef PHASE
  };
  if (!check_meshes(m, d) || !check_names(m, d) || !check_early(m, d)) return false;
  for_each_graph(g, m) {
    for (int phase = 0; phase < N_PHASES; phase++)
      if (!verify[phase](g, d)) return false;
    if (!verify_swap(g, d) || !verify_versions(g, d) || !verify_owed(g, d)) return false;
  }
  return true;
}
