// Two clocks for passes that reorder ops: the time at which a rank stops computing, and the time at
// which its queue of collectives is empty.
//
//     compute   %a ── %b ── %c ─────┐ waits ┌ %d        %d reads the result of the all_reduce
//     queue         └ all_reduce ───────────┘
//
// Ops run in the given order.  A collective that overlaps (op_overlaps) does so with the ops after
// it, up to the first reader. Every other transfer is waited for at once.  All ranks are assumed
// equal, and time slices are ignored: step_walk.c, which has classes of ranks, predicts the step
// time.

#ifndef COST_CLOCKS_H
#define COST_CLOCKS_H

#include "cluster/cluster.h"
#include "cost_comm.h"
#include "ir/op.h"

typedef struct Clocks {
  const Cluster *cluster;
  Target target;
  CommPrices *prices;
  double now, queue; // seconds
  double *done;      // by op id, of collectives that overlap: the completion time
} Clocks;

// Returns both clocks at 0, for a graph with ids without gaps.
Clocks clocks_new(const Graph *g, const Cluster *cluster, Target target, Arena *a);
// The time at which all collectives that the op reads are complete.
double clocks_ready(const Clocks *c, const Op *op);
// The compute time of the op: 0 for an op that transfers data.
double clocks_seconds(const Clocks *c, const Op *op);
void clocks_run(Clocks *c, const Op *op);
// Puts a collective into the queue without waiting for it.
void clocks_queue(Clocks *c, const Op *op);
// Makes the current time 0.
void clocks_begin(Clocks *c, const Graph *g);

#endif
