// NCCL's algorithm, protocol and channels for a collective: see nccl.h.

#include "nccl.h"

#include <math.h>

// Microseconds at the start, of a hop by NVLink, of a hop across nodes; the share of the links'
// bandwidth within a node, and across nodes; bytes of a thread of a channel, and its threads.  PAT:
// of each rank, and of each level of a tree.
typedef struct Way {
  enum { RING, TREE, NVLS, PAT } algorithm;
  const char *protocol;
  double start, inside, across, share, far_share;
  int thread_bytes, threads;
} Way;

static const Way ways[] = {
    {RING, "ll", 6.6, 0.6, 2.7, 0.5, 0.5, 8, 512},
    {RING, "ll128", 14, 1.9, 4, 0.92, 0.92, 8, 640},
    {RING, "simple", 8.4, 3.4, 14, 1, 1, 64, 512},
    {TREE, "ll", 6.8, 0.6, 5, 0.9 / 3.8, 0.9 / 3.8, 8, 512},
    {TREE, "ll128", 14, 1.25, 8.5, 0.9 * 7 / 9, 0.9 * 0.915, 8, 640},
    {TREE, "simple", 8.4, 4, 14, 0.9, 0.9, 64, 512},
    {NVLS, "simple", 25, 0, 0, 0.85, 0.85, 64, 512},
    {PAT, "simple", 8, 2.8, 4, 0.75, 0.75, 64, 512},
};
enum { N_WAYS = sizeof ways / sizeof *ways, NVLS_CHANNELS = 16, MOST_CHANNELS = 32 };
static const char *const algorithm_name[] = {"ring", "tree", "nvls", "pat"};
static const double channel_speed = 20e9; // bytes/s of a channel

int groups_nodes(const Cluster *c, const Groups *g) {
  int most = 0;
  for (int i = 0; i < g->n; i++) {
    const int *device = g->device + i * g->size;
    int n = 0;
    for (int k = 0; k < g->size; k++)
      n += !k || cluster_node(c, device[k]) != cluster_node(c, device[k - 1]);
    if (n > most) most = n;
  }
  return most;
}

// The way with latencies in seconds: in units of the cluster's own, which are those of a ring with
// LL; or as the cluster has them.
static Way way_on(const Cluster *c, Way w) {
  const Way *ll = &ways[0];
  w.start *= c->start / ll->start;
  w.inside *= cluster_fastest_inside(c).alpha / ll->inside;
  w.across *= c->nodes > 1 ? cluster_fastest_across(c).alpha / ll->across : 0;
  for (int i = 0; i < c->n_collectives; i++) {
    const CollectiveWay *own = &c->collectives[i];
    if (!str_equal(own->algorithm, algorithm_name[w.algorithm]) ||
        !str_equal(own->protocol, w.protocol))
      continue;
    if (own->start >= 0) w.start = own->start;
    if (own->inside >= 0) w.inside = own->inside;
    if (own->across >= 0) w.across = own->across;
    if (own->share > 0) w.share = own->share;
    if (own->far_share > 0) w.far_share = own->far_share;
  }
  return w;
}

static double latency(const Way *w, int rounds, int ranks, int nodes) {
  if (w->algorithm == RING)
    return w->start + rounds * ((ranks - nodes) * w->inside + (nodes - 1) * w->across);
  if (w->algorithm == PAT) return w->start + ranks * w->inside + ceil(log2(nodes)) * w->across;
  // A chain within each node, a binary tree of nodes; up and down.
  return w->start + 2 * (((double)ranks / nodes - 1) * w->inside + ceil(log2(nodes)) * w->across);
}

// As many channels as fill the links, if each of their threads gets its bytes.
static int channels(const Cluster *c, const Way *w, int ranks, int nodes, double bytes) {
  double speed =
      nodes > 1 ? c->nics / cluster_fastest_across(c).beta : 1 / cluster_fastest_inside(c).beta;
  double most = w->algorithm == NVLS ? NVLS_CHANNELS : ceil(speed / channel_speed);
  // A ring with LL sends a part of the bytes at a time.
  bool divides = w->algorithm == RING && str_equal(w->protocol, "ll");
  double least = (double)w->thread_bytes * w->threads * (divides ? ranks : 1);
  most = fmin(fmin(most, MOST_CHANNELS), floor(bytes / least));
  return most > 1 ? (int)most : 1;
}

NcclChoice nccl_choose(const Cluster *c, PathPrim prim, int ranks, int nodes, double bytes,
                       double carried) {
  NcclChoice best = {.seconds = INFINITY};
  int rounds = path_ring_rounds(prim);
  // All bytes of the buffer over a link; a ring sends rounds * (p-1)/p of them.
  double whole = carried * ranks / (rounds * (ranks - 1.0));
  for (int i = 0; i < N_WAYS; i++) {
    const Way w = way_on(c, ways[i]);
    // all_reduce has trees and NVLS, other collectives PAT.
    if ((w.algorithm == TREE || w.algorithm == NVLS) && rounds != 2) continue;
    if (w.algorithm == NVLS && (!c->nvls || nodes > 1 || ranks < 3)) continue;
    if (w.algorithm == PAT && (!c->pat || rounds != 1 || nodes < 2 || nodes != ranks)) continue;
    double sent = w.algorithm == RING ? carried : w.algorithm == TREE ? 2 * whole : whole;
    double seconds = latency(&w, rounds, ranks, nodes) + sent / (nodes > 1 ? w.far_share : w.share);
    if (seconds < best.seconds)
      best = (NcclChoice){algorithm_name[w.algorithm], w.protocol,
                          channels(c, &w, ranks, nodes, bytes), seconds};
  }
  return best;
}
