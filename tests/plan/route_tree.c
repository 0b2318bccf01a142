// A tree of routes has the least cost: compared with all choices of a source for each place, for up
// to five places, some of them optional.

#include "unit.h"

#include <math.h>

#include "comm/route_tree.h"

enum { MOST = 5 };

typedef struct Map {
  int n;
  double cost[MOST + 1][MOST]; // from place - 1; 0: the root
} Map;

static double cost_of(void *context, int from, int to) {
  const Map *m = context;
  return m->cost[from + 1][to];
}

// Whether all wanted places are reached from the root; computes the cost.
static bool is_tree(const Map *m, int n_wanted, const int *parent, double *sum) {
  *sum = 0;
  for (int i = 0; i < m->n; i++) {
    int at = i, steps = 0;
    if (parent[i] == -2) {
      if (i < n_wanted) return false;
      continue;
    }
    while (at >= 0 && steps++ <= m->n)
      at = parent[at];
    if (at != -1) return false;
    *sum += m->cost[parent[i] + 1][i];
  }
  return true;
}

static double least(const Map *m, int n_wanted) {
  double best = INFINITY;
  int codes = 1;
  for (int i = 0; i < m->n; i++)
    codes *= m->n + 2;
  for (int code = 0; code < codes; code++) {
    int parent[MOST], left = code;
    double sum;
    for (int i = 0; i < m->n; i++, left /= m->n + 2)
      parent[i] = left % (m->n + 2) - 2;
    if (is_tree(m, n_wanted, parent, &sum)) best = fmin(best, sum);
  }
  return best;
}

static void test_least(void **state) {
  (void)state;
  unsigned seed = 1;
  for (int i = 0; i < 200; i++) {
    Map m = {.n = 1 + i % MOST};
    for (int from = 0; from <= m.n; from++)
      for (int to = 0; to < m.n; to++) {
        seed = seed * 1664525 + 1013904223;
        m.cost[from][to] = seed >> 28; // small numbers, so that there are ties and zeros
      }
    int n_wanted = 1 + i / MOST % m.n, parent[MOST];
    Arena *a = arena_new();
    double sum, own = route_tree_choose(a, n_wanted, m.n, cost_of, &m, parent);
    assert_true(is_tree(&m, n_wanted, parent, &sum));
    assert_float_equal(sum, own, 1e-9);
    assert_float_equal(own, least(&m, n_wanted), 1e-9);
    arena_free(a);
  }
}

static double steps(void *context, int from, int to) {
  (void)context;
  return abs(to - from);
}

// Too many places to enumerate all sets of them: each is reached from its neighbour.
static void test_many(void **state) {
  (void)state;
  int parent[3 * ROUTE_TREE_EXACT];
  Arena *a = arena_new();
  assert_float_equal(
      route_tree_choose(a, 2 * ROUTE_TREE_EXACT, 3 * ROUTE_TREE_EXACT, steps, NULL, parent),
      2 * ROUTE_TREE_EXACT, 1e-9);
  for (int i = 0; i < 3 * ROUTE_TREE_EXACT; i++)
    assert_int_equal(parent[i], i < 2 * ROUTE_TREE_EXACT ? i - 1 : -2);
  arena_free(a);
}

TEST_GROUP(route_tree) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_least), cmocka_unit_test(test_many)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
