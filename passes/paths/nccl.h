// The algorithm, protocol and channels with which NCCL runs a collective best, and the seconds.
//
//     all_reduce of 4 bytes, h100:2x8      tree ll      1 channel    latency only: few hops across nodes
//     all_reduce of 256 MiB, h100:1x8      nvls simple  16 channels  switches add up
//     all_gather of 256 MiB, h100:1x8      ring simple  23 channels  all bytes of the links
//     all_gather of 4 MiB, h100:64x1       pat simple   3 channels   few hops, and most bytes
//
// Algorithms and protocols trade latency for bandwidth.  LL sends a flag with each 4 bytes and
// needs no synchronisation, LL128 a flag with each 120; Simple sends all bytes and synchronises by
// chunk. A ring has a hop per rank and sends (p-1)/p of the bytes; a tree goes along a chain within
// nodes and a tree across, and sends all bytes up and down again; with NVLS the switches of a node
// add up.  PAT (2.23) gathers and scatters in binary trees between nodes, a rank on each.  The
// figures are those by which NCCL itself chooses (src/graph/tuning.cc), relative to those of a ring
// with LL, for which clusters have latencies (clusters.def); or the cluster's own
// (Cluster.collectives).  NVLS across nodes (nvls_tree) and CollNet are left out: routes divide a
// group that spans nodes into groups within them and groups across (path_search.h).
//
// The collectives of a step are priced by this choice if the cluster says so (Cluster.nccl,
// cost_comm.h). Else, and for the choice of layouts and routes, their price is that of a ring with
// the latency of LL and the bandwidth of Simple, which is linear in the bytes and below all rings
// of NCCL; a tree of few bytes among many nodes, or NVLS, may cost less.

#ifndef NCCL_H
#define NCCL_H

#include "path_cost.h"

typedef struct NcclChoice {
  const char *algorithm, *protocol; // as in the files of NCCL's tuner
  int channels;
  double seconds;
} NcclChoice;

// The most nodes that a group has devices of.  Devices of a group are sorted.
int groups_nodes(const Cluster *c, const Groups *g);
// The choice for a collective of rings among `ranks` devices of `nodes` nodes.  `bytes`: its larger
// buffer; `carried`: the seconds of the busiest link in a ring without latencies (traffic_carried).
NcclChoice nccl_choose(const Cluster *c, PathPrim prim, int ranks, int nodes, double bytes,
                       double carried);

#endif
