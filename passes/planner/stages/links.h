// What runs of ranks send one another costs, by the prices of path_cost.h: from one to another, and
// an all_reduce over one.  Axes inside and outside of that of the stages send at the same time.
//
//     pp of 4 outside tp of 2, [0-1] to [2-3]: ranks 0 to 3 to ranks 4 to 7, each its rows
//
// Prices are a start and seconds of each byte, found by two probes.

#ifndef STAGES_LINKS_H
#define STAGES_LINKS_H

#include "partition.h"
#include "paths/path_cost.h"
#include "sharding/sharding.h"

// Seconds of `start` and of each byte.
typedef struct Rate {
  double start, byte;
} Rate;

typedef struct Links {
  const Sharding *s;
  int axis;
  int outer, inner; // places on the axes outside and inside
  Arena *arena;
  Traffic *traffic;
  Rate *reduce; // by run: of an all_reduce over its ranks
} Links;

// Puts what messages between the runs cost into `p`.
Links links_price(const Sharding *s, int axis, Partition *p, Arena *a);
// What each of the devices of a run has at least.
Device links_least(const Links *l, const Run *run);
// What the one end of a message to or from ranks that are known takes, about: by the slowest of the
// run's own links, between nodes where there are several.
double links_held(const Links *l, const Run *run, double bytes);

#endif
