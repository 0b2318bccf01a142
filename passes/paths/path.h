// The cheapest way for a tensor from one placement to another:
//
//     R(1)V(4)D(1,2)@0-7 to R(4)V(1)D(1,2)@0-7:    all_reduce {0,2,4,6} {1,3,5,7}
//     R(4)V(1)D(1)@0-3 to R(8)V(1)D(1)@8-15:       slice, rd_scatter, all_gather
//     R(1)V(4)D(1)@0-3 to R(1)V(1)D(8)@8-15:       reduce_scatter, rd_scatter
//
// (SuperScaler §3.3; the last two are its figure 18).  Never dearer than send/recv of what each
// reader lacks, which is also what is done where nothing is cheaper.

#ifndef PATH_H
#define PATH_H

#include "path_p2p.h"

typedef struct PathStep {
  Edge edge;
  State before, after;
  Groups groups; // none where nothing is sent; of send_recv pairs, with (d, d) for own parts
  Cost cost;
} PathStep;

typedef struct Path {
  TensorShape shape;
  Group group[2]; // of the producers, of the consumers; states tell which
  State first, last;
  PathStep *step;
  int n_steps;
  Cost total, p2p; // of all steps; of the send/recv plan, where that may be taken (path_p2p)
  // Everything was tried, in all orders of copies and shares of small groups; else there may be
  // something cheaper, and where nothing was found that
  // may be taken there are no steps, at the price of adding up and gathering all.
  bool complete;
} Path;

// The paths of one cluster.  Those that were asked for are remembered.
typedef struct Paths Paths;
Paths *paths_new(Arena *a, const Cluster *c);
// From now on no send/recv among the devices of one group, which have their collectives for that.
void paths_without_send_recv(Paths *paths);
const Path *path_find(Paths *paths, const TensorShape *shape, const Placement *from,
                      const Placement *to);
// What the send/recv plan between the ends of the path costs, whether or not it may be taken.
Cost path_p2p(const Paths *paths, const Path *p);

#endif
