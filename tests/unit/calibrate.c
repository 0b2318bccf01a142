// nnaot-plan calibrate: the fit recovers a cluster from times that are predicted for it, and has no
// negative links for inexplicable times, which modules for any number of ranks measure.

#include "unit.h"

#include <math.h>

#include "tools/calibrate.h"

static const Cluster known = {.nodes = 2,
                              .per_node = 4,
                              .nics = 1,
                              .inside = {2e-6, 1 / 40e9},
                              .across = {5e-5, 1 / 3e9},
                              .start = 7e-6,
                              .memory_speed = 50e9,
                              .f32 = 3e12,
                              .half = 5e12,
                              .launch = 4e-6};

static void assert_near(double is, double wanted) {
  if (fabs(is - wanted) > 1e-6 * wanted) fail_msg("%.9g is not %.9g", is, wanted);
}

static void prices_give_their_cluster(void **state) {
  (void)state;
  Arena *a = arena_new();
  Machine machine = {.ranks = 8, .per_node = 4, .target = {.target = TARGET_cuda}, .steps = 1};
  Probes probes = calibrate_probes(a, &machine);
  for (int i = 0; i < probes.n; i++)
    probes.at[i].seconds = calibrate_price(&known, &probes.at[i]);
  Cluster c = calibrate_fit(a, &machine, &probes);
  assert_near(c.start, known.start);
  assert_near(c.inside.alpha, known.inside.alpha);
  assert_near(c.inside.beta, known.inside.beta);
  assert_near(c.across.alpha, known.across.alpha);
  assert_near(c.across.beta, known.across.beta);
  assert_near(c.launch, known.launch);
  assert_near(c.memory_speed, known.memory_speed);
  assert_near(c.f32, known.f32);
  assert_near(c.half, known.half);
  // Products of the fit cluster take as long as measured, those in between no less than smaller
  // ones.
  Device device = cluster_least(&c);
  double last = 0;
  for (int i = 0; i < probes.n; i++)
    if (probes.at[i].kind == PROBE_half)
      assert_near(calibrate_price(&c, &probes.at[i]), probes.at[i].seconds);
  for (double flops = 1e5; flops < 1e14; flops *= 1.1) {
    double seconds = flops / device_speed(&device, true, flops);
    assert_true(seconds >= last);
    last = seconds;
  }
  assert_int_equal(c.nodes, 2);
  assert_int_equal(c.per_node, 4);
  arena_free(a);
}

// Large messages are faster than small ones: bytes cost nothing, and no time is negative.
static void nothing_is_below_zero(void **state) {
  (void)state;
  Arena *a = arena_new();
  Machine machine = {.ranks = 4, .per_node = 4, .target = {.target = TARGET_cpu}, .steps = 1};
  Probes probes = calibrate_probes(a, &machine);
  for (int i = 0; i < probes.n; i++)
    probes.at[i].seconds = 1e-3 / (1 + (double)probes.at[i].bytes);
  Cluster c = calibrate_fit(a, &machine, &probes);
  assert_true(c.start >= 0 && c.inside.alpha >= 0 && c.inside.beta >= 0);
  assert_true(c.start + c.inside.alpha + c.inside.beta > 0);
  assert_true(c.memory > 0); // of the local machine
  arena_free(a);
}

static void modules_are_well_formed(void **state) {
  (void)state;
  static const struct {
    int ranks, per_node;
    Target target;
  } of[] = {{2, 2, TARGET_cpu},
            {8, 4, TARGET_cpu},
            {6, 3, TARGET_cuda},
            {5, 1, TARGET_cpu},
            {12, 2, TARGET_cpu}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    Arena *a = arena_new();
    Diag *d = diag_new(stderr);
    Machine machine = {.ranks = of[i].ranks,
                       .per_node = of[i].per_node,
                       .target = {.target = of[i].target},
                       .steps = 1};
    Probes probes = calibrate_probes(a, &machine);
    const char *text = calibrate_module(a, &machine, &probes);
    Module *m = module_parse("calibrate", text, strlen(text), d);
    assert_non_null(m);
    assert_true(module_verify(m, d));
    assert_int_equal(m->graphs->n_results, probes.n);
    module_free(m);
    diag_free(d);
    arena_free(a);
  }
}

TEST_GROUP(calibrate) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(prices_give_their_cluster),
      cmocka_unit_test(nothing_is_below_zero),
      cmocka_unit_test(modules_are_well_formed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
