// See fuse_groups.h.
//
// Groups grow greedily in the order of the ops: an op joins the groups of its producers if they
// have the same points (ir/analysis/loops.h decides whether one nest of loops serves a body), and
// if no path leads out of the joint group and back into it. To find such paths, a walk goes against
// the data flow, from the operands of both. It need not look far: groups and other ops are kept in
// an order in which each is after its operands (Pearce and Kelly 2006, A Dynamic Topological Sort
// Algorithm), so a path between two groups has no op before both of them or after both. The joint
// group takes the place of the earlier one, and the ops that the walk met come before it.
//
// Most far walks end at such a path, as from a gate's backward to its forward, through all layers
// between them. A tree of the graph's ops tells of these paths: some op near the gate is above the
// backward.
//
// A cast from 16 bits joins its reader first, and the producer of its operand only if that reader
// does. Then sums join, and last groups of few points with results that only leave the graph, such
// as the running statistics of batch normalisation: each takes hardly more time than its launch.
//
// An op with an order (Origin) depends on the one before as on an operand. Recomputed ops
// (recompute.c) are not joined with forward ops, since the kernel would save their results. Ops of
// different pieces (planner/lua/pieces.h) are not joined, as in the sum over all pieces: the kernel
// would read the results of every piece after the last one, and the purpose of pieces is fewer
// saved activations.
//
// If updates are deferred (defer_updates.c), ops that only serve a report, such as the norm of all
// gradients, are not joined with updates of weights: these would wait for all gradients, too.

#include "fuse_groups.h"

#include <stdlib.h>

#include "ir/analysis/origin.h"
#include "ir/analysis/place.h"
#include "ir/op.h"

// Limits by the capacity of an op's einsum (Dims) and, lower, by the registers of a processor.
enum { MAX_GROUP_OPS = 48, MAX_GROUP_INPUTS = 16, MAX_GROUP_RESULTS = 6 };
enum { FEW_POINTS = 1 << 16 };

Group *group_of(const FuseGroups *f, const Op *op) {
  return op->id < f->n_ops ? f->group[op->id] : NULL;
}

bool fuse_is_view(const Op *op) {
  // A gathered weight is held by its pin (graph_begin_ops), which must outlast this pass.
  if (op_is_pin(op) && op->part == PART_forward) return false;
  return op->kind == OP_reshape ||
         (op->kind == OP_broadcast &&
          type_count(op->out[0]->type) == type_count(op->in[0].value->type));
}

bool fuse_is_scalar(const Value *v) {
  return v->def &&
         (v->def->kind == OP_fill || (v->def->kind == OP_constant && type_count(v->type) == 1));
}

Value *through_views(Value *v) {
  while (v->def && fuse_is_view(v->def))
    v = v->def->in[0].value;
  return v;
}

// Whether a body reads the broadcast as strides.
bool fuse_is_strides(const FuseGroups *f, const Value *v) {
  return v->def && v->def->kind == OP_broadcast && !fuse_is_view(v->def) && !f->whole[v->id];
}

// -- Feasible bodies ---------------------------------------------------------------------------

// Splits the loops as the access to `v` requires. False if that is impossible.
static bool cut_for(const FuseGroups *f, Loops *l, Value *v) {
  const Value *root = through_views(v);
  if (!fuse_is_strides(f, root) || fuse_is_scalar(through_views(root->def->in[0].value)))
    return true;
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

bool in_group(const FuseGroups *f, const Value *v, const Group *a, const Group *b) {
  const Group *g = v->def ? group_of(f, v->def) : NULL;
  return g && (g == a || g == b);
}

// Whether a member computes `v`, elementwise.
static bool is_inner(const FuseGroups *f, Value *v, const Group *a, const Group *b) {
  const Value *root = through_views(v);
  return in_group(f, root, a, b) && op_is_elementwise(root->def);
}

// Whether an op other than members reads `v`, defined in a group. Members see through views.
bool read_outside(const FuseGroups *f, const Value *v, const Group *a, const Group *b) {
  for_each_use(u, v) {
    if (!u->user) return true;
    const Group *g = group_of(f, u->user);
    if (g && (g == a || g == b)) continue;
    if (g || !fuse_is_view(u->user) || read_outside(f, u->user->out[0], a, b)) return true;
  }
  return false;
}

static bool fits(const FuseGroups *f, const Group *a, const Group *b) {
  // A kernel with both recomputed ops and forward ops would compute the latter twice.
  bool recomputed = false, forward = false;
  for (int m = 0; m < a->member.n + b->member.n; m++) {
    const Op *op = m < a->member.n ? a->member.at[m] : b->member.at[m - a->member.n];
    recomputed |= op_is_recomputed(op);
    forward |= op->part == PART_forward;
  }
  if (recomputed && forward) return false;
  // Numbers of ops, inputs and results are limited.
  if (a->member.n + b->member.n > MAX_GROUP_OPS) return false;
  const Value *inputs[MAX_GROUP_INPUTS];
  int n_inputs = 0, n_results = 0;
  for (int m = 0; m < a->member.n + b->member.n; m++) {
    const Op *op = m < a->member.n ? a->member.at[m] : b->member.at[m - a->member.n];
    n_results += read_outside(f, op->out[0], a, b);
    for (int i = 0; i < op->n_in; i++) {
      const Value *root = through_views(op->in[i].value);
      if (is_inner(f, op->in[i].value, a, b) || fuse_is_scalar(root)) continue;
      int at = 0;
      while (at < n_inputs && inputs[at] != root)
        at++;
      if (at == MAX_GROUP_INPUTS) return false;
      if (at == n_inputs) inputs[n_inputs++] = root;
    }
  }
  return n_results <= MAX_GROUP_RESULTS;
}

// -- Cycles ------------------------------------------------------------------------------------

// A group counts as one op; its place is that of a member, its node.
static uint32_t node_of(const FuseGroups *f, const Op *op) {
  const Group *g = f->group[op->id];
  return g ? g->node : op->id;
}

// A walk against the data flow, from the operands of two groups, up to the place of the earlier
// one.
typedef struct Walk {
  FuseGroups *f;
  const Group *a, *b;
  int64_t first; // the label of the earlier one: no op with a smaller one depends on a member
} Walk;

// Adds the op. False if it is a member: there is a cycle.
static bool walk_to(const Walk *w, const Op *op) {
  FuseGroups *f = w->f;
  const Group *of = op ? group_of(f, op) : NULL;
  if (of && (of == w->a || of == w->b)) return false;
  if (!op) return true;
  uint32_t node = node_of(f, op);
  if (f->seen[node] == f->stamp || f->places[node].label < w->first) return true;
  f->seen[node] = f->stamp;
  vec_push(f->scratch, &f->pending, node);
  f->n_visited++;
  vec_push(f->scratch, &f->visited, (FuseVisit){f->places[node].label, node});
  return true;
}

// Adds the operands of an op of group `g`, if not NULL, and the op with the order before. A body
// copies the views of its own results.
static bool walk_operands(const Walk *w, const Op *op, const Group *g) {
  for (int i = 0; i < op->n_in; i++) {
    Value *v = op->in[i].value;
    if (!(g && is_inner(w->f, v, g, g)) && !walk_to(w, v->def)) return false;
  }
  const Op *before = w->f->before[op->id];
  return !before || (g && w->f->group[before->id] == g) || walk_to(w, before);
}

// The last op that makes an operand; NULL: inputs and weights alone are operands.
static const Op *last_producer(const Op *op) {
  const Op *last = NULL;
  for (int i = 0; i < op->n_in; i++) {
    const Op *def = op->in[i].value->def;
    if (def && (!last || def->id > last->id)) last = def;
  }
  return last;
}

static FuseTree *tree_new(const Graph *g, Arena *a) {
  FuseTree *tree = arena_array(a, FuseTree, g->n_ops);
  uint32_t *next = arena_array(a, uint32_t, g->n_ops); // the number of the next op right below it
  uint32_t next_root = 0;
  for (const Op *op = g->last; op; op = op->prev) {
    const Op *parent = last_producer(op);
    tree[op->id].size++;
    if (parent) tree[parent->id].size += tree[op->id].size;
  }
  for_each_op(op, g) {
    const Op *parent = last_producer(op);
    FuseTree *own = &tree[op->id];
    uint32_t *from = parent ? &next[parent->id] : &next_root;
    own->number = *from;
    *from += own->size;
    next[op->id] = own->number + 1;
  }
  return tree;
}

// Whether the op is below `top`, or the same.
static bool is_below(const FuseGroups *f, const Op *top, const Op *op) {
  const FuseTree *from = &f->tree[top->id];
  uint32_t number = f->tree[op->id].number;
  return number >= from->number && number < from->number + from->size;
}

// The ops that read a group, and those after them.
enum { MOST_READERS = 256, MOST_OPERANDS = 32 };
typedef struct Readers {
  const Op *op[MOST_READERS];
  int n;
  uint32_t last; // the largest id of an op of the path
} Readers;

// Adds the readers of a value outside of both groups, each once, up to the last.
static void add_readers(FuseGroups *f, const Value *v, const Group *a, const Group *b, Readers *r) {
  for_each_use(u, v) {
    const Op *op = u->user;
    if (r->n == MOST_READERS) return;
    if (!op || op->id > r->last || group_of(f, op) == a || group_of(f, op) == b) continue;
    if (f->reader[op->id] == f->stamp) continue;
    f->reader[op->id] = f->stamp;
    r->op[r->n++] = op;
  }
}

// Whether a path leads from group `a` to an op that group `b` reads: through some readers of `a`
// outside of both, and then down the tree. A walk would meet `a`, or a member on the way, as no op
// on the path is before `a`. If the path in the tree meets a member again, the rest of it leads out
// of the group and to `b`, as `b` reads no view of a member there.
static bool has_path(FuseGroups *f, const Group *a, const Group *b) {
  const Op *operand[MOST_OPERANDS];
  Readers r = {.n = 0};
  int n = 0;
  for (int m = 0; m < b->member.n; m++)
    for (int i = 0; i < b->member.at[m]->n_in && n < MOST_OPERANDS; i++) {
      Value *v = b->member.at[m]->in[i].value;
      if (!v->def || is_inner(f, v, a, b)) continue;
      operand[n++] = v->def;
      if (v->def->id > r.last) r.last = v->def->id;
    }
  for (int m = 0; m < a->member.n; m++)
    add_readers(f, a->member.at[m]->out[0], a, b, &r);
  for (int i = 0; i < r.n; i++) {
    for (int k = 0; k < n; k++)
      if (is_below(f, r.op[i], operand[k])) return true;
    for (int k = 0; k < r.op[i]->n_out; k++)
      add_readers(f, r.op[i]->out[k], a, b, &r);
  }
  return false;
}

bool fuse_makes_cycle(FuseGroups *f, const Group *a, const Group *b) {
  enum { FAR = 64 }; // ops of a walk that are enough to look for a path in the tree
  int64_t at_a = f->places[a->node].label, at_b = f->places[b->node].label;
  Walk w = {.f = f, .a = a, .b = b, .first = at_a < at_b ? at_a : at_b};
  f->stamp++;
  f->pending.n = f->visited.n = 0;
  // The walk starts at operands from outside, and at ops with earlier orders.
  for (int k = 0; k < 2; k++) {
    const Group *of = k ? b : a;
    for (int m = 0; m < of->member.n; m++) {
      const Op *op = of->member.at[m], *before = f->before[op->id];
      for (int i = 0; i < op->n_in; i++) {
        Value *v = op->in[i].value;
        if (!is_inner(f, v, a, b) && !walk_to(&w, v->def)) return true;
      }
      const Group *g = before ? f->group[before->id] : NULL;
      if ((!g || (g != a && g != b)) && !walk_to(&w, before)) return true;
    }
  }
  // A path from the one to the other group through ops of others is a cycle.
  bool is_far = false;
  while (f->pending.n > 0) {
    if (!is_far && f->visited.n > FAR) {
      is_far = true;
      if (at_a < at_b ? has_path(f, a, b) : has_path(f, b, a)) return true;
    }
    const Op *op = f->op[f->pending.at[--f->pending.n]];
    const Group *g = f->group[op->id];
    for (int m = 0; m < (g ? g->member.n : 1); m++)
      if (!walk_operands(&w, g ? g->member.at[m] : op, g)) return true;
  }
  return false;
}

// -- The order of groups -----------------------------------------------------------------------

enum { LABEL_STEP = 1 << 30, MOVED_STEP = 1 << 10 };

static void place_unlink(FuseGroups *f, uint32_t node) {
  const FusePlace *p = &f->places[node];
  if (p->prev < f->n_ops) f->places[p->prev].next = p->next;
  if (p->next < f->n_ops) f->places[p->next].prev = p->prev;
}

static void places_label(FuseGroups *f, uint32_t any) {
  while (f->places[any].prev < f->n_ops)
    any = f->places[any].prev;
  for (int64_t label = 0; any < f->n_ops; any = f->places[any].next)
    f->places[any].label = label += LABEL_STEP;
}

static int by_label(const void *x, const void *y) {
  const FuseVisit *a = x, *b = y;
  return (a->label > b->label) - (a->label < b->label);
}

// Gives two groups the place of the earlier one, with the visited nodes before it.
static uint32_t places_join(FuseGroups *f, uint32_t a, uint32_t b) {
  bool first = f->places[a].label < f->places[b].label;
  uint32_t earlier = first ? a : b, later = first ? b : a;
  int n = f->visited.n;
  if (n > 1) qsort(f->visited.at, (size_t)n, sizeof *f->visited.at, by_label);
  place_unlink(f, later);
  for (int i = 0; i < n; i++)
    place_unlink(f, f->visited.at[i].node);
  // Room for new labels; most of it stays right before the group, for later nodes.
  uint32_t prev = f->places[earlier].prev;
  if (n > 0) {
    int64_t room = f->places[earlier].label - (prev < f->n_ops ? f->places[prev].label : 0);
    if (room <= n) {
      places_label(f, earlier);
      room = LABEL_STEP;
    }
    int64_t step = room / (n + 1) < MOVED_STEP ? room / (n + 1) : MOVED_STEP;
    int64_t label = prev < f->n_ops ? f->places[prev].label : f->places[earlier].label - room;
    for (int i = 0; i < n; i++) {
      uint32_t node = f->visited.at[i].node;
      f->places[node] = (FusePlace){label += step, prev, earlier};
      if (prev < f->n_ops) f->places[prev].next = node;
      prev = node;
    }
    f->places[earlier].prev = prev;
  }
  return earlier;
}

// -- Growing groups ----------------------------------------------------------------------------

static void merge(FuseGroups *f, Group *into, Group *from, const Loops *loops) {
  Vec(Op *) both = {0};
  for (int i = 0, k = 0; i < into->member.n || k < from->member.n;) {
    bool mine = k == from->member.n ||
                (i < into->member.n && into->member.at[i]->id < from->member.at[k]->id);
    Op *op = mine ? into->member.at[i++] : from->member.at[k++];
    vec_push(f->scratch, &both, op);
    f->group[op->id] = into;
  }
  // Members stay in the order of the graph.
  into->member.at = both.at;
  into->member.n = both.n;
  into->member.cap = both.cap;
  into->loops = *loops;
  // The joint group has the sum of either.
  if (from->sum) {
    into->sum = from->sum;
    into->n_kept = from->n_kept;
  }
}

// The piece of the members, or 0. All members with a piece have the same.
static int piece_of(const Group *g) {
  for (int m = 0; m < g->member.n; m++)
    if (g->member.at[m]->piece) return g->member.at[m]->piece;
  return 0;
}

// Whether one group serves only reports and the other does not. Members agree on that.
static bool joins_report(const FuseGroups *f, const Group *a, const Group *b) {
  return f->reported && f->reported[a->member.at[0]->id] != f->reported[b->member.at[0]->id];
}

static void try_merge(FuseGroups *f, const Op *op, const Op *with) {
  Group *a = f->group[with->id], *b = f->group[op->id];
  Loops loops;
  // A kernel with two pieces would wait for one to read the other.
  int piece = piece_of(a), other = piece_of(b);
  bool two_pieces = piece && other && piece != other;
  if (a == b || two_pieces || joins_report(f, a, b) || !loops_of_both(a, b, &loops) ||
      !fits(f, a, b) || fuse_makes_cycle(f, a, b))
    return;
  uint32_t node = places_join(f, a->node, b->node);
  merge(f, a, b, &loops);
  a->node = node;
}

static Group *group_new(FuseGroups *f, Op *op, int64_t count) {
  Group *g = arena_one(f->scratch, Group);
  g->count = count;
  g->loops = loops_flat(count);
  g->node = op->id;
  vec_push(f->scratch, &g->member, op);
  f->group[op->id] = g;
  return g;
}

// Whether the op is a cast to a larger type. It belongs to the kernel of its reader: written by the
// kernel of its operand, the value would go through memory at twice the size.
static bool is_widening(const Op *op) {
  return op->kind == OP_cast && dtype_bytes[op->in[0].value->type->dtype] == 2 &&
         dtype_bytes[op->out[0]->type->dtype] > 2;
}

static Op *elementwise_def(Value *v) {
  const Value *root = through_views(v);
  return root->def && op_is_elementwise(root->def) ? root->def : NULL;
}

// An op of the first group, other than that of `op`, that computes `v` or reads it elementwise.
static const Op *point_by_point(const FuseGroups *f, Value *v, const Op *op) {
  if (v->def && op_is_elementwise(v->def)) return v->def;
  const Op *found = NULL;
  for_each_use(u, v) {
    if (!u->user || u->user == op) continue;
    const Op *reader = group_of(f, u->user) ? u->user : NULL;
    if (!reader && fuse_is_view(u->user)) reader = point_by_point(f, u->user->out[0], op);
    if (reader) found = reader;
  }
  return found;
}

// Joins a sum to the group that computes its operand, or to one that reads the operand anyway.
static void add_sum(FuseGroups *f, Op *op) {
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
  if (f->group[op->id] == g && g->member.n == 1)
    f->group[op->id] = NULL; // the library has a kernel
}

// Whether an op outside of `g` reads `v`, which is defined there.
static bool leads_on(const FuseGroups *f, const Value *v, const Group *g) {
  for_each_use(u, v) {
    if (!u->user || group_of(f, u->user) == g) continue;
    if (!fuse_is_view(u->user) || leads_on(f, u->user->out[0], g)) return true;
  }
  return false;
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

// Whether the groups have equally many points, the same devices, and run equally often.
static bool like_ends(const Group *a, const Group *b, const bool *early, const bool *late) {
  return a->count == b->count && op_mesh(a->member.at[0]) == op_mesh(b->member.at[0]) &&
         all_of(early, a) == all_of(early, b) && any_of(late, a) == any_of(late, b);
}

// Whether `v`, which bodies copy, must also be in memory.
static bool needs_memory(const FuseGroups *f, const Value *v) {
  if (v->def->kind == OP_broadcast && f->whole[v->id]) return true;
  for_each_use(u, v) {
    if (!u->user) return true;
    if (group_of(f, u->user)) continue;
    bool copied = u->user->kind == OP_reshape || u->user->kind == OP_broadcast;
    if (!copied || needs_memory(f, u->user->out[0])) return true;
  }
  return false;
}

static void make_groups(FuseGroups *f, bool each) {
  for_each_op(op, f->g) {
    if (op->kind != OP_broadcast || fuse_is_view(op)) continue;
    const Value *from = through_views(op->in[0].value);
    f->whole[op->out[0]->id] = from->def && from->def->kind == OP_broadcast;
  }
  for_each_op(op, f->g)
    if (op_is_elementwise(op)) {
      // An elementwise op is a group of its own, and joins those of its operands, through casts
      // too.
      Group *g = group_new(f, op, type_count(op->out[0]->type));
      for (int i = 0; i < op->n_in; i++)
        if (!cut_for(f, &g->loops, op->in[i].value))
          f->whole[through_views(op->in[i].value)->id] = true;
      for (int i = 0; i < op->n_in && !each && !is_widening(op); i++) {
        const Op *def = elementwise_def(op->in[i].value);
        if (!def) continue;
        try_merge(f, op, def);
        const Op *of = is_widening(def) ? elementwise_def(def->in[0].value) : NULL;
        if (of) try_merge(f, op, of);
      }
    }
  for_each_op(op, f->g)
    if (!each && is_widening(op) && op_is_elementwise(op)) {
      // A cast that no elementwise op has taken joins the group of its operand.
      const Op *def = elementwise_def(op->in[0].value);
      if (def && f->group[op->id]->member.n == 1) try_merge(f, op, def);
    }
  for_each_op(op, f->g)
    if (!each && op->kind == OP_reduce_sum) add_sum(f, op);
  // Small groups without dependents are joined: they cannot form a cycle, and no op waits for them.
  // All must run equally often: once per step, or for every micro-batch.
  const PartOps part = graph_part_ops(f->g, f->scratch);
  Vec(Group *) open = {0}; // the last group of each kind
  for_each_op(op, f->g) {
    Group *g = f->group[op->id];
    if (each || !g || g->member.at[0] != op || g->sum || g->count > FEW_POINTS) continue;
    // An end has no order and no dependents.
    bool end = true;
    for (int i = 0; end && i < g->member.n; i++)
      end = !g->member.at[i]->order && !leads_on(f, g->member.at[i]->out[0], g);
    if (!end) continue;
    int at = 0;
    while (at < open.n &&
           (joins_report(f, open.at[at], g) || !like_ends(open.at[at], g, part.begin, part.update)))
      at++;
    Loops loops;
    if (at == open.n)
      vec_push(f->scratch, &open, g);
    else if (loops_of_both(open.at[at], g, &loops) && fits(f, open.at[at], g))
      merge(f, open.at[at], g, &loops);
    else
      open.at[at] = g;
  }
  for_each_op(op, f->g) {
    if (op->kind == OP_fill && needs_memory(f, op->out[0]))
      group_new(f, op, type_count(op->out[0]->type));
  }
}

FuseGroups *fuse_groups_find(Graph *g, bool each, Arena *scratch) {
  FuseGroups *f = arena_one(scratch, FuseGroups);
  *f = (FuseGroups){.g = g, .scratch = scratch, .n_ops = g->n_ops};
  f->group = arena_array(scratch, Group *, g->n_ops);
  f->seen = arena_array(scratch, uint32_t, g->n_ops);
  f->whole = arena_array(scratch, bool, g->n_values);
  // The order of the graph is one in which ops are after their operands.
  f->op = arena_array(scratch, const Op *, g->n_ops);
  f->places = arena_array(scratch, FusePlace, g->n_ops);
  for_each_op(op, g) {
    f->op[op->id] = op;
    f->places[op->id] =
        (FusePlace){(op->id + (int64_t)1) * LABEL_STEP, op->prev ? op->prev->id : g->n_ops,
                    op->next ? op->next->id : g->n_ops};
  }
  f->tree = tree_new(g, scratch);
  f->reader = arena_array(scratch, uint32_t, g->n_ops);
  // Ops with orders are a chain.
  Op *last = NULL;
  f->before = arena_array(f->scratch, Op *, f->n_ops);
  for_each_op(op, f->g) {
    if (!op->order) continue;
    f->before[op->id] = last;
    last = op;
  }
  if (g->module->cross_barrier) {
    // Ops of the update on which only outputs depend.
    bool *reported = arena_array(f->scratch, bool, f->n_ops);
    for (const Op *op = f->g->last; op; op = op->prev) {
      reported[op->id] = op->part == PART_update;
      for (int i = 0; i < op->n_out; i++)
        for_each_use(u, op->out[i])
          reported[op->id] &= u->user ? reported[u->user->id] : !f->g->results[u->index]->target;
    }
    f->reported = reported;
  }
  make_groups(f, each);
  return f;
}
