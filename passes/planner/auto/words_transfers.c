// See words_transfers.h.

#include "words_transfers.h"

#include <math.h>

#include "paths/path_cost.h"

// Blocks of `q` stages. Either the ranks of each that have the same rows; or `across`: of these the
// ranks with the same place in all blocks.
static Groups ranks_of_rows(const Point *p, int q, bool across, Arena *a) {
  int inside = (int)point_inside(p), rows = inside / p->tensor;
  int places = q * p->tensor, blocks = p->stages / q, all = p->stages * inside;
  int size = across ? blocks : places;
  Groups g = {.n = all / size, .size = size, .device = arena_array(a, int, all)};
  for (int i = 0; i < all; i++) {
    int block = across ? i % blocks : i / (places * rows);
    int row = across ? i / (places * blocks) : i / places % rows;
    int k = across ? i / blocks % places : i % places;
    int stage = block * q + k / p->tensor;
    g.device[i] = stage * inside + row * p->tensor + k % p->tensor;
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

WordsTransfers words_transfers(const Cluster *c, const Point *p, double bytes, double sum_bytes) {
  Arena *a = arena_new();
  Traffic *t = traffic_new(a, c);
  Groups to = ranks_with_first(p, true, a), from = ranks_with_first(p, false, a);
  WordsTransfers least = {INFINITY, INFINITY};
  for (int q = 1; q <= p->stages; q++) {
    if (p->stages % q != 0) continue;
    Groups in = ranks_of_rows(p, q, false, a), across = ranks_of_rows(p, q, true, a);
    // Of a rank in a block, and of these its part among blocks.
    double part = bytes / in.size, least_part = part / across.size;
    double sum_part = sum_bytes / in.size, least_sum = sum_part / across.size;
    double gather = groups_cost(t, PATH_all_gather, &in, part, bytes).seconds;
    double spread = groups_cost(t, PATH_rd_scatter, &from, part, part).seconds;
    double parts = groups_cost(t, PATH_rd_scatter, &from, least_part, least_part).seconds +
                   groups_cost(t, PATH_all_gather, &across, least_part, part).seconds;
    least.spread = fmin(least.spread, fmin(spread, parts) + gather);
    double reduce = groups_cost(t, PATH_reduce_scatter, &in, sum_bytes, sum_part).seconds;
    double sum = groups_cost(t, PATH_rd_gather, &to, sum_part, sum_part).seconds;
    double sums = groups_cost(t, PATH_reduce_scatter, &across, sum_part, least_sum).seconds +
                  groups_cost(t, PATH_rd_gather, &to, least_sum, least_sum).seconds;
    double whole = groups_cost(t, PATH_all_reduce, &across, sum_part, sum_part).seconds +
                   groups_cost(t, PATH_all_gather, &in, sum_part, sum_bytes).seconds;
    least.sum = fmin(least.sum, reduce + fmin(sum, fmin(sums, whole)));
  }
  arena_free(a);
  return least;
}
