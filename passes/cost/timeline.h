// The timeline of a step, as cost_step.h predicts it, for pictures.
//
//     lane 0   ranks 0-3   compute       F0 of slice 0 ──── F0 of slice 1 ──── …
//                          communicate    all_reduce ── all_reduce ──
//                          move                 %h1 of slice 0 ──
//
// Ranks that behave the same at the same time form one lane.

#ifndef TIMELINE_H
#define TIMELINE_H

#include "base/vec.h"
#include "collectives.h"
#include "cost_step.h"

// The concurrent lines of a lane: computation, transfers between ranks, moves to other segments,
// and copies to and from host memory.
typedef enum StepLine { LINE_computes, LINE_moves, LINE_ahead, LINE_out, LINE_in } StepLine;

// One op, or all ops of a segment that a lane computes; without a schedule, of a slice.
typedef struct StepEvent {
  int lane;
  const Op *op; // NULL: a segment
  StepLine line;
  int segment; // the segment itself, or the op's; 0: none
  StepPart part;
  int slice;   // -1: outside of the loop
  bool before; // begun in the previous step, and carried over
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
  Vec(StepEvent) event; // the events of each line of a lane are in order
} StepTimeline;

// Like step_cost, with a timeline.
bool step_timeline(const Module *m, const Cluster *c, Target target, Arena *a, StepTimeline *out);

// -- Memory ------------------------------------------------------------------------------------

typedef enum MemoryKind {
  MEMORY_weight, // persistent
  MEMORY_state,
  MEMORY_input, // rows of a slice, and scalars that the runtime sets
  MEMORY_forward,
  MEMORY_backward,
  MEMORY_update,
  MEMORY_moved, // received from other ranks
  N_MEMORY_KINDS,
} MemoryKind;

extern const char *const memory_kind_name[N_MEMORY_KINDS];

// The resident bytes from this time on.
typedef struct MemoryPoint {
  double time;
  int64_t bytes[N_MEMORY_KINDS];
} MemoryPoint;

// A block of memory that is resident at the peak, shown as its largest value.  Values produced in
// place, views and members of buckets are not counted again.
typedef struct MemoryHeld {
  const Value *value;
  MemoryKind kind;
  int64_t bytes; // of one slice
  int slices;    // number of resident slices
} MemoryHeld;

typedef struct LaneMemory {
  Vec(MemoryPoint) point;
  int64_t peak, planned; // resident bytes at the peak; bytes of the slab, gaps included
  double peak_time;
  const Op *peak_op;       // runs at the peak; NULL: a segment begins or ends
  int peak_slice;          // -1: outside of the loop
  Vec(MemoryHeld) at_peak; // largest first
} LaneMemory;

// The memory of each lane; from PHASE_planned on.
LaneMemory *step_memory(const StepTimeline *t, const Module *m, Arena *a);
// The same for host memory.
LaneMemory *step_host_memory(const StepTimeline *t, const Module *m, Arena *a);

#endif
