// What a path takes at least: by one edge, and from a state to the end.
//
//     R(1)V(1)D(4)@0-3 to R(8)V(1)D(1)@8-15    all of the tensor goes through the adapters of 0-3, and
//                                              what a device of 8-15 gets through its own link
//
// A search looks at nothing that is dearer with that than what it has found (path_search.c), so
// each must be no more than what any path takes: seconds are rounded down to whole picoseconds.

#ifndef PATH_BOUNDS_H
#define PATH_BOUNDS_H

#include <math.h>

#include "path_search.h"

typedef struct PathBounds PathBounds;

// `mixes`: send/recv may come behind other steps, so what nodes lack is looked at as well.
PathBounds *path_bounds_new(Arena *a, const PathRules *rules, const Path *p, bool mixes);

// Picoseconds from the state to the last: until all has crossed to the other group, or until
// devices of that have what they are to have.
int64_t bound_crossing(const PathBounds *b, const State *at);
int64_t bound_ahead(const PathBounds *b, const State *at);
// That it takes to bring each node what none of its devices has; 0 where nothing is mixed.
int64_t bound_lack(PathBounds *b, const State *at);
// Of one edge.
int64_t bound_edge(PathBounds *b, const State *from, const State *to, const Edge *e);

// Devices of the second group that are not in the first.
int devices_outside(const Path *p);

static inline int64_t picoseconds(double seconds) {
  return seconds < 1e6 ? llround(seconds * 1e12) : (int64_t)1e18;
}

#endif
