// The loads of units on devices: the problem of partition.h for an axis of a mesh.
//
// Seconds are those of the unit's kernels, of the model, its gradients and its updates (cost.h), on
// one rank of the run, with its slice of the batch; and of the all_reduce of its weights' gradients
// over the run. Bytes are those of weights, gradients, states and saved activations on the device:
// none of those that are in host memory. Values between runs are sent slice by slice, at the prices
// of the links between these devices (path_cost.h), and their gradients back.
//
// With micro-batches in flight (`in_flight`, by run) the bytes are those that the passes come to:
// saved activations of each of them, once for all views of them; values that depend on weights only
// whole, such as weights in 16 bits; and the values that pass while a unit or its gradients are
// computed, recomputed ones included, with offloaded saved activations of two lists. Elementwise
// ops read in one place are fused, and take none.
//
// Held ops run on known ranks, before any choice: their seconds and bytes are charged to their
// ranks.

#ifndef STAGES_LOADS_H
#define STAGES_LOADS_H

#include "cluster/cluster.h"
#include "partition.h"
#include "units.h"

// Bytes of a rank, by use.
typedef struct StageBytes {
  double weights, states, gradients, kept;
} StageBytes;

static inline double stage_bytes_sum(const StageBytes *b) {
  return b->weights + b->states + b->gradients + b->kept;
}
// Adds a part of `b`; more micro-batches reduce the saved activations.
static inline void stage_bytes_add(StageBytes *to, const StageBytes *b, double part,
                                   double slices) {
  to->weights += b->weights * part;
  to->states += b->states * part;
  to->gradients += b->gradients * part;
  to->kept += b->kept * part / slices;
}

typedef struct Loads {
  Partition p;
  StageBytes *of_unit; // [n_units * n_runs]
  StageBytes *of_rank; // of held ops
  StageBytes *of_shared;
  double *shared_gradient; // bytes of the gradient, on the device or in host memory
  const int *batch;        // by value id: batch_letter.h
  const Device *device;    // by run: the minimum over its devices
  const int *class_of;     // by run: runs of one class have equal devices, and as many
  const int *unit_of; // by value id, of weights: the unit that reads it; UNIT_none; or, if several
                      // share it, -3 - its number in `p.shared`
} Loads;

// Whether the value is in no memory: a view, or an elementwise result that only its one reader
// needs, in the same loop.
bool loads_is_fused(const Value *v);

// Whether `n` ranks can share the batch of all units evenly, in addition to the splits along other
// axes.
bool loads_split_batch(const Sharding *s, int axis, const Units *units, const int *batch, int n);

// `run`: the candidate runs of stages. `in_flight`: NULL: the saved activations of one micro-batch,
// a lower bound.
Loads *loads_new(const Sharding *s, int axis, const Units *units, const int *batch, const Run *run,
                 int n_runs, const double *in_flight, Arena *a);

#endif
