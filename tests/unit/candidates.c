// The texts of plans that the choice reads: candidates.h.

#include "planner/auto/candidates.h"

#include "unit.h"

// A program's numbers of layers stand between its name and its ranks.
static void programs_have_numbers(void **state) {
  (void)state;
  assert_true(plan_has_saver("pp:6:7:7:4=4,offload:4@1-6:4@7-24=1"));
  assert_true(plan_has_saver("dp=4,recompute:8=1"));
  assert_false(plan_has_saver("pp:6:7:7:4=4,zero1=2"));
  assert_true(plan_offloads_gradients("pp=4,offload_gradients:2@1-6=1"));
  assert_false(plan_offloads_gradients("pp=4,offload:2@1-6=1"));
  assert_true(plan_offloads_all_states("pp:6:7:7:4=4,offload=1"));
  assert_false(plan_offloads_all_states("pp:6:7:7:4=4,offload:4@1-6=1"));
  assert_true(plan_places("pp:6:7:7:4=4,recompute=1"));
  assert_false(plan_places("dp=4,swap:2@1-6=1"));
}

static void stages_have_numbers(void **state) {
  (void)state;
  Candidate dealt = {.plan = "dp=2,pp:6:7:7:4=4", .ranks = 8, .micro_batches = 4};
  assert_int_equal(candidate_stages(&dealt), 4);
  dealt.plan = "dp=2,pp=4";
  assert_int_equal(candidate_stages(&dealt), 4);
  dealt.plan = "zero1=8,offload:4@1-6=1";
  assert_int_equal(candidate_stages(&dealt), 1);
}

TEST_GROUP(candidates) {
  static const struct CMUnitTest tests[] = {cmocka_unit_test(programs_have_numbers),
                                            cmocka_unit_test(stages_have_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
