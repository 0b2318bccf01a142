// See links.h.
//
// For every two runs in this order, messages of two sizes are priced, split and whole, so the
// work grows with the square of the number of runs. Messages between devices of other nodes, all of
// them as many further, have the same price: that of stages 3 and 5 is that of 2 and 4.

#include "links.h"

#include <math.h>

static int device_at(const Links *l, int outer, int rank, int inner) {
  int size = l->s->mesh->axis[l->axis].size;
  return l->s->mesh->device[(outer * size + rank) * l->inner + inner];
}

// Returns the part of the value that rank i of `from` sends to rank k of `to`.
static double part_between(const Run *from, const Run *to, int i, int k, bool whole) {
  if (whole) return i == (int)((int64_t)k * from->n / to->n) ? 1 : 0;
  double lo = fmax((double)i / from->n, (double)k / to->n);
  double hi = fmin((i + 1.0) / from->n, (k + 1.0) / to->n);
  return hi - lo > 1e-12 ? hi - lo : 0;
}

static double send_seconds(Links *l, const Run *from, const Run *to, bool whole, double bytes) {
  for (int o = 0; o < l->outer; o++)
    for (int in = 0; in < l->inner; in++)
      for (int i = 0; i < from->n; i++)
        for (int k = 0; k < to->n; k++) {
          double part = part_between(from, to, i, k, whole);
          if (part > 0)
            traffic_message(l->traffic, device_at(l, o, from->first + i, in),
                            device_at(l, o, to->first + k, in), part * bytes);
        }
  return traffic_cost(l->traffic).seconds;
}

static double reduce_seconds(Links *l, const Run *run, double bytes) {
  Groups g = {l->outer * l->inner, run->n, NULL};
  g.device = arena_array(l->arena, int, g.n *g.size);
  // A group of ranks for every position on the other axes.
  int n = 0;
  for (int o = 0; o < l->outer; o++)
    for (int in = 0; in < l->inner; in++)
      for (int i = 0; i < run->n; i++)
        g.device[n++] = device_at(l, o, run->first + i, in);
  return groups_cost(l->traffic, PATH_all_reduce, &g, bytes, bytes).seconds;
}

enum { PROBE = 1 << 20 }; // bytes; seconds are linear in them

static Rate rate_of(double once, double twice) {
  return (Rate){2 * once - twice, (twice - once) / PROBE};
}

Device links_least(const Links *l, const Run *run) {
  Device least = cluster_device(l->s->env.cluster, device_at(l, 0, run->first, 0));
  for (int o = 0; o < l->outer; o++)
    for (int i = 0; i < run->n; i++)
      for (int in = 0; in < l->inner; in++) {
        int device = device_at(l, o, run->first + i, in);
        least = device_least(least, cluster_device(l->s->env.cluster, device));
      }
  return least;
}

double links_held(const Links *l, const Run *run, double bytes) {
  const Cluster *c = l->s->env.cluster;
  int node = cluster_node(c, device_at(l, 0, run->first, 0));
  // Held ops may be on any node of the mesh.
  bool across = false;
  for (int i = 0; i < l->s->mesh->n_devices; i++)
    across |= cluster_node(c, l->s->mesh->device[i]) != node;
  double slowest = 0;
  for (int o = 0; o < l->outer; o++)
    for (int i = 0; i < run->n; i++)
      for (int in = 0; in < l->inner; in++) {
        int device = device_at(l, o, run->first + i, in);
        const Link *link = across ? cluster_across(c, device) : cluster_inside(c, device);
        slowest = fmax(slowest, link->alpha + bytes * link->beta);
      }
  return c->start + slowest;
}

// Returns the constant by which the devices of `b` are further than those of `a`, a multiple of the
// devices of a node; 0: there is none, or nodes differ.
static int whole_nodes_between(const Links *l, const Run *a, const Run *b) {
  const Cluster *c = l->s->env.cluster;
  int by = device_at(l, 0, b->first, 0) - device_at(l, 0, a->first, 0);
  if (c->n_kinds || a->n != b->n || by % c->per_node != 0) return 0;
  for (int o = 0; o < l->outer; o++)
    for (int i = 0; i < a->n; i++)
      for (int in = 0; in < l->inner; in++)
        if (device_at(l, o, b->first + i, in) - device_at(l, o, a->first + i, in) != by) return 0;
  return by;
}

static void price_pair(Links *l, Partition *p, int i, int k) {
  const Run *from = &p->run[i], *to = &p->run[k];
  // A rank splits nothing.
  bool single = from->n == 1 && to->n == 1;
  Rate split =
      rate_of(send_seconds(l, from, to, false, PROBE), send_seconds(l, from, to, false, 2 * PROBE));
  Rate whole = single ? split
                      : rate_of(send_seconds(l, from, to, true, PROBE),
                                send_seconds(l, from, to, true, 2 * PROBE));
  p->start[i * p->n_runs + k] = fmax(split.start, whole.start);
  p->by_batch[i * p->n_runs + k] = split.byte;
  p->by_whole[i * p->n_runs + k] = whole.byte;
}

// Whether values go from run `from` to run `to`: only to later ones.
static bool sends_to(const Run *from, const Run *to) {
  return to->first >= from->first + from->n;
}

Links links_price(const Sharding *s, int axis, Partition *p, Arena *a) {
  Links l = {.s = s, .axis = axis, .outer = 1, .inner = 1, .arena = a};
  for (int k = 0; k < s->mesh->n_axes; k++)
    if (k != axis && !s->mesh->axis[k].time)
      *(k < axis ? &l.outer : &l.inner) *= s->mesh->axis[k].size;
  l.traffic = traffic_new(a, s->env.cluster);
  int n = p->n_runs;
  p->start = arena_array(a, double, n *n);
  p->by_batch = arena_array(a, double, n *n);
  p->by_whole = arena_array(a, double, n *n);
  l.reduce = arena_array(a, Rate, n);
  int *by = arena_array(a, int, n); // to the devices of each run from those of the one before
  for (int i = 1; i < n; i++)
    by[i] = whole_nodes_between(&l, &p->run[i - 1], &p->run[i]);
  // Rates follow from the costs of messages of two sizes.
  for (int i = 0; i < n; i++) {
    const Run *from = &p->run[i];
    if (from->n > 1)
      l.reduce[i] = rate_of(reduce_seconds(&l, from, PROBE), reduce_seconds(&l, from, 2 * PROBE));
    for (int k = 0; k < n; k++) {
      if (!sends_to(from, &p->run[k])) continue;
      int at = i * n + k, before = at - n - 1;
      // Both ends are as much further than those of the pair before.
      if (k > 0 && by[i] != 0 && by[i] == by[k] && sends_to(from - 1, &p->run[k - 1])) {
        p->start[at] = p->start[before];
        p->by_batch[at] = p->by_batch[before];
        p->by_whole[at] = p->by_whole[before];
      } else {
        price_pair(&l, p, i, k);
      }
    }
  }
  return l;
}
