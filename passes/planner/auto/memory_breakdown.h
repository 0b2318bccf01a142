// The uses of a rank's memory, in a module with placed values.
//
//     rank 3    1.2 GB of weights, 2.4 GB of states, 7.1 GB at the peak
//
// The rest of the peak are gradients, saved activations, and transfers between ranks.

#ifndef MEMORY_BREAKDOWN_H
#define MEMORY_BREAKDOWN_H

#include "cluster/cluster.h"
#include "ir/op.h"

typedef struct Needs {
  int rank;
  int64_t weight_bytes, state_bytes; // persistent
  int64_t peak_bytes;
} Needs;

// Returns the needs of the rank that exceeds its device's memory the most.
Needs needs_most(const Module *m, const Cluster *c);

// Whether they fit into the memory of that rank's device, which may be unknown: then they fit.
bool needs_fit(const Needs *n, const Cluster *c);

// "12 bytes are weights, 24 the optimizer's states, …", for a note.
const char *needs_text(Arena *a, const Needs *n);

#endif
