// What units are to the devices: the problem of partition.h for an axis of a mesh.
//
// Seconds are those of the unit's kernels, of the model, its gradients and its updates (cost.h), on
// one rank of the run, which has its part of the rows; and of adding up the gradients of its
// weights over the run.  Bytes are those of weights, gradients and states, and of what the
// gradients read again.  What goes from run to run is sent row by row, at the prices of the links
// between these devices (path_cost.h), and its gradient back.
//
// What is held runs on ranks that are known, so it is there before anything is chosen: its seconds
// and bytes are those of its ranks.

#ifndef STAGES_LOADS_H
#define STAGES_LOADS_H

#include "partition.h"
#include "units.h"

// Bytes of a rank, by what they are for.
typedef struct StageBytes {
  double weights, states, gradients, kept;
} StageBytes;

static inline double stage_bytes_sum(const StageBytes *b) {
  return b->weights + b->states + b->gradients + b->kept;
}
// A part of `b`, of what is kept less with more micro-batches.
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
  StageBytes *of_rank; // of what is held
  StageBytes *of_shared;
  const int *rows; // by value id: rows.h
} Loads;

// Whether `n` ranks can share the rows of all units evenly, besides what other axes cut of them.
bool loads_share_rows(const Sharding *s, int axis, const Units *units, const int *rows, int n);

// `run`: those that stages may be.
Loads *loads_new(const Sharding *s, int axis, const Units *units, const int *rows, const Run *run,
                 int n_runs, Arena *a);

#endif
