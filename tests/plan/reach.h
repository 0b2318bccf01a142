// What a tensor's ways from one placement to another cost at least, found without path.h's axes and
// labels.  A state is written out: for every device the box that it has, and the shares that are
// added up in it.  Next to a state is whatever one primitive makes of it, over
//
//     every partition into equal groups that some factorisation of the devices into a mesh has:
//     the cosets of every subgroup of the numbers 0 to n - 1 under exclusive or
//     every order of the parts among the devices of a group, and every way of cutting them
//     every affine permutation, of four devices all 24; the same from a group to another
//
// and Dijkstra's algorithm does the rest.  Costs are those that path_cost.h's head states (AutoDDL,
// table 2), from here.  A group has 2, 4 or 8 devices; dimensions are multiples of eight.

#ifndef REACH_H
#define REACH_H

#include "paths/placement.h"

// Seconds from `from` to each target, at most `limit[i]`; more than that is INFINITY.  Targets lie
// on the same devices.  `mixed`: where send/recv of intersections may follow any of the primitives.
void reach(const Cluster *c, const TensorShape *shape, const Placement *from, const Placement *to,
           int n_targets, const double *limit, double *least, double *mixed);

#endif
