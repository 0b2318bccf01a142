// A tree of routes has the least cost: compared with all choices of a source for each place, for up
// to five places, some of them optional.

#include "unit.h"

#include <math.h>

#include "comm/route_tree.h"

enum { MOST = 5 };

typedef struct Map {
  int n, n_asked;
  double cost[MOST + 1][MOST]; // from place - 1; 0: the root
} Map;

static double cost_of(void *context, int from, int to) {
  Map *m = context;
  m->n_asked++;
  return m->cost[from + 1][to];
}

// A lower bound of the cost.
static double bound_of(void *context, int from, int to) {
  const Map *m = context;
  return m->cost[from + 1][to] * (from + 2 * to) / (2 * MOST + MOST);
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
    double sum, own = route_tree_choose(a, n_wanted, m.n, cost_of, NULL, &m, parent);
    assert_true(is_tree(&m, n_wanted, parent, &sum));
    assert_float_equal(sum, own, 1e-9);
    assert_float_equal(own, least(&m, n_wanted), 1e-9);
    arena_free(a);
  }
}

// With lower bounds the tree is the same, for fewer costs.
static void test_bounds(void **state) {
  (void)state;
  unsigned seed = 2;
  int all = 0, asked = 0;
  for (int i = 0; i < 500; i++) {
    Map m = {.n = 1 + i % MOST};
    for (int from = 0; from <= m.n; from++)
      for (int to = 0; to < m.n; to++) {
        seed = seed * 1664525 + 1013904223;
        m.cost[from][to] = seed >> 28;
      }
    int n_wanted = 1 + i / MOST % m.n, parent[MOST], bounded[MOST];
    Arena *a = arena_new();
    double sum = route_tree_choose(a, n_wanted, m.n, cost_of, NULL, &m, parent);
    all += m.n_asked;
    m.n_asked = 0;
    assert_float_equal(route_tree_choose(a, n_wanted, m.n, cost_of, bound_of, &m, bounded), sum, 0);
    asked += m.n_asked;
    for (int k = 0; k < m.n; k++)
      assert_int_equal(parent[k], bounded[k]);
    arena_free(a);
  }
  assert_true(asked < all);
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
      route_tree_choose(a, 2 * ROUTE_TREE_EXACT, 3 * ROUTE_TREE_EXACT, steps, NULL, NULL, parent),
      2 * ROUTE_TREE_EXACT, 1e-9);
  for (int i = 0; i < 3 * ROUTE_TREE_EXACT; i++)
    assert_int_equal(parent[i], i < 2 * ROUTE_TREE_EXACT ? i - 1 : -2);
  arena_free(a);
}

TEST_GROUP(route_tree) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_least), cmocka_unit_test(test_bounds),
                                     cmocka_unit_test(test_many)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
