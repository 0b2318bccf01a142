// Transfers of words, compared with the search for routes.

#include "planner/auto/words_transfers.h"

#include "draw.h"
#include "paths/path.h"
#include "unit.h"

enum { ROWS = 512, COLUMNS = 1024 };

static const int *sequence(Arena *a, int from, int n) {
  int *device = arena_array(a, int, n);
  for (int i = 0; i < n; i++)
    device[i] = from + i;
  return device;
}

// The ranks of all stages with the row groups innermost, as a placement has them.
static const int *all_ranks(Arena *a, const Point *p) {
  int inside = (int)point_inside(p), rows = inside / p->tensor, n = p->stages * inside;
  int *device = arena_array(a, int, n);
  for (int i = 0; i < n; i++) {
    int k = i / rows; // among those with the same rows
    device[i] = k / p->tensor * inside + i % rows * p->tensor + k % p->tensor;
  }
  return device;
}

static const Path *route(const Cluster *c, const Placement *from, const Placement *to, Arena *a) {
  TensorShape shape = {.ndim = 2, .dim = {ROWS, COLUMNS}, .bytes = 4};
  Paths *paths = paths_new(a, c);
  paths_without_send_recv(paths);
  return path_find(paths, &shape, from, to);
}

// The seconds are those of a route of the search, and nearly the best. One that is not exhaustive
// may find no better one.
static void assert_close(double seconds, const Path *best) {
  const double most = 1.2; // 1.17 is the most that was seen
  if (best->complete) assert_true(seconds >= best->total.seconds * (1 - 1e-9));
  assert_true(seconds <= best->total.seconds * most);
}

static void transfers_cost_as_the_best_routes(void **state) {
  enum { CASES = 24 };
  (void)state;
  Random r = {1};
  for (int i = 0; i < CASES; i++) {
    Arena *a = arena_new();
    Cluster c = {.nodes = 1 << below(&r, 3), .per_node = 2 << below(&r, 2)};
    c.nics = below(&r, 2) ? c.per_node : 1;
    c.inside = (Link){1e-6, 1 / 300e9};
    c.across = (Link){4e-6, 1 / 25e9};
    c.start = 5e-6;
    Point p = {.stages = 2, .replicas = 1, .tensor = 1, .context = 1, .experts = 1};
    int *const axis[] = {&p.stages, &p.stages, &p.replicas, &p.tensor};
    for (int n = cluster_devices(&c) / 2; n > 1; n /= 2)
      *axis[below(&r, 4)] *= 2;
    int inside = (int)point_inside(&p), same = p.stages * p.tensor;
    double bytes = 4.0 * ROWS * COLUMNS / p.replicas;
    WordsTransfers own = words_transfers(&c, &p, bytes, bytes);
    Placement first = {1, 1, {p.replicas, p.tensor}, inside, sequence(a, 0, inside)};
    Placement copies = {same, 1, {p.replicas, 1}, same * p.replicas, all_ranks(a, &p)};
    Placement shares = {1, same, {p.replicas, 1}, same * p.replicas, copies.device};
    assert_close(own.sum, route(&c, &shares, &first, a));
    assert_close(own.spread, route(&c, &first, &copies, a));
    arena_free(a);
  }
}

TEST_GROUP(words_transfers) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transfers_cost_as_the_best_routes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
