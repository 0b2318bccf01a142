// Reshards within one mesh, axis by axis: a collective along one axis, or a slice, is a hop.
//
//     {S(0), P} to {S(0), B}      all_reduce along the second axis
//     {S(0), S(0)} to {B, S(0)}   all_gather along the second, all_gather along the first, slice
//
// If two axes shard one dimension, rows gathered along the outer one first would be out of order:
// gathering goes from the inside out, slicing from the outside in. So a hop to S(j) is taken only
// if no inner axis shards j, and the outer axes that shard it are the ones that should.

#ifndef HOPS_H
#define HOPS_H

#include "transition.h"

// The changes that are made in one hop if possible: from partial sums, or from slices.
typedef enum Hops { NO_HOPS = 0, SUMS_HOP = 1, SLICES_HOP = 2, ALL_HOP = 3, UNDECIDED = 4 } Hops;

typedef struct Step {
  int axis;
  const Layout *layout; // after the step
} Step;

bool is_time(const Layout *l, int axis);
const Layout *with_axis(Module *m, const Layout *l, int axis, Sbp sbp);

// The first step from one layout to another of the same mesh.
Step next_step(Module *m, const Layout *have, const Layout *want, Hops hops);
// The cost of all steps; collectives that fuse_comm will join cost as one.
double hops_seconds(Module *m, Transitions *prices, const Type *whole, const Layout *from,
                    const Layout *want, Hops hops);

#endif
