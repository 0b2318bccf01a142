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
//   18  It is an entry.  Ops that run in every slice have a segment, others none.  Those of a segment
//       stand together, but for ops that run once, and are on the same devices.
//   19  A device that is on the mesh of a segment is in one run.  The run has each of the device's
//       segments as often as there are slices, and so each get of what the device only gets.  A
//       segment comes after what makes what it reads, and after its gets.
//   20  No two wait for each other, even where sending ends when somebody has got it.
//
// From planned on:
//
//   15  Every value of an entry graph has a place inside the slab, aligned to 64 bytes; constants
//       need none, as they are part of the program, and values of other graphs have none.
//       Before, no value has one.
//   16  The result of a view lies where the view says, in its operand.
//   17  Two values alive at once on meshes that have a device in common do not overlap, except a
//       view and what it views; a result and an operand that is not read later, where the op may run
//       in place (ir/place.h); a bucket and what is packed into it; an update and its parameter, from
//       the last read of that on.  What an all_reduce reads elsewhere than it writes lives until
//       somebody reads the sum.

#include "ir/verify.h"

#include <string.h>

#include "base/table.h"
#include "ir/intern.h"
#include "ir/op.h"
#include "ir/place.h"
#include "ir/split.h"

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

// -- 6 and 7: parameters and results ---------------------------------------------------------

static bool check_init(const Value *v, const char *name, Diag *d) {
  bool kept = v->role == ROLE_weight || v->role == ROLE_state; // a copy begins as its weight does
  if (kept != (v->init != NULL))
    return diag_error(d, v->loc,
                      kept ? "'%s' has no initial contents"
                           : "'%s' cannot have initial "
                             "contents",
                      name);
  // From local on the type is a part's, and the contents are still the whole's.
  if (!kept || v->graph->module->phase >= PHASE_local ||
      (v->init->kind != INIT_file && v->init->kind != INIT_bytes))
    return true;
  int64_t want = type_count(v->type) * dtype_bytes[v->init->dtype];
  if (v->init->length != want)
    return diag_error(d, v->loc, "'%s' has %lld bytes of initial contents, needs %lld", name,
                      (long long)v->init->length, (long long)want);
  return true;
}

// What copies are looked up in; made where there are any.
typedef struct Labels {
  const Table *params, *first; // by role and label, of the graph and of the first entry graph
  const bool *updated;         // by value id
} Labels;

static Labels labels_of(const Graph *g, Arena *a) {
  const Graph *first = module_first_entry(g->module);
  bool any = false;
  for (int i = 0; i < g->n_params; i++)
    any |= g->params[i]->role == ROLE_copy;
  if (!any) return (Labels){0};
  const Table *params = graph_params_by_label(g, a);
  bool *updated = arena_array(a, bool, g->n_values);
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->target && g->results[i]->target->graph == g)
      updated[g->results[i]->target->id] = true;
  return (Labels){params, first == g ? params : graph_params_by_label(first, a), updated};
}

static bool same_dims(const Type *a, const Type *b) {
  bool same = a->rank == b->rank;
  for (int i = 0; same && i < a->rank; i++)
    same = a->dim[i] == b->dim[i];
  return same;
}

static bool check_copy(const Value *v, const char *name, const Labels *l, Arena *a, Diag *d) {
  const Value *w = v->label ? table_find(l->params, ROLE_weight, v->label) : NULL;
  if (!v->label) return diag_error(d, v->loc, "'%s' is a copy without the label of a weight", name);
  if (!w)
    return diag_error(d, v->loc, "'%s' is a copy of no weight: none has the label '%s'", name,
                      v->label);
  if (!dtype_narrow(v->type->dtype) || w->type->dtype != DT_f32 || !same_dims(v->type, w->type) ||
      v->layout != w->layout)
    return diag_error(d, v->loc, "'%s' is %s, no copy in 16 bits of '%s', which is %s", name,
                      type_text(a, v->type), value_text(a, w), type_text(a, w->type));
  if (table_find(l->params, ROLE_copy, v->label) != v)
    return diag_error(d, v->loc, "'%s' is the second copy of '%s'", name, value_text(a, w));
  const Graph *first = module_first_entry(v->graph->module);
  const Value *trained = table_find(l->first, ROLE_copy, v->label);
  if (!trained || trained->type != v->type)
    return diag_error(d, v->loc, "'%s' is a copy that '@%s' does not have", name, first->name);
  return l->updated[v->id] == l->updated[w->id] ||
         diag_error(d, v->loc, "of '%s' and its copy '%s' one is updated and the other is not",
                    value_text(a, w), name);
}

static bool check_as(const Value *v, const char *name, Arena *a, Diag *d) {
  if (v->role != ROLE_weight && v->role != ROLE_state)
    return diag_error(d, v->loc, "'%s' is no weight and no state, and lies as users know it", name);
  const Type *whole = value_whole(v);
  return (v->as->dtype == whole->dtype && type_count(v->as) == type_count(whole)) ||
         diag_error(d, v->loc, "'%s' is %s, and users cannot know it as %s", name,
                    type_text(a, whole), type_text(a, v->as));
}

static bool check_param(const Value *v, const Labels *l, Arena *a, Diag *d) {
  const char *name = value_text(a, v);
  if (v->graph->entry != (v->role != ROLE_none))
    return diag_error(d, v->loc, "parameter '%s' of '@%s' must %shave a role", name, v->graph->name,
                      v->graph->entry ? "" : "not ");
  if (v->train && v->role != ROLE_weight)
    return diag_error(d, v->loc, "'%s' is no weight and cannot be trained", name);
  if (v->role == ROLE_scalar && v->type->rank != 0)
    return diag_error(d, v->loc, "'%s' is a scalar and has dimensions: %s", name,
                      type_text(a, v->type));
  if (v->role == ROLE_copy && !check_copy(v, name, l, a, d)) return false;
  if (v->as && !check_as(v, name, a, d)) return false;
  return check_init(v, name, d);
}

static bool check_update(const Graph *g, const Result *r, bool *updated, Arena *a, Diag *d) {
  const Value *target = r->target;
  const char *name = value_text(a, target);
  if (target->graph != g || !value_lasts(target))
    return diag_error(d, target->loc,
                      "'%s' is no weight, state or copy of '@%s' and cannot be updated", name,
                      g->name);
  if (updated[target->id]) return diag_error(d, target->loc, "'%s' is updated twice", name);
  updated[target->id] = true;
  if (r->use.value->type != target->type)
    return diag_error(d, target->loc, "'%s' is %s and updated with %s", name,
                      type_text(a, target->type), type_text(a, r->use.value->type));
  return true;
}

static bool check_results(const Graph *g, Arena *a, Diag *d) {
  bool *updated = arena_array(a, bool, g->n_values);
  Table *outputs = table_new(a);
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    if (!g->entry) {
      if (r->label || r->target)
        return diag_error(d, NULL, "result %d of '@%s' has a label, and '@%s' is no entry", i,
                          g->name, g->name);
      continue;
    }
    if (!r->label == !r->target)
      return diag_error(d, NULL, "result %d of '@%s' must be an output or an update", i, g->name);
    if (r->label && table_add(outputs, 0, r->label, g->results[i]))
      return diag_error(d, NULL, "two outputs of '@%s' are called '%s'", g->name, r->label);
    if (r->target && !check_update(g, r, updated, a, d)) return false;
  }
  return true;
}

// -- 8: calls --------------------------------------------------------------------------------

static bool reads_only_parameters(const Op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def) return false;
  return true;
}

static bool all_are_results(const Op *op) {
  for (int i = 0; i < op->n_out; i++) {
    bool found = false;
    for_each_use(u, op->out[i])
      found |= !u->user;
    if (!found) return false;
  }
  return true;
}

static bool check_batch(const Op *batch, Diag *d) {
  const char *name = batch->callee->name;
  const Op *first = batch->callee->first, *cast = NULL;
  if (!first) return diag_error(d, batch->loc, "batch: '@%s' is empty", name);
  for_each_op(op, batch->callee) {
    const char *what = op_info[op->kind].name;
    bool casts = batch_narrows(op), fits = op->kind == first->kind && op_same_attrs(op, first);
    if (casts) {
      fits = !cast || attr_t(cast, "to") == attr_t(op, "to");
      cast = op;
    }
    if (!fits)
      return diag_error(d, batch->loc, "batch: '@%s' has %s next to %s that is not like it", name,
                        what, op_info[cast && casts ? OP_cast : first->kind].name);
    if (!casts && !reads_only_parameters(op))
      return diag_error(d, batch->loc, "batch: '@%s' has %s that reads what another op there makes",
                        name, what);
    if (!all_are_results(op))
      return diag_error(d, batch->loc, "batch: '@%s' does not return all that %s makes", name,
                        what);
  }
  return true;
}

// What is known of a graph: the depth of calls from here on, 1 where there are none.
enum { UNKNOWN, OPEN = -1, DEEPEST = 64 };
typedef struct Called {
  const Graph *g;
  int depth; // or UNKNOWN, or OPEN
} Called;

typedef struct Calls {
  Arena *a;
  Called first;  // where it begins
  Table *called; // all graphs by name; NULL: nothing was called yet
} Calls;

static Called *called_by(Calls *c, const char *name) {
  const Module *m = c->first.g->module;
  for (const Graph *g = c->called ? NULL : m->graphs; g; g = g->next) {
    if (g == m->graphs) c->called = table_new(c->a);
    Called *k = g == c->first.g ? &c->first : arena_one(c->a, Called);
    k->g = g;
    table_add(c->called, 0, g->name, k);
  }
  return table_find(c->called, 0, name);
}

static bool check_callee(Calls *c, const Op *op, Diag *d) {
  const Graph *callee = op->callee;
  const char *name = op_info[op->kind].name;
  if (op_has_callee(op->kind) != (callee != NULL))
    return diag_error(d, op->loc, "%s: %s", name,
                      callee ? "cannot have a callee" : "has no callee");
  if (!callee) return true;
  bool other = callee->module != op->graph->module || callee->entry;
  const Called *called = other ? NULL : called_by(c, callee->name);
  if (!called || called->g != callee)
    return diag_error(d, op->loc, "%s: '@%s' cannot be called", name, callee->name);
  return op->kind != OP_batch || check_batch(op, d);
}

// Depth-first, each graph once; one that is entered again while it is open calls itself.  `outer`
// graphs are open.
static bool check_callees(Calls *c, Called *k, int outer, Diag *d) {
  if (k->depth == OPEN) return diag_error(d, NULL, "'@%s' calls itself", k->g->name);
  if (outer + (k->depth ? k->depth : 1) > DEEPEST)
    return diag_error(d, NULL, "calls nest deeper than %d: '@%s'", DEEPEST, k->g->name);
  if (k->depth) return true;
  k->depth = OPEN;
  int deepest = 0;
  for_each_op(op, k->g) {
    if (!check_callee(c, op, d)) return false;
    if (!op->callee) continue;
    Called *inner = called_by(c, op->callee->name);
    if (!check_callees(c, inner, outer + 1, d)) return false;
    if (inner->depth > deepest) deepest = inner->depth;
  }
  k->depth = 1 + deepest;
  return true;
}

// -- All of them -----------------------------------------------------------------------------

// What is known of a graph as far as it has been walked through.
typedef struct Walk {
  Arena *a;
  bool *defined, *op_seen; // by value and op id
  int *n_uses;             // by value id
  bool turns, calls;       // some op has a turn, or a callee
  Calls called;
} Walk;

// All that an op promises by itself and to what stands before it: one walk for all of it, as most
// of the time goes into fetching ops from memory.
static bool check_op(Walk *w, const Graph *g, const Op *op, const Op *prev, Diag *d) {
  if (!check_links(g, op, prev, d) || !check_order(op, w->defined, w->a, d) ||
      !check_ids(g, op, w->op_seen, w->defined, d) || !check_callee(&w->called, op, d) ||
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
  Walk w = {.a = a, .called = {.a = a, .first = {.g = g}}};
  w.defined = arena_array(a, bool, g->n_values);
  w.op_seen = arena_array(a, bool, g->n_ops);
  w.n_uses = arena_array(a, int, g->n_values);
  bool ok = check_params(&w, g, d) && check_ops(&w, g, d) && check_ends(&w, g, d) &&
            check_uses(g, w.n_uses, d) && (!w.turns || check_turns(g, d)) &&
            (!w.calls || check_callees(&w.called, &w.called.first, 0, d));
  Labels labels = {0};
  if (ok) labels = labels_of(g, a);
  for (int i = 0; ok && i < g->n_params; i++)
    ok = check_param(g->params[i], &labels, a, d);
  ok = ok && check_results(g, a, d);
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

bool module_verify(const Module *m, Diag *d) {
  static bool (*const verify[N_PHASES])(const Graph *, Diag *) = {
#define PHASE(name, means) verify_##name,
#include "ir/phases.def"
#undef PHASE
  };
  if (!check_meshes(m, d) || !check_names(m, d)) return false;
  for_each_graph(g, m) {
    for (int phase = 0; phase < N_PHASES; phase++)
      if (!verify[phase](g, d)) return false;
  }
  return true;
}
