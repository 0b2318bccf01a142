// Ranks that share the work of a step: their computed values differ.

#include "unit.h"

#include "planner/auto/redundancy.h"

// Returns the number for a program of two ranks, each with half of the rows of x.
static int sharing(const char *body) {
  static const char head[] = "module phase=local\n"
                             "mesh @m devices=0-1 (dp=2)\n"
                             "graph @main entry (%x: f32[4,6] {S(0)} input \"x\", "
                             "%w: f32[6,6] {B} weight \"w\" = normal(0,1)) {\n";
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  const char *text = str_format(a, "%s%s  return output \"y\" %%y\n}\n", head, body);
  Module *m = module_parse("test.nn", text, strlen(text), d);
  assert_non_null(m);
  assert_true(module_verify(m, d));
  int n = ranks_sharing(m);
  module_free(m);
  diag_free(d);
  arena_free(a);
  return n;
}

// Inputs that are read in shards and gathered are no shared work: all ranks compute the same.
static void gathered_inputs(void **state) {
  (void)state;
  assert_int_equal(sharing("  %all = all_gather %x axis=\"dp\" : f32[8,6] {B}\n"
                           "  %y = linear %all, %w : f32[8,6] {B}\n"),
                   1);
}

// A product of the shards is, also if its result is gathered.
static void gathered_results(void **state) {
  (void)state;
  assert_int_equal(sharing("  %z = linear %x, %w : f32[4,6] {S(0)} split=[0]\n"
                           "  %y = all_gather %z axis=\"dp\" : f32[8,6] {B}\n"),
                   2);
}

TEST_GROUP(redundancy) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gathered_inputs),
      cmocka_unit_test(gathered_results),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
