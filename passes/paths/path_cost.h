// The primitives of which paths are made, which devices take part in them, and what they cost.
//
//     primitive       groups              what it does                      seconds beside `start`
//     slice                               B to a dim: forget the rest       0, also no start
//     split_sum                           B to P: one keeps, others zero    0, also no start
//     pad_sum                             a dim to P: zeros around          0, also no start
//     all_reduce      any order           P to B                            2(p-1) a + 2(p-1)/p n b
//     reduce_scatter  any order           P to dims                          (p-1) a +  (p-1)/p n b
//     all_gather      any order           dims to B                          (p-1) a +  (p-1)/p n b
//     all_to_all      any order           dims to other dims                 (p-1) a +  (p-1)/p n b
//     permute, move   (from, to)          whole pieces change places
//     broadcast       (from, to, to …)    to a larger group: everything
//     rd_scatter      (from, to, to …)    to a larger group: a part each
//     rd_gather       (from, from …, to)  from a larger group: parts become one
//     reduce          (from, from …, to)  from a larger group: shares become their sum
//     send_recv       (from, to)          anything: intersections of pieces; see path_p2p.h
//
//     broadcast and reduce go along a chain, from device to device: a per hop, n b for each kind of link
//
// n is the whole that a group has or gets, p its size, a and b alpha and beta (AutoDDL, table 2:
// rings, which visit the devices of a node one after the other).  permute is move within one set of
// devices; the rd_… are the primitives between groups of SuperScaler's figure 10.
//
// alpha is that of the slowest hop, and of a hop that of its slower end.  The seconds of bytes are
// those of the busiest link: what all groups of a primitive send at the same time is added up on
// the links that it really takes, so groups inside nodes are fast, and groups that cross nodes
// share the adapters.

#ifndef PATH_COST_H
#define PATH_COST_H

#include "ir/graph.h"
#include "path_state.h"

typedef enum PathPrim {
  PATH_slice,
  PATH_split_sum,
  PATH_pad_sum,
#define COLLECTIVE(op, from, to, from_dim, to_dim, job, nccl) PATH_##op,
#include "rt/collectives.def"
  PATH_permute,
  PATH_move,
  PATH_broadcast,
  PATH_rd_scatter,
  PATH_rd_gather,
  PATH_reduce,
  PATH_send_recv,
} PathPrim;

extern const char *const path_prim_name[PATH_send_recv + 1];
bool path_is_collective(PathPrim prim); // of rt/collectives.def
// The primitive of a collective; PATH_slice, which sends nothing, of other ops.
PathPrim path_prim_of(OpKind op);

// One way from a state to another.  `mask`: the axes that take part, in one group; `map`: to which
// axis of the other state's group each axis of the smaller group goes.
typedef struct Edge {
  PathPrim prim;
  uint32_t mask;
  uint8_t map[PATH_AXES];
} Edge;

typedef struct Cost {
  double seconds;
  double bytes;    // sent by all devices
  double crossing; // of these, between nodes
} Cost;

// n groups of `size` devices each.
typedef struct Groups {
  int n, size;
  int *device;
} Groups;

// What flows over every link.  Add messages, then ask once for the cost; that clears it.
typedef struct Traffic Traffic;
Traffic *traffic_new(Arena *a, const Cluster *c);
void traffic_message(Traffic *t, int src, int dst, double bytes); // nothing when src is dst
double traffic_out(const Traffic *t, int src, int dst); // seconds that src's link is busy so far
// Whether it takes longer already, by what these two send and get.
bool traffic_exceeds(const Traffic *t, int src, int dst, double seconds);
Cost traffic_cost(Traffic *t);

// Who takes part in a step.  `out->device` has room for 2 * (devices of both groups) numbers.
void edge_groups(const TensorShape *shape, const Group group[2], const State *before,
                 const State *after, const Edge *e, const Cluster *c, Groups *out);

// `before` and `after` are bytes of a device's piece.
Cost groups_cost(Traffic *t, PathPrim prim, const Groups *g, double before, double after);

#endif
