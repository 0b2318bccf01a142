// The cheapest routes from every layout of a mesh to every other one, over several of its axes at a
// time:
//
//     {P, P} to {B, B}          reduce_scatter inside of the nodes, all_reduce between them,
//                               all_gather inside, if the second axis is that of a node
//     {P, B} to {B, S(1)}       a slice first, so that only the slice is reduced
//     {S(1), P} to {S(1), S(1)} reduce_scatter, then a permutation of the parts
//
// path.h considers more routes between two arbitrary placements, for milliseconds.  A search of
// layouts needs all pairs of them, for many types.  So here a value has few states: the axes are
// the mesh's, split in two at node boundaries, and the only edges are those that become one op at
// exactly that cost (transition.h): the costs of the search are those of the pass comm.  All routes
// out of a layout are computed together.
//
// Time axes stay as they are, and a value has the size of one time slice.

#ifndef ROUTES_H
#define ROUTES_H

#include "ir/graph.h"
#include "path.h"

typedef struct Routes Routes; // of one cluster

Routes *routes_new(Arena *a, const Cluster *c);

// The shape of one time slice of a value with this layout.
TensorShape shape_in_slice(const Type *whole, const Layout *l);

// Seconds between layouts of one mesh, for a value of this type, as on a single device.  Infinite
// if there is no route, or if the mesh has too many axes.  `slices`: in this many equal parts, one
// after the other.
double route_seconds(Routes *r, const Type *whole, const Layout *from, const Layout *want,
                     int64_t slices);
// The all_reduces at the end of that route, in one part: only readers of the sum wait for these.
typedef struct Reduces {
  double start, bytes; // seconds: latencies, and the time for their bytes
} Reduces;
Reduces route_reduces(Routes *r, const Type *whole, const Layout *from, const Layout *want);
// The steps of the route; NULL if there is none.
const Path *route_path(Routes *r, const Type *whole, const Layout *from, const Layout *want);

#endif
