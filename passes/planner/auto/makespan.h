// The time of a step in stages: a lower bound in closed form, and the timeline.
//
//     stage 0   F F F F . . . B B B B     sums of gradients, update
//     stage 3         F B F B F B F B     sums of gradients, update
//
// The bound holds for every timeline of the kind's orders, whatever the stages take. A stage ends
// no earlier than each of these allows:
//
//     lead         all work of the stage, after the first forward of the stages before it
//     first back   its first backward comes after all forwards and the backwards of later stages, and
//                  no more than the kind's number of forwards have run by then (staged_ahead)
//     round trips  a forward starts after the backward of so many micro-batches before it (Little's
//                  law), and a round trip through the later stages takes its time
//     last trip    its last forward starts a round trip; before it are backwards, but the kind's number
//     weights      by its last backward a stage has done all weight gradients but the last ones
//     last back    its last backward follows that of the next stage
//
// And a device has one transfer at a time, each way over each of its borders for every micro-batch.
//
// With several stages per device:
//
//     interleaved  as lead, for each chunk: its first forward comes after all stages before it, and by
//                  then the device has done the earlier chunks' forwards of one group of micro-batches
//                  only; and its last backward, likewise, from the end. A device of equal stages thus
//                  waits for the others as long as they have the chunk, whichever it is
//     zb-v         lead, and backwards of the earlier stages; and activations of as many micro-batches
//                  as there are devices have room, each for a round trip (Little's law)
//
// Sums of gradients start at the end of a stage, not at the end of the loop. All stages begin a
// step together (cost/cost_step.h).

#ifndef MAKESPAN_H
#define MAKESPAN_H

#include "schedule/staged.h"

typedef struct StageCost {
  double forward, backward, weight_grad; // seconds of a micro-batch; backward with recomputation
  double forward_waits, backward_waits;  // the parts of these in which copies are waited for
  double hop;                            // of a transfer to the next stage, and of one back
  double kept;                           // bytes of a micro-batch from forward to backward
  double waiting;  // and from there to gradients of weights, if these run later; 0: as before
  double both;     // the part of these that is kept before, and waits
  double updating; // bytes beside those that last, after the last micro-batch
  double lasting, working; // bytes of the whole step; the most beside those
  double sums, update;     // seconds after the last micro-batch
} StageCost;

typedef struct PipelineCost {
  StagedKind kind;
  int stages, chunks; // devices; chunks of each, of interleaved
  int64_t micro_batches;
  const StageCost *at; // [staged_stages]
  double tied_sums;    // of first and last stage; see unit_cost.h
  bool joint_update;
} PipelineCost;

double makespan_bound(const PipelineCost *c);

// The timeline of the kind's orders, with transfers one after the other, and the bytes of the
// device with the most.  False: it takes no less than the cutoff; INFINITY: any will do.
bool makespan_run(const PipelineCost *c, double cutoff, double *seconds, double *peak);

// -- Of one stage ------------------------------------------------------------------------------

// The orders of a kind with one stage per device, at a stage.
typedef struct StageOrders {
  bool split, all_first; // all_first: all forwards precede the first backward
  int64_t micro_batches;
  int64_t ahead; // forwards before the first backward
  int64_t due;   // a weight gradient is due before the forward of so many micro-batches later
} StageOrders;

typedef struct StageTimes {
  double forward, backward,
      weight_grad;   // own; backward with the weight gradient unless it is split
  double lead;       // start of its first forward, at the earliest
  double first_back; // start of its first backward
  double round_trip; // start of a forward to end of its backward
  double next_back;  // arrival of the last gradient from the next stage
} StageTimes;

typedef struct StageEnds {
  double back, all; // of the last backward; of all work
} StageEnds;

StageOrders stage_orders(StagedKind kind, int stages, int64_t micro_batches, int stage);
// Lower bounds from lower bounds of `t`.
StageEnds stage_ends(const StageOrders *o, const StageTimes *t);

#endif
