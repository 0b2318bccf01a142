// The solver compared with exhaustive enumeration, on small problems.

#include "unit.h"

#include <math.h>

#include "random.h"
#include "solver/block.h"
#include "solver/lagrange.h"
#include "solver/reduce.h"
#include "solver/solve.h"

static const Shape shapes[] = {
    {5, 3, 5, 0, 6, false},  {6, 4, 9, 10, 8, false}, {7, 3, 12, 30, 8, false},
    {8, 3, 7, 10, 10, true}, {7, 4, 10, 5, 3, true},  {9, 2, 20, 5, 12, false},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, PROBLEMS = 40 };

typedef void Check(Arena *a, const SolverProblem *p, SolverCost best, bool any);

// Returns 40 to 109 % of the peak of a random choice: a limit that binds, or is infeasible.
static int64_t some_limit(const SolverProblem *p, Dice *r) {
  int choice[16] = {0};
  int64_t moment;
  for (int v = 0; v < p->n_nodes; v++)
    choice[v] = dice_below(r, p->node[v].n);
  return (int64_t)(solver_peak(p, choice, &moment) * (40 + dice_below(r, 70)) / 100);
}

static void each_problem(Check *check) {
  for (int i = 0; i < N_SHAPES * PROBLEMS; i++) {
    Arena *a = arena_new();
    Dice r = {(uint64_t)i};
    SolverProblem *p = random_problem(a, &r, &shapes[i % N_SHAPES]);
    if (i / N_SHAPES % 3) p->limit = some_limit(p, &r);
    SolverCost best = 0;
    bool any = try_everything(a, p, &best);
    check(a, p, best, any);
    arena_free(a);
  }
}

static SolverResult solve(Arena *a, const SolverProblem *p, SolverMethod method, double seconds) {
  SolverOptions o = {.method = method, .seconds = seconds, .seed = 1};
  return solver_solve(a, p, &o);
}

// A result with a choice fits and has the reported cost.
static void assert_fits(const SolverProblem *p, const SolverResult *r) {
  SolverCost cost;
  int64_t moment;
  for (int v = 0; v < p->n_nodes; v++)
    assert_in_range(r->choice[v], 0, p->node[v].n - 1);
  assert_true(solver_cost(p, r->choice, &cost));
  assert_true(cost == r->cost);
  if (p->limit != SOLVER_NO_LIMIT) assert_true(solver_peak(p, r->choice, &moment) <= p->limit);
}

static void is_optimal(Arena *a, const SolverProblem *p, SolverCost best, bool any) {
  SolverResult r = solve(a, p, SOLVER_auto, 20);
  assert_int_equal(r.status, any ? SOLVER_optimal : SOLVER_infeasible);
  if (!any) return;
  assert_fits(p, &r);
  assert_true(r.cost == best);
  assert_true(r.has_bound && r.bound == best);
}

static void small_problems_are_solved(void **state) {
  (void)state;
  each_problem(is_optimal);
}

static void exhaustive_agrees(Arena *a, const SolverProblem *p, SolverCost best, bool any) {
  SolverResult r = solve(a, p, SOLVER_exhaustive, 20);
  assert_int_equal(r.status, any ? SOLVER_optimal : SOLVER_infeasible);
  if (any) assert_true(r.cost == best);
}

static void cutting_off_loses_nothing(void **state) {
  (void)state;
  each_problem(exhaustive_agrees);
}

// Under ever smaller limits the cost never falls: a choice that fits a smaller limit also fits a
// larger one.
static void less_memory_is_never_cheaper(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    Arena *a = arena_new();
    Dice r = {(uint64_t)i};
    SolverProblem *p = random_problem(a, &r, &shapes[i % N_SHAPES]);
    SolverCost before = -1;
    for (int64_t limit = 100; limit >= 0; limit -= 5) {
      p->limit = limit;
      SolverResult x = solve(a, p, SOLVER_auto, 20);
      if (!x.choice) {
        before = INT64_MAX; // smaller limits are infeasible, too
        continue;
      }
      assert_true(x.cost >= before);
      before = x.cost;
    }
    arena_free(a);
  }
}

static void no_method_is_below(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    Arena *a = arena_new();
    Dice r = {(uint64_t)i};
    SolverProblem *p = random_problem(a, &r, &shapes[i]);
    p->limit = some_limit(p, &r);
    SolverCost best = 0;
    bool any = try_everything(a, p, &best);
    for (SolverMethod m = SOLVER_metropolis; m <= SOLVER_random; m++) {
      SolverResult x = solve(a, p, m, 0.1);
      assert_false(x.has_bound);
      if (!x.choice) continue;
      assert_true(any);
      assert_fits(p, &x);
      assert_true(x.cost >= best);
    }
    arena_free(a);
  }
}

// Computes the least cost of each combination of the first `n` nodes, by its number; INT64_MAX if
// none fits.  Returns the number of combinations.
static int costs_of_first(Arena *a, const SolverProblem *p, int n, int64_t **out) {
  int *choice = arena_array(a, int, p->n_nodes), count = 1, number = 0;
  for (int v = 0; v < n; v++)
    count *= p->node[v].n;
  int64_t *least = *out = arena_array(a, int64_t, count);
  for (int i = 0; i < count; i++)
    least[i] = INT64_MAX;
  for (int v = 0; v < p->n_nodes;) {
    SolverCost cost;
    int64_t moment;
    if (solver_cost(p, choice, &cost) && cost < least[number] &&
        (p->limit == SOLVER_NO_LIMIT || solver_peak(p, choice, &moment) <= p->limit))
      least[number] = (int64_t)cost;
    for (v = 0; v < p->n_nodes && ++choice[v] == p->node[v].n; v++)
      choice[v] = 0;
    number = 0;
    for (int k = 0, times = 1; k < n; times *= p->node[k++].n)
      number += choice[k] * times;
  }
  return count;
}

static int by_number(const void *x, const void *y) {
  const int64_t *a = x, *b = y;
  return (*a > *b) - (*a < *b);
}

// Rankings that ended at the cost limit, and those that ended at the maximum number.
static int too_dear, too_many;

static void ranked_are(Arena *a, const SolverProblem *p, SolverCost best, int n, int more) {
  enum { MOST = 12 };
  const int *ranked[MOST];
  int64_t *least, worst = (int64_t)best + more;
  SolverOptions o = {.seconds = 20, .seed = 1};
  int all = costs_of_first(a, p, n, &least),
      found = solver_ranked(a, p, &o, n, worst, MOST, ranked);
  qsort(least, (size_t)all, sizeof *least, by_number);
  for (int i = 0; i < found; i++) {
    SolverResult r = {.choice = ranked[i], .cost = least[i]};
    assert_fits(p, &r);
    for (int k = 0; k < i; k++)
      assert_memory_not_equal(ranked[i], ranked[k], (size_t)n * sizeof *ranked[i]);
  }
  if (found < MOST && found < all) assert_true(least[found] > worst);
  too_dear += found < MOST && found < all;
  too_many += found == MOST;
}

static void all_are_ranked(Arena *a, const SolverProblem *p, SolverCost best, bool any) {
  ranked_are(a, p, any ? best : 0, p->n_nodes, 150);
  ranked_are(a, p, any ? best : 0, p->n_nodes / 2, 30);
}

// The best choices in order of cost, of all nodes and of some.
static void the_next_best_are_found(void **state) {
  (void)state;
  each_problem(all_are_ranked);
  assert_in_range(too_dear, 50, 480);
  assert_in_range(too_many, 30, 480);
}

// -- Components ------------------------------------------------------------------------------

// The reduced problem has the same optimum, and its recovered choice is an optimum of the original.
static void reduction_keeps_of(Arena *a, const SolverProblem *p, const Model *m, SolverCost best) {
  assert_false(m->infeasible);
  const Core *c = core_build(a, m);
  int *label = arena_array(a, int, c->n_vars + 1), *all = arena_array(a, int, m->n_vars);
  int *choice = arena_array(a, int, p->n_nodes);
  int64_t *used = arena_array(a, int64_t, c->n_rows + 1);
  double least = INFINITY;
  for (int v = -1; v < c->n_vars;) {
    double cost = core_cost(c, label);
    if (core_usage(c, label, used) == 0 && cost < least) {
      least = cost;
      for (int k = 0; k < c->n_vars; k++)
        all[c->var[k].origin] = label[k];
      model_recover(m, all, choice);
    }
    for (v = 0; v < c->n_vars && ++label[v] == c->var[v].n; v++)
      label[v] = 0;
  }
  assert_true(least == (double)best);
  SolverResult r = {.choice = choice, .cost = best};
  assert_fits(p, &r);
}

static void reduction_keeps(Arena *a, const SolverProblem *p, SolverCost best, bool any) {
  Model *m = model_build(a, p);
  model_reduce(m);
  if (any) reduction_keeps_of(a, p, m, best);
}

static void reduction_is_exact(void **state) {
  (void)state;
  each_problem(reduction_keeps);
}

// The number of problems that are not empty after reduction.
static int bounded;

static void bound_is_below(Arena *a, const SolverProblem *p, SolverCost best) {
  Model *m = model_build(a, p);
  model_reduce(m);
  const Core *c = core_build(a, m);
  bounded += c->n_vars > 0;
  Dual *d = dual_new(a, c);
  for (int k = 0; k < 60; k++)
    dual_step(d, (double)best);
  assert_true(dual_settle(d) <= (double)best);
  // At least one optimal choice remains possible.
  bool *gone = arena_array(a, bool, c->n_labels + 1);
  Label *label = arena_array(a, Label, c->most_labels + 1);
  dual_exclude(d, (double)best + 0.5, gone);
  for (int v = 0; v < c->n_vars; v++) {
    int n = 0;
    for (int i = 0; i < c->var[v].n; i++)
      if (!gone[d->first_label[v] + i]) label[n++] = (Label)i;
    assert_true(n > 0);
    model_keep(m, c->var[v].origin, label, n);
  }
  reduction_keeps_of(a, p, m, best);
}

static void bounds_are_below(void **state) {
  (void)state;
  static const Shape dense = {9, 4, 24, 5, 8, false};
  for (int i = 0; i < 60; i++) {
    Arena *a = arena_new();
    Dice r = {(uint64_t)i};
    SolverProblem *p = random_problem(a, &r, &dense);
    p->limit = some_limit(p, &r);
    SolverResult x = solve(a, p, SOLVER_exhaustive, 20);
    assert_true(x.status == SOLVER_optimal || x.status == SOLVER_infeasible);
    if (x.choice) bound_is_below(a, p, x.cost);
    arena_free(a);
  }
  assert_in_range(bounded, 10, 60);
}

static const Shape small_and_full = {9, 4, 27, 3, 6, false};
static const Shape large_and_full = {60, 6, 180, 3, 15, false};

// Problems whose rows are full of a few large items, of which the dual takes fractions.
static SolverProblem *full_problem(Arena *a, int seed, const Shape *shape) {
  Dice r = {(uint64_t)seed};
  SolverProblem *p = random_problem(a, &r, shape);
  int choice[64];
  int64_t moment;
  for (int k = 0; k < 20; k++) { // the least peak of 20 random choices
    for (int v = 0; v < p->n_nodes; v++)
      choice[v] = dice_below(&r, p->node[v].n);
    int64_t peak = (int64_t)solver_peak(p, choice, &moment);
    if (peak < p->limit) p->limit = peak;
  }
  return p;
}

// Branching alone, without CBC, explores everything.
static void branching_is_exact(void **state) {
  (void)state;
  int n = 0;
  for (int i = 0; i < 60; i++) {
    Arena *a = arena_new();
    SolverProblem *p = full_problem(a, i, &small_and_full);
    SolverResult x = solve(a, p, SOLVER_exhaustive, 20);
    Model *m = model_build(a, p);
    model_reduce(m);
    if (x.choice && !m->infeasible) {
      SolverOptions o = {.seconds = 20, .seed = 1};
      Effort e = effort_new(&o);
      Solve s = {.arena = a, .problem = p, .options = &o, .effort = &e, .alone = true};
      s.best = INFINITY;
      s.bound = -INFINITY;
      s.choice = arena_array(a, int, p->n_nodes);
      solve_begin(&s, m);
      n += s.core->n_vars > 0;
      double bound = solve_branch(&s);
      assert_true(s.has && s.cost == x.cost);
      assert_true(bound > (double)x.cost - 1);
      arena_free(s.round);
    }
    arena_free(a);
  }
  assert_in_range(n, 20, 60);
}

// With any work limit the reported bound is a lower bound, and the cost is that of a choice.
static void bounds_are_below_at_any_time(void **state) {
  (void)state;
  int n = 0;
  for (int i = 0; i < 30; i++) {
    Arena *a = arena_new();
    SolverProblem *p = full_problem(a, i, &small_and_full);
    SolverResult best = solve(a, p, SOLVER_exhaustive, 20);
    for (double work = 1; work < 1e6; work *= 4) {
      SolverOptions o = {.seconds = 20, .work = work, .seed = 1};
      SolverResult x = solver_solve(a, p, &o);
      assert_true(x.status != SOLVER_infeasible || !best.choice);
      if (x.choice) assert_fits(p, &x);
      if (!x.choice || !x.has_bound) continue;
      assert_true(x.bound <= best.cost && x.cost >= best.cost);
      n += x.status == SOLVER_feasible;
    }
    arena_free(a);
  }
  assert_in_range(n, 10, 300);
}

// A choice above the most is not looked for to the end; one below is the same as without it.
static void what_costs_too_much_ends_the_search(void **state) {
  (void)state;
  int ended = 0, same = 0;
  for (int i = 0; i < 40; i++) {
    Arena *a = arena_new();
    SolverProblem *p = full_problem(a, i, &small_and_full);
    SolverResult best = solve(a, p, SOLVER_exhaustive, 20);
    SolverOptions o = {.seconds = 20, .work = 1e7, .seed = 1};
    SolverResult all = solver_solve(a, p, &o);
    for (int k = 1; best.choice && k < 8; k++) {
      o.most = (double)best.cost * k / 4;
      if (o.most <= 0) continue; // none
      SolverResult x = solver_solve(a, p, &o);
      if (x.above) assert_true((double)best.cost > o.most);
      if (k >= 4) assert_false(x.above);
      ended += x.above;
      if (x.above) continue;
      assert_int_equal(x.status, all.status);
      assert_true(x.cost == all.cost && x.work == all.work);
      assert_memory_equal(x.choice, all.choice, (size_t)p->n_nodes * sizeof *x.choice);
      same++;
    }
    arena_free(a);
  }
  assert_in_range(ended, 20, 120);
  assert_in_range(same, 20, 280);
}

// The same work limit gives the same answer under any sufficient time limit.
static void the_clock_has_no_part_in_it(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    Arena *a = arena_new();
    const SolverProblem *p = full_problem(a, i, &large_and_full);
    SolverOptions o = {.seconds = 100, .work = 3e7, .seed = 1};
    SolverResult x = solver_solve(a, p, &o);
    o.seconds = 1000;
    SolverResult y = solver_solve(a, p, &o);
    assert_int_equal(x.ended, SOLVER_worked);
    assert_int_equal(y.ended, SOLVER_worked);
    assert_true(x.work == y.work && x.work >= o.work);
    assert_non_null(x.choice);
    assert_true(x.cost == y.cost && x.bound == y.bound);
    assert_memory_equal(x.choice, y.choice, (size_t)p->n_nodes * sizeof *x.choice);
    o.seconds = 1e-9;
    assert_int_equal(solver_solve(a, p, &o).ended, SOLVER_late);
    arena_free(a);
  }
}

// All nodes free and no memory limit: elimination finds the optimum and reports its cost.
static void elimination_is_exact(void **state) {
  (void)state;
  for (int i = 0; i < 60; i++) {
    Arena *a = arena_new();
    Dice r = {(uint64_t)i};
    SolverProblem *p = random_problem(a, &r, &shapes[i % N_SHAPES]);
    SolverCost best = 0;
    if (try_everything(a, p, &best)) {
      const Core *c = core_build(a, model_build(a, p));
      int *label = arena_array(a, int, c->n_vars), *var = arena_array(a, int, c->n_vars);
      for (int v = 0; v < c->n_vars; v++)
        var[v] = v;
      Block *b = block_new(a, c, c->n_vars, 1 << 20);
      assert_int_equal(block_plan(b, var, c->n_vars, label, 1 << 20, &r), c->n_vars);
      assert_true(block_solve(b, NULL, label) == (double)best);
      assert_true(core_cost(c, label) == (double)best);
      assert_true(block_cost(b, label) == (double)best);
    }
    arena_free(a);
  }
}

// Tables too large for a block: some variables keep their labels, the others are optimal given
// these, and the reported cost is right.
static void kept_labels_are_kept(void **state) {
  (void)state;
  static const Shape dense = {12, 4, 40, 0, 8, false};
  for (int i = 0; i < 200; i++) {
    Arena *a = arena_new();
    Dice r = {(uint64_t)i};
    const Core *c = core_build(a, model_build(a, random_problem(a, &r, &dense)));
    int label[12], before[12], var[12];
    for (int v = 0; v < c->n_vars; v++) {
      label[v] = before[v] = dice_below(&r, c->var[v].n);
      var[v] = v;
    }
    Block *b = block_new(a, c, c->n_vars, 1 << 12);
    int n = block_plan(b, var, dice_below(&r, c->n_vars) + 1, label, 1 << dice_below(&r, 9), &r);
    double old = block_cost(b, label), whole = core_cost(c, label);
    double cost = block_solve(b, NULL, label);
    assert_true(cost == block_cost(b, label) && cost <= old);
    assert_true(core_cost(c, label) - whole == cost - old);
    const int *free_var;
    assert_int_equal(block_free(b, &free_var), n);
    for (int k = 0; k < n; k++) // no single one of them can be improved
      for (int j = 0; j < c->var[free_var[k]].n; j++) {
        int was = label[free_var[k]];
        label[free_var[k]] = j;
        assert_true(block_cost(b, label) >= cost);
        label[free_var[k]] = was;
        before[free_var[k]] = was;
      }
    assert_memory_equal(label, before, (size_t)c->n_vars * sizeof *label);
    arena_free(a);
  }
}

// A cost above a double's exact integers is still added up exactly.
static void large_costs_are_exact(void **state) {
  (void)state;
  Arena *a = arena_new();
  const int64_t big[] = {999999999999999999, 999999999999999999};
  SolverNode node[20];
  for (int v = 0; v < 20; v++)
    node[v] = (SolverNode){2, big, NULL, 0};
  SolverProblem p = {node, NULL, 20, 0, SOLVER_NO_LIMIT};
  SolverResult r = solve(a, &p, SOLVER_auto, 5);
  assert_non_null(r.choice);
  assert_string_equal(solver_cost_text(a, r.cost), "19999999999999999980");
  assert_string_equal(solver_cost_text(a, -r.cost), "-19999999999999999980");
  arena_free(a);
}

// The result is no worse than a given feasible start.
static void the_start_is_not_lost(void **state) {
  (void)state;
  Arena *a = arena_new();
  Dice r = {7};
  SolverProblem *p = random_problem(a, &r, &shapes[0]);
  SolverResult best = solve(a, p, SOLVER_auto, 5);
  SolverOptions o = {.method = SOLVER_metropolis, .seconds = 1e-6, .start = best.choice};
  SolverResult again = solver_solve(a, p, &o);
  assert_non_null(again.choice);
  assert_true(again.cost == best.cost);
  arena_free(a);
}

TEST_GROUP(solve) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_problems_are_solved),
      cmocka_unit_test(cutting_off_loses_nothing),
      cmocka_unit_test(less_memory_is_never_cheaper),
      cmocka_unit_test(no_method_is_below),
      cmocka_unit_test(the_next_best_are_found),
      cmocka_unit_test(reduction_is_exact),
      cmocka_unit_test(bounds_are_below),
      cmocka_unit_test(elimination_is_exact),
      cmocka_unit_test(large_costs_are_exact),
      cmocka_unit_test(the_start_is_not_lost),
      cmocka_unit_test(kept_labels_are_kept),
      cmocka_unit_test(branching_is_exact),
      cmocka_unit_test(bounds_are_below_at_any_time),
      cmocka_unit_test(what_costs_too_much_ends_the_search),
      cmocka_unit_test(the_clock_has_no_part_in_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
