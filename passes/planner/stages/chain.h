// Stages of units in one order, one on each rank: an exact table of the schedule's times of
// them.
//
//     units    0 1 2 │ 3 4 5 │ 6 7 8       stage 1 is units 3 to 5
//     stage s  lead  F F F … F B F B … B  tail   after the loop
//
// With m micro-batches a stage that runs units a to b - 1 takes
//
//     lead + tail + fill + drain + m T + sums
//
//     T        forward and backward of a micro-batch: its units, the reshards of what crosses its
//              borders, and its part of the waiting for messages; or the time of all its messages,
//              if that is longer
//     lead     forwards of earlier stages, and messages: the first micro-batch is not here earlier
//     tail     their backwards, and messages, after its last one; under split backwards (zb-*)
//              gradients of weights fill that time, and there is none
//     fill     until its first backward: the first micro-batch goes through all later stages and
//              back, while the schedule has some more forwards to run
//     drain    after its last forward, likewise, while there are backwards to run
//     sums     after the loop: sums of gradients over replicas, updates, gathers of weights
//
// With one micro-batch no two stages run at the same time, and a stage takes its own T, messages
// and sums only.
//
// The slowest stage is minimized over all borders, within the memory of each rank (nnScaler, OSDI
// 2024, equation 1, with these terms; no timeline of the schedule ends before). Lead and tail are
// those of the units before a stage and of its borders, so for a limit of seconds the least lead
// and tail at (stage, units done) is enough, and a bisection of the limit finds the optimum. Among
// these borders those of the most even stages are taken.
//
// The problem is independent of graphs: borders.c derives it from a graph, tests from random
// numbers.

#ifndef STAGES_CHAIN_H
#define STAGES_CHAIN_H

#include "partition.h"
#include "schedule/staged_kinds.h"

// A layout that readers of a value want. In another stage than the value's, the value crosses in
// the layout number `via`: the sender reshards to that, and the receiver from there.
typedef struct Want {
  double here;      // seconds of a micro-batch in the value's stage
  double sent, got; // of a sender and of a receiver
  int via;          // wants with the same number cross once
  int same;         // the want that is the layout of the crossing; -1: none
  double bytes;     // of a rank and micro-batch
} Want;

typedef struct Transfer {
  int from;  // the unit that produces the value
  bool back; // a gradient, for this unit or earlier ones; else for this unit or later ones
  int n_readers;
  const int *reader, *want; // units, and their wants
  int n_wants;
  const Want *at;
} Transfer;

enum { MAX_WANTS = 8 };

typedef struct Chain {
  const Partition *p; // bytes, limits, and tensors that units share; run s is stage s
  StagedKind kind;    // with one stage on each rank
  double slices;
  // [n_units * n_stages] seconds: of a micro-batch; `sums` of a step.
  double *forward, *backward, *weights, *sums;
  double *shared; // by shared tensor of `p`: its sums
  double *apart;  // messages of its gradients, if it is on several stages
  const Transfer *transfer;
  int n_transfers;
} Chain;

// Returns the kind of a schedule's name; of NULL, an unknown name, or one with several stages on
// each rank, 1f1b.
StagedKind chain_kind(const char *schedule);
// The forwards of a stage up to the first backward, from that of the same micro-batch on.
int chain_early(const Chain *c, int stage);
// Whether as many micro-batches are left after the last forward, with nothing else to run.
bool chain_drains(const Chain *c);

// The parts of a stage's time, in seconds.
typedef struct ChainStage {
  double lead; // with tail, fill and drain
  double slice, sums, all;
  double bytes;
  bool fits;
} ChainStage;

// Returns the stages that begin at units first[0] = 0 < first[1] < …, by the definition.
ChainStage *chain_price(Arena *a, const Chain *c, const int *first);
// Finds the best first units; NULL: no stages fit.
int *chain_solve(Arena *a, const Chain *c);

#endif
