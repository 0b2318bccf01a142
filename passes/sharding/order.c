// See order.h.
//
// Ops are placed from the first to the last, each after its operands and its predecessors by
// orders: depth first, with an explicit stack instead of recursion, as models are deep. Only if
// that fails, cycles are searched, breadth first from every order.

#include "order.h"

#include <string.h>

#include "base/vec.h"
#include "ir/analysis/op_names.h"
#include "ir/op.h"

// -- Dependences ---------------------------------------------------------------------------------

// Marks, by id, all transitive readers of the ops' results; the ops themselves only if they are
// among these.
static void mark_after(Op *const *op, int n, bool *marked, Arena *scratch) {
  Vec(Op *) pending = {0};
  for (int i = 0; i < n; i++)
    vec_push(scratch, &pending, op[i]);
  while (pending.n > 0) {
    const Op *from = pending.at[--pending.n];
    for (int i = 0; i < from->n_out; i++)
      for_each_use(u, from->out[i]) {
        if (!u->user || marked[u->user->id]) continue;
        marked[u->user->id] = true;
        vec_push(scratch, &pending, u->user);
      }
  }
}

// -- Cycles --------------------------------------------------------------------------------------

typedef struct Circles {
  const Graph *g;
  const Orders *orders;
  Arena *scratch;
  bool **leads; // [n][n]: the second side of the one leads to the first side of the other
} Circles;

// Finds the shortest cycle through order `start`, breadth first. Returns its length, or 0.
static int circle_of(const Circles *c, int start, int *circle) {
  int n = c->orders->n, n_queue = 0;
  int *queue = arena_array(c->scratch, int, n), *from = arena_array(c->scratch, int, n);
  for (int i = 0; i < n; i++)
    from[i] = -1;
  queue[n_queue++] = start;
  for (int at = 0; at < n_queue; at++) {
    int i = queue[at], length = 0;
    // No longer path is explored once this order closes the cycle.
    for (int k = 0; k < n && !c->leads[i][start]; k++) {
      if (!c->leads[i][k] || k == start || from[k] >= 0) continue;
      from[k] = i;
      queue[n_queue++] = k;
    }
    // The path goes back along `from`.
    if (!c->leads[i][start]) continue;
    for (; i != start; i = from[i])
      circle[length++] = i;
    circle[length++] = start;
    return length;
  }
  return 0;
}

// "linear '/fc1/MatMul'", and the number of other ops.
static const char *ops_text(Arena *a, Op *const *op, int n) {
  const char *more = n > 1 ? str_format(a, " and %d more", n - 1) : "";
  return str_format(a, "%s '%s'%s", op_info[op[0]->kind].name, op_node(op[0]), more);
}

// Reports the cycle, which is stored from its last order to its first.
static bool report(const Circles *c, const int *circle, int n, Diag *d) {
  Arena *a = c->scratch;
  const Order *last = &c->orders->at[circle[0]];
  // A single order that contradicts the graph.
  if (n == 1) {
    diag_error(d, last->line, "%s cannot wait for %s, which needs its result",
               ops_text(a, last->then, last->n_then), ops_text(a, last->first, last->n_first));
    diag_note(d, last->then[0]->loc, "this one");
    return false;
  }
  // A cycle of several orders.
  diag_error(d, last->line, "these %d orders go in a circle", n);
  for (int i = n - 1; i >= 0; i--) {
    const Order *o = &c->orders->at[circle[i]];
    const Order *next = &c->orders->at[circle[i ? i - 1 : n - 1]];
    diag_note(d, o->line, "%s before %s, which leads to %s", ops_text(a, o->first, o->n_first),
              ops_text(a, o->then, o->n_then), ops_text(a, next->first, next->n_first));
  }
  return false;
}

// -- Sorting -------------------------------------------------------------------------------------

typedef enum Placed { NOT_YET, BEING, DONE } Placed;

// An op that is being placed, with a cursor over its predecessors: operands, then the first sides
// of the orders that it waits for.
typedef struct Frame {
  Op *op;
  int operand, wait, first;
} Frame;

typedef struct Sorter {
  const Orders *orders;
  Arena *scratch;
  Placed *placed; // by op id
  bool *over;     // by order: its first side is placed
  struct {
    int *at;
    int n, cap;
  } * waits; // by op id: the orders that it waits for
  Vec(Frame) open;
} Sorter;

// The next predecessor of the frame's op that is not placed, or NULL.
static Op *next_before(Sorter *s, Frame *f) {
  // Operands first.
  while (f->operand < f->op->n_in) {
    Op *def = f->op->in[f->operand++].value->def;
    if (def && s->placed[def->id] != DONE) return def;
  }
  // Then all ops on the first side of its orders.
  for (; f->wait < s->waits[f->op->id].n; f->wait++, f->first = 0) {
    int k = s->waits[f->op->id].at[f->wait];
    const Order *o = &s->orders->at[k];
    while (!s->over[k] && f->first < o->n_first) {
      Op *first = o->first[f->first++];
      if (s->placed[first->id] != DONE) return first;
    }
    s->over[k] = true;
  }
  return NULL;
}

static bool sort(Graph *g, const Orders *orders, Arena *scratch) {
  Sorter s = {.orders = orders, .scratch = scratch};
  int n = 0;
  for_each_op(op, g)
    n++;
  // The present order decides between ops without an order.
  Op **all = arena_array(scratch, Op *, n);
  n = 0;
  for_each_op(op, g)
    all[n++] = op;
  // An op waits for the orders in which it is on the second side.
  s.placed = arena_array(scratch, Placed, g->n_ops);
  s.over = arena_array(scratch, bool, orders->n);
  s.waits = arena_alloc_array(scratch, g->n_ops, sizeof *s.waits);
  for (int k = 0; k < orders->n; k++)
    for (int i = 0; i < orders->at[k].n_then; i++)
      vec_push(scratch, &s.waits[orders->at[k].then[i]->id], k);
  for (int i = 0; i < n; i++) {
    // Each op follows all its predecessors; an op that is its own predecessor cannot be placed.
    Op *op = all[i];
    if (s.placed[op->id] != DONE) {
      s.open.n = 0;
      s.placed[op->id] = BEING;
      vec_push(s.scratch, &s.open, (Frame){.op = op});
      while (s.open.n > 0) {
        Frame *top = &s.open.at[s.open.n - 1];
        Op *before = next_before(&s, top);
        if (!before) {
          s.placed[top->op->id] = DONE;
          op_move_before(top->op, NULL);
          s.open.n--;
          continue;
        }
        if (s.placed[before->id] == BEING) return false;
        s.placed[before->id] = BEING;
        vec_push(s.scratch, &s.open, (Frame){.op = before});
      }
    }
  }
  return true;
}

// -- Numbers ------------------------------------------------------------------------------------

// Marks the ops with no other op of the list after them, or before them.
static void mark_ends(Op *const *op, int n, const bool *others) {
  for (int i = 0; i < n; i++)
    if (!others[op[i]->id]) op[i]->order = 1;
}

bool order_ops(Graph *g, const Orders *orders, Arena *scratch, Diag *d) {
  if (!orders->n) return true;
  if (!sort(g, orders, scratch)) {
    // Without a valid order, the shortest cycle is reported.
    Circles c = {g, orders, scratch, NULL};
    int *best = NULL, n_best = 0;
    // An order leads to another if an op that runs after it is one that the other puts first.
    int n_orders = c.orders->n;
    c.leads = arena_array(c.scratch, bool *, n_orders);
    for (int o = 0; o < n_orders; o++) {
      const Order *from = &c.orders->at[o];
      bool *after = arena_array(c.scratch, bool, c.g->n_ops);
      c.leads[o] = arena_array(c.scratch, bool, n_orders);
      mark_after(from->then, from->n_then, after, c.scratch);
      for (int k = 0; k < from->n_then; k++)
        after[from->then[k]->id] = true;
      for (int k = 0; k < n_orders; k++)
        for (int j = 0; j < c.orders->at[k].n_first; j++)
          c.leads[o][k] |= after[c.orders->at[k].first[j]->id];
    }
    for (int i = 0; i < orders->n; i++) {
      int *circle = arena_array(scratch, int, orders->n), n = circle_of(&c, i, circle);
      if (!n || (best && n >= n_best)) continue;
      best = circle;
      n_best = n;
    }
    if (!best) BUG("@%s cannot be sorted, and no orders go in a circle", g->name);
    return report(&c, best, n_best, d);
  }
  // Constrained ops get orders, numbered in graph order.
  bool *needed = arena_array(scratch, bool, g->n_ops);
  bool *needing = arena_array(scratch, bool, g->n_ops);
  for (int k = 0; k < orders->n; k++) {
    const Order *o = &orders->at[k];
    memset(needed, false, g->n_ops * sizeof *needed);
    memset(needing, false, g->n_ops * sizeof *needing);
    // An op that others of its list need has no order; no op needs itself.
    if (o->n_first > 1) {
      Vec(Op *) pending = {0};
      for (int i = 0; i < o->n_first; i++)
        vec_push(scratch, &pending, o->first[i]);
      while (pending.n > 0) {
        const Op *from = pending.at[--pending.n];
        for (int i = 0; i < from->n_in; i++) {
          Op *def = from->in[i].value->def;
          if (!def || needed[def->id]) continue;
          needed[def->id] = true;
          vec_push(scratch, &pending, def);
        }
      }
    }
    if (o->n_then > 1) mark_after(o->then, o->n_then, needing, scratch);
    mark_ends(o->first, o->n_first, needed);
    mark_ends(o->then, o->n_then, needing);
  }
  int order = 0;
  for_each_op(op, g)
    if (op->order) op->order = ++order;
  return true;
}
