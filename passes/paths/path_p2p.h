// The baseline for every path, and the fallback: every reader receives the intersections of its box
// with the producers' boxes, and concatenates or adds them.
//
//     R(1)V(2)D(1)@0-1 to R(1)V(1)D(2)@0-1:    0 gets the first half of 1's share, 1 the second half
//                                              of 0's
//
// A part that several producers have comes from the reader itself, else from its node, else from
// another node; ties go to the sender with the least loaded link.

#ifndef PATH_P2P_H
#define PATH_P2P_H

#include "base/vec.h"
#include "path_cost.h"

typedef struct Send {
  int src, dst; // devices; equal for the reader's own part
} Send;         // the intersection of src's piece and dst's, added to dst's

typedef Vec(Send) Sends;

typedef struct P2p {
  Arena *arena; // of the sends
  Traffic *traffic;
  const Cluster *c;
  const TensorShape *shape;
  double limit; // in seconds: above it, the exact cost does not matter
} P2p;

// The pieces of all devices in a state.
typedef struct Producers Producers;
const Producers *p2p_producers(Arena *a, const TensorShape *shape, const Group *g, const State *s);
// `out` may be NULL.  Above the limit: a value above the limit, but too small.
Cost p2p_cost(const P2p *q, const Producers *p, const Group *to, const State *after, Sends *out);

#endif
