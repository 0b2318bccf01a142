// Inlines calls: the inverse of `outline_repeats`, which shows an example.
//
// If a call records its ops (recall.h), they get their names, numbers and locations back. If all
// calls record positions, and these are a valid order, ops get their positions back, too. So
// `outline_repeats,inline_calls` changes nothing. A call without records, written by hand or of a
// graph that another pass has changed, is replaced in place.

#include <stdlib.h>
#include <string.h>

#include "ir/op.h"
#include "ir/text.h"
#include "pass.h"
#include "recall.h"

typedef struct Inliner {
  Graph *g;
  Arena *a; // scratch
  Diag *d;
  Ops op; // the inlined ops
  Vec(int) place;
  bool placed;         // each of them has a position
  const Op *says_rest; // the call with the positions of all other ops, or NULL
} Inliner;

// -- One call --------------------------------------------------------------------------------

// Copies the ops of `body` before `at`, nested calls expanded, and adds them to `ops`; sets
// `result[i]` to the value of result i.
static bool inline_body(Inliner *u, Op *at, const Graph *body, Value *const *in, Value **result,
                        Ops *ops) {
  // The copy of each value of the body, by id.
  Value **now = arena_array(u->a, Value *, body->n_values);
  for (int i = 0; i < body->n_params; i++)
    now[body->params[i]->id] = in[i];
  for_each_op(op, body) {
    Value **operand = arena_array(u->a, Value *, op->n_in);
    Value **out = arena_array(u->a, Value *, op->n_out);
    for (int i = 0; i < op->n_in; i++)
      operand[i] = now[op->in[i].value->id];
    // Nested calls are expanded in place.
    if (op->kind == OP_call) {
      if (!inline_body(u, at, op->callee, operand, out, ops)) return false;
    } else {
      Op *copy = op_copy(u->g, at, op, operand, u->d);
      if (!copy) return false;
      // A body called by forward is also called by backward, if a gradient repeats a nested call.
      for (int i = 0; i < copy->n_in; i++) {
        const Op *def = copy->in[i].value->def;
        if (def && def->part > copy->part) copy->part = def->part;
      }
      vec_push(u->a, ops, copy);
      memcpy(out, copy->out, (size_t)op->n_out * sizeof(Value *));
    }
    for (int i = 0; i < op->n_out; i++)
      now[op->out[i]->id] = out[i];
  }
  for (int i = 0; i < body->n_results; i++)
    result[i] = now[body->results[i]->use.value->id];
  return true;
}

static bool is_id(const char *name) {
  return *name >= '0' && *name <= '9';
}

static bool inline_call(Inliner *u, Op *call) {
  Ops ops = {0}, body = {0};
  Value **in = arena_array(u->a, Value *, call->n_in);
  Value **result = arena_array(u->a, Value *, call->n_out);
  const char **name = arena_array(u->a, const char *, call->n_out);
  for (int i = 0; i < call->n_in; i++)
    in[i] = call->in[i].value;
  if (!inline_body(u, call, call->callee, in, result, &ops)) return false;
  for (int i = 0; i < call->n_out; i++) {
    name[i] = call->out[i]->name;
    value_replace(call->out[i], result[i]);
  }
  // Records are relative to the callee's own names, locations and numbers.
  ops_called(call->callee, u->a, &body);
  Recall *callee = arena_array(u->a, Recall, body.n), *was = arena_array(u->a, Recall, body.n);
  for (int i = 0; i < body.n; i++)
    callee[i] = recall_of(body.at[i], u->a);
  bool known = recalls_read(call, callee, was, body.n, u->a);
  int *place = arena_array(u->a, int, body.n);
  // Positions count only if every call has them.
  u->placed &= places_read(call, "at", place, body.n);
  if (attr_n(call, "rest")) u->says_rest = call;
  op_erase(call);
  if (!known) {
    // Without a record, results have the names of the call's, and other values those in the callee.
    for (int i = 0; i < call->n_out; i++)
      if (!result[i]->name && result[i]->def) value_set_name(result[i], name[i]);
    for (int i = 0; i < ops.n; i++)
      for (int k = 0; k < ops.at[i]->n_out; k++) {
        Value *v = ops.at[i]->out[k];
        if (!v->name) value_set_name(v, body.at[i]->out[k]->name);
      }
  }
  for (int i = 0; i < ops.n; i++) {
    if (known) {
      // A record restores names, numbers and the location.
      Op *op = ops.at[i];
      const Recall *old = &was[i];
      const Loc *loc;
      if (loc_read(u->g->module->arena, old->loc, &loc)) op->loc = loc;
      op->of = old->of;
      for (int k = 0; k < op->n_out; k++) {
        const char *label = old->name[k];
        int64_t id = is_id(label) ? strtoll(label, NULL, 10) : MAX_ID;
        if (!is_id(label))
          value_set_name(op->out[k], label);
        else if (id < MAX_ID)
          op->out[k]->id = (uint32_t)id;
      }
    }
    vec_push(u->a, &u->op, ops.at[i]);
    vec_push(u->a, &u->place, place[i]);
  }
  return true;
}

// -- Positions -------------------------------------------------------------------------------

// Restores all positions, if they are a valid order.
static void place_ops(Inliner *u) {
  int n = 0;
  bool *called = arena_array(u->a, bool, u->g->n_ops);
  for_each_op(op, u->g)
    n++;
  for (int i = 0; i < u->op.n; i++)
    called[u->op.at[i]->id] = true;
  Op **order = arena_array(u->a, Op *, n);
  // Other ops are at the positions that a call records for them, or else fill the gaps in their
  // order.
  Ops rest = {0};
  for_each_op(op, u->g)
    if (!called[op->id]) vec_push(u->a, &rest, op);
  int *rest_place = arena_array(u->a, int, rest.n);
  bool *taken = arena_array(u->a, bool, n);
  if (u->says_rest && !places_read(u->says_rest, "rest", rest_place, rest.n)) return;
  for (int i = 0; i < u->place.n; i++)
    if (u->place.at[i] < n) taken[u->place.at[i]] = true;
  for (int i = 0, at = 0; !u->says_rest && i < rest.n; i++, at++) {
    while (at < n && taken[at])
      at++;
    rest_place[i] = at;
  }
  for (int i = 0; i < rest.n; i++) {
    vec_push(u->a, &u->op, rest.at[i]);
    vec_push(u->a, &u->place, rest_place[i]);
  }
  // No two ops may have one position.
  for (int i = 0; i < n; i++) {
    int place = u->place.at[i];
    if (place >= n || order[place]) return;
    order[place] = u->op.at[i];
  }
  // Every op must follow the producers of its operands.
  bool *done = arena_array(u->a, bool, u->g->n_ops);
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < order[i]->n_in; k++) {
      const Op *def = order[i]->in[k].value->def;
      if (def && !done[def->id]) return;
    }
    done[order[i]->id] = true;
  }
  for (int i = 0; i < n; i++)
    op_move_before(order[i], NULL);
}

static bool inline_graph(Graph *g, const PassOptions *o, Diag *d) {
  Inliner u = {.g = g, .a = opt_scratch(o), .d = d, .placed = true};
  for_each_op_safe(op, g)
    if (op->kind == OP_call && !inline_call(&u, op)) return false;
  if (!u.op.n) return true;
  opt_stat(o, u.op.n, "ops inlined");
  if (u.placed) place_ops(&u);
  values_number(g, u.a);
  return true;
}

// -- Called graphs ---------------------------------------------------------------------------

typedef Vec(Graph *) Graphs;

static void add_called(const Graph *g, Arena *a, Graphs *to) {
  for_each_op(op, g) {
    bool known = op->kind != OP_call;
    for (int i = 0; !known && i < to->n; i++)
      known = to->at[i] == op->callee;
    if (known) continue;
    vec_push(a, to, op->callee);
    add_called(op->callee, a, to);
  }
}

static bool is_called(const Graph *callee) {
  for_each_graph(g, callee->module)
    for_each_op(op, g)
      if (op->callee == callee) return true;
  return false;
}

// -- Size after inlining ---------------------------------------------------------------------

enum { MOST_OPS = 1 << 20 };

typedef struct Size {
  const Graph *g;
  int64_t n_ops;
} Size;

typedef Vec(Size) Sizes;

// The number of ops of a graph with all calls expanded, but at most MOST_OPS + 1: nested calls can
// exceed memory.
static int64_t n_inlined(const Graph *g, Arena *a, Sizes *known) {
  int64_t n = 0;
  for (int i = 0; i < known->n; i++)
    if (known->at[i].g == g) return known->at[i].n_ops;
  for_each_op(op, g) {
    n += op->kind == OP_call ? n_inlined(op->callee, a, known) : 1;
    if (n > MOST_OPS) n = MOST_OPS + 1;
  }
  vec_push(a, known, (Size){g, n});
  return n;
}

bool pass_inline_calls(Module *m, const PassOptions *o, Diag *d) {
  Graphs called = {0};
  // Nested calls can exceed memory.
  Sizes known = {0};
  for_each_graph(g, m)
    if (g->entry && n_inlined(g, opt_scratch(o), &known) > MOST_OPS)
      return diag_error(d, g->first->loc, "inline_calls: '@%s' becomes more than %d ops", g->name,
                        MOST_OPS);
  for_each_graph(g, m)
    if (g->entry) add_called(g, opt_scratch(o), &called);
  for_each_graph(g, m)
    if (g->entry && !inline_graph(g, o, d)) return false;
  // Callers are erased before their callees.
  for (bool erased = true; erased;) {
    erased = false;
    for (int i = 0; i < called.n; i++) {
      if (!called.at[i] || is_called(called.at[i])) continue;
      graph_erase(called.at[i]);
      called.at[i] = NULL;
      erased = true;
    }
  }
  return true;
}
