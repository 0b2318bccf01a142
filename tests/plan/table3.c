// The benchmark of SuperScaler's table 3: producers on one server of 8 GPUs, consumers on another,
// a tensor of one dimension.  Prints the chosen path and its cost compared with send/recv.

#include "unit.h"

#include "paths/path.h"

enum { ELEMENTS = 16 << 20 };

static Placement placement_of(char kind, int n, const int *device) {
  Placement p = {.copies = 1, .shares = 1, .part = {1}, .n = n, .device = device};
  *(kind == 'R' ? &p.copies : kind == 'V' ? &p.shares : &p.part[0]) = n;
  return p;
}

static const char *steps_text(Arena *a, const Path *p) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < p->n_steps; i++)
    strbuf_addf(&b, "%s%s", i ? ", " : "", path_prim_name[p->step[i].edge.prim]);
  return b.at;
}

static void test_table(void **state) {
  (void)state;
  static const int producers[] = {0, 1, 2, 3, 4, 5, 6, 7};
  static const int consumers[] = {8, 9, 10, 11, 12, 13, 14, 15};
  static const int sizes[3][2] = {{8, 8}, {8, 4}, {4, 8}};
  static const char *const kinds[] = {"RR", "RD", "VR", "VD", "DR", "DD"};
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  TensorShape shape = {.ndim = 1, .dim = {ELEMENTS}, .bytes = 4};
  Paths *paths = paths_new(a, cluster_read(a, "v100-dgx1:2x8", "--cluster", d));
  int better = 0;
  print_message("%-14s %10s %10s  %s\n", "case", "seconds", "send/recv", "primitives");
  for (int kind = 0; kind < 6; kind++)
    for (int i = 0; i < 3; i++) {
      int n = sizes[i][0], m = sizes[i][1];
      Placement from = placement_of(kinds[kind][0], n, producers);
      Placement to = placement_of(kinds[kind][1], m, consumers);
      const Path *p = path_find(paths, &shape, &from, &to);
      const char *steps = steps_text(a, p);
      print_message("%c(%d) to %c(%d)   %10.6f %10.6f  %s\n", kinds[kind][0], n, kinds[kind][1], m,
                    p->total.seconds, p->p2p.seconds, steps);
      assert_true(p->complete);
      assert_true(p->total.seconds <= p->p2p.seconds * (1 + 1e-9));
      better += p->total.seconds < p->p2p.seconds * (1 - 1e-6);
      assert_int_equal(p->total.crossing, (int64_t)ELEMENTS * shape.bytes);
      // Figure 18.
      if (str_equal(kinds[kind], "RR") && n == 4)
        assert_string_equal(steps, "slice, rd_scatter, all_gather");
      if (str_equal(kinds[kind], "VD") && n == 4)
        assert_string_equal(steps, "reduce_scatter, rd_scatter");
      assert_ptr_equal(path_find(paths, &shape, &from, &to), p); // cached
    }
  print_message("better than send/recv: %d of 18\n", better);
  assert_true(better >= 12);
  diag_free(d);
  arena_free(a);
}

// Between two nodes, each with one of the groups, all orders of devices cost the same:
// path_search.c tries only one.
static void test_orders(void **state) {
  (void)state;
  static const char *const kinds[] = {"RR", "RD", "VR", "VD", "DR", "VV"};
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  TensorShape shape = {.ndim = 1, .dim = {ELEMENTS}, .bytes = 4};
  Paths *paths = paths_new(a, cluster_read(a, "h200:2x8", "--cluster", d));
  unsigned seed = 1;
  for (int kind = 0; kind < 6; kind++) {
    double first = 0;
    for (int turn = 0; turn < 20; turn++) {
      int device[2][8];
      // A random order, after that of the numbers.
      for (int side = 0; side < 2; side++)
        for (int i = 0; i < 8; i++) {
          seed = seed * 1664525 + 1013904223;
          int k = turn ? (int)(seed >> 16) % (i + 1) : i;
          device[side][i] = device[side][k];
          device[side][k] = 8 * side + i;
        }
      Placement from = placement_of(kinds[kind][0], 8, device[0]);
      Placement to = placement_of(kinds[kind][1], 8, device[1]);
      const Path *p = path_find(paths, &shape, &from, &to);
      assert_true(p->complete);
      if (!turn) first = p->total.seconds;
      assert_float_equal(p->total.seconds, first, 1e-12);
    }
  }
  diag_free(d);
  arena_free(a);
}

TEST_GROUP(table3) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_orders)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
