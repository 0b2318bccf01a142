// What happens when in a step, as cost_step.h predicts it: for pictures of it.
//
//     lane 0   ranks 0-3   compute       F0 of slice 0 ──── F0 of slice 1 ──── …
//                          communicate    all_reduce ── all_reduce ──
//                          move                 %h1 of slice 0 ──
//
// Ranks that do the same at the same time are one lane.

#ifndef TIMELINE_H
#define TIMELINE_H

#include "base/vec.h"
#include "collectives.h"
#include "cost_step.h"

// What a lane does side by side: it computes, moves data between ranks, moves what is for other
// segments, and copies to and from host memory.
typedef enum StepLine { LINE_computes, LINE_moves, LINE_ahead, LINE_out, LINE_in } StepLine;

// An op, or all ops of a segment that a lane computes; without a schedule, of a slice.
typedef struct StepEvent {
  int lane;
  const Op *op; // NULL: a segment
  StepLine line;
  int segment; // that it is, or is in; 0: none
  StepPart part;
  int slice;   // -1: outside of the loop
  bool before; // it was begun in the step before, which has carried it over
  double from, to;
} StepEvent;

typedef struct StepLane {
  int *device, n_devices; // in order
  const RankCost *cost;
} StepLane;

typedef struct StepTimeline {
  StepCost cost;
  StepLane *lane;
  int n_lanes;
  Vec(StepEvent) event; // those of each line of a lane in order
} StepTimeline;

// As step_cost.
bool step_timeline(const Module *m, const Cluster *c, Target target, Arena *a, StepTimeline *out);

// -- Memory ------------------------------------------------------------------------------------

typedef enum MemoryKind {
  MEMORY_weight, // that last from step to step
  MEMORY_state,
  MEMORY_input, // rows of a slice, and what the runtime sets
  MEMORY_forward,
  MEMORY_backward,
  MEMORY_update,
  MEMORY_moved, // came from other ranks
  N_MEMORY_KINDS,
} MemoryKind;

extern const char *const memory_kind_name[N_MEMORY_KINDS];

// From here on so much is in use.
typedef struct MemoryPoint {
  double time;
  int64_t bytes[N_MEMORY_KINDS];
} MemoryPoint;

// What is in memory at one time: the largest value of those in a place.  What is made in the place
// of another, views and members of buckets are not counted again.
typedef struct MemoryHeld {
  const Value *value;
  MemoryKind kind;
  int64_t bytes; // of one slice
  int slices;    // that it is there for
} MemoryHeld;

typedef struct LaneMemory {
  Vec(MemoryPoint) point;
  int64_t peak, planned; // bytes in use at the most; bytes of the slab: with gaps between places
  double peak_time;
  const Op *peak_op;       // that runs then; NULL: a segment begins or has ended
  int peak_slice;          // -1: outside of the loop
  Vec(MemoryHeld) at_peak; // most bytes first
} LaneMemory;

// Of each lane; from PHASE_planned on.
LaneMemory *step_memory(const StepTimeline *t, const Module *m, Arena *a);
// The same of host memory.
LaneMemory *step_host_memory(const StepTimeline *t, const Module *m, Arena *a);

#endif
