// Prioritised communication: the reductions of deferred updates (ir/analysis/deferred.h) in order
// of their first use in the next step.
//
//     backward       … %g3 ── %g2 ── %g1 ─┐
//     in order           r3 ─────── r2 ───│──── r1 ──         the next forward waits for r1, the last
//     prioritised        r3 ─────── r1 ───│──── r2 ──         … and for r2 when it comes to layer 2
//
// The queue runs collectives one after the other, in the order in which they are started. If
// reductions take longer than backward, gradients of the first layers would follow all others. So a
// ready all_reduce starts only when the queue is idle, by two clocks: one for compute, one for the
// queue. Of several ready ones, the one whose sum is due first starts. At the end of the step the
// remaining ones start in this order (ByteScheduler: Peng et al. 2019, section 4; its tensor
// partitions are our buckets).
//
// A step begins with the queue that the previous step left, and ops that depend on it wait. So the
// pass simulates STEPS steps, after which they are alike, and applies the order of the last.
//
// All ranks keep one common order, as before.

#include "base/vec.h"
#include "cost/clocks.h"
#include "cost/cost.h"
#include "ir/analysis/deferred.h"
#include "ir/analysis/place.h"
#include "pass.h"

enum { STEPS = 4 };

typedef struct Prioritizer {
  Graph *g;
  Arena *arena;
  Clocks clocks;
  DeferredGroups groups;
  int64_t *due;    // by op id of all_reduces in flight, in the order of a step; else 0
  Vec(Op *) ready; // not started
  Op **before;     // by op id of all_reduces in flight: the op before which it starts
  int64_t n;
} Prioritizer;

// -- The order ---------------------------------------------------------------------------------

static void start_first(Prioritizer *h, Op *before) {
  int first = 0;
  for (int i = 1; i < h->ready.n; i++)
    if (h->due[h->ready.at[i]->id] < h->due[h->ready.at[first]->id]) first = i;
  Op *op = h->ready.at[first];
  h->before[op->id] = before;
  clocks_queue(&h->clocks, op);
  for (int i = first; i + 1 < h->ready.n; i++)
    h->ready.at[i] = h->ready.at[i + 1];
  h->ready.n--;
}

// Moves the views of a reduction with it: only deferred ops read them.
static void move_views(const Op *op, Op *before) {
  for_each_use(u, op->out[0]) {
    if (!u->user || u->user->deferred) continue;
    op_move_before(u->user, before);
    move_views(u->user, before);
  }
}

// Finds the reductions in flight: each is due before the first op of the next step that needs it.
static void find_due(Prioritizer *h) {
  const int64_t *order = step_order(h->g, h->arena);
  for (int i = h->groups.n - 1; i >= 0; i--) { // the first reader overrides
    const Op *op = h->groups.at[i].first;
    for (int k = 0; k < h->groups.at[i].n; k++, op = op->next)
      for (int x = 0; x < op->n_in; x++) {
        // A deferred op reads the sum directly or through views.
        int64_t skip;
        const Op *root = view_root(op->in[x].value, &skip)->def;
        const Op *made = root && root->kind == OP_all_reduce ? root : NULL;
        if (made && reduce_is_in_flight(made))
          h->due[made->id] = 1 + order[h->groups.at[i].due->id];
      }
  }
}

// Simulates a step, and starts reductions that are ready in the order in which they are due.
static void simulate_step(Prioritizer *h) {
  clocks_begin(&h->clocks, h->g); // time 0: the end of the previous step
  // A reduction starts no sooner than the queue is idle, so while the queue is busy it stays open
  // which ready reduction is next.
  Op *first_deferred = graph_first_deferred(h->g);
  for (Op *op = h->g->first; op != first_deferred; op = op->next) {
    const Clocks *c = &h->clocks;
    double until = c->now + clocks_seconds(c, op);
    while (until > c->now && h->ready.n && c->queue < until)
      start_first(h, op);
    // Ops that the previous step deferred are due before `op`.
    for (int group = 0; group < h->groups.n; group++) {
      const Op *deferred = h->groups.at[group].first;
      for (int k = 0; h->groups.at[group].due == op && k < h->groups.at[group].n;
           k++, deferred = deferred->next)
        clocks_run(&h->clocks, deferred);
    }
    if (h->due[op->id])
      vec_push(h->arena, &h->ready, op);
    else
      clocks_run(&h->clocks, op);
  }
  while (h->ready.n)
    start_first(h, first_deferred);
}

// Moves reductions in the order in which they start; several may start before one op.
static void move_reductions(Prioritizer *h) {
  Vec(Op *) in_flight = {0};
  for_each_op(op, h->g)
    if (h->due[op->id]) vec_push(h->arena, &in_flight, op);
  for (int moved = 0; moved < in_flight.n; moved++) {
    int first = -1;
    for (int i = 0; i < in_flight.n; i++) {
      Op *op = in_flight.at[i];
      if (op && (first < 0 || h->clocks.done[op->id] < h->clocks.done[in_flight.at[first]->id]))
        first = i;
    }
    Op *op = in_flight.at[first], *before = h->before[op->id];
    in_flight.at[first] = NULL;
    if (op->next == before) continue;
    op_move_before(op, before);
    move_views(op, before);
    h->n++;
  }
}

bool pass_prioritize_comm(Module *m, const PassOptions *o, Diag *d) {
  bool ok;
  Prioritizer h = {.g = module_first_entry(m), .arena = opt_scratch(o)};
  Target target;
  if (!h.g || !graph_first_deferred(h.g)) return true;
  if (!opt_target(o, &target, d)) return false;
  const Cluster *cluster = cost_cluster(opt_str(o, "cluster"), m, h.arena, d, &ok);
  if (!cluster) return ok;
  graph_renumber(h.g);
  h.clocks = clocks_new(h.g, cluster, target, h.arena);
  h.due = arena_array(h.arena, int64_t, h.g->n_ops);
  h.before = arena_array(h.arena, Op *, h.g->n_ops);
  graph_deferred_groups(h.g, h.arena, &h.groups);
  find_due(&h);
  // The order of the last simulated step is applied.
  for (int i = 0; i < STEPS; i++)
    simulate_step(&h);
  move_reductions(&h);
  graph_renumber(h.g);
  opt_stat(o, h.n, "all_reduces reordered by first use");
  return true;
}
