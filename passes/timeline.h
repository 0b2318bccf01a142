// What happens when in a step, as cost_step.h predicts it: for pictures of it.
//
//     lane 0   ranks 0-3   compute       F0 of slice 0 ──── F0 of slice 1 ──── …
//                          communicate        %h1 of slice 0 ──
//
// Ranks that do the same at the same time are one lane.

#ifndef TIMELINE_H
#define TIMELINE_H

#include "base/vec.h"
#include "collectives.h"
#include "cost_step.h"

// An op that a lane computes, or moves, or a segment of a schedule with all of its ops.
typedef struct StepEvent {
  int lane;
  const Op *op; // NULL: a segment
  bool moves;   // in the lane's queue of what moves data
  int segment;  // that it is, or is in; 0: none
  StepPart part;
  int slice; // -1: outside of the loop
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
  Vec(StepEvent) event; // those of the compute of a lane in order, and those of its queue
} StepTimeline;

// As step_cost.
bool step_timeline(const Module *m, const Cluster *c, Target target, Arena *a, StepTimeline *out);

#endif
