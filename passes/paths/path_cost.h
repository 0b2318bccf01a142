// The primitives of paths, the devices that take part in them, and their costs.
//
//     primitive       groups              effect                            seconds beside `start`
//     slice                               B to a dim: drop the rest         0, also no start
//     split_sum                           B to P: one keeps, others zero    0, also no start
//     pad_sum                             a dim to P: zeros around          0, also no start
//     all_reduce      any order           P to B                            2(p-1) a + 2(p-1)/p n b
//     reduce_scatter  any order           P to dims                          (p-1) a +  (p-1)/p n b
//     all_gather      any order           dims to B                          (p-1) a +  (p-1)/p n b
//     all_to_all      any order           dims to other dims                 (p-1) a +  (p-1)/p n b
//     permute, move   (from, to)          transfers of whole pieces
//     broadcast       (from, to, to …)    to a larger group: the whole piece
//     rd_scatter      (from, to, to …)    to a larger group: a part each
//     rd_gather       (from, from …, to)  from a larger group: concatenates parts
//     reduce          (from, from …, to)  from a larger group: adds up shares
//     send_recv       (from, to)          any: intersections of pieces; see path_p2p.h
//
//     the last seven are `move` ops: a message from each sender to each of its receivers (cost_comm.h)
//
// n is the whole value that a group has or receives, p the group's size, a and b alpha and beta
// (AutoDDL, table 2: rings, which visit the devices of a node one after the other).  permute is
// move within one set of devices; rd_* are the primitives between groups of SuperScaler's figure
// 10.
//
// alpha (latency) is that of the slowest hop, and that of a hop is that of its slower end.  The
// time for bytes is that of the busiest link: the simultaneous traffic of all groups of a primitive
// is added up on the links that it really takes.  So groups inside nodes are fast, and groups that
// cross nodes share the adapters.

#ifndef PATH_COST_H
#define PATH_COST_H

#include "ir/graph.h"
#include "path_state.h"

typedef enum PathPrim {
  PATH_slice,
  PATH_split_sum,
  PATH_pad_sum,
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) PATH_##op,
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
// The collectives are the primitives from PATH_all_reduce on.
enum {
  N_PATH_COLLECTIVES = 0
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) +1
#include "rt/collectives.def"
};
bool path_is_collective(PathPrim prim); // of rt/collectives.def
// The op of a collective or of slice; 0 of other primitives.
OpKind path_op(PathPrim prim);
// The primitive of a collective; PATH_slice, which sends nothing, of other ops.
PathPrim path_prim_of(OpKind op);
// How often a collective sends its larger buffer around the ring; 0: each rank sends a part to each
// other directly.
int path_ring_rounds(PathPrim prim);
// Whether its result is larger than its operand: then costs are per byte of the result.
bool path_grows(PathPrim prim);

// An edge from a state to another.  `mask`: the axes that take part, in one group; `map`: for each
// axis of the smaller group, the axis of the other state's group.
typedef struct Edge {
  PathPrim prim;
  uint32_t mask;
  uint8_t map[PATH_AXES];
} Edge;

typedef struct Cost {
  double seconds;
  double bytes;    // sent by all devices together
  double crossing; // the bytes between nodes among these
} Cost;

// n groups of `size` devices each.
typedef struct Groups {
  int n, size;
  int *device;
} Groups;

// The load of every link.  Add messages, then read the cost once; that clears it.
typedef struct Traffic Traffic;
Traffic *traffic_new(Arena *a, const Cluster *c);
void traffic_message(Traffic *t, int src, int dst, double bytes); // no effect if src is dst
double traffic_out(const Traffic *t, int src,
                   int dst); // seconds for which src's link is busy so far
// Whether the traffic of these two devices alone already takes longer.
bool traffic_exceeds(const Traffic *t, int src, int dst, double seconds);
Cost traffic_cost(Traffic *t);
// The seconds of the busiest link in the last cost, without latencies.
double traffic_carried(const Traffic *t);

// The devices that take part in a step.  `out->device` has space for 2 * (devices of both groups).
void edge_groups(const TensorShape *shape, const Group group[2], const State *before,
                 const State *after, const Edge *e, const Cluster *c, Groups *out);

// `before` and `after`: bytes of a device's piece.
Cost groups_cost(Traffic *t, PathPrim prim, const Groups *g, double before, double after);

#endif
