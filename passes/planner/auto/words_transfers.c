// See words_transfers.h.

#include "words_transfers.h"

#include <math.h>

#include "paths/path_cost.h"

// The ranks of all stages that have the same rows.
static Groups ranks_of_rows(const Point *p, Arena *a) {
  int inside = (int)point_inside(p), size = p->stages * p->tensor;
  Groups g = {.n = inside / p->tensor, .size = size};
  g.device = arena_array(a, int, g.n *size);
  for (int i = 0; i < g.n * size; i++) {
    int k = i % size; // in its group
    g.device[i] = k / p->tensor * inside + i / size * p->tensor + k % p->tensor;
  }
  return g;
}

// The same rank of all stages after the first stage's, which sends; or before it, which receives.
static Groups ranks_with_first(const Point *p, bool receives, Arena *a) {
  Groups g = {.n = (int)point_inside(p), .size = p->stages + 1};
  g.device = arena_array(a, int, g.n *g.size);
  for (int i = 0; i < g.n; i++)
    for (int k = 0; k < g.size; k++) {
      int stage = receives ? k % p->stages : k > 0 ? k - 1 : 0;
      g.device[i * g.size + k] = stage * g.n + i;
    }
  return g;
}

// The tensor ranks of each stage.
static Groups ranks_inside(const Point *p, Arena *a) {
  int n = p->stages * (int)point_inside(p);
  Groups g = {.n = n / p->tensor, .size = p->tensor, .device = arena_array(a, int, n)};
  for (int i = 0; i < n; i++)
    g.device[i] = i;
  return g;
}

WordsTransfers words_transfers(const Cluster *c, const Point *p, double bytes, double sum_bytes) {
  Arena *a = arena_new();
  Traffic *t = traffic_new(a, c);
  Groups all = ranks_of_rows(p, a), to = ranks_with_first(p, true, a);
  Groups from = ranks_with_first(p, false, a), inside = ranks_inside(p, a);
  double part = bytes / all.size, sum_part = sum_bytes / all.size, own = bytes / p->tensor;
  double sum = groups_cost(t, PATH_all_reduce, &all, sum_bytes, sum_bytes).seconds;
  double gathered = groups_cost(t, PATH_reduce_scatter, &all, sum_bytes, sum_part).seconds +
                    groups_cost(t, PATH_rd_gather, &to, sum_part, sum_bytes).seconds;
  double spread = groups_cost(t, PATH_broadcast, &from, own, own).seconds +
                  groups_cost(t, PATH_all_gather, &inside, own, bytes).seconds;
  double scattered = groups_cost(t, PATH_rd_scatter, &from, own, part).seconds +
                     groups_cost(t, PATH_all_gather, &all, part, bytes).seconds;
  arena_free(a);
  return (WordsTransfers){fmin(sum, gathered), fmin(spread, scattered)};
}
