// Live ranges in the memory of a lane, in the order of its actions.
//
//     F0 0   F0 1   F0 2   B0 0   F0 3 …         slice 0 of %h lives from the first F0 to its last
//     %h 0 ────────────────┘                     reader, the first B0: three slices of %h are
//            %h 1 ──────────────────── …         resident at once
//
// Values that share memory, produced in place or as views, form one block.  They are linked if an
// op reads one and produces the other, and their bytes overlap.  A bucket has a block per member,
// since gradients fill it one after the other.  A block lives from the first op that writes to it
// to the last op that reads from it, once per slice.  A block that lasts has a single live range: a
// value that accumulates over slices, that begin produces, or that update reads.  Sums over slices
// live from the first slice on, which writes them instead of adding.
//
// Deferred updates (ir/analysis/deferred.h) run in the next step.  Their operands live to the end
// of their own step, and again from the beginning of the next one, which is the same simulated
// step, since all steps are equal.
//
// A moment is a position in the lane's order: an action, and an op in it.  A move reads its operand
// at the end of the segment that produces it.  Its result takes memory from there on, or from its
// `get` on (ir/schedule.h).  step_memory.c converts moments to seconds.

#ifndef STEP_LIVES_H
#define STEP_LIVES_H

#include "timeline.h"

// A position in the lane's order: an op time in an action.
typedef struct Moment {
  int action;
  int64_t at; // op_time; 0: before all ops, INT64_MAX: after all
} Moment;

typedef struct MemBlock {
  struct MemBlock *next; // the next part of the same bucket
  int id;
  const Value *value; // the first
  const Value *shown; // the largest; for a bucket, the bucket
  MemoryKind kind;
  int64_t from, to; // bytes in the slab
  bool lasts;       // lives through all slices, or outside of the loop
} MemBlock;

// The actions of a lane in a step: begin, the loop, update.
typedef struct LaneRun {
  int n_actions;
  const Op **get; // of each action, or NULL
  int *segment, *slice;
  int **run_of;  // the action, by segment and slice; without a schedule segment 0 is the loop
  int *first_of; // the first action, by slice
  int last;      // the last action of the loop
  Moment end;    // of the step
} LaneRun;

typedef struct LaneLives LaneLives;

typedef struct Lived {
  bool lives;
  Moment from, to; // both included
} Lived;

// Computes the live ranges of a lane.  `part`: by op id, from graph_step_parts.  `host`: of values
// in host memory.  All of it is in the arena.
LaneLives *lane_lives_new(Arena *a, const Graph *g, const StepPart *part, int device, bool host);
const LaneRun *lane_lives_run(const LaneLives *s);

// Called for every block, and for a block that does not last once per slice.
typedef void EachLife(const MemBlock *b, Lived life, void *context);
void for_each_life(const LaneLives *s, EachLife *then, void *context);

static inline bool moment_before(Moment x, Moment y) {
  return x.action != y.action ? x.action < y.action : x.at < y.at;
}

#endif
