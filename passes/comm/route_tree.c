// See route_tree.h.
//
// In the cheapest tree every place is reached from one that was reached before it. So the cheapest
// tree of a set is the cheapest tree of all but one of it, and an edge to that one from the
// nearest. Sets are visited in the order of their numbers, bit i for place i. With too many places
// for that, the nearest wanted one is added, again and again.
//
// Most costs are of no use, and take long to find: to copy a value to all devices first is more
// than to send each its part. The routes from the origin to all wanted places are a tree, which
// bounds the cheapest one. To reach a place costs at least the shortest way to it, so a route is
// dropped if that and a lower bound of its own cost exceed the bound.

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

// The costs of all routes; INFINITY of those that no cheapest tree has. Ties are kept.
static void useful(int n_wanted, int n, RouteCost *cost, RouteCost *least, void *context,
                   double *between) {
  double bound = 0, way[ROUTE_TREE_EXACT];
  bool seen[ROUTE_TREE_EXACT] = {false};
  for (int i = 0; i < n_wanted; i++)
    bound += between[i] = way[i] = cost(context, -1, i);
  bound *= 1 + 1e-6;
  for (int i = n_wanted; i < n; i++)
    between[i] = way[i] = least(context, -1, i) > bound ? INFINITY : cost(context, -1, i);
  // In the order of the shortest ways, as of Dijkstra: a place's way is final when its turn comes.
  for (int turn = 0; turn < n; turn++) {
    int from = -1;
    for (int i = 0; i < n; i++)
      if (!seen[i] && (from < 0 || way[i] < way[from])) from = i;
    seen[from] = true;
    for (int to = 0; to < n; to++) {
      double *at = &between[(from + 1) * n + to];
      if (to == from) continue;
      bool useless = way[from] > bound || way[from] + least(context, from, to) > bound;
      *at = useless ? INFINITY : cost(context, from, to);
      if (way[from] + *at < way[to]) way[to] = way[from] + *at;
    }
  }
}

double route_tree_choose(Arena *scratch, int n_wanted, int n, RouteCost *cost, RouteCost *least,
                         void *context, int *parent) {
  for (int i = 0; i < n; i++)
    parent[i] = -2;
  if (n > ROUTE_TREE_EXACT) n = n_wanted;
  double *between = arena_array(scratch, double, (n + 1) * n);
  if (least && n <= ROUTE_TREE_EXACT) {
    useful(n_wanted, n, cost, least, context, between);
    return exact(scratch, between, n_wanted, n, parent);
  }
  for (int from = -1; from < n; from++)
    for (int to = 0; to < n; to++)
      between[(from + 1) * n + to] = from == to ? 0 : cost(context, from, to);
  return n <= ROUTE_TREE_EXACT ? exact(scratch, between, n_wanted, n, parent)
                               : greedy(between, n, parent);
}
