// The plan that every path is measured against, and that is taken where nothing is better: every
// reader gets the intersections of its box with the producers' boxes, and puts them together or
// adds them up.
//
//     R(1)V(2)D(1)@0-1 to R(1)V(1)D(2)@0-1:    0 gets the first half of 1's share, 1 the second half
//                                              of 0's
//
// A part that several producers have comes from the reader itself, else from its node, else from
// elsewhere; of equals, from the one whose link has least to send.

#ifndef PATH_P2P_H
#define PATH_P2P_H

#include "base/vec.h"
#include "path_cost.h"

typedef struct Send {
  int src, dst; // devices; the same: what the reader has already
} Send;         // about the intersection of what src has and dst wants, added to what dst got

typedef Vec(Send) Sends;

typedef struct P2p {
  Arena *arena; // of what is sent
  Traffic *traffic;
  const Cluster *c;
  const TensorShape *shape;
  double limit; // seconds: once it takes longer, it does not matter how much longer
} P2p;

// Who has what in a state.
typedef struct Producers Producers;
const Producers *p2p_producers(Arena *a, const TensorShape *shape, const Group *from,
                               const State *before);
// `out` may be NULL.  More than the limit, but too little, where that is exceeded.
Cost p2p_cost(const P2p *q, const Producers *p, const Group *to, const State *after, Sends *out);

#endif
