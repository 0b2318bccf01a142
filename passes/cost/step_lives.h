// What is in the memory of a lane from when to when, in the order of what it does.
//
//     F0 0   F0 1   F0 2   B0 0   F0 3 …         slice 0 of %h is there from the first F0 to the
//     %h 0 ────────────────┘                     first B0, which is the last to read it: three
//            %h 1 ──────────────────── …         slices of it at once
//
// Values that share a place, made in place or as views, are one block: they are linked where an op
// reads one and makes the other, and their bytes overlap.  Of a bucket what each value that is
// packed has of it is a block: gradients fill it one after the other.  A block lives from the first
// op that makes something in it to the last that reads something of it, in every slice of time
// anew, unless it lasts: what is added up over slices, what begin makes, what update reads.  Sums
// over slices are there from the first slice on, that writes and does not add.
//
// Deferred updates (ir/analysis/deferred.h) run in the next step: their operands live to
// the end of its step, and again from the beginning of the next, which is the same step here, as
// all are alike.
//
// A moment is a place in the lane's own order, action by action, and op by op in them.  A move
// reads what it takes at the end of the segment that makes it, and what it brings takes memory from
// there, or from its `get` on (ir/schedule.h).  step_memory.c says what time that is.

#ifndef STEP_LIVES_H
#define STEP_LIVES_H

#include "timeline.h"

// Where in what a lane does something happens: the op of a time in an action.
typedef struct Moment {
  int action;
  int64_t at; // op_time; 0: before all ops, INT64_MAX: behind them
} Moment;

typedef struct MemBlock {
  struct MemBlock *next; // of the same values: the parts of a bucket
  int id;
  const Value *value; // the first
  const Value *shown; // the largest: of a bucket, the bucket
  MemoryKind kind;
  int64_t from, to; // bytes in the slab
  bool lasts;       // is there for all slices, or has nothing to do with them
} MemBlock;

// What a lane does in a step: begin, the loop, update.
typedef struct LaneRun {
  int n_actions;
  const Op **get; // of each action, or NULL
  int *segment, *slice;
  int **run_of;  // by segment, slice: the action; without a schedule segment 0 is the loop
  int *first_of; // by slice
  int last;      // action of the loop
  Moment end;    // of the step
} LaneRun;

typedef struct LaneLives LaneLives;

typedef struct Lived {
  bool lives;
  Moment from, to; // both included
} Lived;

// `part`: by op id, as graph_step_parts gives it.  `host`: of what is in host memory.  All of it is
// in the arena.
LaneLives *lane_lives_new(Arena *a, const Graph *g, const StepPart *part, int device, bool host);
const LaneRun *lane_lives_run(const LaneLives *s);

// Every block, and of one that does not last every slice.
typedef void EachLife(const MemBlock *b, Lived life, void *context);
void for_each_life(const LaneLives *s, EachLife *then, void *context);

static inline bool moment_before(Moment x, Moment y) {
  return x.action != y.action ? x.action < y.action : x.at < y.at;
}

#endif
