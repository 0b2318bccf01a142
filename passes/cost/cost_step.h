// The time of a step: the seconds in which each rank computes, communicates, and waits.
//
//     begin    once                       ranks   0   linear ── gelu ─ move╌╌╌╌╌╌╌╌╌╌ gelu_back ──
//     loop     for every micro-batch              1                     └─ linear ── move
//     update   once                                                        (stages alternate without
//                                                                       a schedule)
//
// Ranks run their ops in program order, as generated code does.  They communicate in that order
// too, one collective after the other, as the runtime's queue does (rt/README.md):
//
//   * Collectives that overlap in the prices of the target (op_overlaps) are asynchronous: those of
//     kind all_reduce.  The rank waits for one before the first reader of its result or the op
//     that overwrites its operand, before the next micro-batch, and at the end (in_flight.h), so
//     gradient reduction overlaps with backward, and gathered weights with the update.
//   * Every other collective or move blocks the rank in its position, and so do those before it in
//     the queue.
//   * A collective begins when all ranks of its group have reached it and completed those before it.
//   * On CPUs a rank that only sends in a move continues at once; on GPUs it waits for the receiver.
//
// A graph with a schedule (ir/schedule.h) runs its loop by its runs, segment by segment:
//
//     ranks   0   F0 ─ F0 ─ F0 ─ F0 ───╌╌╌ B0 ─ F0 ─ B0 …
//             1        └╌ F1 ─ B1 ─ F1 ─ B1 ─ …
//
//   * A move to another segment starts at the end of the segment that produces its operand; a rank
//     that only receives begins at its `get`.  All ranks continue meanwhile.  Receivers wait at the
//     beginning of the move's segment; ranks that only send never wait.
//   * Such moves have a queue of their own, in order, as in the runtime: collectives within a segment
//     are not delayed by receives for the next slice.
//   * All collectives of a segment are waited for at its end.
//
// Deferred updates (ir/analysis/deferred.h) run in the next step, before their due op, and wait
// there for the collectives that they read.  Steps are simulated until the step time is constant;
// the result is one such step, from its beginning to the beginning of the next.
//
// cost.h gives the seconds of an op, cost_comm.h those of a collective.  Contention between
// overlapping ops is ignored, and a rank has its device to itself.  Data loading, logging and
// checkpoints are not counted.
//
// Ranks on the same meshes and of the same kind of device behave the same at the same time.  They
// form one class, so the simulation takes time proportional to classes times ops, not ranks times
// ops.  If a collective has ranks of several classes, all ranks of each class wait for all of the
// other classes, even in groups without them.

#ifndef COST_STEP_H
#define COST_STEP_H

#include "cluster/cluster.h"
#include "ir/graph.h"
#include "ir/op.h"

typedef struct RankCost {
  // The compute and communication seconds; overlapped time counts in both.  Overlap of the two
  // communication queues counts once.
  double compute, comm;
  double idle; // neither of the two
} RankCost;

typedef struct StepCost {
  double seconds;
  double span;           // the longest span of a rank, from its first op to its end
  double bubble;         // idle seconds of all ranks as a fraction of all their seconds
  int n_ranks, *device;  // as in module_devices
  const RankCost **rank; // of each rank; equal pointers within a class
} StepCost;

// Predicts a step of the first graph of a module from PHASE_local on.  Returns false before that
// phase, if the cluster has too few devices or does not give their speed, or if the runs of a
// schedule deadlock.
bool step_cost(const Module *m, const Cluster *c, Target target, Arena *a, StepCost *out);

// A copy in another arena: the simulation of a step needs far more memory than its result.
StepCost *step_cost_copy(const StepCost *cost, Arena *a);

#endif
