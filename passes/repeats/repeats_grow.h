// From one op of every occurrence to all of it: see repeats_grow.c.

#ifndef REPEATS_GROW_H
#define REPEATS_GROW_H

#include "repeats_net.h"

typedef struct Growth Growth;

// `color` decides only what is tried first where several nodes could be the next.
Growth *growth_new(const Net *net, const uint64_t *color, Arena *a);
// The largest block that has `seed[i]` at the same position of occurrence i of k; its nodes are in
// the arena.  No nodes when the seeds are not alike.
Tuples growth_from(Growth *w, const int *seed, int k);
// The same, begun elsewhere if as many nodes repeat then and fewer values go from one occurrence to
// others.
Tuples growth_shifted(Growth *w, Tuples t);

#endif
