// Hurry: of what a step owes to the next one (ir/owed.h), what that wants first is reduced first.
//
//     backward       … %g3 ── %g2 ── %g1 ─┐
//     in order           r3 ─────── r2 ───│──── r1 ──         the next forward waits for r1, the last
//     hurried            r3 ─────── r1 ───│──── r2 ──         … and for r2 when it comes to layer 2
//
// The queue of collectives does one after the other, in the order in which they are started.  With
// more to reduce than backward takes, gradients of the first layers would stand behind all others.
// So an all_reduce that is ready starts when the queue has nothing else to do, as two clocks say:
// of what is computed, and of the queue.  Of several that are ready, that one starts whose sum is
// due first.  At the end all that are left start, in this order (ByteScheduler: Peng et al. 2019,
// section 4; buckets are the parts that it cuts tensors in).
//
// What the step before has left in the queue is there when a step begins, and the ops that wait for
// it wait: a few steps are gone through, by when they are alike, and what the last of them did is
// done.
//
// All ranks do the same in the same order, as before.

#include <math.h>

#include "base/vec.h"
#include "cost/collectives.h"
#include "cost/cost.h"
#include "cost/cost_comm.h"
#include "ir/owed.h"
#include "ir/place.h"
#include "pass.h"

enum { STEPS = 4 };

typedef struct Hurry {
  Graph *g;
  const Cluster *cluster;
  CommPrices *prices;
  Arena *arena;
  OwedGroups groups;
  int64_t *due; // by op id of carried all_reduces, in the order of a step; 0: of others
  double
      *done; // by op id, of all_reduces: when the queue has done them, of carried ones in the next
  double now, queue;
  Vec(Op *) ready; // that have not started
  Op **before;     // by op id: what it starts before; NULL: where it is
  int64_t n;
} Hurry;

// -- Who is due when ---------------------------------------------------------------------------

static const Op *reduce_read(const Op *op, int i) {
  int64_t skip;
  const Op *made = view_root(op->in[i].value, &skip)->def;
  return made && made->kind == OP_all_reduce ? made : NULL;
}

static void find_due(Hurry *h) {
  const int64_t *order = step_order(h->g, h->arena);
  for (int i = h->groups.n - 1; i >= 0; i--) { // the first that reads it counts
    const Op *op = h->groups.at[i].first;
    for (int k = 0; k < h->groups.at[i].n; k++, op = op->next)
      for (int x = 0; x < op->n_in; x++) {
        const Op *made = reduce_read(op, x);
        if (made && reduce_is_carried(made)) h->due[made->id] = 1 + order[h->groups.at[i].due->id];
      }
  }
}

// -- Two clocks --------------------------------------------------------------------------------

static void wait_for(Hurry *h, const Op *op) {
  for (int i = 0; i < op->n_in && !op_is_view(op); i++) {
    const Op *made = reduce_read(op, i);
    if (made) h->now = fmax(h->now, h->done[made->id]);
  }
}

static void put_in_queue(Hurry *h, const Op *op) {
  h->queue = fmax(h->queue, h->now) + comm_price(h->prices, op)->cost.seconds;
  h->done[op->id] = h->queue;
}

static bool moves_data(const Op *op) {
  return op_mesh(op) && op_is_collective(op);
}

// Buckets are packed where their members are made.
static double seconds_of(const Hurry *h, const Op *op) {
  bool none = op_is_view(op) || op->kind == OP_pack || moves_data(op);
  return none ? 0 : op_seconds(h->cluster, op);
}

static void compute(Hurry *h, const Op *op) {
  if (op_is_view(op)) return;
  wait_for(h, op);
  h->now += seconds_of(h, op);
  if (!moves_data(op)) return;
  put_in_queue(h, op);
  if (op->kind != OP_all_reduce) h->now = h->queue;
}

// What the step before owes and is due before this one.
static void settle(Hurry *h, const Op *op) {
  for (int i = 0; i < h->groups.n; i++) {
    const Op *owed = h->groups.at[i].first;
    for (int k = 0; h->groups.at[i].due == op && k < h->groups.at[i].n; k++, owed = owed->next)
      compute(h, owed);
  }
}

// -- The order ---------------------------------------------------------------------------------

static void start_first(Hurry *h, Op *before) {
  int first = 0;
  for (int i = 1; i < h->ready.n; i++)
    if (h->due[h->ready.at[i]->id] < h->due[h->ready.at[first]->id]) first = i;
  Op *op = h->ready.at[first];
  h->before[op->id] = before;
  put_in_queue(h, op);
  for (int i = first; i + 1 < h->ready.n; i++)
    h->ready.at[i] = h->ready.at[i + 1];
  h->ready.n--;
}

// What is in the queue behind another starts no sooner than that, so it may wait for a better turn
// as long as the queue has something to do.
static void go_through_step(Hurry *h) {
  Op *first_owed = graph_first_owed(h->g);
  for (Op *op = h->g->first; op != first_owed; op = op->next) {
    double until = h->now + seconds_of(h, op);
    while (until > h->now && h->ready.n && h->queue < until)
      start_first(h, op);
    settle(h, op);
    if (h->due[op->id])
      vec_push(h->arena, &h->ready, op);
    else
      compute(h, op);
  }
  while (h->ready.n)
    start_first(h, first_owed);
}

// The next step begins where this one ends.
static void begin_again(Hurry *h) {
  for_each_op(op, h->g)
    h->done[op->id] -= h->now;
  h->queue -= h->now;
  h->now = 0;
}

// What only owed ops read, as they do the reduce.
static void move_views(const Op *op, Op *before) {
  for_each_use(u, op->out[0]) {
    if (!u->user || u->user->owed) continue;
    op_move_before(u->user, before);
    move_views(u->user, before);
  }
}

// In the order in which they start, several before one op, too.
static void move_reduces(Hurry *h) {
  Vec(Op *) carried = {0};
  for_each_op(op, h->g)
    if (h->due[op->id]) vec_push(h->arena, &carried, op);
  for (int moved = 0; moved < carried.n; moved++) {
    int first = -1;
    for (int i = 0; i < carried.n; i++) {
      Op *op = carried.at[i];
      if (op && (first < 0 || h->done[op->id] < h->done[carried.at[first]->id])) first = i;
    }
    Op *op = carried.at[first], *before = h->before[op->id];
    carried.at[first] = NULL;
    if (op->next == before) continue;
    op_move_before(op, before);
    move_views(op, before);
    h->n++;
  }
}

bool pass_hurry(Module *m, const PassOptions *o, Diag *d) {
  bool ok;
  Hurry h = {.g = module_first_entry(m), .arena = opt_scratch(o)};
  if (!h.g || !graph_first_owed(h.g)) return true;
  h.cluster = cost_cluster(opt_str(o, "cluster"), m, h.arena, d, &ok);
  if (!h.cluster) return ok;
  graph_renumber(h.g);
  h.prices = comm_prices_new(h.arena, h.cluster);
  h.due = arena_array(h.arena, int64_t, h.g->n_ops);
  h.done = arena_array(h.arena, double, h.g->n_ops);
  h.before = arena_array(h.arena, Op *, h.g->n_ops);
  graph_owed_groups(h.g, h.arena, &h.groups);
  find_due(&h);
  for (int i = 0; i < STEPS; i++) {
    begin_again(&h);
    go_through_step(&h);
  }
  move_reduces(&h);
  graph_renumber(h.g);
  opt_stat(o, h.n, "all_reduces moved behind others that are wanted first");
  return true;
}
