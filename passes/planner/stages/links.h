// Communication costs of runs of ranks, by the prices of path_cost.h: a message from one run to
// another, and an all_reduce over one run. All positions along the axes outside and inside of the
// stages' axis send at the same time.
//
//     pp of 4 outside tp of 2, [0-1] to [2-3]: ranks 0 to 3 to ranks 4 to 7, each its batch slice
//
// A price is a start latency and seconds per byte, from two probes.

#ifndef STAGES_LINKS_H
#define STAGES_LINKS_H

#include "partition.h"
#include "paths/path_cost.h"
#include "sharding/sharding.h"

// Seconds of the start latency, and per byte.
typedef struct Rate {
  double start, byte;
} Rate;

typedef struct Links {
  const Sharding *s;
  int axis;
  int outer, inner; // positions along the axes outside and inside
  Arena *arena;
  Traffic *traffic;
  Rate *reduce; // by run: of an all_reduce over its ranks
} Links;

// Stores the costs of messages between the runs in `p`.
Links links_price(const Sharding *s, int axis, Partition *p, Arena *a);
// Returns the minimum of each property over the devices of a run.
Device links_least(const Links *l, const Run *run);
// Returns the estimated seconds of one end of a message to or from known ranks: by the slowest of
// the run's own links, those between nodes if the mesh has several.
double links_held(const Links *l, const Run *run, double bytes);

#endif
