// place: puts what a program has left open on stages of an axis, so that the slowest rank has least
// to do (nnScaler, OSDI 2024, equation 1), within the memory of its device.
//
//     place("pp", {2, 6})     %1 = linear …  @pp0to1 {S(0)} split=[0]     two ranks share the rows
//                             %2 = linear …  @pp2to7 {S(0)} split=[0]     six ranks do
//
//     units.h      what stays together
//     loads.h      what each costs on each run of ranks: compute, links, memory
//     partition.h  which are together the least: a table of stages, labels, and CBC
//
// With chunks every rank has several stages (schedules such as interleaved:2): stage i is on rank i
// modulo their number, or there and back.  They are chosen as stages of as many ranks more, of
// which each has its part of a device's memory.
//
// With two ways a model is in two pieces, of which each has half of the rows: a stage of the first
// is on rank i, the same of the second is on rank n - 1 - i.  So every rank has two stages, and
// every weight is on two ranks.
//
// With pieces a model, cut along its tokens, goes through the stages piece by piece: an op of each
// is on the ranks of the same op of the first.
//
// With several forwards, a layer is on the same ranks in all of them.
//
// A stage is a run of neighbouring ranks of the axis, of which each has its part of the rows.  Ops
// that the program has assigned or split along the axis stay as they are.  Other graphs of the
// module, such as @eval, are placed as the first one is.

#ifndef STAGES_STAGES_H
#define STAGES_STAGES_H

#include "planner/search/search.h"
#include "sharding/sharding.h"

// What a program asks for.
typedef struct StageOptions {
  int n;           // stages; 0: as many as are best
  const int *size; // [n] ranks of each; NULL: as many as are best
  int chunks;      // more than 1: every rank has so many stages, of the ranks one after the other
  bool back;       // and every second time from the last rank to the first
  bool ways;       // of a model in two pieces, the second goes from the last rank to the first
  bool pieces;     // of a model in pieces, all go through the same stages
  int forwards;    // more than 1: the model goes through the stages so many times
} StageOptions;

typedef struct Stages {
  int n;
  const int *size; // [n] ranks of each
  SearchStats searched;
} Stages;

// `why` is the line that asks for it.  False, having reported why, when it cannot be.
bool stages_place(Sharding *s, int axis, const StageOptions *wish, const Loc *why, Stages *out,
                  Diag *d);

#endif
