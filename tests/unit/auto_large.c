// The search of auto on models with more than SMALL_OPS ops: searches, points and plans that it
// leaves out, as an earlier result says that they are no better.

#include "auto_problem.h"

#include "planner/auto/auto.h"
#include "planner/auto/builds.h"
#include "planner/auto/evaluate.h"
#include "planner/auto/point_heap.h"
#include "planner/auto/priced_points.h"
#include "planner/auto/prices.h"
#include "planner/search/lives.h"
#include "random_models.h"

// The shortest chain that is a large model.
static Problem large_chain(int width) {
  enum { LAYERS = SMALL_OPS / 2 };
  Problem p = {.a = arena_new(), .cluster = "h100:1x4"};
  int *widths = arena_array(p.a, int, LAYERS + 1);
  for (int i = 0; i <= LAYERS; i++)
    widths[i] = width;
  p.text = chain_model(p.a, widths, LAYERS);
  return p;
}

// -- Slow searches -----------------------------------------------------------------------------

static Candidate search_in(const Module *m, const ChooseOptions *o, Arena *a, double wanted,
                           bool *slow) {
  Candidate c = {.plan = "search", .ranks = RANKS, .micro_batches = 1};
  c.wanted = wanted;
  c.slow_factorings = slow;
  candidate_make(m, o, a, &c, NULL);
  return c;
}

// A search tells which factorings of the ranks are slow in any memory, and tries none of these
// again, whatever they would find.
static void slow_factorings_are_not_tried_again(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = large_chain(1024);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  enum { FACTORINGS = 2 }; // 4 and 2x2
  bool slow[MAX_ATTEMPTS] = {0};
  // In a second all are fast, and each is among the best.
  Candidate open = search_in(m, &o, p.a, 1, slow);
  assert_true(open.made && open.proved && !open.slow);
  assert_false(slow[0] || slow[1]);
  assert_int_equal(open.n_others, FACTORINGS - 1);
  // One is left out, and the other is the answer, without others.
  for (int i = 0; i < FACTORINGS; i++) {
    memset(slow, 0, sizeof slow);
    slow[i] = true;
    Candidate rest = search_in(m, &o, p.a, 1, slow);
    assert_true(rest.made);
    assert_int_equal(rest.n_others, 0);
    assert_false(slow[1 - i]);
  }
  // In no time all are slow.
  memset(slow, 0, sizeof slow);
  Candidate none = search_in(m, &o, p.a, 1e-9, slow);
  assert_true(!none.made && none.slow && none.proved && !none.needs_less);
  assert_true(slow[0] && slow[1]);
  problem_free(&p, m, h);
}

// Notes the micro-batches of searches: each number is a power of two.
static void count_searches(void *context, const Candidate *c, double bound) {
  Problem *p = context;
  (void)bound;
  if (c) p->shown |= (int)c->micro_batches;
}

// Whether a search that was slow is among those that can be made.
static bool any_slow(const Candidates *all) {
  for (int i = 0; i < all->n; i++)
    if (all->at[i].made && all->at[i].slow) return true;
  return false;
}

// A search that lacks memory is asked again in more micro-batches, until it is slow.
static void searches_are_asked_again_until_they_are_slow(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = large_chain(1024);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Cluster less = *o.cluster;
  bool slow[MAX_ATTEMPTS] = {0};
  const Candidate search = {.plan = "search", .ranks = RANKS, .micro_batches = 1};
  Candidate open = search_in(m, &o, p.a, 1, slow);
  o.cluster = &less;
  o.limited = true;
  o.progress = count_searches;
  less.memory = p.memory = (double)open.needs.peak_bytes / 8;
  // The best plan is as fast as one micro-batch, so that two are slow, or it is much slower.
  for (int k = 0; k < 2; k++) {
    Candidates all = {0};
    Candidate best = {.plan = "dp", .ranks = RANKS, .made = true, .fits = true};
    best.seconds = open.seconds * (k ? 64 : 1);
    vec_push(p.a, &all, best);
    p.shown = 0;
    candidate_try(m, &o, p.a, &all, search, NULL);
    assert_int_equal(p.shown, k ? 1 | 2 | 4 | 8 | 16 : 1 | 2);
    assert_false(any_slow(&all));
  }
  problem_free(&p, m, h);
}

// Returns in how many numbers of micro-batches the plan takes less than in half as many.
static int count_shorter(const Problem *p, const Module *m, const ChooseOptions *o,
                         const char *plan, int *n_made) {
  double before = 0;
  int shorter = 0;
  for (int64_t slices = 1; slices <= ROWS; slices *= 2) {
    Candidate c = {.plan = plan, .ranks = RANKS, .micro_batches = slices};
    candidate_make(m, o, p->a, &c, NULL);
    if (!c.made) break;
    ++*n_made;
    shorter += c.seconds < before;
    if (c.seconds < before)
      print_message("%s in %d micro-batches: %.9f s, and %.9f in half as many, on %s:\n%s\n", plan,
                    (int)slices, c.seconds, before, p->cluster, p->text);
    before = c.seconds;
  }
  return shorter;
}

// A step of a plan takes no less in more micro-batches: so a slow search is not repeated in these.
// `test_unit auto_large 30` tries so many models.
static void more_micro_batches_take_no_less(void **state) {
  (void)state;
  static const char *const plans[] = {"dp", "zero1", "zero3", "sp", "vp", "dp=2,sp=2", "search"};
  static const char *const cluster[] = {"h100:1x4", "h100:2x2", "h100-measured:2x2",
                                        "cpu:1x4",  "cpu:2x2",  "v100-dgx1:1x4"};
  int models = 1, shorter = 0, made = 0;
  sscanf(group_option, "%d", &models);
  for (int seed = 1; seed <= models; seed++) {
    unsigned random = (unsigned)seed * 2246822519u + 13;
    Heard *h = heard_new();
    Problem p = {.a = arena_new()};
    p.cluster = cluster[random_below(&random, sizeof cluster / sizeof *cluster)];
    p.target = random_below(&random, 2) ? TARGET_cuda : TARGET_cpu;
    p.dtype = random_below(&random, 2) ? "bf16" : NULL;
    p.text = random_model((unsigned)seed, &(RandomModel){ROWS, 6}, p.a);
    Module *m = problem_module(&p);
    ChooseOptions o = problem_options(&p, h->d);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
      shorter += count_shorter(&p, m, &o, plans[k], &made);
    problem_free(&p, m, h);
  }
  print_message("%d plans compiled\n", made);
  assert_true(made >= 14 * models);
  assert_int_equal(shorter, 0);
}

// -- Errors of prices --------------------------------------------------------------------------

static void note_built(AutoSearch *s, const Point *p, double expected, double seconds) {
  const Candidate c = {.made = true, .seconds = seconds, .needs = {.peak_bytes = 1000000}};
  auto_note_built(s, p, expected, &c);
}

// A plan that was faster than its price corrects the prices of plans like it, and is no error of
// the corrected prices: that is by how much later ones are faster than these.
static void errors_are_those_of_corrected_prices(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = large_chain(256);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  AutoSearch *s = auto_new(m, &o, p.a);
  assert_non_null(s);
  Point staged, like, other;
  assert_true(point_of_plan("pp=2,dp=2", RANKS, 4, &staged));
  assert_true(point_of_plan("pp=2,sp=2", RANKS, 8, &like));
  assert_true(point_of_plan("pp=4", RANKS, 4, &other));
  assert_float_equal(auto_error(s, &like), 0, 0);
  // 4 % faster: the same of those like it, and an error of the others.
  note_built(s, &staged, 1, 0.96);
  assert_float_equal(auto_corrected(s, &like, 2), 1.92, 1e-12);
  assert_float_equal(auto_error(s, &like), 0, 1e-12);
  assert_float_equal(auto_corrected(s, &other, 2), 2, 1e-12);
  assert_float_equal(auto_error(s, &other), 0.04, 1e-12);
  // As expected, then faster by another 10 %.
  note_built(s, &like, 1, 0.96);
  assert_float_equal(auto_error(s, &staged), 0, 1e-12);
  note_built(s, &like, 2, 0.9 * 1.92);
  assert_float_equal(auto_corrected(s, &staged, 1), 0.9 * 0.96, 1e-12);
  assert_float_equal(auto_error(s, &staged), 0.1, 1e-12);
  // A slower one changes neither.
  note_built(s, &like, 1, 1.1);
  assert_float_equal(auto_corrected(s, &staged, 1), 0.9 * 0.96, 1e-12);
  assert_float_equal(auto_error(s, &staged), 0.1, 1e-12);
  auto_end(s);
  problem_free(&p, m, h);
}

// -- Recomputation, and points that were left out ------------------------------------------------

// Points with all layers recomputed that fit add one with as few as fit, which takes less. So their
// quick bound, by which they might stay, is that of the point that they add.
static void points_with_fewer_layers_are_added(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = {.a = arena_new(), .cluster = "h100:1x4", .target = TARGET_cuda};
  p.text = sequence_model(p.a, 64, 64, 29);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Candidate dp = {.plan = "dp", .ranks = RANKS, .micro_batches = 1};
  candidate_make(m, &o, p.a, &dp, NULL);
  Cluster less = *o.cluster;
  less.memory = p.memory = (double)dp.needs.peak_bytes / 2;
  o.cluster = &less;
  o.limited = true;
  AutoSearch *s = auto_new(m, &o, p.a);
  Candidates all = {0};
  auto_goes_first(s);
  auto_build(s, &all);
  int recomputed = 0, fewest = 0, quick = 0;
  for (int i = 0; i < s->points.n; i++) {
    const Priced *q = &s->points.at[i];
    fewest += q->at.fewest;
    quick += q->work > 0;
    if (q->at.stages == 1 || q->at.chunks > 1 || q->at.fewest || !q->at.recompute) continue;
    Point few = q->at;
    few.fewest = true;
    double bound = 0;
    if (q->work <= 0 || !prices_quick(s->prices, &few, &bound)) continue;
    recomputed++;
    assert_true(q->work <= bound * (1 + 1e-9));
  }
  assert_true(recomputed > 0 && fewest > 0 && quick > 0);
  auto_end(s);
  problem_free(&p, m, h);
}

// A point that was left out as its number is too large comes back after each plan that is built:
// its number may be lower, or wrong by more.
static void points_come_back_after_a_plan(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = large_chain(256);
  p.micro_batches = SLICES;
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  AutoSearch *s = auto_new(m, &o, p.a);
  Candidates all = {0};
  auto_goes_first(s);
  while (s->heap.n)
    s->points.at[points_pop(s)].skipped = true;
  s->points.at[0].skipped = false;
  s->points.at[0].seconds = 1;
  build_point(s, 0, &all);
  assert_int_equal(all.n, 1);
  assert_int_equal(s->heap.n, s->points.n - 1);
  for (int i = 0; i < s->points.n; i++)
    assert_false(s->points.at[i].skipped);
  auto_end(s);
  problem_free(&p, m, h);
}

// Whether the search builds the only point of the heap, beside a plan that takes so many seconds.
static bool builds(AutoSearch *s, Point at, double best) {
  Arena *a = s->a;
  Candidates all = {0};
  Candidate other = {.plan = "search", .ranks = RANKS, .micro_batches = 1, .made = true};
  other.fits = true;
  other.seconds = best;
  vec_push(a, &all, other);
  while (s->heap.n)
    points_pop(s);
  for (int i = 0; i < s->points.n; i++) {
    Priced *p = &s->points.at[i];
    if (!point_equal(&p->at, &at)) continue;
    p->tier = TIER_priced;
    p->seconds = best;
    points_push(s, i);
  }
  assert_int_equal(s->heap.n, 1);
  auto_build(s, &all);
  return all.n > 1;
}

// A point with a corrected price below the best plan is not compiled if no deal of parts of its
// units is below it, and other orders of its stages gain less than a hundredth.
static void points_that_are_worse_in_parts_are_not_built(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = {.a = arena_new(), .cluster = "h100:1x4", .micro_batches = 4};
  p.text = sequence_model(p.a, 64, 256, 29);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  AutoSearch *s = auto_new(m, &o, p.a);
  auto_goes_first(s);
  Point even, waits;
  double least, any_order;
  assert_true(point_of_plan("pp_interleaved:3=4", RANKS, 4, &even));
  assert_true(point_of_plan("pp=4", RANKS, 4, &waits));
  // Plans like them took half of their price.
  note_built(s, &even, 1, 0.5);
  note_built(s, &waits, 1, 0.5);
  assert_true(prices_least(s->prices, &even, &least, &any_order));
  assert_float_equal(least, any_order, 1e-12);
  assert_false(builds(s, even, 0.996 * least));
  assert_true(builds(s, even, 0.998 * least));
  assert_true(prices_least(s->prices, &waits, &least, &any_order));
  assert_true(least > 1.1 * any_order);
  assert_false(builds(s, waits, any_order / 0.991));
  assert_true(builds(s, waits, any_order / 0.989));
  auto_end(s);
  problem_free(&p, m, h);
}

// The point of a plan with as few swapped and recomputed layers as fit, and states in host memory.
static Point with_savers(const char *plan, int64_t micro_batches) {
  Point at;
  assert_true(point_of_plan(plan, RANKS, micro_batches, &at));
  at.recompute = RECOMPUTE_layer;
  at.offload = at.swap = at.fewest = true;
  return at;
}

// The first bound of a point with stages and savers is that of the best deal of layers without
// them, which is above the mean of the stages and the largest layer.
static void savers_take_no_less_than_a_deal_without_them(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = {
      .a = arena_new(), .cluster = "h100:1x4", .target = TARGET_cuda, .optimizer = "adamw"};
  p.text = sequence_model(p.a, 64, 256, 29);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Cluster less = *o.cluster;
  o.cluster = &less;
  o.limited = true;
  less.memory = 1e15;
  AutoSearch *s = auto_new(m, &o, p.a);
  Point plain, at = with_savers("pp=4", 8);
  assert_true(point_of_plan("pp=4", RANKS, 8, &plain));
  double quick, of_plain, bound;
  int from = -1;
  Price any, own;
  assert_int_equal(prices_borrow(s->prices, &plain, &from, &bound), PRICE_known);
  assert_true(prices_quick(s->prices, &plain, &of_plain));
  assert_true(prices_quick(s->prices, &at, &quick));
  assert_true(bound > of_plain);
  assert_true(quick >= bound);
  // It is below the price in any memory.
  assert_int_equal(prices_find(s->prices, &plain, true, &any), PRICE_known);
  for (int percent = 100; percent >= 60; percent -= 20) {
    less.memory = any.bytes * percent / 100;
    if (prices_find(s->prices, &at, false, &own) == PRICE_known) assert_true(quick <= own.bound);
  }
  auto_end(s);
  problem_free(&p, m, h);
}

// A point without stages with swapped layers gets its own tables one after the other, each with a
// bound below its price: the first is that of the plan without savers.
static void swapped_points_get_one_table_at_a_time(void **state) {
  (void)state;
  enum { PER_TABLE = 2 }; // cut-outs
  Heard *h = heard_new();
  Problem p = {
      .a = arena_new(), .cluster = "h100:1x4", .target = TARGET_cuda, .optimizer = "adamw"};
  p.text = sequence_model(p.a, 64, 256, 29);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Cluster less = *o.cluster;
  o.cluster = &less;
  o.limited = true;
  for (int64_t micro_batches = 1; micro_batches <= 2; micro_batches++) {
    less.memory = 1e15;
    AutoSearch *s = auto_new(m, &o, p.a);
    Point plain, at = with_savers("zero3", micro_batches);
    assert_true(point_of_plan("zero3", RANKS, micro_batches, &plain));
    Price without, own;
    double bound, of_others, last;
    int from = -1, own_tables = 0, before;
    assert_int_equal(prices_find(s->prices, &plain, true, &without), PRICE_known);
    less.memory = without.bytes * 0.8;
    assert_int_equal(prices_borrow(s->prices, &at, &from, &of_others), PRICE_known);
    last = of_others;
    before = prices_tables(s->prices);
    while (prices_borrow(s->prices, &at, &from, &bound) == PRICE_known) {
      int made = prices_tables(s->prices) - before;
      assert_true(made > 0 && made <= PER_TABLE);
      assert_true(bound >= 0.98 * without.seconds);
      before += made;
      last = bound;
      own_tables++;
    }
    assert_true(own_tables >= 2);
    assert_true(last > of_others);
    assert_int_equal(prices_find(s->prices, &at, false, &own), PRICE_known);
    assert_true(last <= own.bound);
    // The last table is made for the price.
    assert_true(prices_tables(s->prices) - before <= PER_TABLE);
    auto_end(s);
  }
  problem_free(&p, m, h);
}

// All bounds of swapped points without stages, by other tables and by their own, are below their
// prices.
static void bounds_of_swapped_points_are_below_their_prices(void **state) {
  (void)state;
  static const char *const plans[] = {"dp", "zero1", "zero2", "zero3", "zero1=2,sp=2"};
  static const double part[] = {0.9, 0.7, 0.5};
  enum { PLANS = sizeof plans / sizeof *plans, PARTS = sizeof part / sizeof *part };
  Heard *h = heard_new();
  Problem p = {
      .a = arena_new(), .cluster = "h100:1x4", .target = TARGET_cuda, .optimizer = "adamw"};
  p.text = sequence_model(p.a, 64, 256, 29);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Cluster less = *o.cluster;
  o.cluster = &less;
  o.limited = true;
  int compared = 0;
  for (int i = 0; i < PLANS * PARTS; i++)
    for (int64_t micro_batches = 1; micro_batches <= 4; micro_batches *= 4) {
      const char *plan = plans[i % PLANS];
      less.memory = 1e15;
      AutoSearch *s = auto_new(m, &o, p.a);
      Point plain, at = with_savers(plan, micro_batches);
      at.offload = i / PLANS != 1;
      assert_true(point_of_plan(plan, RANKS, micro_batches, &plain));
      Price without, own;
      assert_int_equal(prices_find(s->prices, &plain, true, &without), PRICE_known);
      less.memory = part[i / PLANS] * without.bytes;
      double bound, most = 0;
      int from = -1;
      for (PriceStatus status = PRICE_known; status == PRICE_known; most = fmax(most, bound)) {
        bound = 0;
        status = prices_borrow(s->prices, &at, &from, &bound);
        // Of no point that fits a bound says that it does not.
        if (status == PRICE_unfit) most = INFINITY;
      }
      if (prices_find(s->prices, &at, false, &own) == PRICE_known) {
        compared++;
        if (!(most <= own.bound))
          fail_msg("%s in %d, %g of its memory: bound %.9f s, price %.9f s", plan,
                   (int)micro_batches, part[i / PLANS], most, own.bound);
      }
      auto_end(s);
    }
  assert_true(compared > 2 * PLANS);
  print_message("%d swapped points compared\n", compared);
  problem_free(&p, m, h);
}

// -- Models without units ----------------------------------------------------------------------

// Returns the seconds of the fastest plan of all points.
static double fastest_point(const Problem *p, const Module *m, const ChooseOptions *o,
                            const AutoSearch *s) {
  double least = INFINITY;
  for (int i = 0; i < s->points.n; i++) {
    const Point *at = &s->points.at[i].at;
    Candidate c = {.plan = point_plan(p->a, at), .ranks = RANKS};
    c.micro_batches = at->micro_batches;
    candidate_make(m, o, p->a, &c, NULL);
    if (c.made) least = fmin(least, c.seconds);
  }
  return least;
}

// A chain of products has no units to deal to stages, so its points have estimates. These are too
// low without ranks inside of layers and too high with them: plans of the former say nothing about
// the latter.
static void estimates_do_not_end_the_search(void **state) {
  (void)state;
  static const struct {
    const char *cluster;
    int width;
  } model[] = {{"h100:1x4", 1024}, {"h100:2x2", 1024}, {"a100:2x2", 1024}, {"a100:2x2", 2048},
               {"cpu:2x2", 256},   {"cpu:1x4", 1024},  {"h100:1x4", 256}};
  for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
    Heard *h = heard_new();
    Problem p = large_chain(model[i].width);
    p.cluster = model[i].cluster;
    p.micro_batches = SLICES;
    Module *m = problem_module(&p);
    ChooseOptions o = problem_options(&p, h->d);
    AutoSearch *s = auto_new(m, &o, p.a);
    Candidates all = {0};
    auto_goes_first(s);
    auto_build(s, &all);
    double best = least_fitting(&all), least = fastest_point(&p, m, &o, s);
    if (!(best <= 1.05 * least))
      fail_msg("%s, width %d: built %.9f s, and %.9f is the best", p.cluster, model[i].width, best,
               least);
    auto_end(s);
    problem_free(&p, m, h);
  }
}

TEST_GROUP(auto_large) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slow_factorings_are_not_tried_again),
      cmocka_unit_test(searches_are_asked_again_until_they_are_slow),
      cmocka_unit_test(errors_are_those_of_corrected_prices),
      cmocka_unit_test(points_with_fewer_layers_are_added),
      cmocka_unit_test(points_that_are_worse_in_parts_are_not_built),
      cmocka_unit_test(savers_take_no_less_than_a_deal_without_them),
      cmocka_unit_test(swapped_points_get_one_table_at_a_time),
      cmocka_unit_test(bounds_of_swapped_points_are_below_their_prices),
      cmocka_unit_test(points_come_back_after_a_plan),
      cmocka_unit_test(estimates_do_not_end_the_search),
      cmocka_unit_test(more_micro_batches_take_no_less),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
