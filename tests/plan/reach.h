// The least cost of a tensor's paths from one placement to another, found without path.h's axes and
// labels.  A state lists for every device its box, and the shares that are added up in it.  The
// neighbours of a state are the results of one primitive, over
//
//     every partition into equal groups that some factorisation of the devices into a mesh has:
//     the cosets of every subgroup of the numbers 0 to n - 1 under exclusive or
//     every order of the parts among the devices of a group, and every way of splitting them
//     every affine permutation, of four devices all 24; the same from a group to another
//
// and Dijkstra's algorithm does the rest.  Costs follow the head of path_cost.h (AutoDDL, table 2),
// implemented again here.  A group has 2, 4 or 8 devices; dimensions are multiples of eight.

#ifndef REACH_H
#define REACH_H

#include "paths/placement.h"

// Computes the seconds from `from` to each target, at most `limit[i]`, otherwise INFINITY.  Targets
// are on the same devices.  `mixed`: send/recv of intersections may follow any of the primitives.
void reach(const Cluster *c, const TensorShape *shape, const Placement *from, const Placement *to,
           int n_targets, const double *limit, double *least, double *mixed);

#endif
