// See route_tree.h.
//
// In the cheapest tree every place is reached from one that was reached before it. So the cheapest
// tree of a set is the cheapest tree of all but one of it, and an edge to that one from the
// nearest. Sets are visited in the order of their numbers, bit i for place i. With too many places
// for that, the nearest wanted one is added, again and again.

#include "route_tree.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct Last {
  double sum;
  int place, parent; // reached last, and its source
} Last;

// The cost from the nearest place of the set, or from the origin; sets `parent` to that.
static double nearest(const double *between, int n, uint32_t set, int place, int *parent) {
  double least = between[place];
  *parent = -1;
  for (int i = 0; i < n; i++) {
    double cost = between[(i + 1) * n + place];
    if (!(set >> i & 1) || cost >= least) continue;
    least = cost;
    *parent = i;
  }
  return least;
}

static double exact(Arena *scratch, const double *between, int n_wanted, int n, int *parent) {
  // The least cost to reach each set of places, from smaller sets.
  Last *last = arena_array(scratch, Last, 1 << n);
  uint32_t wanted = (1u << n_wanted) - 1, best = wanted;
  last[0] = (Last){0, -1, -1};
  for (uint32_t set = 1; set < 1u << n; set++) {
    last[set].sum = INFINITY;
    for (int i = 0; i < n; i++) {
      if (!(set >> i & 1)) continue;
      int from;
      uint32_t others = set & ~(1u << i);
      double sum = last[others].sum + nearest(between, n, others, i, &from);
      if (sum < last[set].sum) last[set] = (Last){sum, i, from};
    }
    if ((set & wanted) == wanted && last[set].sum < last[best].sum) best = set;
  }
  // The sets lead back to the parents.
  double sum = last[best].sum;
  for (uint32_t set = best; set; set &= ~(1u << last[set].place))
    parent[last[set].place] = last[set].parent;
  return sum;
}

static double greedy(const double *between, int n, int *parent) {
  double sum = 0;
  for (int reached = 0; reached < n; reached++) {
    int next = -1, from = -1;
    double least = INFINITY;
    for (int i = 0; i < n; i++)
      for (int k = -1; k < n; k++) {
        // From any place that is reached to one that is not.
        bool can = parent[i] == -2 && (k < 0 || parent[k] != -2);
        if (!can || (next >= 0 && between[(k + 1) * n + i] >= least)) continue;
        least = between[(k + 1) * n + i];
        next = i;
        from = k;
      }
    parent[next] = from;
    sum += least;
  }
  return sum;
}

double route_tree_choose(Arena *scratch, int n_wanted, int n, RouteCost *cost, void *context,
                         int *parent) {
  for (int i = 0; i < n; i++)
    parent[i] = -2;
  if (n > ROUTE_TREE_EXACT) n = n_wanted;
  double *between = arena_array(scratch, double, (n + 1) * n);
  for (int from = -1; from < n; from++)
    for (int to = 0; to < n; to++)
      between[(from + 1) * n + to] = from == to ? 0 : cost(context, from, to);
  return n <= ROUTE_TREE_EXACT ? exact(scratch, between, n_wanted, n, parent)
                               : greedy(between, n, parent);
}
