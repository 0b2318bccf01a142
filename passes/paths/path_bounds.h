// Lower bounds of the cost of an edge, and of a path from a state to the end.
//
//     R(1)V(1)D(4)@0-3 to R(8)V(1)D(1)@8-15    all of the tensor goes through the adapters of 0-3, and
//                                              all bytes for a device of 8-15 through its own link
//
// A search prunes a state if cost plus bound exceed the best known path (path_search.c), so the
// bounds must be admissible: seconds are rounded down to whole picoseconds.

#ifndef PATH_BOUNDS_H
#define PATH_BOUNDS_H

#include <math.h>

#include "path_search.h"

typedef struct PathBounds PathBounds;

// `mixes`: send/recv may follow other steps; then the bounds of nodes apply, too.
PathBounds *path_bounds_new(Arena *a, const PathRules *rules, const Path *p, bool mixes);

// Picoseconds from the state to the last: until all data has crossed to the other group, or until
// that group's devices have their pieces.
int64_t bound_crossing(const PathBounds *s, const State *at);
int64_t bound_ahead(const PathBounds *s, const State *at);
// Picoseconds to bring each node the pieces that none of its devices has; 0 without `mixes`.
int64_t bound_lack(PathBounds *s, const State *at);
// A lower bound of one edge.
int64_t bound_edge(PathBounds *s, const State *from, const State *to, const Edge *e);

// The number of devices of the second group that are not in the first.
int devices_outside(const Path *p);

static inline int64_t picoseconds(double seconds) {
  return seconds < 1e6 ? llround(seconds * 1e12) : (int64_t)1e18;
}

#endif
