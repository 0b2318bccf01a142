// Fusion: chains of elementwise ops, and the sums at their ends, become one kernel each.
//
//     %1 = broadcast %b shape=[4,6] : f32[4,6]
//     %2 = add %y, %1               : f32[4,6]
//     %3 = gelu %2                  : f32[4,6]
//     %4 = linear %3, %w            : f32[4,2]
//
//   =>
//
//     %2, %3 = fused @fused_0 %y, %b : f32[4,6], f32[4,6]
//     %4 = linear %3, %w             : f32[4,2]
//
//     graph @fused_0 (%0: f32[4,6], %1: f32[6]) {
//       %2 = broadcast %1 shape=[4,6] : f32[4,6]
//       %3 = add %0, %2               : f32[4,6]
//       %4 = gelu %3                  : f32[4,6]
//       return %3, %4
//     }
//
// fuse_groups.h chooses the groups. Here each group becomes a body and an op that calls it, in a
// new order in which every op follows its operands. Nothing is computed twice: only values that
// cost nothing in a body are copied into it (a fill, a scalar constant, a broadcast, a view). A
// reduce_sum is in the group that computes its operand, or that adds up the same value.
//
// Every elementwise op ends up in a group, if only its own, because the backend knows none outside;
// so does a fill with a reader outside of bodies. A sum whose operand is not computed here stays as
// it is: there is a kernel for it. Equal bodies become one graph.

#include "fuse_groups.h"
#include "ir/analysis/origin.h"
#include "ir/build.h"
#include "ir/op.h"
#include "pass.h"

#include <string.h>

typedef struct Fuser {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  FuseGroups *groups;
  bool *placed; // by op id: in the new order
  Value **copy; // by value id: its copy in the present body, else NULL
  Vec(Graph *) bodies;
  Vec(Value *) renamed; // fused results, and the names of the values they replace
  Vec(const char *) names;
  int64_t n_fused, n_groups;
} Fuser;

// -- Bodies ------------------------------------------------------------------------------------

typedef struct Copy {
  Fuser *f;
  Graph *body;
  Vec(Value *) copied; // values with a copy
  Vec(Value *) input;  // the future operands
} Copy;

static Value *copy_value(Copy *c, Value *v);

static Value *note_copy(Copy *c, Value *v, Value *copy) {
  vec_push(c->f->scratch, &c->copied, v);
  return c->f->copy[v->id] = copy;
}

static Value *copy_op(Copy *c, const Op *op) {
  Value *in[3];
  for (int i = 0; i < op->n_in; i++)
    in[i] = copy_value(c, op->in[i].value);
  int n;
  op_attr_specs(op->kind, &n);
  Origin origin = op_origin(op);
  origin.turn = 0; // the call has it
  Op *made = op_new(c->body, NULL, op->kind, in, op->n_in, op->attrs, n, origin, c->f->d);
  if (!made) BUG("a copy of %s does not fit", op_info[op->kind].name);
  memcpy(made->split, op->split, sizeof made->split);
  made->out[0]->layout = op->out[0]->layout;
  return note_copy(c, op->out[0], made->out[0]);
}

// The body's value for `v`: a copy if that costs nothing, otherwise a parameter.
static Value *copy_value(Copy *c, Value *v) {
  if (c->f->copy[v->id]) return c->f->copy[v->id];
  if (fuse_is_scalar(v) || (v->def && fuse_is_view(v->def)) || fuse_is_strides(c->f->groups, v))
    return copy_op(c, v->def);
  Value *p = graph_param(c->body, NULL, v->type, ROLE_none, NULL);
  p->layout = v->layout;
  vec_push(c->f->scratch, &c->input, v);
  return note_copy(c, v, p);
}

static bool same_layouts(const Graph *a, const Graph *b) {
  for (int i = 0; i < a->n_params; i++)
    if (a->params[i]->layout != b->params[i]->layout) return false;
  for (const Op *x = a->first, *y = b->first; x; x = x->next, y = y->next)
    if (x->out[0]->layout != y->out[0]->layout || memcmp(x->split, y->split, sizeof x->split) != 0)
      return false;
  return true;
}

// An equal earlier body, or this one.
static Graph *shared_body(Fuser *f, Graph *body) {
  graph_renumber(body);
  for (int i = 0; i < f->bodies.n; i++)
    if (body_same(f->bodies.at[i], body) && same_layouts(f->bodies.at[i], body)) {
      graph_erase(body);
      return f->bodies.at[i];
    }
  vec_push(f->scratch, &f->bodies, body);
  return body;
}

static const char *body_name(const Fuser *f) {
  for (int i = f->bodies.n;; i++) {
    const char *name = str_format(f->scratch, "fused_%d", i);
    if (!graph_find(f->m, name)) return name;
  }
}

// Replaces a fill in memory. Readers in groups continue to read it as a number.
static void replace_memory(Fuser *f, Value *v, Value *by) {
  for (Use *u = v->uses, *next; u; u = next) {
    next = u->next;
    if (u->user && group_of(f->groups, u->user)) continue;
    if (u->user)
      op_set_in(u->user, u->index, by);
    else
      graph_set_result(f->g, u->index, by);
  }
}

// Appends the fused op of group `g` to the graph. Its members become dead.
static void emit_group(Fuser *f, const Group *g) {
  Copy c = {.f = f, .body = graph_new(f->m, body_name(f), false)};
  Vec(Value *) results = {0};
  for (int i = 0; i < g->member.n; i++) {
    Value *v = g->member.at[i]->out[0];
    Value *copy = copy_op(&c, g->member.at[i]);
    if (!read_outside(f->groups, v, g, g)) continue;
    graph_output(c.body, copy, NULL);
    vec_push(f->scratch, &results, v);
  }
  // Copies are valid in this body only.
  for (int i = 0; i < c.copied.n; i++)
    f->copy[c.copied.at[i]->id] = NULL;
  if (!results.n) { // no result has a reader
    graph_erase(c.body);
    return;
  }
  Graph *callee = shared_body(f, c.body);
  Body body;
  if (!body_read(callee, &body, f->scratch)) BUG("@%s is no body", callee->name);
  // The call belongs to the latest part of its members, with their last turn and offload group.
  Origin origin = op_origin(op_of_latest_part(g->member.at, g->member.n));
  for (int i = 0; i < g->member.n; i++) {
    if (g->member.at[i]->turn > origin.turn) origin.turn = g->member.at[i]->turn;
    if (g->member.at[i]->offload_group > origin.offload_group)
      origin.offload_group = g->member.at[i]->offload_group;
  }
  Op *op = op_new_call(f->g, NULL, OP_fused, callee, c.input.at, c.input.n, origin, f->d);
  if (!op) BUG("the fused op of @%s does not fit", callee->name);
  for (int i = 0; i < results.n; i++) {
    op->out[i]->layout = results.at[i]->layout;
    if (results.at[i]->def->kind == OP_fill)
      replace_memory(f, results.at[i], op->out[i]);
    else
      value_replace(results.at[i], op->out[i]);
    vec_push(f->scratch, &f->renamed, op->out[i]);
    vec_push(f->scratch, &f->names, results.at[i]->name);
  }
  f->n_groups++;
  f->n_fused += g->member.n;
}

// -- The new order -----------------------------------------------------------------------------

static void place(Fuser *f, Op *op);

// Places the op with the turn before that of `op`.
static void place_before(Fuser *f, const Op *op, const Group *g) {
  Op *before = f->groups->before[op->id];
  if (before && (!g || f->groups->group[before->id] != g)) place(f, before);
}

static void place_producers(Fuser *f, const Op *op) {
  place_before(f, op, NULL);
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def) place(f, op->in[i].value->def);
}

// Places the inputs of a member. Views of the group's own results come after it, if other ops read
// them.
static void place_inputs(Fuser *f, const Group *g, const Op *op) {
  place_before(f, op, g);
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    if (v->def && !in_group(f->groups, through_views(v), g, g)) place(f, v->def);
  }
}

// Appends `op`, or its group, to the new order, after its operands.
static void place(Fuser *f, Op *op) {
  if (op->id >= f->groups->n_ops || f->placed[op->id]) return;
  Group *g = f->groups->group[op->id];
  if (!g) {
    f->placed[op->id] = true;
    place_producers(f, op);
    op_move_before(op, NULL);
    return;
  }
  for (int i = 0; i < g->member.n; i++)
    f->placed[g->member.at[i]->id] = true;
  // Operands of the ops that the body copies must come before it, too.
  for (int i = 0; i < g->member.n; i++)
    place_inputs(f, g, g->member.at[i]);
  emit_group(f, g);
}

// Places each group at its last member, or before the first reader of a result.
static void place_all(Fuser *f) {
  Op **order = arena_array(f->scratch, Op *, f->groups->n_ops);
  for_each_op(op, f->g)
    order[op->id] = op;
  for (uint32_t i = 0; i < f->groups->n_ops; i++) {
    const Group *g = f->groups->group[i];
    if (!g || g->member.at[g->member.n - 1]->id == i) place(f, order[i]);
  }
}

static bool is_pure(const Op *op) {
  return op_is_elementwise(op) || op->kind == OP_reduce_sum || op->kind == OP_fill ||
         op->kind == OP_constant || op->kind == OP_broadcast || op->kind == OP_reshape;
}

// Erases members, and ops that only they read.
static void erase_dead(Fuser *f) {
  Vec(Op *) pending = {0};
  for_each_op(op, f->g)
    vec_push(f->scratch, &pending, op);
  bool *erased = arena_array(f->scratch, bool, f->g->n_ops);
  while (pending.n > 0) {
    Op *op = pending.at[--pending.n];
    if (erased[op->id] || !is_pure(op) || value_used(op->out[0])) continue;
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value->def) vec_push(f->scratch, &pending, op->in[i].value->def);
    erased[op->id] = true;
    op_erase(op);
  }
  for (int i = 0; i < f->renamed.n; i++)
    if (f->names.at[i]) value_set_name(f->renamed.at[i], f->names.at[i]);
  f->renamed.n = f->names.n = 0;
}

static void fuse_graph(Fuser *f, Graph *g) {
  graph_renumber(g);
  f->g = g;
  f->placed = arena_array(f->scratch, bool, g->n_ops);
  // At most one new value per value: each result of a fused op replaces one.
  f->copy = arena_array(f->scratch, Value *, 2 * (size_t)g->n_values);
  f->groups = fuse_groups_find(g, f->scratch);
  place_all(f);
  erase_dead(f);
  graph_renumber(g);
}

static bool is_body(const Module *m, const Graph *g) {
  for_each_graph(caller, m)
    for_each_op(op, caller) {
      if (op->kind != OP_call && op->callee == g) return true;
    }
  return false;
}

bool pass_fuse(Module *m, const PassOptions *o, Diag *d) {
  Fuser f = {.m = m, .scratch = opt_scratch(o), .d = d};
  Vec(Graph *) graphs = {0};
  for_each_graph(g, m)
    if (!is_body(m, g)) vec_push(f.scratch, &graphs, g);
  for (int i = 0; i < graphs.n; i++)
    fuse_graph(&f, graphs.at[i]);
  opt_stat(o, f.n_groups, "kernels");
  opt_stat(o, f.n_fused, "ops fused");
  return true;
}
