// The cheapest communication for a tensor from one placement to another:
//
//     R(1)V(4)D(1,2)@0-7 to R(4)V(1)D(1,2)@0-7:    all_reduce {0,2,4,6} {1,3,5,7}
//     R(4)V(1)D(1)@0-3 to R(8)V(1)D(1)@8-15:       slice, rd_scatter, all_gather
//     R(1)V(4)D(1)@0-3 to R(1)V(1)D(8)@8-15:       reduce_scatter, rd_scatter
//
// (SuperScaler §3.3; the last two are its figure 18).  Never more expensive than send/recv of the
// parts that each reader lacks, which is also the fallback.

#ifndef PATH_H
#define PATH_H

#include "path_p2p.h"

typedef struct PathStep {
  Edge edge;
  State before, after;
  Groups groups; // empty without communication; of send_recv: pairs, with (d, d) for own parts
  Cost cost;
} PathStep;

typedef struct Path {
  TensorShape shape;
  Group group[2]; // producers, consumers; a state says which
  State first, last;
  PathStep *step;
  int n_steps;
  Cost total, p2p; // of all steps; of the send/recv plan, if that is allowed (path_p2p)
  // The search was exhaustive, over all orders of copies and shares of small groups; otherwise
  // there may be a cheaper path, and if no allowed path was found there are no steps, at the cost
  // of adding up and gathering everything.
  bool complete;
} Path;

// The paths of one cluster, cached.
typedef struct Paths Paths;
Paths *paths_new(Arena *a, const Cluster *c);
// From now on excludes send/recv among the devices of one group, which have their collectives for
// that.
void paths_without_send_recv(Paths *paths);
const Path *path_find(Paths *paths, const TensorShape *shape, const Placement *from,
                      const Placement *to);
// The cost of the send/recv plan between the ends of the path, allowed or not.
Cost path_p2p(const Paths *paths, const Path *p);

#endif
