// Costs of pairs of choices: see problem.h.
//
// An edge joins the producer of a value with a reader. Several readers all read one node between,
// with a value that is produced once:
//
//     y ─ relu            y ─ [y for both] ─ relu
//       ─ add      =>                      ─ add

#include <math.h>

#include "comm/hops.h"
#include "cost/cost.h"
#include "ir/analysis/origin.h"
#include "ir/kernel.h"
#include "ir/op.h"
#include "ir/split.h"
#include "overlap/bucket_grads.h"
#include "prices.h"
#include "problem.h"
#include "splits.h"
#include "value_layouts.h"

// -- From one layout to another ------------------------------------------------------------------

typedef struct Known {
  const Type *whole;
  const Layout *from, *to;
  Moves moves;
  double seconds;
} Known;

static Known *known_slot(Known *known, int size, const Type *whole, const Layout *from,
                         const Layout *to, Moves moves) {
  uint64_t h = (uintptr_t)whole * 0x9e3779b97f4a7c15u ^ (uintptr_t)from;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u ^ (uintptr_t)to;
  h = (h ^ h >> 32) * 0x94d049bb133111ebu;
  for (h += moves;; h++) {
    Known *k = &known[h & (uint64_t)(size - 1)];
    bool same = k->whole == whole && k->from == from && k->to == to && k->moves == moves;
    if (!k->whole || same) return k;
  }
}

// Seconds to copy a shard out of a replicated value.
static double slice_seconds(const Problem *p, const Type *whole, const Layout *from,
                            const Layout *to, Moves moves) {
  double launches = moves == BY_SLICE ? (double)p->slices : 1;
  for (int a = 0; a < from->n_axes; a++)
    if (from->axis[a].kind == SBP_B && to->axis[a].kind == SBP_S)
      return moving_seconds(p->c, 2 * (double)type_bytes(whole) / parts_of(to), launches);
  return 0;
}

// Seconds of the route that comm chooses: see comm_routes.c.
static double cheapest_way(Problem *p, const Type *whole, const Layout *from, const Layout *to,
                           Moves moves) {
  double best = INFINITY;
  // Nothing produces a partial sum from a replicated or sharded value: an op that passes sums on
  // must receive one.
  for (int a = 0; a < from->n_axes; a++)
    if (to->axis[a].kind == SBP_P && from->axis[a].kind != SBP_P) return best;
  if (p->routed && moves != WITH_OTHERS)
    best = transition_routed(p->prices, whole, from, to, moves == BY_SLICE ? p->slices : 1);
  if (isfinite(best)) return best; // routes include hops
  // Each time slice sends its part of the bytes, and pays the start latency.
  Transitions *prices = moves == WITH_OTHERS ? p->joined : p->prices;
  for (Hops hops = NO_HOPS; hops <= ALL_HOP; hops++) {
    double seconds = hops_seconds(p->s->g->module, prices, whole, from, to, hops);
    if (seconds > 0 && moves == BY_SLICE) seconds += (double)(p->slices - 1) * p->c->start;
    best = fmin(best, seconds);
  }
  return best;
}

// Extra seconds of 16-bit sums that are cast and reduced in f32 (legalize_types.c); comm takes the
// route that it takes without the cast.
static double widened_seconds(Problem *p, const Type *whole, const Layout *from, const Layout *to,
                              Moves moves) {
  bool adds =
      dtype_narrow(whole->dtype) && !kernel_exists(OP_reduce_scatter, p->env->target, whole->dtype);
  // Only the axes that are reduced change, in the first steps of comm: a sum is not scattered along
  // a dimension that another axis leaves later.
  const Layout *sum = from;
  for (int a = 0; a < from->n_axes && adds; a++)
    if (from->axis[a].kind == SBP_P && to->axis[a].kind != SBP_P)
      sum = next_step(p->s->g->module, sum, to, SUMS_HOP).layout;
  if (sum == from) return 0;
  const Type *wide = type_new(p->s->g->module, DT_f32, whole->ndim, whole->dim);
  double more = cheapest_way(p, wide, from, sum, moves) - cheapest_way(p, whole, from, sum, moves);
  double bytes = (double)(type_bytes(whole) + type_bytes(wide)) / parts_of(from);
  return fmax(more, 0) + moving_seconds(p->c, bytes, moves == BY_SLICE ? (double)p->slices : 1);
}

double reshard_seconds(Problem *p, const Type *whole, const Layout *from, const Layout *to,
                       Moves moves) {
  if (from == to) return 0;
  // The table doubles when it is half full.
  if (2 * p->n_known >= p->known_size) {
    int size = p->known_size ? 2 * p->known_size : 4096;
    Known *known = arena_array(p->scratch, Known, size);
    for (int i = 0; i < p->known_size; i++) {
      const Known *k = &p->known[i];
      if (k->whole) *known_slot(known, size, k->whole, k->from, k->to, k->moves) = *k;
    }
    p->known = known;
    p->known_size = size;
  }
  Known *k = known_slot(p->known, p->known_size, whole, from, to, moves);
  if (k->whole) return k->seconds;
  double seconds =
      cheapest_way(p, whole, from, to, moves) + slice_seconds(p, whole, from, to, moves);
  if (isfinite(seconds)) seconds += widened_seconds(p, whole, from, to, moves);
  *k = (Known){whole, from, to, moves, seconds};
  p->n_known++;
  return k->seconds;
}

// -- Ends of edges -------------------------------------------------------------------------------

// One end of an edge: the layouts of the value and of its gradient, for each choice of the node
// there.
typedef struct End {
  int node;
  const Layout **layout, **back;
} End;

static End end_new(const Problem *p, int node) {
  int n = p->nodes.at[node].choices.n;
  return (End){node, arena_array(p->scratch, const Layout *, n),
               arena_array(p->scratch, const Layout *, n)};
}

static const Layout *without_sums(const Problem *p, const Layout *l) {
  for (int a = 0; a < l->n_axes; a++)
    if (l->axis[a].kind == SBP_P) l = with_axis(p->s->g->module, l, a, (Sbp){.kind = SBP_B});
  return l;
}

// Without `sums` partial sums are reduced at once: see add_up.
static const Layout *as_left(const Problem *p, const Layout *l) {
  return p->sums ? l : without_sums(p, l);
}

// The end at a parameter, or at a shared node.
static End end_of_value(const Problem *p, int node) {
  End e = end_new(p, node);
  const Node *n = &p->nodes.at[node];
  for (int k = 0; k < n->choices.n; k++) {
    e.layout[k] = layout_as(p, n->v, n->choices.at[k].layout);
    e.back[k] = back_as(p, n->v, n->choices.at[k].back);
  }
  return e;
}

// The end at the producer: the gradient is wanted in the layout of the value, replicated instead of
// partial.
static End end_of_maker(const Problem *p, const Value *v) {
  if (!v->def) return end_of_value(p, p->value_node[v->id]);
  End e = end_new(p, p->op_node[v->def->id]);
  const Node *n = &p->nodes.at[e.node];
  for (int k = 0; k < n->choices.n; k++) {
    choose_split(p, n, &n->choices.at[k]);
    e.layout[k] = as_left(p, op_gives(p, n->op, v->index));
    e.back[k] = without_sums(p, e.layout[k]);
  }
  return e;
}

static End end_of_reader(const Problem *p, const Op *op, int i) {
  End e = end_new(p, p->op_node[op->id]);
  const Node *n = &p->nodes.at[e.node];
  for (int k = 0; k < n->choices.n; k++) {
    choose_split(p, n, &n->choices.at[k]);
    e.layout[k] = op_wants(p, n->op, i, &n->choices.at[k]);
    e.back[k] = op_gradient(p, n->op, i, &n->choices.at[k]);
    if (!weight_of(op->in[i].value)) e.back[k] = as_left(p, e.back[k]);
  }
  return e;
}

// -- Edges ---------------------------------------------------------------------------------------

// Executions per step.
typedef struct Often {
  double forward, backward; // 0: never
  bool added;               // the weight's gradient is added to other readers' in every slice
  bool late;                // only outputs wait for it
} Often;

// Seconds of one all_reduce over all axes with partial sums.
static double all_reduce_seconds(Problem *p, const Type *whole, const Layout *from,
                                 const Layout *to) {
  uint32_t axes = 0;
  for (int a = 0; a < from->n_axes; a++)
    if (from->axis[a].kind == SBP_P) axes |= 1u << a;
  return transition_collective(p->prices, OP_all_reduce, whole, from, to, axes);
}

// Seconds of the transfers of a gradient: `back`, on which backward waits, and `reduced`, the
// all_reduces of weight gradients, on which only the update waits.
typedef struct Return {
  double back, reduced;
} Return;

// Seconds of a sum that bucket_grads reduces together with others. A sum that fills half a bucket
// pays half of the start latency and of the packing kernel; one that is larger than a bucket starts
// alone.
static double packed_seconds(const Problem *p, const Type *whole, const Layout *to, Reduces x) {
  double share = fmin((double)type_bytes(whole) / parts_of(to) / p->bucket, 1);
  return x.bytes + share * (x.start + moving_seconds(p->c, 0, 1));
}

// Comm leaves a reduction to bucket_grads if its bytes, axis by axis, take no longer than the
// routes with their own start latency; a bucket is reduced over all axes at once. Routes may end in
// all_reduces, which are packed too.
static Return return_of_weight(Problem *p, const Type *whole, const Layout *from,
                               const Layout *to) {
  double alone = reshard_seconds(p, whole, from, to, AT_ONCE);
  if (!isfinite(alone)) return (Return){alone, 0};
  double bytes =
      is_all_reduced(from, to) ? reshard_seconds(p, whole, from, to, WITH_OTHERS) : INFINITY;
  double at_once = isfinite(bytes) ? all_reduce_seconds(p, whole, from, to) : INFINITY;
  if (bytes <= alone * (1 + 1e-9))
    return (Return){0, packed_seconds(p, whole, to, (Reduces){at_once - bytes, bytes})};
  Reduces last = {0, 0};
  if (p->routed) last = transition_reduces(p->prices, whole, from, to);
  if (last.bytes <= 0) return (Return){alone, 0};
  return (Return){alone - last.start - last.bytes, packed_seconds(p, whole, to, last)};
}

// Returns the part of `seconds` that runs beside backward. Only the end of the step waits for a sum
// that only outputs depend on, such as the loss; it is reduced before gradients are. Several
// collectives hide nothing, as each waits for the one before.
static double late_seconds(Problem *p, const Value *v, const Layout *from, const Layout *to,
                           double seconds) {
  if (!is_all_reduced(from, to) || p->slices > 1) return 0;
  if (seconds < all_reduce_seconds(p, v->type, from, to)) return 0;
  return fmax(seconds - reshard_seconds(p, v->type, from, to, WITH_OTHERS), 0);
}

static void price_pair(Problem *p, const Value *v, const End *from, const End *to, Often o,
                       Pair *e) {
  int n = p->nodes.at[from->node].choices.n, m = p->nodes.at[to->node].choices.n;
  e->cost = arena_array(p->scratch, int64_t, n * m);
  e->again = arena_array(p->scratch, int64_t, n * m);
  e->back = arena_array(p->scratch, int64_t, n * m);
  e->late = o.late;
  if (e->late || weight_of(v)) e->reduced = arena_array(p->scratch, int64_t, n * m);
  e->gradient = to->back;
  e->wanted = from->back;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < m; k++) {
      // Transfers of forward, and of the gradient in backward.
      const Value *weight = weight_of(v);
      Moves moves = weight ? AT_ONCE : BY_SLICE;
      const Layout *gradient = to->back[k], *wanted = from->back[i];
      int at = i * p->nodes.at[to->node].choices.n + k;
      double forward = reshard_seconds(p, v->type, from->layout[i], to->layout[k], moves);
      Return r = {0, 0};
      if (o.added)
        r.back = reshard_seconds(p, weight->type, gradient, wanted, AT_ONCE);
      else if (o.backward > 0 && weight)
        r = return_of_weight(p, weight->type, gradient, wanted);
      else if (o.backward > 0)
        r.back = reshard_seconds(p, v->type, gradient, wanted, BY_SLICE);
      e->cost[at] = cost_of(p, o.forward * forward + o.backward * (r.back + r.reduced));
      if (e->cost[at] >= SOLVER_INFINITE) continue;
      // The parts of the cost that overlap.c needs.
      e->back[at] = cost_of(p, o.backward * r.back);
      e->again[at] = o.forward > 1 ? cost_of(p, forward) : 0;
      double at_end = o.late ? late_seconds(p, v, from->layout[i], to->layout[k], forward)
                             : o.backward * r.reduced;
      if (e->reduced) e->reduced[at] = cost_of(p, at_end);
    }
}

int64_t *pair_cost(const Problem *p, const Pair *e) {
  int n = p->nodes.at[e->from].choices.n * p->nodes.at[e->to].choices.n;
  double exposed = !e->late ? p->exposed : p->late_hides ? 0 : 1;
  if (!e->reduced || exposed >= 1) return e->cost;
  int64_t *cost = arena_copy(p->scratch, e->cost, sizeof *cost * (size_t)n);
  for (int k = 0; k < n; k++)
    cost[k] -= (int64_t)((1 - exposed) * (double)(e->n * e->reduced[k]));
  return cost;
}

// Returns the edge with the same ends; NULL: there is none yet.
static Pair *known_pair(const Problem *p, const Pair *e) {
  for (int i = p->first_pair[e->from]; i; i = p->pairs.at[i - 1].next) {
    Pair *k = &p->pairs.at[i - 1];
    if (k->to == e->to && k->from_index == e->from_index && k->to_index == e->to_index &&
        k->type == e->type)
      return k;
  }
  return NULL;
}

// The same, counted once more.
static Pair *counted_pair(Problem *p, const Pair *e) {
  Pair *k = known_pair(p, e);
  if (k) k->n++;
  return k;
}

static void add_pair(Problem *p, Pair e) {
  e.n = 1;
  e.next = p->first_pair[e.from];
  vec_push(p->scratch, &p->pairs, e);
  p->first_pair[e.from] = p->pairs.n;
}

// A weight is gathered for forward and again for its gradients, in each time slice, and its
// gradient is reduced once. A value with several readers keeps their shared layout for their
// gradients; these are added up, and so resharded, in each slice.
static Often how_often(const Problem *p, const Value *v, bool one_of_several) {
  double slices = (double)p->slices, back = p->has_gradient[v->id];
  if (!weight_of(v)) return (Often){.forward = 1, .backward = back};
  if (one_of_several && slices > 1)
    return (Often){.forward = slices, .backward = back * slices, .added = back > 0};
  bool gathered_again = false;
  for_each_use(u, v)
    gathered_again |= u->user && op_part(u->user) == PART_backward;
  return (Often){.forward = gathered_again ? 2 * slices : slices, .backward = back};
}

// Returns the ends of the edge from a value's producer, or its shared node, to `reader`; NULL: to
// the shared node.
static Pair ends_of(const Problem *p, const Value *v, const Use *reader) {
  int shared = p->shared_node[v->id];
  Pair e = {.from_index = v->def ? v->index : 0, .type = v->type};
  e.from = shared >= 0 && reader ? shared : v->def ? p->op_node[v->def->id] : p->value_node[v->id];
  e.to = reader ? p->op_node[reader->user->id] : shared;
  e.to_index = reader ? reader->index : -1;
  return e;
}

const Pair *pair_between(const Problem *p, const Value *v, const Use *reader) {
  Pair e = ends_of(p, v, reader);
  return e.from < 0 || e.to < 0 ? NULL : known_pair(p, &e);
}

static void add_value_pair(Problem *p, const Value *v, const Use *reader) {
  Pair e = ends_of(p, v, reader);
  bool from_shared = p->shared_node[v->id] >= 0 && reader;
  if (counted_pair(p, &e)) return;
  End from = from_shared ? end_of_value(p, e.from) : end_of_maker(p, v);
  End to = reader ? end_of_reader(p, reader->user, reader->index) : end_of_value(p, e.to);
  Often often = how_often(p, v, from_shared);
  often.late = reader && p->late[reader->user->id] && !weight_of(v);
  price_pair(p, v, &from, &to, often, &e);
  add_pair(p, e);
}

static void add_value_pairs(Problem *p, const Value *v) {
  bool first = true;
  for_each_use(u, v) {
    if (!use_counts(p, u)) continue;
    if (first && p->shared_node[v->id] >= 0) add_value_pair(p, v, NULL);
    first = false;
    add_value_pair(p, v, u);
  }
}

static int64_t add_up_cost(Problem *p, const Type *type, const Layout *l) {
  return cost_of(p, reshard_seconds(p, type, l, without_sums(p, l), BY_SLICE));
}

// Without `sums`, adds the cost of reducing an op's partial sums, and those of its gradient, on
// every device at once. Exception: of a weight's gradient a device may receive only its shard.
static void add_up(Problem *p, Node *n) {
  for (int k = 0; k < n->choices.n; k++) {
    const Op *op = n->op;
    int64_t cost = 0;
    choose_split(p, n, &n->choices.at[k]);
    // A result that no op of the model reads is not reduced here.
    for (int i = 0; i < op->n_out; i++) {
      bool is_read = false;
      for_each_use(u, op->out[i])
        is_read |= u->user && op_part(u->user) == PART_forward;
      if (is_read) cost += add_up_cost(p, op->out[i]->type, op_gives(p, op, i));
    }
    // Gradients of operands.
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      if (p->has_gradient[v->id] && !weight_of(v))
        cost += add_up_cost(p, v->type, op_gradient(p, op, i, &n->choices.at[k]));
    }
    n->cost[k] += times_cost(cost, n->n);
  }
}

// Adds edges for the new values of parameters, and the costs of outputs.
static void add_results(Problem *p) {
  const Graph *g = p->s->g;
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    const Value *v = r->use.value;
    if (!v->def || p->op_node[v->def->id] < 0) continue;
    // An edge for the new value of a parameter, such as a running mean: it gets the parameter's
    // layout.
    int param = r->target ? p->value_node[r->target->id] : -1;
    if (r->target && param < 0 && p->inside) continue; // a parameter of the rest
    if (param >= 0) {
      Pair e = {.from = p->op_node[v->def->id], .to = param, .from_index = v->index};
      e.to_index = -1;
      e.type = v->type;
      if (counted_pair(p, &e)) continue;
      End from = end_of_maker(p, v), to = end_of_value(p, param);
      price_pair(p, v, &from, &to, (Often){.forward = 1}, &e);
      add_pair(p, e);
      continue;
    }
    // An output is replicated. Its partial sum is reduced together with the next one.
    End from = end_of_maker(p, v);
    Node *n = &p->nodes.at[from.node];
    const Layout *all = layout_broadcast(p->s->g->module, p->s->mesh);
    for (int k = 0; k < n->choices.n; k++) {
      bool packed = is_all_reduced(from.layout[k], all);
      double seconds = reshard_seconds(p, v->type, from.layout[k], all, AT_ONCE);
      if (packed)
        seconds = fmin(seconds, reshard_seconds(p, v->type, from.layout[k], all, WITH_OTHERS)) +
                  moving_seconds(p->c, 0, 1);
      n->cost[k] += cost_of(p, seconds);
    }
  }
}

static bool is_late(const Problem *p, const Op *op) {
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i])
      if (u->user ? !p->late[u->user->id] : p->s->g->results[u->index]->target != NULL)
        return false;
  return op_part(op) == PART_forward;
}

void edges_make(Problem *p) {
  const Graph *g = p->s->g;
  // All gradients of weights together may be smaller than a bucket.
  double all = 0;
  for (int i = 0; i < g->n_params; i++)
    if (weight_of(g->params[i]) && p->has_gradient[g->params[i]->id])
      all += (double)type_bytes(g->params[i]->type);
  p->bucket = all > 0 ? fmin(all, PACK_BUCKET) : PACK_BUCKET;
  // Ops that only outputs wait for, from the last op on.
  p->late = arena_array(p->scratch, bool, g->n_ops);
  for (const Op *op = g->last; op; op = op->prev)
    p->late[op->id] = is_late(p, op);
  // Edges of all values, from parameters on.
  p->first_pair = arena_array(p->scratch, int, p->nodes.n);
  for (int i = 0; i < g->n_params; i++)
    add_value_pairs(p, g->params[i]);
  for_each_op(op, g)
    for (int i = 0; i < op->n_out && p->op_node[op->id] >= 0; i++)
      add_value_pairs(p, op->out[i]);
  add_results(p);
  // Identical edges are one: its costs count for each of them.
  for (int i = 0; i < p->pairs.n; i++) {
    Pair *e = &p->pairs.at[i];
    int n = p->nodes.at[e->from].choices.n * p->nodes.at[e->to].choices.n;
    for (int k = 0; k < n; k++)
      e->cost[k] = times_cost(e->cost[k], e->n);
  }
  for (int i = 0; i < p->nodes.n && !p->sums; i++)
    if (p->nodes.at[i].op) add_up(p, &p->nodes.at[i]);
}
