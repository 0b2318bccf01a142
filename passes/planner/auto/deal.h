// Deals the units of a model to stages: consecutive units to each, so that the step is shortest.
//
//     units    e a m a m a m a m h       e: embedding, a: attention, m: mlp, h: head
//     stages   e a m│a m a│m a│m h       of unequal work: the first and the last begin and end beside
//                                        others
//
// The least bound of makespan.h over all deals whose stages fit the memory is found by a table over
// (stage, units before it), from the last stage to the first. What earlier stages do to a stage
// depends on the units before it only, whoever has them; what later stages do is in the labels of a
// state, of which the table keeps those that no other is better than:
//
//     back     end of the last backward of the next stage
//     ends     the longest of the ends of later stages, with their sums and updates
//     again    seconds of recomputation in later stages
//
// It is exact if no state needs more than 16 labels and all transfers take the same time. More
// labels are merged, each figure the least of both. If transfers differ by border, a stage gets the
// least of them that its position allows. The result is still a bound then, and the deal still a
// deal.
//
// Kinds with several stages per device (interleaved, zb-v) get stages of nearly equal work, and a
// bound of the mean of the devices: deal_chunks.c.
//
// A stage that does not fit recomputes its first units, as few as fit, but whole layers: fewer take
// less time and nothing else depends on their number. The level is the one that costs less.
//
// Or it has the states of its first units in host memory, again of whole layers:
//
//     recomputed   8   6   4   2   0     seconds of each micro-batch
//     offloaded    0   2   4   6   7     seconds after the last one
//
// All such pairs are tried, of every eighth of the stage's layers, and the least that needs no
// recomputation: the bound is of these. A stage of a deal has the pair with the least sum of
// seconds.
//
// Or it has the saved activations of some layers in host memory until backward. Copies run beside
// compute, those of a layer until the next such one has run, so such layers are spread evenly over
// the stage; the first of the others are recomputed:
//
//     layer 1   2   3   4   5   6        swap:1@1-3:1@4-6 and recompute:2@2-3, say
//           s   r   r   s   .   .        copies of layer 1 run beside layers 2, 3 and 4
//
// Of every eighth of the layers, and the fewest that need no recomputation, the number is taken
// with the least seconds of a micro-batch (deal_swap.c).

#ifndef DEAL_H
#define DEAL_H

#include "makespan.h"
#include "unit_cost.h"

typedef enum DealOffload {
  OFFLOAD_none,
  OFFLOAD_fewest, // of as few layers of each stage as fit, beside recomputation
  OFFLOAD_all
} DealOffload;

typedef struct DealProblem {
  const UnitCosts *units;
  StagedKind kind;
  int stages, chunks; // devices; chunks of each, of interleaved
  int64_t micro_batches;
  double memory;            // of a device, bytes; INFINITY: no limit
  RecomputeLevel recompute; // of all units; if per stage: the only level, or none of them: any
  bool per_stage_recompute; // each stage recomputes as few units as fit
  DealOffload offload;      // of states
  bool swap; // of saved activations of as few layers of each stage as fit; not of kinds with split
             // backwards, nor with chunks
} DealProblem;

typedef struct Deal {
  double bound;          // seconds: no deal that fits has a shorter timeline
  int n;                 // stages, of all chunks
  int *first;            // [n + 1] first unit of each stage, and the number of units
  RecomputeLevel *level; // [n]
  int *recomputed;       // [n] the first units of the stage are recomputed at its level, if they
                         // are not swapped
  int *swapped;          // [n] layers of the stage, spread evenly (deal_is_swapped)
  int *offloaded;        // [n] the first units of the stage have their states in host memory
  double *bytes;         // [n]
} Deal;

// Bounds of all deals of parts of units, as fine as can be. In all memory, with the recomputation
// of all units.
typedef struct DealLeast {
  double seconds;   // in the orders of the kind
  double any_order; // in any order of the stages' blocks: the mean of the devices
} DealLeast;

DealLeast deal_least(const DealProblem *p);

// The same of deals of whole units: some stage has the largest. Faster than deal_find, and less.
double deal_quick(const DealProblem *p);

// False: no deal fits; of kinds with several stages per device, none was found.
bool deal_find(const DealProblem *p, Arena *a, Deal *out);

// Whether saved activations of a unit of a stage are in host memory until backward.
bool deal_is_swapped(const UnitCosts *units, const Deal *d, int stage, int unit);

// The seconds of a micro-batch that copies are waited for, without stages, if saved activations of
// all layers are in host memory.
double deal_all_swapped(const UnitCosts *units, Arena *a);

// The costs of the stages of a deal, for makespan_bound and makespan_run.
PipelineCost deal_cost(const DealProblem *p, const Deal *d, Arena *a);

// The timeline of a deal, as makespan_run has it.
bool makespan_find(const DealProblem *p, const Deal *d, double cutoff, double *seconds,
                   double *peak);

// Moves one unit after the other from a stage to another, or a layer, as long as the timeline gets
// shorter, for at most so many timelines.  Returns the seconds of the timeline.
double deal_improve(const DealProblem *p, Deal *d, int timelines);

#endif
