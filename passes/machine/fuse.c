// Fusion: chains of elementwise ops, and the sums at their ends, to one kernel each.
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
// Groups grow greedily in the order of the ops: an op joins the groups of its producers when they
// have the same points (ir/loops.h says when one nest of loops serves a body), and when that leaves
// no path out of the group and back into it.  Nothing is computed twice: what goes into a body as a
// copy costs nothing there (a fill, a scalar constant, a broadcast, a view).  A reduce_sum joins
// the group that computes what it adds up, or the sums over the same axes of the same value.
//
// A cast from 16 bits joins its reader first, and who makes its operand only where that one does.
//
// Ops that have a turn (Origin) depend on the one before as if they read it.
//
// Groups of few points whose results leave the graph, as the running statistics of batch
// normalisation do, join others of as many points: each is hardly more than its launch.
//
// What is computed anew for gradients (recompute.c) joins no ops of forward: there it would be
// kept.
//
// Every elementwise op ends up in a group, if only its own, because the backend knows none outside;
// so does a fill that something else than a body reads.  A sum whose operand is not computed here
// stays as it is: there is a kernel for it.  Bodies that are equal become one graph.

#include "base/vec.h"
#include "distribute/part.h"
#include "ir/build.h"
#include "ir/loops.h"
#include "ir/op.h"
#include "ir/place.h"
#include "pass.h"

#include <string.h>

// The einsum of an op has room for so many (Dims); the registers of a processor, for fewer.
enum { MAX_GROUP_OPS = 48, MAX_GROUP_INPUTS = 16, MAX_GROUP_RESULTS = 6 };
enum { FEW_POINTS = 1 << 16 };

typedef struct Group {
  Vec(Op *) member; // in the order of the graph
  int64_t count;
  Loops loops;
  SumKind sum;
  int64_t n_kept;
} Group;

typedef struct Fuser {
  Module *m;
  Graph *g;
  Arena *scratch;
  Diag *d;
  uint32_t n_ops;        // there were so many; fused ops have ids from here on
  Group **group;         // by op id, NULL for ops in none
  bool *whole;           // by value id: a broadcast that is memory, not a way of reading
  uint32_t *seen, stamp; // by op id, for walks
  bool *placed;          // by op id: stands in the new order
  Value **copy;          // by value id: in the body that is made, else NULL
  Op **before;           // by op id: of one that has a turn the one whose turn was before, or NULL
  Vec(Graph *) bodies;
  Vec(Value *) renamed; // fused results, and the names of what they replace
  Vec(const char *) names;
  int64_t n_fused, n_groups;
} Fuser;

static Group *group_of(const Fuser *f, const Op *op) {
  return op->id < f->n_ops ? f->group[op->id] : NULL;
}

// Views do not move elements.
static bool is_view(const Op *op) {
  return op->kind == OP_reshape ||
         (op->kind == OP_broadcast &&
          type_count(op->out[0]->type) == type_count(op->in[0].value->type));
}

static bool is_scalar(const Value *v) {
  return v->def &&
         (v->def->kind == OP_fill || (v->def->kind == OP_constant && type_count(v->type) == 1));
}

static Value *through_views(Value *v) {
  while (v->def && is_view(v->def))
    v = v->def->in[0].value;
  return v;
}

// A broadcast that a body reads as strides.
static bool is_strides(const Fuser *f, const Value *v) {
  return v->def && v->def->kind == OP_broadcast && !is_view(v->def) && !f->whole[v->id];
}

// -- Would it be a body? -----------------------------------------------------------------------

// Cuts the loops as reading `v` needs it.
static bool cut_for(const Fuser *f, Loops *l, Value *v) {
  const Value *root = through_views(v);
  if (!is_strides(f, root) || is_scalar(through_views(root->def->in[0].value))) return true;
  Access a = access_broadcast(root->def->in[0].value->type, root->type);
  return loops_cut(l, &a);
}

// The loops that serve both groups, if they have the same points and sums, on the same devices.
static bool loops_of_both(const Group *a, const Group *b, Loops *out) {
  if (a->count != b->count || op_mesh(a->member.at[0]) != op_mesh(b->member.at[0])) return false;
  if (a->sum && b->sum && (a->sum != b->sum || a->n_kept != b->n_kept)) return false;
  *out = a->loops;
  if (a->count == 0) return true;
  int64_t inner = 1;
  for (int k = b->loops.n - 1; k > 0; k--) {
    inner *= b->loops.extent[k];
    if (!loops_cut_at(out, inner)) return false;
  }
  return true;
}

static bool in_group(const Fuser *f, const Value *v, const Group *a, const Group *b) {
  const Group *g = v->def ? group_of(f, v->def) : NULL;
  return g && (g == a || g == b);
}

// Is `v` what a member computes, point by point?
static bool is_inner(const Fuser *f, Value *v, const Group *a, const Group *b) {
  const Value *root = through_views(v);
  return in_group(f, root, a, b) && op_is_elementwise(root->def);
}

// Is `v`, defined in a group, read by anything but members, which see through views?
static bool read_outside(const Fuser *f, const Value *v, const Group *a, const Group *b) {
  for_each_use(u, v) {
    if (!u->user) return true;
    const Group *g = group_of(f, u->user);
    if (g && (g == a || g == b)) continue;
    if (g || !is_view(u->user) || read_outside(f, u->user->out[0], a, b)) return true;
  }
  return false;
}

// Does one repeat what it would be kept with in the other?
static bool repeats(const Group *a, const Group *b) {
  bool anew = false, forward = false;
  for (int m = 0; m < a->member.n + b->member.n; m++) {
    const Op *op = m < a->member.n ? a->member.at[m] : b->member.at[m - a->member.n];
    anew |= op_is_anew(op);
    forward |= op->part == PART_forward;
  }
  return anew && forward;
}

static bool fits(const Fuser *f, const Group *a, const Group *b) {
  if (repeats(a, b)) return false;
  if (a->member.n + b->member.n > MAX_GROUP_OPS) return false;
  const Value *inputs[MAX_GROUP_INPUTS];
  int n_inputs = 0, n_results = 0;
  for (int m = 0; m < a->member.n + b->member.n; m++) {
    const Op *op = m < a->member.n ? a->member.at[m] : b->member.at[m - a->member.n];
    n_results += read_outside(f, op->out[0], a, b);
    for (int i = 0; i < op->n_in; i++) {
      const Value *root = through_views(op->in[i].value);
      if (is_inner(f, op->in[i].value, a, b) || is_scalar(root)) continue;
      int at = 0;
      while (at < n_inputs && inputs[at] != root)
        at++;
      if (at == MAX_GROUP_INPUTS) return false;
      if (at == n_inputs) inputs[n_inputs++] = root;
    }
  }
  return n_results <= MAX_GROUP_RESULTS;
}

// -- Would it be a cycle? ----------------------------------------------------------------------

// A walk against the flow of data, from what the two groups read; groups count as one op each.
typedef struct Walk {
  Fuser *f;
  const Group *a, *b;
  uint32_t first; // id of the first member: nothing before it depends on one
  Vec(Op *) pending;
} Walk;

// Adds the op.  False when it is a member: the walk has come back.
static bool walk_to(Walk *w, Op *op) {
  const Group *of = op ? group_of(w->f, op) : NULL;
  if (of && (of == w->a || of == w->b)) return false;
  if (!op || w->f->seen[op->id] == w->f->stamp) return true;
  const Group *g = w->f->group[op->id];
  uint32_t last = g ? g->member.at[g->member.n - 1]->id : op->id;
  if (last < w->first) return true;
  if (!g) w->f->seen[op->id] = w->f->stamp;
  for (int i = 0; g && i < g->member.n; i++)
    w->f->seen[g->member.at[i]->id] = w->f->stamp;
  vec_push(w->f->scratch, &w->pending, op);
  return true;
}

static bool walk_operands(Walk *w, const Op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (!walk_to(w, op->in[i].value->def)) return false;
  return walk_to(w, w->f->before[op->id]);
}

static bool makes_cycle(Fuser *f, const Group *a, const Group *b) {
  Walk w = {.f = f, .a = a, .b = b};
  f->stamp++;
  w.first = a->member.at[0]->id < b->member.at[0]->id ? a->member.at[0]->id : b->member.at[0]->id;
  for (int k = 0; k < 2; k++) {
    const Group *of = k ? b : a;
    for (int m = 0; m < of->member.n; m++)
      for (int i = 0; i < of->member.at[m]->n_in; i++) {
        Value *v = of->member.at[m]->in[i].value;
        if (!is_inner(f, v, a, b) && !walk_to(&w, v->def)) return true;
      }
    for (int m = 0; m < of->member.n; m++) {
      Op *before = f->before[of->member.at[m]->id];
      const Group *g = before ? f->group[before->id] : NULL;
      if (g != a && g != b && !walk_to(&w, before)) return true;
    }
  }
  while (w.pending.n > 0) {
    const Op *op = w.pending.at[--w.pending.n];
    const Group *g = f->group[op->id];
    if (!g && !walk_operands(&w, op)) return true;
    for (int m = 0; g && m < g->member.n; m++)
      if (!walk_operands(&w, g->member.at[m])) return true;
  }
  return false;
}

// -- Growing groups ----------------------------------------------------------------------------

static void merge(Fuser *f, Group *into, Group *from, const Loops *loops) {
  Vec(Op *) both = {0};
  for (int i = 0, k = 0; i < into->member.n || k < from->member.n;) {
    bool mine = k == from->member.n ||
                (i < into->member.n && into->member.at[i]->id < from->member.at[k]->id);
    Op *op = mine ? into->member.at[i++] : from->member.at[k++];
    vec_push(f->scratch, &both, op);
    f->group[op->id] = into;
  }
  into->member.at = both.at;
  into->member.n = both.n;
  into->member.cap = both.cap;
  into->loops = *loops;
  if (from->sum) {
    into->sum = from->sum;
    into->n_kept = from->n_kept;
  }
}

static void try_merge(Fuser *f, const Op *op, const Op *with) {
  Group *a = f->group[with->id], *b = f->group[op->id];
  Loops loops;
  if (a == b || !loops_of_both(a, b, &loops) || !fits(f, a, b) || makes_cycle(f, a, b)) return;
  merge(f, a, b, &loops);
}

static Group *group_new(Fuser *f, Op *op, int64_t count) {
  Group *g = arena_one(f->scratch, Group);
  g->count = count;
  g->loops = loops_flat(count);
  vec_push(f->scratch, &g->member, op);
  f->group[op->id] = g;
  return g;
}

// A cast that makes a value larger.  It belongs to who reads it: written by who makes its operand,
// it would go through memory at twice the size.
static bool is_widening(const Op *op) {
  return op->kind == OP_cast && dtype_bytes[op->in[0].value->type->dtype] == 2 &&
         dtype_bytes[op->out[0]->type->dtype] > 2;
}

static Op *elementwise_def(Value *v) {
  const Value *root = through_views(v);
  return root->def && op_is_elementwise(root->def) ? root->def : NULL;
}

static void add_elementwise(Fuser *f, Op *op) {
  Group *g = group_new(f, op, type_count(op->out[0]->type));
  for (int i = 0; i < op->n_in; i++)
    if (!cut_for(f, &g->loops, op->in[i].value))
      f->whole[through_views(op->in[i].value)->id] = true;
  for (int i = 0; i < op->n_in && !is_widening(op); i++) {
    const Op *def = elementwise_def(op->in[i].value);
    if (!def) continue;
    try_merge(f, op, def);
    const Op *of = is_widening(def) ? elementwise_def(def->in[0].value) : NULL;
    if (of) try_merge(f, op, of);
  }
}

// A cast that no elementwise op has taken.
static void add_widening(Fuser *f, Op *op) {
  const Op *def = elementwise_def(op->in[0].value);
  if (def && f->group[op->id]->member.n == 1) try_merge(f, op, def);
}

// The first group that computes `v` or reads it point by point, other than that of `op`.
static const Op *point_by_point(const Fuser *f, Value *v, const Op *op) {
  if (v->def && op_is_elementwise(v->def)) return v->def;
  const Op *found = NULL;
  for_each_use(u, v) {
    if (!u->user || u->user == op) continue;
    const Op *reader = group_of(f, u->user) ? u->user : NULL;
    if (!reader && is_view(u->user)) reader = point_by_point(f, u->user->out[0], op);
    if (reader) found = reader;
  }
  return found;
}

// A sum joins the group that computes what it adds up, or one that reads it anyway.
static void add_sum(Fuser *f, Op *op) {
  int64_t n_kept;
  SumKind kind = sum_kind(op, &n_kept);
  if (kind != SUM_rows && kind != SUM_columns) return;
  const Op *with = point_by_point(f, through_views(op->in[0].value), op);
  if (!with) return;
  Group *g = group_new(f, op, type_count(op->in[0].value->type));
  g->sum = kind;
  g->n_kept = n_kept;
  int64_t inner = kind == SUM_rows && n_kept ? g->count / n_kept : n_kept;
  if (loops_cut_at(&g->loops, inner) && cut_for(f, &g->loops, op->in[0].value))
    try_merge(f, op, with);
  if (f->group[op->id] == g && g->member.n == 1) f->group[op->id] = NULL; // the library's
}

// Does an op outside of `g` read `v`, which is defined there?
static bool leads_on(const Fuser *f, const Value *v, const Group *g) {
  for_each_use(u, v) {
    if (!u->user || group_of(f, u->user) == g) continue;
    if (!is_view(u->user) || leads_on(f, u->user->out[0], g)) return true;
  }
  return false;
}

static bool is_end(const Fuser *f, const Group *g) {
  for (int i = 0; i < g->member.n; i++)
    if (g->member.at[i]->turn || leads_on(f, g->member.at[i]->out[0], g)) return false;
  return true;
}

static bool any_of(const bool *is, const Group *g) {
  for (int i = 0; i < g->member.n; i++)
    if (is[g->member.at[i]->id]) return true;
  return false;
}

static bool all_of(const bool *is, const Group *g) {
  for (int i = 0; i < g->member.n; i++)
    if (!is[g->member.at[i]->id]) return false;
  return true;
}

// Do they have as many points, on the same devices, and run as often?
static bool like_ends(const Group *a, const Group *b, const bool *early, const bool *late) {
  return a->count == b->count && op_mesh(a->member.at[0]) == op_mesh(b->member.at[0]) &&
         all_of(early, a) == all_of(early, b) && any_of(late, a) == any_of(late, b);
}

// Groups that nothing depends on cannot make a cycle, and nobody waits for what they wait for.
static void join_ends(Fuser *f) {
  // Once per step, not per micro-batch.
  const bool *early = graph_begin_ops(f->g, f->scratch), *late = graph_update_ops(f->g, f->scratch);
  Vec(Group *) open = {0}; // the last of those that are alike
  for_each_op(op, f->g) {
    Group *g = f->group[op->id];
    if (!g || g->member.at[0] != op || g->sum || g->count > FEW_POINTS || !is_end(f, g)) continue;
    int at = 0;
    while (at < open.n && !like_ends(open.at[at], g, early, late))
      at++;
    Loops loops;
    if (at == open.n)
      vec_push(f->scratch, &open, g);
    else if (loops_of_both(open.at[at], g, &loops) && fits(f, open.at[at], g))
      merge(f, open.at[at], g, &loops);
    else
      open.at[at] = g;
  }
}

// Must `v`, which bodies copy, also be memory?
static bool needs_memory(const Fuser *f, const Value *v) {
  if (v->def->kind == OP_broadcast && f->whole[v->id]) return true;
  for_each_use(u, v) {
    if (!u->user) return true;
    if (group_of(f, u->user)) continue;
    bool copied = u->user->kind == OP_reshape || u->user->kind == OP_broadcast;
    if (!copied || needs_memory(f, u->user->out[0])) return true;
  }
  return false;
}

static void make_groups(Fuser *f) {
  for_each_op(op, f->g) {
    if (op->kind != OP_broadcast || is_view(op)) continue;
    const Value *from = through_views(op->in[0].value);
    f->whole[op->out[0]->id] = from->def && from->def->kind == OP_broadcast;
  }
  for_each_op(op, f->g)
    if (op_is_elementwise(op)) add_elementwise(f, op);
  for_each_op(op, f->g)
    if (is_widening(op) && op_is_elementwise(op)) add_widening(f, op);
  for_each_op(op, f->g)
    if (op->kind == OP_reduce_sum) add_sum(f, op);
  join_ends(f);
  for_each_op(op, f->g) {
    if (op->kind == OP_fill && needs_memory(f, op->out[0]))
      group_new(f, op, type_count(op->out[0]->type));
  }
}

// -- Bodies ------------------------------------------------------------------------------------

typedef struct Copy {
  Fuser *f;
  Graph *body;
  Vec(Value *) copied; // which have one
  Vec(Value *) input;  // what becomes the operands
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
  origin.turn = 0; // it is the call's
  Op *made = op_new(c->body, NULL, op->kind, in, op->n_in, op->attrs, n, origin, c->f->d);
  if (!made) BUG("a copy of %s does not fit", op_info[op->kind].name);
  memcpy(made->split, op->split, sizeof made->split);
  made->out[0]->layout = op->out[0]->layout;
  return note_copy(c, op->out[0], made->out[0]);
}

// The body's value for `v`: copied if it costs nothing, otherwise a parameter.
static Value *copy_value(Copy *c, Value *v) {
  if (c->f->copy[v->id]) return c->f->copy[v->id];
  if (is_scalar(v) || (v->def && is_view(v->def)) || is_strides(c->f, v)) return copy_op(c, v->def);
  Value *p = graph_param(c->body, NULL, v->type, ROLE_none, NULL);
  p->layout = v->layout;
  vec_push(c->f->scratch, &c->input, v);
  return note_copy(c, v, p);
}

static bool same_layouts(const Graph *a, const Graph *b) {
  for (int i = 0; i < a->n_params; i++)
    if (a->params[i]->layout != b->params[i]->layout) return false;
  for (const Op *x = a->first, *y = b->first; x; x = x->next, y = y->next)
    if (x->out[0]->layout != y->out[0]->layout || memcmp(x->split, y->split, sizeof x->split))
      return false;
  return true;
}

// An equal body made before, instead of this one.
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

// Readers that are in a group keep reading a fill as a number.
static void replace_memory(Fuser *f, Value *v, Value *by) {
  for (Use *u = v->uses, *next; u; u = next) {
    next = u->next;
    if (u->user && group_of(f, u->user)) continue;
    if (u->user)
      op_set_in(u->user, u->index, by);
    else
      graph_set_result(f->g, u->index, by);
  }
}

// Puts the fused op of group `g` at the end of the graph.  Its members die.
static void emit_group(Fuser *f, const Group *g) {
  Copy c = {.f = f, .body = graph_new(f->m, body_name(f), false)};
  Vec(Value *) results = {0};
  for (int i = 0; i < g->member.n; i++) {
    Value *v = g->member.at[i]->out[0];
    Value *copy = copy_op(&c, g->member.at[i]);
    if (!read_outside(f, v, g, g)) continue;
    graph_output(c.body, copy, NULL);
    vec_push(f->scratch, &results, v);
  }
  for (int i = 0; i < c.copied.n; i++)
    f->copy[c.copied.at[i]->id] = NULL;
  if (!results.n) { // nobody wanted it
    graph_erase(c.body);
    return;
  }
  Graph *callee = shared_body(f, c.body);
  Body body;
  if (!body_read(callee, &body, f->scratch)) BUG("@%s is no body", callee->name);
  Origin origin = op_origin(op_of_latest_part(g->member.at, g->member.n));
  for (int i = 0; i < g->member.n; i++)
    if (g->member.at[i]->turn > origin.turn) origin.turn = g->member.at[i]->turn;
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

// What has its turn before.
static void place_before(Fuser *f, const Op *op, const Group *g) {
  Op *before = f->before[op->id];
  if (before && (!g || f->group[before->id] != g)) place(f, before);
}

static void place_producers(Fuser *f, const Op *op) {
  place_before(f, op, NULL);
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i].value->def) place(f, op->in[i].value->def);
}

// Of a member: views of what the group itself computes come after it, if anything else reads them.
static void place_inputs(Fuser *f, const Group *g, const Op *op) {
  place_before(f, op, g);
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    if (v->def && !in_group(f, through_views(v), g, g)) place(f, v->def);
  }
}

// Puts `op`, or the group it is in, at the end of the new order, after what it reads.
static void place(Fuser *f, Op *op) {
  if (op->id >= f->n_ops || f->placed[op->id]) return;
  Group *g = f->group[op->id];
  if (!g) {
    f->placed[op->id] = true;
    place_producers(f, op);
    op_move_before(op, NULL);
    return;
  }
  for (int i = 0; i < g->member.n; i++)
    f->placed[g->member.at[i]->id] = true;
  // What the body copies must stand before it as well, for what it reads.
  for (int i = 0; i < g->member.n; i++)
    place_inputs(f, g, g->member.at[i]);
  emit_group(f, g);
}

// Groups stand where their last member stood, or before the first that reads a result.
static void place_all(Fuser *f) {
  Op **order = arena_array(f->scratch, Op *, f->n_ops);
  for_each_op(op, f->g)
    order[op->id] = op;
  for (uint32_t i = 0; i < f->n_ops; i++) {
    const Group *g = f->group[i];
    if (!g || g->member.at[g->member.n - 1]->id == i) place(f, order[i]);
  }
}

static bool is_pure(const Op *op) {
  return op_is_elementwise(op) || op->kind == OP_reduce_sum || op->kind == OP_fill ||
         op->kind == OP_constant || op->kind == OP_broadcast || op->kind == OP_reshape;
}

// Erases members, and what only they read.
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

static void find_turns(Fuser *f) {
  Op *last = NULL;
  f->before = arena_array(f->scratch, Op *, f->n_ops);
  for_each_op(op, f->g) {
    if (!op->turn) continue;
    f->before[op->id] = last;
    last = op;
  }
}

static void fuse_graph(Fuser *f, Graph *g) {
  graph_renumber(g);
  f->g = g;
  f->n_ops = g->n_ops;
  f->group = arena_array(f->scratch, Group *, g->n_ops);
  f->seen = arena_array(f->scratch, uint32_t, g->n_ops);
  f->placed = arena_array(f->scratch, bool, g->n_ops);
  f->whole = arena_array(f->scratch, bool, g->n_values);
  // Each result of a fused op takes the place of a value that there is.
  f->copy = arena_array(f->scratch, Value *, 2 * (size_t)g->n_values);
  f->stamp = 0;
  find_turns(f);
  make_groups(f);
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
