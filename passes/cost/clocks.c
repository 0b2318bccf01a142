// Clocks of computation and of collectives, for passes that reorder ops: see clocks.h.

#include "clocks.h"

#include <math.h>

#include "collectives.h"
#include "cost.h"
#include "ir/analysis/in_flight.h"
#include "ir/op.h"

Clocks clocks_new(const Graph *g, const Cluster *cluster, Target target, Arena *a) {
  return (Clocks){.cluster = cluster,
                  .target = target,
                  .prices = comm_prices_new(a, cluster),
                  .done = arena_array(a, double, g->n_ops)};
}

double clocks_ready(const Clocks *c, const Op *op) {
  double ready = 0;
  for (int i = 0; i < op->n_in && !op_is_view(op); i++) {
    int64_t skip;
    const Op *made = view_root(op->in[i].value, &skip)->def;
    if (made && op_overlaps(made, c->target)) ready = fmax(ready, c->done[made->id]);
  }
  return ready;
}

static bool moves_data(const Op *op) {
  return op_mesh(op) && op_is_collective(op);
}

double clocks_seconds(const Clocks *c, const Op *op) {
  return op_is_view(op) || moves_data(op) ? 0 : op_seconds(c->cluster, op);
}

void clocks_queue(Clocks *c, const Op *op) {
  c->queue = fmax(c->queue, c->now) + comm_price(c->prices, op)->cost.seconds;
  c->done[op->id] = c->queue;
}

void clocks_run(Clocks *c, const Op *op) {
  if (op_is_view(op)) return;
  // A collective that overlaps goes on in its queue; the rank waits for every other transfer.
  c->now = fmax(c->now, clocks_ready(c, op)) + clocks_seconds(c, op);
  if (!moves_data(op)) return;
  clocks_queue(c, op);
  if (!op_overlaps(op, c->target)) c->now = c->queue;
}

void clocks_begin(Clocks *c, const Graph *g) {
  for_each_op(op, g)
    c->done[op->id] -= c->now;
  c->queue -= c->now;
  c->now = 0;
}
