// Gaps between blocks, compared with trying every block; and the number of visited blocks for
// repeated layers.

#include "unit.h"

#include "base/vec.h"
#include "memory/gaps.h"

typedef Vec(Taken) List;

static const bool all_meet[] = {true};
static const Meets one_mesh = {1, all_meet};
// Group 0 is on all devices, groups 1 and 2 are on different ones.
static const bool pairs[] = {true, true, true, true, true, false, true, false, true};
static const Meets three_meshes = {3, pairs};
static const Mesh meshes[] = {{.id = 0}, {.id = 1}, {.id = 2}};
static const Layout layouts[] = {{.mesh = &meshes[0]}, {.mesh = &meshes[1]}, {.mesh = &meshes[2]}};
static const Value values[] = {
    {.layout = &layouts[0]}, {.layout = &layouts[1]}, {.layout = &layouts[2]}};

static uint32_t seed = 1;

static int below(int n) {
  seed = seed * 1664525u + 1013904223u;
  return (int)(seed >> 8) % n;
}

// Whether a later occurrence of `a` overlaps the live range of `b`.
static bool lives_again(const Taken *a, const Taken *b) {
  return a->again > 0 && (b->again > 0 || b->life.from <= a->again);
}

// Returns the best offset, from all blocks in the order of offsets.
static int64_t best_of_all(const List *list, const Meets *meets, const Taken *b) {
  int64_t end = 0, best = -1, size = INT64_MAX;
  for (int i = 0; i < list->n; i++) {
    const Taken *t = &list->at[i];
    bool now = t->life.from <= b->life.to && b->life.from <= t->life.to;
    if (!now && !lives_again(t, b) && !lives_again(b, t)) continue;
    if (!values_meet(meets, t->v, b->v)) continue;
    int64_t gap = t->offset - end;
    if (gap >= b->bytes && gap < size) {
      best = end;
      size = gap;
    }
    if (t->offset + t->bytes > end) end = t->offset + t->bytes;
  }
  return best >= 0 ? best : end;
}

static void add(Arena *a, List *list, Taken b) {
  vec_push(a, list, b);
  for (int i = list->n - 1; i > 0 && list->at[i - 1].offset > b.offset; i--) {
    list->at[i] = list->at[i - 1];
    list->at[i - 1] = b;
  }
}

// Blocks of few sizes with long and short live ranges, of no bytes, and alive in two steps.
static void every_block_is_where_it_fits_best(void **state) {
  (void)state;
  for (int round = 0; round < 40; round++) {
    Arena *a = arena_new();
    bool many = round & 1;
    Meets meets = many ? three_meshes : one_mesh;
    Gaps *g = gaps_new(a, meets);
    List list = {0};
    for (int i = 0; i < 600; i++) {
      int from = below(200), length = below(4) ? below(6) : below(200);
      Taken b = {0, 64 * below(5), {from, from + length}, &values[many ? below(3) : 0], 0};
      if (round >= 20 && !below(4)) b.again = below(100);
      b.offset = gaps_best(g, &b);
      assert_int_equal(b.offset, best_of_all(&list, &meets, &b));
      gaps_add(g, &b);
      add(a, &list, b);
    }
    arena_free(a);
  }
}

// Sums that live as long as the loop, among temporaries of many layers, dead and alive at their
// end.
static void sums_are_where_they_fit_best(void **state) {
  (void)state;
  for (int round = 0; round < 8; round++) {
    Arena *a = arena_new();
    bool many = round & 1;
    Meets meets = many ? three_meshes : one_mesh;
    Gaps *g = gaps_new(a, meets);
    List list = {0};
    for (int i = 0; i < 3000; i++) {
      bool sum = i > 1500 && below(8);
      int from = sum ? 0 : below(900), length = sum ? 860 + below(40) : below(3);
      Taken b = {0, 64 * below(4), {from, from + length}, &values[many ? below(3) : 0], 0};
      b.offset = gaps_best(g, &b);
      assert_int_equal(b.offset, best_of_all(&list, &meets, &b));
      gaps_add(g, &b);
      add(a, &list, b);
    }
    arena_free(a);
  }
}

// Returns the number of blocks visited for the last block of so many layers: each layer has one
// saved activation and one temporary.
static int64_t looked_at(int layers) {
  Arena *a = arena_new();
  Gaps *g = gaps_new(a, one_mesh);
  int64_t looked = 0;
  for (int kept = 1; kept >= 0; kept--)
    for (int i = 0; i < layers; i++) {
      Taken b = {0, kept ? 128 : 64, {2 * i, kept ? 4 * layers - 2 * i : 2 * i + 1}, &values[0], 0};
      b.offset = gaps_best(g, &b);
      looked = gaps_looked_at(g);
      gaps_add(g, &b);
    }
  arena_free(a);
  return looked;
}

static void a_block_of_many_layers_looks_at_few(void **state) {
  (void)state;
  assert_in_range(looked_at(4096), 1, 2 * 4096 / 32);
}

TEST_GROUP(gaps) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_block_is_where_it_fits_best),
      cmocka_unit_test(sums_are_where_they_fit_best),
      cmocka_unit_test(a_block_of_many_layers_looks_at_few),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
