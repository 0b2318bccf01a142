// place: assigns undecided ops to stages along an axis, so that the slowest rank has the least work
// (nnScaler, OSDI 2024, equation 1), within the memory of its device.
//
//     place("pp", {2, 6})     %1 = linear …  @pp0to1 {S(0)} split=[0]     two ranks share the batch
//                             %2 = linear …  @pp2to7 {S(0)} split=[0]     six ranks do
//
//     units.h      the units of ops that stay together
//     loads.h      their costs on each run of ranks: compute, links, memory
//     chain.h      the best stages of one rank each, as their schedule runs them
//     partition.h  the best assignment to other runs: a table of stages, labels, and CBC
//
// The kind of schedule is the one that the program has asked for before (`schedule`); else 1f1b.
//
// With chunks every rank has several stages (schedules such as interleaved:2): stage i is on rank i
// modulo the number of ranks, or there and back. They are chosen like stages of that many more
// ranks, each with its part of a device's memory.
//
// With two ways (a bidirectional pipeline) a model is in two pieces, each with half of the batch: a
// stage of the first is on rank i, the same stage of the second on rank n - 1 - i. So every rank
// has two stages, and every weight is on two ranks.
//
// With pieces a model, split along its tokens, goes through the stages piece by piece: an op of
// each piece is on the ranks of the same op of the first.
//
// With several forwards, a layer is on the same ranks in all of them.
//
// A program may deal layers to stages itself: then nothing is chosen, and units without a stage are
// on that of the unit before them.
//
// A stage is a run of neighbouring ranks of the axis, each with its slice of the batch. Ops that
// the program has assigned or split along the axis keep their ranks. Other graphs of the module,
// such as @eval, are placed like the first one.

#ifndef STAGES_STAGES_H
#define STAGES_STAGES_H

#include "planner/search/search.h"
#include "sharding/sharding.h"

// The options of place.
typedef struct StageOptions {
  int n;            // stages; 0: the best number
  const int *size;  // [n] ranks of each; NULL: the best sizes
  int chunks;       // more than 1: stages per rank, dealt to the ranks in rounds
  bool back;        // every second round goes from the last rank to the first
  bool ways;        // of a model in two pieces, the second goes from the last rank to the first
  bool pieces;      // all pieces of a model go through the same stages
  int forwards;     // more than 1: passes of the model through the stages
  const int *dealt; // by op id: its stage, from 1, or 0; NULL: they are chosen. `n` or the chunks
                    // are as many
  const Loc *const *number; // [stages] of `dealt`: the numbers of the plan's text; or NULL
  const bool *among;        // by op id: the ops to place; NULL: all that are open
} StageOptions;

typedef struct Stages {
  int n;
  const int *size; // [n] ranks of each
  SearchStats searched;
} Stages;

// `why` is the line that asks for it. False, with an error reported, if it is impossible.
bool stages_place(Sharding *s, int axis, const StageOptions *wish, const Loc *why, Stages *out,
                  Diag *d);

#endif
