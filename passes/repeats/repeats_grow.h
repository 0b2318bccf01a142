// Growth of a block from one op of every occurrence: see repeats_grow.c.

#ifndef REPEATS_GROW_H
#define REPEATS_GROW_H

#include "repeats_net.h"

typedef struct Growth Growth;

// `color` only decides the order of trial among several candidates for the next node.
Growth *growth_new(const Net *net, const uint64_t *color, Arena *a);
// The largest block with `seed[i]` at one position of occurrence i of k; its nodes are in the
// arena. No nodes if the seeds differ.
Tuples growth_from(Growth *w, const int *seed, int k);
// The same block begun at another op, if as many nodes repeat then and fewer values pass from one
// occurrence to others.
Tuples growth_shifted(Growth *w, Tuples t);

#endif
