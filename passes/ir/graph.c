// Graphs as a data structure: parameters, results, ops in a list, and for every value the list of
// its uses.  infer.c defines the requirements on operands and results.

#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "ir/intern.h"
#include "ir/model_values.h"

_Static_assert(sizeof(void *) > 8 || (sizeof(Op) <= 128 && sizeof(Value) <= 128),
               "an op and a value have at most two lines of a cache each");

const char *const role_name[N_ROLES] = {
#define ROLE(name, lasts, means) #name,
#include "ir/roles.def"
#undef ROLE
};

const char *const phase_name[N_PHASES] = {
#define PHASE(name, means) #name,
#include "ir/phases.def"
#undef PHASE
};

// -- Uses ------------------------------------------------------------------------------------

static void use_link(Use *u, Value *v) {
  u->value = v;
  u->prev = NULL;
  u->next = v->uses;
  if (v->uses) v->uses->prev = u;
  v->uses = u;
}

static void use_unlink(Use *u) {
  if (u->prev)
    u->prev->next = u->next;
  else
    u->value->uses = u->next;
  if (u->next) u->next->prev = u->prev;
  u->next = u->prev = NULL;
}

bool value_used(const Value *v) {
  return v->uses != NULL;
}

bool op_used(const Op *op) {
  for (int i = 0; i < op->n_out; i++)
    if (value_used(op->out[i])) return true;
  return false;
}

bool value_lasts(const Value *v) {
  static const bool lasts[] = {
#define ROLE(name, lasts, means) lasts,
#include "ir/roles.def"
#undef ROLE
  };
  return !v->def && lasts[v->role];
}

void value_replace(Value *v, Value *by) {
  if (v == by) return;
  if (v->graph != by->graph)
    BUG("a value of @%s cannot be replaced by one of @%s", v->graph->name, by->graph->name);
  // Each use moves to the list of the other value.
  while (v->uses) {
    Use *u = v->uses;
    use_unlink(u);
    use_link(u, by);
  }
}

void op_set_in(Op *op, int i, Value *v) {
  use_unlink(&op->in[i]);
  use_link(&op->in[i], v);
}

// -- Modules and graphs ----------------------------------------------------------------------

Module *module_new(void) {
  Arena *a = arena_new();
  Module *m = arena_one(a, Module);
  m->arena = a;
  m->ops = arena_new();
  m->values = arena_new();
  m->lists = arena_new();
  m->interned = arena_one(a, struct Interned);
  return m;
}

void module_free(Module *m) {
  if (m && m->model_values) module_free(m->model_values->program);
  if (!m) return;
  arena_free(m->ops);
  arena_free(m->values);
  arena_free(m->lists);
  arena_free(m->arena);
}

Graph *graph_new(Module *m, const char *name, bool entry) {
  if (graph_find(m, name)) BUG("a second graph @%s", name);
  Graph *g = arena_one(m->arena, Graph);
  g->name = str_copy(m->arena, name);
  g->entry = entry;
  g->module = m;
  // Graphs stay in the order of their creation.
  Graph **end = &m->graphs;
  while (*end)
    end = &(*end)->next;
  *end = g;
  return g;
}

Graph *graph_find(const Module *m, const char *name) {
  for_each_graph(g, m)
    if (str_equal(g->name, name)) return g;
  return NULL;
}

void graph_erase(Graph *g) {
  // Names of the graph become free again.
  for (int i = 0; i < g->n_params; i++)
    name_remove(g->params[i]);
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      name_remove(op->out[i]);
  Graph **at = &g->module->graphs;
  while (*at != g)
    at = &(*at)->next;
  *at = g->next;
}

void graph_erase_uncalled(Graph *g) {
  for_each_graph(caller, g->module)
    for_each_op(op, caller)
      if (op->callee == g) return;
  graph_erase(g);
  for_each_op(op, g)
    if (op->kind == OP_loop) graph_erase_uncalled(op->callee);
}

void graph_renumber(Graph *g) {
  g->n_ops = g->n_values = 0;
  // Values are numbered in the order of their definitions.
  for (int i = 0; i < g->n_params; i++)
    g->params[i]->id = g->n_values++;
  for_each_op(op, g) {
    op->id = g->n_ops++;
    for (int i = 0; i < op->n_out; i++)
      op->out[i]->id = g->n_values++;
  }
}

// -- Parameters and results ------------------------------------------------------------------

static Value *value_new(Graph *g, const Type *type) {
  Value *v = arena_one(g->module->values, Value);
  v->id = g->n_values++;
  v->type = type;
  v->graph = g;
  v->offset = -1;
  return v;
}

// Grows `list` of n pointers by one entry.  The capacity is the power of two at or above n, so it
// is not stored.
static void *list_grow(Arena *a, void *list, int n) {
  if (n & (n - 1)) return list;
  void **grown = arena_array(a, void *, n ? 2 * n : 1);
  if (n > 0) memcpy(grown, list, (size_t)n * sizeof *grown);
  return grown;
}

const Init *init_fill(Module *m, DType dtype, double fill) {
  Init *init = arena_one(m->arena, Init);
  init->kind = INIT_fill;
  init->dtype = dtype;
  init->fill = fill;
  return init;
}

Value *graph_param(Graph *g, const char *name, const Type *type, Role role, const Loc *loc) {
  Value *v = value_new(g, type);
  v->index = g->n_params;
  v->role = role;
  v->loc = loc;
  value_set_name(v, name);
  // Parameters are numbered in the order of their creation.
  g->params = list_grow(g->module->arena, g->params, g->n_params);
  g->params[g->n_params++] = v;
  return v;
}

static Result *add_result(Graph *g, Value *v) {
  if (v->graph != g) BUG("a value of @%s cannot be a result of @%s", v->graph->name, g->name);
  Result *r = arena_one(g->module->arena, Result);
  r->use.index = g->n_results;
  use_link(&r->use, v);
  g->results = list_grow(g->module->arena, g->results, g->n_results);
  g->results[g->n_results++] = r;
  return r;
}

void graph_output(Graph *g, Value *v, const char *label) {
  Result *r = add_result(g, v);
  r->label = str_copy(g->module->arena, label);
}

void graph_update(Graph *g, Value *target, Value *v) {
  if (target->graph != g || target->def)
    BUG("only a parameter of @%s can be updated in it", g->name);
  Result *r = add_result(g, v);
  r->target = target;
}

Result *graph_find_output(Graph *g, const char *label) {
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->label && str_equal(g->results[i]->label, label)) return g->results[i];
  return NULL;
}

Result *graph_find_update(const Graph *g, const Value *target) {
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->target == target) return g->results[i];
  return NULL;
}

Value *graph_find_param(Graph *g, const char *label) {
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->label && str_equal(g->params[i]->label, label)) return g->params[i];
  return NULL;
}

Value *graph_find_role(const Graph *g, Role role, const char *label) {
  for (int i = 0; label && i < g->n_params; i++) {
    Value *v = g->params[i];
    if (v->role == role && v->label && str_equal(v->label, label)) return v;
  }
  return NULL;
}

Table *graph_params_by_label(const Graph *g, Arena *a) {
  Table *t = table_new_for(a, g->n_params);
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->label)
      table_add(t, (int)g->params[i]->role, g->params[i]->label, g->params[i]);
  return t;
}

Graph *module_first_entry(const Module *m) {
  for_each_graph(g, m)
    if (g->entry) return g;
  return NULL;
}

Value *graph_find_value(Graph *g, const char *name) {
  if (*name == '%') name++;
  char *end;
  unsigned long number = strtoul(name, &end, 10);
  if (*name < '0' || *name > '9' || *end) return name_find(g, name);
  // A number is the id of an unnamed value: no name begins with a digit.
  uint32_t id = (uint32_t)number;
  for (int i = 0; i < g->n_params; i++)
    if (!g->params[i]->name && g->params[i]->id == id) return g->params[i];
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      if (!op->out[i]->name && op->out[i]->id == id) return op->out[i];
  return NULL;
}

void graph_set_result(Graph *g, int i, Value *v) {
  use_unlink(&g->results[i]->use);
  use_link(&g->results[i]->use, v);
}

void graph_erase_result(Graph *g, int i) {
  use_unlink(&g->results[i]->use);
  g->n_results--;
  // Later results move up.
  for (; i < g->n_results; i++) {
    g->results[i] = g->results[i + 1];
    g->results[i]->use.index = i;
  }
}

void graph_erase_results(Graph *g, bool (*which)(const Result *r)) {
  int n = 0;
  for (int i = 0; i < g->n_results; i++) {
    Result *r = g->results[i];
    if (which(r)) {
      use_unlink(&r->use);
      continue;
    }
    // The others move up.
    r->use.index = n;
    g->results[n++] = r;
  }
  g->n_results = n;
}

void graph_erase_param(Graph *g, int i) {
  Value *v = g->params[i];
  if (value_used(v)) BUG("parameter %d of @%s is used", i, g->name);
  for (int k = 0; k < g->n_results; k++)
    if (g->results[k]->target == v) BUG("parameter %d of @%s is updated", i, g->name);
  name_remove(v);
  g->n_params--;
  // Later parameters move up.
  for (; i < g->n_params; i++) {
    g->params[i] = g->params[i + 1];
    g->params[i]->index = i;
  }
}

// -- Ops -------------------------------------------------------------------------------------

const char *const train_part_name[N_TRAIN_PARTS] = {"forward", "backward", "update"};

Origin op_origin(const Op *op) {
  return (Origin){op->loc,      op->part,         op->of, op->piece, op->order, op->recompute_group,
                  op->by_piece, op->offload_group};
}

Origin value_origin(const Value *v) {
  return v->def ? op_origin(v->def) : (Origin){.loc = v->loc};
}

Origin origin_for(Arena *a, Origin for_whom, const char *why) {
  return (Origin){.loc = loc_from(a, for_whom.loc, why), .part = for_whom.part};
}

Op *op_draft(Graph *g, OpKind kind, Value *const *in, int n_in, int n_out, Origin origin) {
  Arena *a = g->module->lists;
  Op *op = arena_one(g->module->ops, Op);
  op->kind = kind;
  op->graph = g;
  op->loc = origin.loc;
  op->part = origin.part;
  op->of = origin.of;
  op->piece = origin.piece;
  op->order = origin.order;
  op->recompute_group = origin.recompute_group;
  op->by_piece = origin.by_piece;
  op->offload_group = origin.offload_group;
  op->n_in = n_in;
  op->in = arena_array(a, Use, n_in);
  // Uses get linked into their values by op_insert.
  for (int i = 0; i < n_in; i++) {
    if (in[i]->graph != g)
      BUG("operand %d is a value of @%s, the op is of @%s", i, in[i]->graph->name, g->name);
    op->in[i] = (Use){.value = in[i], .user = op, .index = i};
  }
  // Results get created by op_insert, too.
  op->n_out = n_out;
  op->out = arena_array(a, Value *, n_out);
  return op;
}

static void list_insert(Op *op, Op *at) {
  Graph *g = op->graph;
  op->next = at;
  op->prev = at ? at->prev : g->last;
  // The neighbours, or the ends of the list, point to the op.
  *(op->prev ? &op->prev->next : &g->first) = op;
  *(at ? &at->prev : &g->last) = op;
}

static void list_remove(Op *op) {
  Graph *g = op->graph;
  *(op->prev ? &op->prev->next : &g->first) = op->next;
  *(op->next ? &op->next->prev : &g->last) = op->prev;
  op->prev = op->next = NULL;
}

void op_insert(Op *op, Op *at) {
  if (at && at->graph != op->graph)
    BUG("an op of @%s cannot stand in @%s", op->graph->name, at->graph->name);
  op->id = op->graph->n_ops++;
  // From now on the operands know the op as a user.
  for (int i = 0; i < op->n_in; i++)
    use_link(&op->in[i], op->in[i].value);
  // Types of results are set by the caller.
  for (int i = 0; i < op->n_out; i++) {
    op->out[i] = value_new(op->graph, NULL);
    op->out[i]->def = op;
    op->out[i]->index = i;
  }
  list_insert(op, at);
}

void op_move_before(Op *op, Op *at) {
  if (op == at) return;
  list_remove(op);
  list_insert(op, at);
}

void op_erase(Op *op) {
  for (int i = 0; i < op->n_out; i++) {
    if (value_used(op->out[i])) BUG("result %d of an op to be erased is used", i);
    name_remove(op->out[i]);
  }
  // The operands may become dead.
  for (int i = 0; i < op->n_in; i++)
    use_unlink(&op->in[i]);
  list_remove(op);
  // No other op runs the body of a loop.
  if (op->kind == OP_loop) graph_erase_uncalled(op->callee);
}
