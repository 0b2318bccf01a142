// What a step takes: seconds that each rank computes, communicates, and waits for others.
//
//     begin    once                       ranks   0   linear ── gelu ─ move╌╌╌╌╌╌╌╌╌╌ gelu_back ──
//     loop     for every micro-batch              1                     └─ linear ── move
//     update   once                                                        (stages take turns, where
//                                                                       there is no schedule)
//
// Ranks run their ops in the order of the program, as generated code does, and communicate in that
// order too, one collective after the other, as the runtime's queue does (rt/README.md):
//
//   * all_reduce only starts.  The rank goes on, and waits before the first op that reads the sum,
//     before the next micro-batch, and at the end: so gradients are reduced while backward goes on.
//   * All other collectives and moves are waited for where they stand, and so for those before them.
//   * A collective begins when all ranks of its group are there and have done those before it.
//   * On processors a rank that only sends in a move goes on at once; on gpus it waits for who gets.
//
// A graph with a schedule (ir/schedule.h) runs its loop as its runs say, segment by segment:
//
//     ranks   0   F0 ─ F0 ─ F0 ─ F0 ───╌╌╌ B0 ─ F0 ─ B0 …
//             1        └╌ F1 ─ B1 ─ F1 ─ B1 ─ …
//
//   * A move to another segment starts when the segment has run that makes what is moved, and those
//     that only get it begin at their `get`.  They all go on meanwhile, and wait for it where the
//     segment begins that it is in; who only sends never waits.
//   * Such moves are in a queue of their own, one after the other, as in the runtime: what ranks of a
//     segment do among themselves does not stand behind what they get for the next slice.
//   * All sums of a segment are waited for at its end.
//
// Deferred updates (ir/analysis/deferred.h) run in the next step, before the op that each is
// due before: sums that owed ops read are waited for then, in the step after.  Steps are gone
// through until they take the same, and the step is one of these: from when it begins to when the
// next one does.
//
// What an op takes says cost.h, what a collective takes cost_comm.h.  Nothing is slower because
// something else runs at the same time, and a rank has its device to itself.  Reading rows, logging
// and checkpoints are not counted.
//
// Ranks that are on the same meshes, and of the same kind of device, do the same at the same time,
// so they are one class, and time grows with classes times ops, not with ranks times ops.  Where a
// collective has ranks of several classes, all of a class wait for all of the others: a group that
// has none of them, too.

#ifndef COST_STEP_H
#define COST_STEP_H

#include "cluster/cluster.h"
#include "ir/graph.h"
#include "ir/op.h"

typedef struct RankCost {
  // Seconds in which it does so; both at once where they overlap.  Its two queues count once where
  // they do.
  double compute, comm;
  double idle; // in which it does neither
} RankCost;

typedef struct StepCost {
  double seconds;
  double span;           // of the rank with most: from when it begins to when it ends
  double bubble;         // idle seconds of all ranks, as a part of all their seconds
  int n_ranks, *device;  // as module_devices gives them
  const RankCost **rank; // of each; equal where they are of one class
} StepCost;

// Of the first graph of a module from PHASE_local on.  false where it cannot be said: before that,
// where the cluster has fewer devices, or does not say how fast they are, or where the runs of a
// schedule wait for each other in a circle.
bool step_cost(const Module *m, const Cluster *c, Target target, Arena *a, StepCost *out);

#endif
