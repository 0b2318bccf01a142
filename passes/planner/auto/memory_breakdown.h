// What the memory of a rank is for, in a module whose values have their places.
//
//     rank 3    1.2 GB of weights, 2.4 GB of states, 7.1 GB at the peak
//
// The rest of the peak are gradients, what is kept for them, and what is on its way between ranks.

#ifndef MEMORY_BREAKDOWN_H
#define MEMORY_BREAKDOWN_H

#include "cluster/cluster.h"
#include "ir/op.h"

typedef struct Needs {
  int rank;
  int64_t weight_bytes, state_bytes; // that last from step to step
  int64_t peak_bytes;
} Needs;

// Of the rank that needs most, besides what its device has.
Needs needs_most(const Module *m, const Cluster *c);

// Whether that rank's device has room for it; its memory may not be known.
bool needs_fit(const Needs *n, const Cluster *c);

// "12 bytes are weights, 24 the optimizer's states, …", for a note.
const char *needs_text(Arena *a, const Needs *n);

#endif
