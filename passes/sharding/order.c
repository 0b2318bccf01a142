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

// Marks, by id, all transitive producers of the ops' operands.
static void mark_before(Op *const *op, int n, bool *marked, Arena *scratch) {
  Vec(Op *) pending = {0};
  for (int i = 0; i < n; i++)
    vec_push(scratch, &pending, op[i]);
  while (pending.n > 0) {
    const Op *from = pending.at[--pending.n];
    for (int i = 0; i < from->n_in; i++) {
      Op *def = from->in[i].value->def;
      if (!def || marked[def->id]) continue;
      marked[def->id] = true;
      vec_push(scratch, &pending, def);
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

static void find_leads(Circles *c) {
  int n = c->orders->n;
  c->leads = arena_array(c->scratch, bool *, n);
  for (int i = 0; i < n; i++) {
    const Order *from = &c->orders->at[i];
    bool *after = arena_array(c->scratch, bool, c->g->n_ops);
    c->leads[i] = arena_array(c->scratch, bool, n);
    mark_after(from->then, from->n_then, after, c->scratch);
    for (int k = 0; k < from->n_then; k++)
      after[from->then[k]->id] = true;
    for (int k = 0; k < n; k++)
      for (int j = 0; j < c->orders->at[k].n_first; j++)
        c->leads[i][k] |= after[c->orders->at[k].first[j]->id];
  }
}

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
  if (n == 1) {
    diag_error(d, last->line, "%s cannot wait for %s, which needs what it makes",
               ops_text(a, last->then, last->n_then), ops_text(a, last->first, last->n_first));
    diag_note(d, last->then[0]->loc, "this is what it is about");
    return false;
  }
  diag_error(d, last->line, "these %d orders go in a circle", n);
  for (int i = n - 1; i >= 0; i--) {
    const Order *o = &c->orders->at[circle[i]];
    const Order *next = &c->orders->at[circle[i ? i - 1 : n - 1]];
    diag_note(d, o->line, "%s before %s, which leads to %s", ops_text(a, o->first, o->n_first),
              ops_text(a, o->then, o->n_then), ops_text(a, next->first, next->n_first));
  }
  return false;
}

static bool report_smallest(const Graph *g, const Orders *orders, Arena *scratch, Diag *d) {
  Circles c = {g, orders, scratch, NULL};
  int *best = NULL, n_best = 0;
  find_leads(&c);
  for (int i = 0; i < orders->n; i++) {
    int *circle = arena_array(scratch, int, orders->n), n = circle_of(&c, i, circle);
    if (!n || (best && n >= n_best)) continue;
    best = circle;
    n_best = n;
  }
  if (!best) BUG("@%s cannot be sorted, and no orders go in a circle", g->name);
  return report(&c, best, n_best, d);
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
  while (f->operand < f->op->n_in) {
    Op *def = f->op->in[f->operand++].value->def;
    if (def && s->placed[def->id] != DONE) return def;
  }
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

// Appends the op to the list, after all its predecessors. False: it is its own predecessor.
static bool place(Sorter *s, Op *op) {
  if (s->placed[op->id] == DONE) return true;
  s->open.n = 0;
  s->placed[op->id] = BEING;
  vec_push(s->scratch, &s->open, (Frame){.op = op});
  while (s->open.n > 0) {
    Frame *top = &s->open.at[s->open.n - 1];
    Op *before = next_before(s, top);
    if (!before) {
      s->placed[top->op->id] = DONE;
      op_move_before(top->op, NULL);
      s->open.n--;
      continue;
    }
    if (s->placed[before->id] == BEING) return false;
    s->placed[before->id] = BEING;
    vec_push(s->scratch, &s->open, (Frame){.op = before});
  }
  return true;
}

static bool sort(Graph *g, const Orders *orders, Arena *scratch) {
  Sorter s = {.orders = orders, .scratch = scratch};
  int n = 0;
  for_each_op(op, g)
    n++;
  Op **all = arena_array(scratch, Op *, n);
  n = 0;
  for_each_op(op, g)
    all[n++] = op;
  s.placed = arena_array(scratch, Placed, g->n_ops);
  s.over = arena_array(scratch, bool, orders->n);
  s.waits = arena_alloc_array(scratch, g->n_ops, sizeof *s.waits);
  for (int k = 0; k < orders->n; k++)
    for (int i = 0; i < orders->at[k].n_then; i++)
      vec_push(scratch, &s.waits[orders->at[k].then[i]->id], k);
  for (int i = 0; i < n; i++)
    if (!place(&s, all[i])) return false;
  return true;
}

// -- Turns ---------------------------------------------------------------------------------------

// Marks the ops with no other op of the list after them, or before them.
static void mark_turns(Op *const *op, int n, const bool *others) {
  for (int i = 0; i < n; i++)
    if (!others[op[i]->id]) op[i]->turn = 1;
}

static void give_turns(Graph *g, const Orders *orders, Arena *scratch) {
  bool *needed = arena_array(scratch, bool, g->n_ops);
  bool *needing = arena_array(scratch, bool, g->n_ops);
  for (int k = 0; k < orders->n; k++) {
    const Order *o = &orders->at[k];
    memset(needed, false, g->n_ops * sizeof *needed);
    memset(needing, false, g->n_ops * sizeof *needing);
    if (o->n_first > 1) mark_before(o->first, o->n_first, needed, scratch); // no op needs itself
    if (o->n_then > 1) mark_after(o->then, o->n_then, needing, scratch);
    mark_turns(o->first, o->n_first, needed);
    mark_turns(o->then, o->n_then, needing);
  }
  int turn = 0;
  for_each_op(op, g)
    if (op->turn) op->turn = ++turn;
}

bool order_ops(Graph *g, const Orders *orders, Arena *scratch, Diag *d) {
  if (!orders->n) return true;
  if (!sort(g, orders, scratch)) return report_smallest(g, orders, scratch, d);
  give_turns(g, orders, scratch);
  return true;
}
