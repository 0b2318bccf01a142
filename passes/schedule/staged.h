// Pipelines of unequal stages, by the orders of a kind, without its file in Lua: the timeline that
// the pass `schedule` finds for such stages, in about a millisecond.
//
// A search for a plan asks for thousands of timelines, and a kind's file takes longer than one.  A
// test compares the orders with those of the files.

#ifndef SCHEDULE_STAGED_H
#define SCHEDULE_STAGED_H

#include "schedule/schedule.h"
#include "schedule/staged_kinds.h"

typedef struct StagedStage {
  double f, b, w; // of a micro-batch; b and w run together unless the kind splits them
  double hop;     // latency between this stage and the next, each way
  double kept;    // memory of a micro-batch, from the start of F to the end of B
  double waiting; // and from there to the end of W, if the kind splits it; 0: as before
  double both;    // the part of these that is kept before, and waits: 0 of other bytes
} StagedStage;

typedef struct Staged {
  StagedKind kind;
  int n_devices, chunks; // chunks: 1 unless interleaved
  int n_micro_batches;
  const StagedStage *stage; // [staged_stages]
  double cutoff;            // only shorter timelines are of interest; 0: all
} Staged;

// The most memory of activations that a device holds at a time, by those of a micro-batch on each
// of its stages, in order.
double staged_peak(StagedKind kind, int n_devices, int chunks, int n_micro_batches, int device,
                   const double *kept);

// The most micro-batches of a stage with live values at a time: from F to B, from F to W, and from
// B to W.
typedef struct StagedHeld {
  int kept, both, waiting;
} StagedHeld;

// The bytes of so many. A value has a slot of its own for each micro-batch (memory/plan_slots.c),
// for as long as it has any, so values that are not live at the same times share no bytes. Only if
// weight gradients end before the next forward they do.
static inline double staged_bytes(const StagedStage *s, StagedHeld held) {
  if (held.both <= 1 && s->waiting > s->kept) return held.both * s->waiting;
  if (held.both <= 1) return held.kept * s->kept;
  return held.kept * (s->kept - s->both) + held.both * s->both +
         held.waiting * (s->waiting - s->both);
}

typedef struct StagedBlock {
  WorkKind kind;
  int stage, micro_batch;
  double end;
} StagedBlock;

typedef struct StagedTimeline {
  double makespan;
  double *peak;       // per device: the most bytes of activations (staged_bytes)
  int *at;            // the blocks of device d, in order: block[at[d] … at[d + 1]]
  StagedBlock *block; //
} StagedTimeline;

// The best of the list rules, as in the pass.  False: none is shorter than the cutoff.
bool staged_run(Arena *a, const Staged *s, StagedTimeline *out);

// Runs the blocks of a timeline in its order, with transfers that follow each other on every
// device, as in a step (cost/cost_step.h): a transfer starts at the end of its sender's block, once
// both ends are done with earlier ones, and the receiver with the blocks that end before the
// sender's.  `end`: of each device.
void staged_transfers(Arena *a, const Staged *s, const StagedTimeline *t, double *end);

// The same as a problem of schedule_list.  `room` is the limit of its rules.
Pipeline *staged_pipeline(Arena *a, const Staged *s);
Orders staged_orders(Arena *a, const Staged *s, const Blocks *b);
double staged_room(const Staged *s);

#endif
