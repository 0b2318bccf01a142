// Memory budgets of the rounds of a search, for given memory needs of plans.

#include "unit.h"

#include "planner/auto/memory_budget.h"

#define HAVE 80e9

// The plans that a search finds: the last one whose estimate `seen` is within the budget.  Later
// plans are cheaper.
typedef struct Plan {
  double seen, needs;
} Plan;

// Searches until no round can improve; returns the number of rounds, and in *out_best the cheapest
// plan that fitted, or -1.
static int rounds_of(const Plan *plan, int n, int *out_best) {
  Rounds r = rounds_begin(HAVE);
  int64_t counts = (int64_t)HAVE;
  *out_best = -1;
  for (int k = 1;; k++) {
    int last = n - 1;
    while (last >= 0 && plan[last].seen > (double)counts)
      last--;
    Round found = {.nothing = last < 0, .bound = last < n - 1, .work = 1e6};
    if (last >= 0) {
      found.seen = plan[last].seen;
      found.needs = plan[last].needs;
      found.fits = found.needs <= HAVE;
      if (found.fits && last > *out_best) *out_best = last;
    }
    counts = rounds_next(&r, &found);
    if (!counts) return k;
  }
}

static void what_fits_and_is_cheapest_is_found_at_once(void **state) {
  (void)state;
  int best;
  assert_int_equal(rounds_of((Plan[]){{60e9, 50e9}}, 1, &best), 1);
  assert_int_equal(best, 0);
}

// No plan between 80 and 84 GB can fit, so no round searches there.
static void two_rounds_are_enough_where_memory_is_what_was_seen(void **state) {
  (void)state;
  int best;
  assert_int_equal(rounds_of((Plan[]){{73e9, 73e9}, {82e9, 82e9}, {84e9, 84e9}}, 3, &best), 2);
  assert_int_equal(best, 0);
}

// The middle plan fits although its estimate exceeds the memory: the need of the last plan shows
// it.
static void more_is_counted_on_where_plans_need_less_than_was_seen(void **state) {
  (void)state;
  int best;
  assert_in_range(rounds_of((Plan[]){{73e9, 73e9}, {82e9, 79e9}, {90e9, 86e9}}, 3, &best), 3, 4);
  assert_int_equal(best, 1);
}

static void less_is_counted_on_where_plans_need_more_than_was_seen(void **state) {
  (void)state;
  int best;
  assert_in_range(rounds_of((Plan[]){{60e9, 70e9}, {79e9, 95e9}}, 2, &best), 2, 4);
  assert_int_equal(best, 0);
}

// With any budget the found plan needs at least its estimate, so no plan that fits is missed.
static void two_rounds_are_enough_where_nothing_fits(void **state) {
  (void)state;
  int best;
  assert_int_equal(rounds_of((Plan[]){{90e9, 90e9}, {100e9, 101e9}, {200e9, 200e9}}, 3, &best), 2);
  assert_int_equal(best, -1);
}

// A plan in which all ranks do the same does not justify a long search for others.
static void little_is_done_for_ranks_that_do_the_same(void **state) {
  (void)state;
  Round found = {.alike = true, .bound = false, .seen = 60e9, .needs = 60e9, .work = 1e6};
  Rounds few = rounds_begin(HAVE), many = few;
  assert_true(rounds_next(&few, &found) > 0);
  found.alike = false;
  assert_true(rounds_next(&many, &found) > 0);
  assert_true(few.left >= (int64_t)found.work);
  assert_true(few.left < many.left / 10);
}

// If the same plan needed the expected bytes in fewer micro-batches, more memory is no help.
static void nothing_more_is_tried_where_estimates_are_exact(void **state) {
  (void)state;
  Round none = {.nothing = true, .work = 1e6}, found = {.seen = 90e9, .needs = 90e9, .work = 1e6};
  Rounds r = rounds_begin(HAVE), exact = r;
  assert_true(rounds_next(&r, &none) == INT64_MAX);
  assert_false(rounds_exact(&r));
  assert_int_equal(rounds_next(&r, &found), 0);
  assert_true(rounds_exact(&r));
  exact.exact = true;
  assert_int_equal(rounds_next(&exact, &none), 0);
  // It needed less: with more memory a plan may fit.
  Rounds loose = rounds_begin(HAVE);
  assert_true(rounds_next(&loose, &none) == INT64_MAX);
  found.needs = 70e9;
  rounds_next(&loose, &found);
  assert_false(rounds_exact(&loose));
}

TEST_GROUP(rounds) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_fits_and_is_cheapest_is_found_at_once),
      cmocka_unit_test(two_rounds_are_enough_where_memory_is_what_was_seen),
      cmocka_unit_test(more_is_counted_on_where_plans_need_less_than_was_seen),
      cmocka_unit_test(less_is_counted_on_where_plans_need_more_than_was_seen),
      cmocka_unit_test(two_rounds_are_enough_where_nothing_fits),
      cmocka_unit_test(nothing_more_is_tried_where_estimates_are_exact),
      cmocka_unit_test(little_is_done_for_ranks_that_do_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
