// Two clocks, for passes that look for a better order of ops: until when a rank computes, and until
// when its queue of collectives is busy.
//
//     compute   %a ── %b ── %c ─────┐ waits ┌ %d        %d reads what is summed
//     queue         └ all_reduce ───────────┘
//
// Ops run in the order in which they are given, an all_reduce beside what follows, until somebody
// reads it; all else that moves data is waited for at once.  All ranks do the same, and slices of
// time are no matter: step_walk.c, which has classes of ranks, tells what a step takes.

#ifndef COST_CLOCKS_H
#define COST_CLOCKS_H

#include "cluster/cluster.h"
#include "cost_comm.h"
#include "ir/graph.h"

typedef struct Clocks {
  const Cluster *cluster;
  CommPrices *prices;
  double now, queue; // seconds
  double *done;      // by op id, of all_reduces: when the queue has done them
} Clocks;

// Both at 0, for a graph whose ids have no gaps.
Clocks clocks_new(const Graph *g, const Cluster *cluster, Arena *a);
// When all that it waits for is done.
double clocks_ready(const Clocks *c, const Op *op);
// How long it computes: nothing, if it moves data.
double clocks_seconds(const Clocks *c, const Op *op);
void clocks_run(Clocks *c, const Op *op);
// Of a collective: it is put in the queue, and nobody waits.
void clocks_queue(Clocks *c, const Op *op);
// What is now becomes 0.
void clocks_begin(Clocks *c, const Graph *g);

#endif
