// The verifier: promises of a module, checked after every pass.
//
// In every phase (typed):
//
//    1  The list of ops is doubly linked; back pointers of ops, values, uses and results are right.
//    2  A value's list of uses holds each operand and result that reads it, once, and nothing else.
//    3  A value is a parameter or the result of an op.  Its definition precedes its readers, is in
//       their graph, and is of no later part of the step (TrainPart), so that ops of gradients are
//       marked as such.  Only an op that combines several parts (a bucket, a fused op) is of the
//       last of these and read from earlier ones.  Ops of an entry graph that have an order (Origin)
//       follow these orders.
//    4  Names are unique in their graph, and found by graph_find_value; ids are unique and below
//       n_values and n_ops.
//    5  Results have the types that the op's row, or its callee, infers.  An attribute `shape` is
//       the shape of result 0.
//    6  Parameters of an entry graph have a role, those of other graphs none.  Weights and states,
//       and no others, have initial contents, as large as their global type.  Only weights are
//       trained; scalars have no dimensions.  A copy has the label, the dimensions and the layout
//       of one f32 weight; if that is updated, so is the copy (its value is not checked); and the
//       first entry graph has the weight, since the runtime makes the copies of that graph.
//    7  A result of an entry graph is an output with a label of its own, or the only update of a
//       weight, state or copy, of its type.  Results of other graphs are neither.
//    8  `fused`, `multi_tensor`, `call` and `loop`, and no other op, have a callee: a graph of the module that
//       is no entry and not recursive.  That of `loop` draws no random numbers.  The callee of `multi_tensor` holds ops of one kind with the same
//       attributes, which read parameters only; if the kind allows it (NARROWS), some are followed by
//       a cast of result 0, all to one type of 16 bits.  It returns all results.
//    9  Names of meshes, and of axes of a mesh, are unique.  A mesh has distinct devices, as many as
//       the product of its axes that are not of time.  At most one axis is of time, with the same
//       number of slices on all meshes that have one: it is one loop.
//
// From sharded on:
//
//   10  Every value of an entry graph has a layout, on a mesh of the module, with an entry per axis;
//       before, none has.  S(d) names a dimension that is divisible by its axes.  A parameter is no
//       partial sum; persistent ones are not split along time.
//   11  An op's split has for each axis a letter of its einsum that may be split, `+` if the op
//       passes partial sums on, or nothing.  With `+`, all operands are partial sums, or one is and
//       the op is linear in each.  Its results have the layouts that follow, all on one mesh.
//       Before, no op has a split.
//   12  Ops that communicate, or accumulate over time, exist from local on only.  All except `move`
//       are over an axis of their mesh.  An accumulation has a term in every slice.
//
// From local on:
//
//   13  Types are local, so 5 holds of shards.  Every operand is on the mesh of its op, in the layout
//       that the op needs; collectives follow their rules (collective.h).  The operand of `move` may
//       be on any mesh in any layout; it is the same global value, and is split in the same way
//       along time: each slice is moved when it is produced.  A bucket has the layout of all its
//       gradients; a fill is no partial sum.  All this holds of the ops of bodies, too, whose
//       parameters and results have the layouts of the operands and results of the op that runs them.
//   14  An output is no partial sum; an update has the layout of its parameter.  Ops that run in every
//       time slice read no sums over all slices.
//
//   If a graph has a schedule (schedule.h):
//
//   15  It is an entry.  Ops that run in every slice have a segment, others none.  The ops of a segment
//       are adjacent, except for ops that run once, and on the same devices.
//   16  Each device of a segment's mesh is in one run, which has each of its segments, and each get of
//       values that it only receives, once per slice.  A segment follows the producers of its
//       operands, and its gets.
//   17  There is no deadlock, even if a send blocks until it is received.
//
// From planned on:
//
//   18  Every value of an entry graph has an offset in the slab, aligned to the least alignment of all
//       targets (targets.def).  Constants have none, as they are part of the program, nor have values
//       of other graphs, except bodies of loops.  Before, no value has an offset.
//   19  The result of a view is at its offset in the operand.
//   20  Values with overlapping live ranges, on meshes that share a device, do not overlap in memory,
//       except a view and its operand; a result and an operand that dies, if the op may run in place
//       (ir/analysis/place.h); a bucket and its gradients; an update and its parameter after its last
//       read.  The operand of an all_reduce that is not in place lives until the sum is read.  If ranks
//       are in several slices at once, the same holds of the values of all live slices
//       (ir/analysis/live_ranges.h).  Only values of a single slice may have slots.
//
// If values are offloaded to host memory (verify_swap.c):
//
//   21  swap_out, swap_out_accumulate, swap_in and swap_wait exist from local on only.  The one reader
//       of each of the first three is a swap_wait in the same segment, which also reads the source, so
//       that this stays live until the copy is complete.  Values in host memory, once waited for, are
//       read by swap_in alone, and swap_in reads no others.  The same holds of parameters in host
//       memory from planned on: only weights and states are, and so are their updates.  A
//       swap_out_accumulate is of f32, its swap_wait is read after the last slice alone (12), and has
//       the layout of the sum.
//
// If weights are updated in every slice (versions.h):
//
//   22  A parameter that changes in every slice is persistent, exists from local on only, and an op of
//       the loop computes its next value.  Under a schedule, all reads of a slice except updates are
//       of one version.  From planned on, the next value is in place.
//
// If a step defers updates to the next one (deferred.h):
//
//   23  Deferred ops are updates of an entry graph without a schedule, from local on, after all others.
//       Their only communication is all_reduce.  The parameters that they update are persistent, and
//       from planned on updated in place.  Parameters that they read are persistent, with no other
//       update; other operands are deferred ops' results, or produced in the step after the op that
//       they are due before.
//
// If updates are early (optimizer_in_backward.c):
//
//   24  The module is local or planned without a time axis or schedule, so that the step is one order
//       of ops, and has no deferred updates.
//
// In every planned module:
//
//   25  Ops stand in the order in which a step runs them: before the loop over slices, in it, after it
//       (ir/analysis/place.h).  Code is generated in this order.
//   26  The devices of the meshes together are 0, 1, …, as ranks are.
//   27  A persistent parameter, or a scalar, has one place in all entry graphs; a weight or a state of
//       a typed module has one type in them.
//   28  A loop has a body of its own.  The states and values of all iterations that its body reads are at
//       the places of the loop's results and operands.  Slices, and values that the body computes, are in
//       the workspace of the loop, without overlaps of values that are alive together.

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
//
// Operands and lists of uses are two lists of the same uses.  Looking for each operand among the
// uses of its value, and counting these, would read most uses from memory four times.  Instead two
// sums are compared, over the operands and over the lists of uses, of a hash of each use.  If they
// are equal all uses are the same, but for one chance in 2^64, as no use is twice in either: an
// operand has its op and position, and a list its value and both links.

static bool check_use(const Graph *g, const Use *u, const Op *user, int index, Diag *d) {
  const Loc *loc = user ? user->loc : NULL;
  if (!u->value || u->value->graph != g)
    return diag_error(d, loc, "an operand or result of '@%s' is a value of another graph", g->name);
  if (u->user != user || u->index != index)
    return diag_error(d, loc, "a use of '@%s' has a wrong position", g->name);
  return true;
}

// Adds the uses in the list of a value to `*io_sum`.  The list must not leave the value, and its
// links must agree.
static bool check_uses_of(const Value *v, uint64_t *io_sum, Diag *d) {
  const Use *before = NULL;
  for_each_use(u, v) {
    if (u->value != v || u->prev != before)
      return diag_error(d, v->loc, "the list of uses of a value is broken");
    *io_sum += hash_pair(u, v);
    before = u;
  }
  return true;
}

static bool is_listed(const Use *u) {
  for_each_use(other, u->value)
    if (other == u) return true;
  return false;
}

static bool check_count_of(const Value *v, const int *n_uses, Diag *d) {
  int n = 0;
  for_each_use(u, v)
    n++;
  return n == n_uses[v->id] ||
         diag_error(d, v->loc, "a value has %d uses and lists %d", n_uses[v->id], n);
}

// Reports the first use that is only an operand or only in a list: the sums of the graph differ.
static bool report_uses(const Graph *g, Arena *a, Diag *d) {
  int *n_uses = arena_array(a, int, g->n_values); // by value id
  for_each_op(op, g)
    for (int i = 0; i < op->n_in; i++, n_uses[op->in[i - 1].value->id]++)
      if (!is_listed(&op->in[i]))
        return diag_error(d, op->loc, "a use of '@%s' is not among its value's uses", g->name);
  for (int i = 0; i < g->n_results; n_uses[g->results[i++]->use.value->id]++)
    if (!is_listed(&g->results[i]->use))
      return diag_error(d, NULL, "a use of '@%s' is not among its value's uses", g->name);
  for (int i = 0; i < g->n_params; i++)
    if (!check_count_of(g->params[i], n_uses, d)) return false;
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      if (!check_count_of(op->out[i], n_uses, d)) return false;
  BUG("the uses of '@%s' are listed, and their hashes differ", g->name);
}

// -- 3 and 4: definitions, names and ids -----------------------------------------------------

// A value has the name under which it was added to the names of its graph, and these are unique, if
// the sums over both are equal: see names.c.  Else a name may have been overwritten.
static bool check_name(const Value *v, const Loc *loc, Diag *d) {
  return !v->name || name_find(v->graph, v->name) == v ||
         diag_error(d, loc, "two values are named '%%%s'", v->name);
}

static bool check_names(const Graph *g, Diag *d) {
  for (int i = 0; i < g->n_params; i++)
    if (!check_name(g->params[i], g->params[i]->loc, d)) return false;
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      if (!check_name(op->out[i], op->loc, d)) return false;
  return true;
}

// -- All promises ----------------------------------------------------------------------------

// The state of a walk over a graph, up to the current op.
typedef struct Walk {
  Arena *a;
  bool *defined, *op_seen; // by value and op id
  uint64_t operands, uses; // sums over the uses of operands and results, and of all lists
  uint64_t names;          // the sum over named values
  bool orders, calls;      // whether any op has an order, or a callee
  const Type **types;      // [n_types], of the results of an op
  int n_types;
  enum { UNKNOWN, HAS, LACKS } shape[N_OPS]; // whether ops of a kind have an attribute `shape`
  Calls *called;
  Features *has;
} Walk;

static bool check_value(Walk *w, const Value *v, const Loc *loc, Diag *d) {
  if (v->id >= v->graph->n_values || w->defined[v->id])
    return diag_error(d, loc, "two values have the id %u", v->id);
  w->defined[v->id] = true;
  w->names += name_term(v);
  w->has->layouts |= v->layout != NULL;
  w->has->places |= v->offset != -1;
  return check_uses_of(v, &w->uses, d);
}

// Notes the features of an op.
static void add_features(Walk *w, const Op *op) {
  Features *has = w->has;
  w->orders |= op->order != 0;
  w->calls |= op->callee != NULL;
  for (int i = 0; i < MAX_AXES; i++)
    has->splits |= op->split[i] != 0;
  has->shares |= (op_info[op->kind].traits & (COMM | ACCUMULATES)) != 0;
  has->host |= op_starts_copy(op) || op->kind == OP_swap_wait;
  has->deferred |= op->deferred;
  has->loops |= op->kind == OP_loop;
}

static bool has_shape(Walk *w, const Op *op) {
  if (w->shape[op->kind] == UNKNOWN) w->shape[op->kind] = op_has_attr(op, "shape") ? HAS : LACKS;
  return w->shape[op->kind] == HAS;
}

// Checks all promises of an op by itself and relative to earlier ops.  It is one walk for all,
// because the time is dominated by loading ops from memory.
static bool check_op(Walk *w, const Graph *g, const Op *op, const Op *prev, Diag *d) {
  const char *name = op_info[op->kind].name;
  // 1: the list of ops, and the back pointers of operands and results.
  if (op->prev != prev || op->graph != g)
    return diag_error(d, op->loc, "the list of ops of '@%s' is broken", g->name);
  for (int i = 0; i < op->n_in; i++)
    if (!check_use(g, &op->in[i], op, i, d)) return false;
  for (int i = 0; i < op->n_out; i++)
    if (op->out[i]->def != op || op->out[i]->index != i || op->out[i]->graph != g)
      return diag_error(d, op->loc, "%s: result %d does not know its op", name, i);
  // 3: operands are defined before, by ops of no later part of the step.
  for (int i = 0; i < op->n_in; i++) {
    const Value *v = op->in[i].value;
    if (v->id >= v->graph->n_values || !w->defined[v->id])
      return diag_error(d, op->loc, "%s: '%s' is read before it is defined", name,
                        value_text(w->a, v));
    // Results of an op that combines several parts may be of earlier parts than the op.
    bool later = v->def && v->def->part > op->part && op->kind != OP_unpack;
    if (later && !v->def->callee && v->def->kind != OP_classifier_back)
      return diag_error(d, op->loc, "%s: is part of %s and reads '%s', which is part of %s", name,
                        train_part_name[op->part], value_text(w->a, v),
                        train_part_name[v->def->part]);
  }
  // 4: ids, before anything indexes by the id of the op or of its results.
  if (op->id >= g->n_ops || w->op_seen[op->id])
    return diag_error(d, op->loc, "two ops have the id %u", op->id);
  w->op_seen[op->id] = true;
  for (int i = 0; i < op->n_out; i++)
    if (!check_value(w, op->out[i], op->loc, d)) return false;
  // 8: the callee.
  if (!calls_check(w->called, op, d)) return false;
  // 5: the types of the results, and an attribute `shape`.
  if (op->n_out > w->n_types) {
    w->n_types = 2 * op->n_out;
    w->types = arena_array(w->a, const Type *, w->n_types);
  }
  const Type **types = w->types;
  if (!op_infer(op, types, d)) return false;
  for (int i = 0; i < op->n_out; i++)
    if (op->out[i]->type != types[i])
      return diag_error(d, op->loc, "%s: '%s' is %s, its op makes %s", name,
                        value_text(w->a, op->out[i]), type_text(w->a, op->out[i]->type),
                        type_text(w->a, types[i]));
  if (has_shape(w, op)) {
    const Type *t = op->out[0]->type;
    int n = attr_n(op, "shape");
    if (n != t->ndim ||
        (n > 0 && memcmp(attr_list(op, "shape"), t->dim, (size_t)n * sizeof *t->dim) != 0))
      return diag_error(d, op->loc, "%s: '%s' is %s, which differs from its attribute 'shape'",
                        name, value_text(w->a, op->out[0]), type_text(w->a, t));
  }
  // For the checks after the walk.
  for (int i = 0; i < op->n_in; i++)
    w->operands += hash_pair(&op->in[i], op->in[i].value);
  add_features(w, op);
  return true;
}

static bool check_graph(Walk *w, const Graph *g, Diag *d) {
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->def || v->index != i || v->graph != g)
      return diag_error(d, v->loc, "parameter %d of '@%s' does not know it", i, g->name);
    if (!check_value(w, v, v->loc, d)) return false;
    w->has->host |= v->host;
    w->has->each_slice |= v->each_slice;
  }
  // Ops in order, each with the values defined before it.
  const Op *prev = NULL;
  for_each_op(op, g) {
    if (!check_op(w, g, op, prev, d)) return false;
    prev = op;
  }
  if (g->last != prev) return diag_error(d, NULL, "the list of ops of '@%s' is broken", g->name);
  for (int i = 0; i < g->n_results; i++) {
    const Use *u = &g->results[i]->use;
    if (!check_use(g, u, NULL, i, d)) return false;
    if (u->value->id >= g->n_values || !w->defined[u->value->id])
      return diag_error(d, NULL, "result %d of '@%s' is not defined in it", i, g->name);
    w->operands += hash_pair(u, u->value);
  }
  // 2 and 4: lists of uses, and names, now that all are added up.
  if (w->operands != w->uses) return report_uses(g, w->a, d);
  if (w->names != g->names && !check_names(g, d)) return false;
  // 3: orders; most graphs have none.
  const Op *late = w->orders && g->entry ? graph_out_of_order(g) : NULL;
  if (late)
    return diag_error(d, late->loc, "%s: has order %d and follows a later one",
                      op_info[late->kind].name, late->order);
  return !w->calls || calls_end(w->called, d);
}

bool verify_typed(const Graph *g, Features *has, Diag *d) {
  Arena *a = arena_new();
  Walk w = {.a = a, .called = calls_new(a, g), .has = has};
  w.defined = arena_array(a, bool, g->n_values);
  w.op_seen = arena_array(a, bool, g->n_ops);
  bool ok = check_graph(&w, g, d) && verify_ends(g, a, d);
  arena_free(a);
  return ok;
}

// -- 9: meshes -------------------------------------------------------------------------------

static bool check_meshes(const Module *m, Diag *d) {
  MeshAxis time = {0}; // of the meshes before, with size 0 if none has one
  for_each_mesh(mesh, m) {
    // Layouts in the text refer to meshes by name.
    if (module_find_mesh(m, mesh->name) != mesh)
      return diag_error(d, NULL, "two meshes are named '@%s'", mesh->name);
    // Axes: unique names, and one number of slices on all meshes.
    int n_time = 0;
    for (int i = 0; i < mesh->n_axes; i++) {
      const MeshAxis *axis = &mesh->axis[i];
      if (mesh_find_axis(mesh, axis->name) != i)
        return diag_error(d, NULL, "two axes of '@%s' are called '%s'", mesh->name, axis->name);
      if (!axis->time) continue;
      if (++n_time > 1)
        return diag_error(d, NULL, "'@%s' has two axes of time: one is enough", mesh->name);
      if (time.size && time.size != axis->size)
        return diag_error(d, NULL,
                          "time has %d slices along '%s' of '@%s', and %d along '%s' before",
                          axis->size, axis->name, mesh->name, time.size, time.name);
      time = *axis;
    }
    // Devices: as many as positions on the other axes, and distinct.
    int64_t places = 1;
    for (int i = 0; i < mesh->n_axes; i++)
      if (!mesh->axis[i].time && __builtin_mul_overflow(places, mesh->axis[i].size, &places))
        places = INT64_MAX;
    if (places != mesh->n_devices)
      return diag_error(d, NULL, "the axes of '@%s' need %lld devices, and it has %d", mesh->name,
                        (long long)places, mesh->n_devices);
    int twice;
    if (mesh_repeats(mesh, &twice))
      return diag_error(d, NULL, "'@%s' names device %d twice", mesh->name, twice);
  }
  return true;
}

// All promises of one graph.
static bool verify_graph(const Graph *g, Diag *d) {
  static bool (*const verify[N_PHASES])(const Graph *, Features *, Diag *) = {
#define PHASE(name, means) verify_##name,
#include "ir/phases.def"
#undef PHASE
  };
  // The promises of each phase hold in all later phases, too.
  Features has = {0};
  for (int phase = 0; phase < N_PHASES; phase++)
    if (!verify[phase](g, &has, d)) return false;
  // 21 to 23.
  return verify_swap(g, &has, d) && verify_versions(g, &has, d) && verify_deferred(g, &has, d);
}

// 6 and 7, of a graph that is as it was: a copy is one of a weight of the first entry graph.
static bool verify_ends_again(const Graph *g, Diag *d) {
  Arena *a = arena_new();
  bool ok = !g->entry || verify_ends(g, a, d);
  arena_free(a);
  return ok;
}

bool module_verify(const Module *m, Diag *d) {
  return module_verify_except(m, NULL, d);
}

bool module_verify_except(const Module *m, const bool *kept, Diag *d) {
  if (!check_meshes(m, d)) return false;
  // 4: the names of graphs.
  Arena *a = arena_new();
  Table *names = table_new(a);
  const Graph *twice = NULL;
  for_each_graph(g, m)
    if (!twice && table_add(names, 0, g->name, g)) twice = g;
  arena_free(a);
  if (twice) return diag_error(d, NULL, "two graphs are named '@%s'", twice->name);
  int i = 0;
  for_each_graph(g, m) {
    bool is_kept = kept && kept[i++] && m->phase < PHASE_planned;
    if (!(is_kept ? verify_ends_again(g, d) : verify_graph(g, d))) return false;
  }
  if (m->phase >= PHASE_planned && !module_check_ranks(m, d)) return false; // 26
  if (!verify_kept(m, d)) return false;                                     // 27
  // 24: early updates.
  const char *why = NULL;
  if (m->early_updates) {
    if (m->phase < PHASE_local) why = "ops are not those of a rank yet";
    if (module_slices(m) > 1) why = "the step has several slices of time";
    for_each_graph(g, m) {
      if (g->schedule) why = "ranks run a schedule";
      if (graph_first_deferred(g)) why = "updates are deferred to the next step";
    }
  }
  return !why || diag_error(d, NULL, "updates cannot be early: %s", why);
}
