// The cheapest routes from every layout of a mesh to every other one, over several of its axes at a
// time:
//
//     {P, P} to {B, B}          reduce_scatter inside of the nodes, all_reduce between them,
//                               all_gather inside, where the second axis is that of a node
//     {P, B} to {B, S(1)}       a slice first, and no more than that is added up
//     {S(1), P} to {S(1), S(1)} reduce_scatter, and parts that came in another order change places
//
// path.h looks at more routes between two placements, which may be any, for milliseconds.  A search
// of layouts asks for all pairs of them, of many types.  So here a value has few states: the axes
// are the mesh's, cut in two where nodes end inside of them, and what may follow is only what
// becomes one op at just that price (transition.h): what a search counts on is what comm does.  The
// routes out of a layout are found together.
//
// Axes of time stay as they are, and a value is as large as it is in one slice of time.

#ifndef ROUTES_H
#define ROUTES_H

#include "ir/graph.h"
#include "path.h"

typedef struct Routes Routes; // over one cluster

Routes *routes_new(Arena *a, const Cluster *c);

// Of a value that lies so, what there is in one slice of time.
TensorShape shape_in_slice(const Type *whole, const Layout *l);

// Between layouts of one mesh, of a value of this type as one device would have it.  Infinite where
// there is no route, and where the mesh has too many axes.  `slices`: what it takes to do so with
// the value in so many equal parts, one after the other.
double route_seconds(Routes *r, const Type *whole, const Layout *from, const Layout *want,
                     int64_t slices);
// Of that, at once, the all_reduces that it ends in: nothing waits for those but who reads the sum.
typedef struct Reduces {
  double start, bytes; // seconds until they begin, and of what they send
} Reduces;
Reduces route_reduces(Routes *r, const Type *whole, const Layout *from, const Layout *want);
// All of it, step by step; NULL where there is no route.
const Path *route_path(Routes *r, const Type *whole, const Layout *from, const Layout *want);

#endif
