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
//
// With option `each` there are no chains, and every value is in memory: the program with which
// others compare themselves (tools/driver_check_with.c).

#include "base/table.h"
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
  int64_t n_fused, n_groups, n_visited;
} Fuser;

// -- Bodies ------------------------------------------------------------------------------------

typedef struct Copy {
  Fuser *f;
  Graph *body;
  Vec(Value *) copied; // values with a copy
  Vec(Value *) input;  // the future operands
} Copy;

static Value *note_copy(Copy *c, Value *v, Value *copy) {
  vec_push(c->f->scratch, &c->copied, v);
  return c->f->copy[v->id] = copy;
}

static Value *copy_op(Copy *c, const Op *op) {
  Value *in[3];
  for (int i = 0; i < op->n_in; i++) {
    // An operand is copied if that costs nothing, otherwise it is a parameter of the body.
    Value *v = op->in[i].value;
    if (c->f->copy[v->id]) {
      in[i] = c->f->copy[v->id];
    } else if (fuse_is_scalar(v) || (v->def && fuse_is_view(v->def)) ||
               fuse_is_strides(c->f->groups, v)) {
      in[i] = copy_op(c, v->def);
    } else {
      Value *p = graph_param(c->body, NULL, v->type, ROLE_none, NULL);
      p->layout = v->layout;
      vec_push(c->f->scratch, &c->input, v);
      in[i] = note_copy(c, v, p);
    }
  }
  // The copy has the attributes and splits of the op.
  int n;
  op_attr_specs(op->kind, &n);
  Origin origin = op_origin(op);
  origin.order = 0; // the call has it
  Op *made = op_new(c->body, NULL, op->kind, in, op->n_in, op->attrs, n, origin, c->f->d);
  if (!made) BUG("a copy of %s does not fit", op_info[op->kind].name);
  memcpy(made->split, op->split, sizeof made->split);
  made->out[0]->layout = op->out[0]->layout;
  return note_copy(c, op->out[0], made->out[0]);
}

// An equal earlier body, or this one.
static Graph *shared_body(Fuser *f, Graph *body) {
  // Equal bodies become one graph.
  graph_renumber(body);
  for (int i = 0; i < f->bodies.n; i++) {
    Graph *known = f->bodies.at[i];
    if (!body_same(known, body)) continue;
    // Layouts of parameters and splits of ops must be the same, too.
    bool same = true;
    for (int k = 0; k < body->n_params; k++)
      same &= known->params[k]->layout == body->params[k]->layout;
    for (const Op *x = known->first, *y = body->first; x && same; x = x->next, y = y->next)
      same = x->out[0]->layout == y->out[0]->layout &&
             memcmp(x->split, y->split, sizeof x->split) == 0;
    if (!same) continue;
    graph_erase(body);
    return known;
  }
  vec_push(f->scratch, &f->bodies, body);
  return body;
}

// Appends the fused op of group `g` to the graph. Its members become dead.
static void emit_group(Fuser *f, const Group *g) {
  const char *name = NULL;
  for (int i = f->bodies.n; !name || graph_find(f->m, name); i++)
    name = str_format(f->scratch, "fused_%d", i);
  // The members are copied into the body; values that other ops read are its results.
  Copy c = {.f = f, .body = graph_new(f->m, name, false)};
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
  // The call belongs to the latest part of its members, with their last order and offload group.
  Origin origin = op_origin(op_of_latest_part(g->member.at, g->member.n));
  for (int i = 0; i < g->member.n; i++) {
    if (g->member.at[i]->order > origin.order) origin.order = g->member.at[i]->order;
    if (g->member.at[i]->offload_group > origin.offload_group)
      origin.offload_group = g->member.at[i]->offload_group;
  }
  Op *op = op_new_call(f->g, NULL, OP_fused, callee, c.input.at, c.input.n, origin, f->d);
  if (!op) BUG("the fused op of @%s does not fit", callee->name);
  for (int i = 0; i < results.n; i++) {
    op->out[i]->layout = results.at[i]->layout;
    if (results.at[i]->def->kind == OP_fill) {
      // Readers in groups continue to read a fill as a number.
      for (Use *u = results.at[i]->uses, *next; u; u = next) {
        next = u->next;
        if (u->user && group_of(f->groups, u->user)) continue;
        if (u->user)
          op_set_in(u->user, u->index, op->out[i]);
        else
          graph_set_result(f->g, u->index, op->out[i]);
      }
    } else {
      value_replace(results.at[i], op->out[i]);
    }
    vec_push(f->scratch, &f->renamed, op->out[i]);
    vec_push(f->scratch, &f->names, results.at[i]->name);
  }
  f->n_groups++;
  f->n_fused += g->member.n;
}

// -- The new order -----------------------------------------------------------------------------

static void place(Fuser *f, Op *op);

// Places the op with the order before that of `op`.
static void place_before(Fuser *f, const Op *op, const Group *g) {
  Op *before = f->groups->before[op->id];
  if (before && (!g || f->groups->group[before->id] != g)) place(f, before);
}

// Appends `op`, or its group, to the new order, after its operands.
static void place(Fuser *f, Op *op) {
  if (op->id >= f->groups->n_ops || f->placed[op->id]) return;
  Group *g = f->groups->group[op->id];
  if (!g) {
    f->placed[op->id] = true;
    place_before(f, op, NULL);
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value->def) place(f, op->in[i].value->def);
    op_move_before(op, NULL);
    return;
  }
  for (int i = 0; i < g->member.n; i++)
    f->placed[g->member.at[i]->id] = true;
  // Operands of the ops that the body copies must come before it, too.
  for (int i = 0; i < g->member.n; i++) {
    // Views of the group's own results come after it, if other ops read them.
    const Op *member = g->member.at[i];
    place_before(f, member, g);
    for (int k = 0; k < member->n_in; k++) {
      Value *v = member->in[k].value;
      if (v->def && !in_group(f->groups, through_views(v), g, g)) place(f, v->def);
    }
  }
  emit_group(f, g);
}

bool pass_fuse(Module *m, const PassOptions *o, Diag *d) {
  Fuser f = {.m = m, .scratch = opt_scratch(o), .d = d};
  Vec(Graph *) graphs = {0};
  // Bodies of kernels are not fused themselves.
  Table *bodies = table_new(f.scratch);
  for_each_graph(caller, m)
    for_each_op(op, caller)
      if (op->callee && op->kind != OP_call && op->kind != OP_loop)
        table_add(bodies, 0, op->callee->name, op->callee);
  for_each_graph(g, m)
    if (!table_find(bodies, 0, g->name)) vec_push(f.scratch, &graphs, g);
  for (int i = 0; i < graphs.n; i++) {
    Graph *g = graphs.at[i];
    graph_renumber(g);
    f.g = g;
    f.placed = arena_array(f.scratch, bool, g->n_ops);
    // At most one new value per value: each result of a fused op replaces one.
    f.copy = arena_array(f.scratch, Value *, 2 * (size_t)g->n_values);
    f.groups = fuse_groups_find(g, opt_bool(o, "each", false), f.scratch);
    f.n_visited += f.groups->n_visited;
    // Each group is placed at its last member, or before the first reader of a result.
    Op **order = arena_array(f.scratch, Op *, f.groups->n_ops);
    for_each_op(op, f.g)
      order[op->id] = op;
    for (uint32_t k = 0; k < f.groups->n_ops; k++) {
      const Group *group = f.groups->group[k];
      if (!group || group->member.at[group->member.n - 1]->id == k) place(&f, order[k]);
    }
    // Members are dead, and ops that only they read.
    Vec(Op *) pending = {0};
    for_each_op(op, f.g)
      vec_push(f.scratch, &pending, op);
    bool *erased = arena_array(f.scratch, bool, f.g->n_ops);
    while (pending.n > 0) {
      Op *op = pending.at[--pending.n];
      // Only ops that a body may contain are erased.
      bool pure = op_is_elementwise(op) || op->kind == OP_reduce_sum || op->kind == OP_fill ||
                  op->kind == OP_constant || op->kind == OP_broadcast || op->kind == OP_reshape;
      if (erased[op->id] || !pure || value_used(op->out[0])) continue;
      for (int k = 0; k < op->n_in; k++)
        if (op->in[k].value->def) vec_push(f.scratch, &pending, op->in[k].value->def);
      erased[op->id] = true;
      op_erase(op);
    }
    for (int k = 0; k < f.renamed.n; k++)
      if (f.names.at[k]) value_set_name(f.renamed.at[k], f.names.at[k]);
    f.renamed.n = f.names.n = 0;
    graph_renumber(g);
  }
  opt_stat(o, f.n_groups, "kernels");
  opt_stat(o, f.n_fused, "ops fused");
  opt_stat(o, f.n_visited, "ops met in search of cycles");
  return true;
}
