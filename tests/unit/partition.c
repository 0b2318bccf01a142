// Partitioning random units into stages, compared with exhaustive enumeration.

#include "planner/stages/partition.h"

#include <math.h>

#include "draw.h"
#include "unit.h"

typedef struct Shape {
  int units, ranks;
  bool chain; // the next unit reads each value, and no value is shared
  int memory; // of a rank, in percent of the bytes of all units; 0: unlimited
  int sends;  // a factor for the cost of sends; 0: 1
} Shape;

static Run *all_runs(Arena *a, int ranks, int *n) {
  Run *run = arena_array(a, Run, ranks * ranks);
  *n = 0;
  for (int first = 0; first < ranks; first++)
    for (int k = 1; first + k <= ranks; k++)
      run[(*n)++] = (Run){first, k};
  return run;
}

static const int *readers(Arena *a, Random *r, int from, int units, int *n) {
  int *reader = arena_array(a, int, units);
  *n = 0;
  for (int u = from + 1; u < units; u++)
    if (below(r, 3) == 0) reader[(*n)++] = u;
  if (!*n) reader[(*n)++] = from + 1;
  return reader;
}

static void add_flows(Arena *a, Random *r, const Shape *s, Partition *p) {
  Flow *flow = arena_array(a, Flow, s->units);
  for (int u = 0; u + 1 < s->units; u++) {
    double times = s->sends ? s->sends : 1;
    Flow f = {
        u,           1, NULL, below(r, 3) == 0, times * (1 + below(r, 3)), times * below(r, 50),
        below(r, 10)};
    int *next = arena_array(a, int, 1);
    *next = u + 1;
    f.reader = s->chain ? next : readers(a, r, u, s->units, &f.n_readers);
    flow[p->n_flows++] = f;
  }
  p->flow = flow;
}

// Makes the first unit and another share a tied weight; its gradient goes from one to the other.
static void add_shared(Arena *a, Random *r, const Shape *s, Partition *p) {
  Shared *shared = arena_array(a, Shared, 1);
  int *unit = arena_array(a, int, 2);
  unit[1] = 1 + below(r, s->units - 1);
  *shared = (Shared){2, unit, below(r, 20), arena_array(a, double, p->n_runs)};
  for (int i = 0; i < p->n_runs; i++)
    shared->seconds[i] = p->run[i].n > 1 ? below(r, 5) : 0;
  p->shared = shared;
  p->n_shared = 1;
}

static Partition *random_partition(Arena *a, Random *r, const Shape *s) {
  Partition *p = arena_one(a, Partition);
  *p = (Partition){.n_units = s->units, .n_ranks = s->ranks};
  p->run = all_runs(a, s->ranks, &p->n_runs);
  int n = p->n_runs;
  double **table[] = {&p->seconds, &p->bytes, &p->base_seconds, &p->base_bytes,
                      &p->limit,   &p->start, &p->by_batch,     &p->by_whole};
  int size[] = {s->units * n, s->units * n, n, n, n, n * n, n * n, n * n};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    *table[i] = arena_array(a, double, size[i]);
  double all = 0;
  for (int u = 0; u < s->units; u++) {
    double work = 5 + below(r, 95), kept = 10 + below(r, 40), halo = below(r, 10);
    all += kept;
    for (int i = 0; i < n; i++) {
      p->seconds[u * n + i] = work / p->run[i].n + (p->run[i].n > 1 ? halo : 0);
      p->bytes[u * n + i] = 5 + kept / p->run[i].n;
    }
  }
  for (int i = 0; i < n; i++) {
    p->base_seconds[i] = below(r, 4) == 0 ? below(r, 20) : 0;
    p->base_bytes[i] = below(r, 10);
    p->limit[i] = s->memory ? all * s->memory / 100 : INFINITY;
    for (int k = 0; k < n; k++) {
      p->start[i * n + k] = i == k ? 0 : below(r, 4);
      p->by_batch[i * n + k] = i == k ? 0 : below(r, 10) * 0.05;
      p->by_whole[i * n + k] = i == k ? 0 : below(r, 10) * 0.05;
    }
  }
  // Half of the problems have bytes that pass, and several micro-batches in flight.
  if (below(r, 2)) {
    double *passing = arena_array(a, double, s->units), *in_flight = arena_array(a, double, n);
    for (int u = 0; u < s->units; u++)
      passing[u] = below(r, 30);
    for (int i = 0; i < n; i++)
      in_flight[i] = s->ranks - p->run[i].first;
    p->passing = passing;
    p->in_flight = in_flight;
  }
  add_flows(a, r, s, p);
  if (!s->chain && below(r, 2)) add_shared(a, r, s, p);
  p->n_stages = below(r, 3) ? 0 : 1 + below(r, s->ranks < s->units ? s->ranks : s->units);
  return p;
}

// Returns the least time of any assignment; infinity if none fits.
static double try_all(const Partition *p, int *run_of, int unit) {
  double best = INFINITY;
  if (unit == p->n_units) {
    if (!partition_legal(p, run_of)) return best;
    Arena *a = arena_new();
    Load x = partition_load(a, p, run_of);
    arena_free(a);
    return x.fits ? x.slowest : best;
  }
  for (int r = 0; r < p->n_runs; r++) {
    run_of[unit] = r;
    best = fmin(best, try_all(p, run_of, unit + 1));
  }
  return best;
}

static bool about(double x, double y) {
  return x == y || fabs(x - y) <= 2e-6 * fabs(y);
}

static PartitionStatus check(Arena *a, const Partition *p, double *slowest) {
  PartitionResult r = partition_solve(a, p, &(PartitionOptions){.seconds = 30});
  double least = try_all(p, arena_array(a, int, p->n_units), 0);
  bool has = r.status == PARTITION_proved || r.status == PARTITION_found;
  *slowest = has ? partition_load(a, p, r.run_of).slowest : INFINITY;
  if (has) assert_true(partition_legal(p, r.run_of) && partition_load(a, p, r.run_of).fits);
  if (r.status == PARTITION_proved) assert_true(about(*slowest, least));
  if (r.status == PARTITION_infeasible) assert_true(isinf(least));
  assert_true(r.bound <= least * (1 + 2e-6));
  return r.status;
}

// The table alone, without CBC: its bound is the optimum of a chain, and its solution has that
// cost.
static void check_table(Arena *a, const Partition *p) {
  double bound, least = try_all(p, arena_array(a, int, p->n_units), 0);
  const int *run_of = table_solve(a, p, &bound);
  assert_true(about(bound, least));
  assert_true((run_of != NULL) == !isinf(least));
  if (run_of) assert_true(about(partition_load(a, p, run_of).slowest, least));
}

// The labels alone, without a start and without CBC: for any graph of units they find the optimum
// or prove infeasibility.
static void check_labels(Arena *a, const Partition *p) {
  int *run_of = arena_array(a, int, p->n_units);
  double bound = 0, least = try_all(p, run_of, 0);
  bool has = labels_solve(p, run_of, false, &bound);
  assert_int_equal(has, !isinf(least));
  assert_true(about(bound, least));
  if (!has) return;
  assert_true(partition_legal(p, run_of) && partition_load(a, p, run_of).fits);
  assert_true(about(partition_load(a, p, run_of).slowest, least));
}

// CBC alone, without a start: a proved solution is the optimum.
static void check_cbc(Arena *a, const Partition *p) {
  int *run_of = arena_array(a, int, p->n_units);
  PartitionResult r = {.bound = 0};
  double least = try_all(p, run_of, 0);
  PartitionStatus status = partition_ask(p, 30, NULL, run_of, &r);
  if (status == PARTITION_infeasible) assert_true(isinf(least));
  if (status == PARTITION_proved) assert_true(about(partition_load(a, p, run_of).slowest, least));
  assert_true(r.bound <= least * (1 + 2e-6));
}

static void cbc_is_as_good_as_it_says(void **state) {
  (void)state;
  Random r = {11};
  for (int i = 0; i < 20; i++) {
    Arena *a = arena_new();
    check_cbc(a, random_partition(a, &r, &(Shape){4, 3, false, i % 2 ? 60 : 0, 0}));
    arena_free(a);
  }
}

// CBC ends at its work limit: more time gives the same result, which reports that the limit did not
// end it.  Without time it reports that, too.
static void cbc_ends_at_the_same_place(void **state) {
  (void)state;
  Random r = {11};
  Arena *a = arena_new();
  const Partition *p = random_partition(a, &r, &(Shape){9, 4, false, 60, 0});
  PartitionResult out[3] = {{0}};
  static const double seconds[] = {60, 600, 0};
  PartitionStatus status[3];
  int run_of[3][9];
  for (int i = 0; i < 3; i++) {
    status[i] = partition_ask(p, seconds[i], NULL, run_of[i], &out[i]);
    assert_true(out[i].n_columns > 0);
  }
  assert_false(out[0].out_of_time || out[1].out_of_time);
  assert_true(out[2].out_of_time);
  assert_int_equal(status[0], status[1]);
  assert_true(out[0].bound == out[1].bound);
  if (status[0] != PARTITION_unknown) assert_memory_equal(run_of[0], run_of[1], sizeof run_of[0]);
  arena_free(a);
}

static void check_many(Shape s, int n, bool always_proved) {
  Random r = {(uint64_t)(s.units * 64 + s.ranks * 8 + s.chain + s.memory)};
  for (int i = 0; i < n; i++) {
    Arena *a = arena_new();
    double slowest;
    const Partition *p = random_partition(a, &r, &s);
    PartitionStatus status = check(a, p, &slowest);
    if (s.chain) check_table(a, p);
    check_labels(a, p);
    if (always_proved) assert_true(status == PARTITION_proved || status == PARTITION_infeasible);
    arena_free(a);
  }
}

// For chains, whose units only read results of the previous unit, the table of stages is exact.
static void chains_are_proved(void **state) {
  (void)state;
  check_many((Shape){5, 3, true, 0, 0}, 60, true);
  check_many((Shape){4, 4, true, 0, 0}, 30, true);
  check_many((Shape){3, 2, true, 0, 0}, 60, true);
}

// The same with a memory limit: infeasible problems, and only these, are reported as such.
static void chains_keep_to_memory(void **state) {
  (void)state;
  check_many((Shape){5, 3, true, 50, 0}, 60, true);
  check_many((Shape){4, 3, true, 35, 0}, 60, true);
}

// For any graph of units a proved solution is the optimum, and no bound exceeds it.
static void graphs_are_proved(void **state) {
  (void)state;
  check_many((Shape){5, 3, false, 0, 0}, 60, true);
  check_many((Shape){5, 4, false, 0, 4}, 40, true);
  check_many((Shape){6, 3, false, 0, 8}, 30, true);
  check_many((Shape){4, 3, false, 60, 0}, 60, true);
}

// One more value to send never makes the slowest rank faster: the table's bound of a chain grows
// with a flow that skips stages, and stays below the optimum.
static void a_flow_that_skips_a_stage_is_counted(void **state) {
  (void)state;
  Random r = {5};
  int above = 0;
  for (int i = 0; i < 60; i++) {
    Arena *a = arena_new();
    Partition *p = random_partition(a, &r, &(Shape){4, 4, true, 0, 0});
    double without, with, least;
    table_solve(a, p, &without);
    Flow *flow = arena_array(a, Flow, p->n_flows + 1);
    memcpy(flow, p->flow, (size_t)p->n_flows * sizeof *flow);
    flow[p->n_flows++] = (Flow){0, 1, (int[]){3}, false, 1, 40, 40};
    p->flow = flow;
    table_solve(a, p, &with);
    least = try_all(p, arena_array(a, int, p->n_units), 0);
    assert_true(with >= without * (1 - 1e-9) && with <= least * (1 + 2e-6));
    above += with > without * (1 + 1e-6);
    arena_free(a);
  }
  assert_true(above > 5);
}

// Less memory never makes the slowest rank faster.
static void less_memory_is_no_faster(void **state) {
  (void)state;
  Random r = {7};
  for (int i = 0; i < 30; i++) {
    Arena *a = arena_new();
    Partition *p = random_partition(a, &r, &(Shape){5, 3, true, 90, 0});
    double before = 0;
    for (int k = 0; k < 4; k++) {
      double slowest;
      check(a, p, &slowest);
      assert_true(slowest >= before);
      before = slowest;
      for (int run = 0; run < p->n_runs; run++)
        p->limit[run] *= 0.8;
    }
    arena_free(a);
  }
}

// The same problem has the same solution, no worse than the start.
static void no_worse_than_the_start(void **state) {
  (void)state;
  Random r = {3};
  for (int i = 0; i < 20; i++) {
    Arena *a = arena_new();
    Partition *p = random_partition(a, &r, &(Shape){6, 4, false, 0, 0});
    double bound;
    const int *start = table_solve(a, p, &bound);
    PartitionResult x = partition_solve(a, p, &(PartitionOptions){.seconds = 30});
    PartitionResult y = partition_solve(a, p, &(PartitionOptions){.seconds = 30});
    if (start) {
      Load got = partition_load(a, p, x.run_of), first = partition_load(a, p, start);
      assert_true(got.slowest <= first.slowest);
      assert_memory_equal(x.run_of, y.run_of, (size_t)p->n_units * sizeof *x.run_of);
    }
    assert_int_equal(x.status, y.status);
    arena_free(a);
  }
}

// Units 0 to 3 on given runs; unit 3 reads the results of some others; each message takes 4 s.
// Seconds of FAR exclude a unit from a run.
enum { FAR = 1000, SMALL_RUNS = 5 };

static double least_of_small(int n_ranks, const Run *run, int n_runs, int n_stages,
                             const double *seconds, const Flow *flow, int n_flows) {
  Arena *a = arena_new();
  double zero[SMALL_RUNS * SMALL_RUNS] = {0}, start[SMALL_RUNS * SMALL_RUNS], limit[SMALL_RUNS];
  for (int i = 0; i < SMALL_RUNS * SMALL_RUNS; i++)
    start[i] = 4;
  for (int i = 0; i < SMALL_RUNS; i++)
    limit[i] = INFINITY;
  Partition p = {.n_units = 4, .n_ranks = n_ranks, .n_runs = n_runs, .run = run};
  p.n_stages = n_stages;
  p.seconds = arena_copy(a, seconds, sizeof(double) * 4 * (size_t)n_runs);
  p.bytes = p.base_seconds = p.base_bytes = p.by_batch = p.by_whole = zero;
  p.limit = limit;
  p.start = start;
  p.flow = flow;
  p.n_flows = n_flows;
  int run_of[4];
  double bound = 0;
  assert_true(labels_solve(&p, run_of, false, &bound));
  double slowest = partition_load(a, &p, run_of).slowest;
  assert_true(about(bound, slowest));
  arena_free(a);
  return slowest;
}

static const int second[] = {1}, third[] = {2}, fourth[] = {3};

// The slowest stage so far does not decide alone: a stage with later messages needs a smaller load.
static void later_messages_count(void **state) {
  (void)state;
  const Run run[] = {{0, 1}, {1, 1}, {2, 1}};
  const double seconds[] = {2, 2, 2, 6, 6, 6, 3, 3, 3, 5, 5, 5};
  const Flow flow[] = {{.from = 0, .n_readers = 1, .reader = fourth, .messages = 1},
                       {.from = 0, .n_readers = 1, .reader = second},
                       {.from = 1, .n_readers = 1, .reader = third},
                       {.from = 2, .n_readers = 1, .reader = fourth}};
  assert_true(about(least_of_small(3, run, 3, 3, seconds, flow, 4), 9)); // 0 | 1 2 | 3
}

// Two units on one run send both results from there: a smaller load now may cost more in the end.
static void one_run_sends_for_all_of_its_units(void **state) {
  (void)state;
  const Run run[] = {{0, 1}, {1, 1}, {0, 2}, {2, 1}, {3, 1}};
  const double seconds[] = {6,   FAR, 2.5, FAR, FAR, FAR, 6,   2.5, FAR, FAR,
                            FAR, FAR, FAR, 7,   FAR, FAR, FAR, FAR, FAR, 1};
  const Flow flow[] = {{.from = 0, .n_readers = 1, .reader = fourth, .messages = 1},
                       {.from = 1, .n_readers = 1, .reader = fourth, .messages = 1},
                       {.from = 1, .n_readers = 1, .reader = third},
                       {.from = 2, .n_readers = 1, .reader = fourth}};
  assert_true(about(least_of_small(4, run, 5, 0, seconds, flow, 4), 10)); // 13 on two stages
}

// A problem with too many stages for the table, on runs of different lengths, is solved.
static void many_stages_of_many_ranks(void **state) {
  (void)state;
  enum { N = 120, RANKS = 128, STAGES = 90, RUNS = 2 * RANKS };
  Arena *a = arena_new();
  Run *run = arena_array(a, Run, RUNS);
  int n = 0;
  for (int length = 1; length <= RANKS; length *= 2)
    for (int first = 0; first < RANKS; first += length)
      run[n++] = (Run){first, length};
  Partition p = {.n_units = N, .n_ranks = RANKS, .n_runs = n, .run = run, .n_stages = STAGES};
  p.seconds = arena_array(a, double, N *n);
  p.bytes = p.base_seconds = p.base_bytes = p.start = p.by_batch = p.by_whole =
      arena_array(a, double, n *n);
  p.limit = arena_array(a, double, n);
  Flow *flow = arena_array(a, Flow, N);
  int *next = arena_array(a, int, N);
  for (int u = 0; u < N; u++) {
    next[u] = u + 1;
    flow[u] = (Flow){.from = u, .n_readers = 1, .reader = &next[u]};
    for (int r = 0; r < n; r++)
      p.seconds[u * n + r] = 1.0 / run[r].n;
  }
  for (int r = 0; r < n; r++)
    p.limit[r] = INFINITY;
  p.flow = flow;
  p.n_flows = N - 1;
  PartitionResult x = partition_solve(a, &p, &(PartitionOptions){.seconds = 1});
  assert_true(x.run_of && partition_legal(&p, x.run_of));
  double slowest = partition_load(a, &p, x.run_of).slowest;
  assert_true(slowest <= 3 && x.bound <= slowest * (1 + 2e-6));
  arena_free(a);
}

// If units have more orders than are explored, bounds stay valid: one unit, many readers of it, and
// one reader of these.
static void wide_graphs_are_no_better_than_said(void **state) {
  (void)state;
  enum { N = 16, RANKS = 3 };
  Arena *a = arena_new();
  Random r = {5};
  Partition *p = random_partition(a, &r, &(Shape){N, RANKS, true, 0, 0});
  Flow *flow = arena_array(a, Flow, N);
  static const int last[] = {N - 1};
  int *wide = arena_array(a, int, N);
  for (int u = 1; u + 1 < N; u++) {
    wide[u - 1] = u;
    flow[u] = (Flow){.from = u, .n_readers = 1, .reader = last, .messages = 1};
  }
  flow[0] = (Flow){.from = 0, .n_readers = N - 2, .reader = wide, .bytes = 10};
  p->flow = flow;
  p->n_flows = N - 1;
  p->n_stages = 0;
  PartitionResult x = partition_solve(a, p, &(PartitionOptions){.seconds = 30});
  assert_true(x.run_of && partition_legal(p, x.run_of));
  double slowest = partition_load(a, p, x.run_of).slowest;
  assert_true(x.bound <= slowest * (1 + 2e-6) && x.bound >= partition_bound(p));
  for (int u = 1; u + 1 < N; u++) { // moving a single unit never gets below the bound
    int *moved = arena_copy(a, x.run_of, N * sizeof *moved);
    for (int to = 0; to < p->n_runs; to++) {
      moved[u] = to;
      if (partition_legal(p, moved))
        assert_true(partition_load(a, p, moved).slowest >= x.bound * (1 - 2e-6));
    }
  }
  arena_free(a);
}

// Many ranks, in stages of one each, take no more work than few.
static void long_rows_of_ranks(void **state) {
  (void)state;
  Arena *a = arena_new();
  enum { N = 64 };
  Run run[N];
  double seconds[N * N] = {0}, zero[N * N] = {0}, limit[N];
  Flow flow[N];
  int next[N];
  for (int i = 0; i < N; i++) {
    run[i] = (Run){i, 1};
    limit[i] = INFINITY;
    next[i] = i + 1;
    flow[i] = (Flow){.from = i, .n_readers = 1, .reader = &next[i], .bytes = 1};
    for (int k = 0; k < N; k++)
      seconds[i * N + k] = 1;
  }
  Partition p = {.n_units = N, .n_ranks = N, .n_runs = N, .run = run, .seconds = seconds};
  p.bytes = p.base_seconds = p.base_bytes = zero;
  p.limit = limit;
  p.flow = flow;
  p.n_flows = N - 1;
  p.start = p.by_batch = p.by_whole = zero;
  p.n_stages = N;
  PartitionResult r = partition_solve(a, &p, &(PartitionOptions){.seconds = 1});
  assert_int_equal(r.status, PARTITION_proved);
  for (int i = 0; i < N; i++)
    assert_int_equal(r.run_of[i], i);
  arena_free(a);
}

TEST_GROUP(partition) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chains_are_proved),
      cmocka_unit_test(chains_keep_to_memory),
      cmocka_unit_test(graphs_are_proved),
      cmocka_unit_test(a_flow_that_skips_a_stage_is_counted),
      cmocka_unit_test(less_memory_is_no_faster),
      cmocka_unit_test(no_worse_than_the_start),
      cmocka_unit_test(cbc_is_as_good_as_it_says),
      cmocka_unit_test(cbc_ends_at_the_same_place),
      cmocka_unit_test(later_messages_count),
      cmocka_unit_test(one_run_sends_for_all_of_its_units),
      cmocka_unit_test(many_stages_of_many_ranks),
      cmocka_unit_test(wide_graphs_are_no_better_than_said),
      cmocka_unit_test(long_rows_of_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
