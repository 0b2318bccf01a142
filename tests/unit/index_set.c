// Sets of indices are compared with lists of their elements: random sets are split, multiplied,
// united, appended, embedded and restricted.

#include "unit.h"

#include <stdlib.h>

#include "prove/index_set.h"

enum { MAX_ELEMENTS = 4096, TRIALS = 20000 };

static uint64_t state = 1;

static int below(int n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int)(state >> 33) % n;
}

typedef struct List {
  int n;
  int64_t at[MAX_ELEMENTS];
} List;

// The elements of a set, in order.
static List elements(const IndexSet *s) {
  List list = {.n = 1, .at = {s->from}};
  for (int k = 0; k < s->n; k++) {
    List next = {0};
    for (int i = 0; i < list.n; i++)
      for (int64_t j = 0; j < s->factor[k].length; j++)
        next.at[next.n++] = list.at[i] + j * s->factor[k].stride;
    list = next;
  }
  return list;
}

// Elements are distinct, in order, and in the dimension.
static void check_list(const IndexSet *s, const List *list) {
  assert_int_equal(list->n, set_length(s));
  for (int i = 0; i < list->n; i++) {
    assert_true(list->at[i] >= 0 && list->at[i] < s->size);
    assert_true(i == 0 || list->at[i - 1] < list->at[i]);
  }
}

// A box over random factors of a random dimension.
static IndexSet random_set(int64_t *minor_size) {
  IndexSet s = set_all(1);
  *minor_size = 1;
  for (int i = 0; i < 1 + below(3); i++) {
    int size = 1 + below(4), from = below(size), length = 1 + below(size - from);
    IndexSet factor = set_interval(size, from, length);
    if (i) *minor_size *= size;
    assert_true(set_product(&s, &factor, &s));
  }
  // Maybe as a part of a larger dimension, which its factors do not divide.
  int at = below(3);
  if (below(2)) assert_true(set_embed(&s, at, s.size + at + below(3)));
  return s;
}

static void splits_are_products(void **unused) {
  (void)unused;
  int n_split = 0;
  for (int i = 0; i < TRIALS; i++) {
    int64_t minor_size;
    IndexSet s = random_set(&minor_size), major, minor, again;
    if (below(2)) minor_size = 1 + below((int)s.size);
    if (!set_split(&s, minor_size, &major, &minor)) continue;
    n_split++;
    List of = elements(&s), a = elements(&major), b = elements(&minor);
    assert_int_equal(major.size * minor.size, s.size);
    check_list(&major, &a);
    check_list(&minor, &b);
    assert_int_equal(of.n, a.n * b.n);
    for (int k = 0; k < of.n; k++)
      assert_int_equal(of.at[k], a.at[k / b.n] * minor_size + b.at[k % b.n]);
    // The product is the set again, with the same factors.
    assert_true(set_product(&major, &minor, &again) && set_unify(&again, &s));
  }
  assert_true(n_split > TRIALS / 4);
}

static int by_value(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return (a > b) - (a < b);
}

static void unions_have_all_elements_once(void **unused) {
  (void)unused;
  int n_appended = 0, n_united = 0;
  for (int i = 0; i < TRIALS; i++) {
    int64_t minor_size;
    IndexSet x = random_set(&minor_size), y = random_set(&minor_size), united = x, appended = x;
    // Often the same box elsewhere.
    if (below(2)) y = x;
    if (y.from + 1 < y.size) y.from += below(3);
    List a = elements(&x), b = elements(&y), both = a;
    bool within = b.at[b.n - 1] < y.size;
    if (!within || x.size != y.size) continue;
    for (int k = 0; k < b.n; k++)
      both.at[both.n++] = b.at[k];
    if (set_append(&appended, &y)) {
      n_appended++;
      List list = elements(&appended);
      check_list(&appended, &list);
      assert_int_equal(list.n, both.n);
      for (int k = 0; k < both.n; k++)
        assert_int_equal(list.at[k], both.at[k]);
    }
    if (set_unite(&united, &y)) {
      n_united++;
      List list = elements(&united);
      check_list(&united, &list);
      assert_int_equal(list.n, both.n);
      qsort(both.at, (size_t)both.n, sizeof *both.at, by_value);
      for (int k = 0; k < both.n; k++)
        assert_int_equal(list.at[k], both.at[k]);
    }
    bool common = false;
    for (int k = 0; k < a.n; k++)
      for (int j = 0; j < b.n; j++)
        common |= a.at[k] == b.at[j];
    if (set_overlaps(&x, &y)) assert_true(common);
  }
  assert_true(n_appended > TRIALS / 100 && n_united > TRIALS / 100);
}

// Parts of a part that are dealt and cut in turn unite in the order of their sums.
static void parts_of_parts_unite(void **unused) {
  (void)unused;
  for (int i = 0; i < TRIALS / 100; i++) {
    int n = 2 + below(3), m = 2 + below(3);
    bool dealt = below(2), again = below(2);
    int64_t size = 3 * n * m, from = below(4), all = size + from + below(4);
    IndexSet sum = {0};
    for (int k = 0; k < n; k++) {
      // Piece k of n of the interval, dealt or contiguous, and its pieces.
      IndexSet piece = {0};
      for (int j = 0; j < m; j++) {
        int64_t stride = dealt ? n : 1, first = from + (dealt ? k : k * 3 * m);
        IndexSet part = {.size = all, .from = first + (again ? j : 3 * j) * stride};
        assert_true(set_push(&part, (SetFactor){3, again ? m * stride : stride}));
        if (j == 0)
          piece = part;
        else
          assert_true(set_unite(&piece, &part));
      }
      if (k == 0)
        sum = piece;
      else
        assert_true(set_unite(&sum, &piece));
    }
    IndexSet want = set_interval(all, from, size);
    assert_true(set_unify(&sum, &want));
  }
}

static void places_move(void **unused) {
  (void)unused;
  for (int i = 0; i < TRIALS; i++) {
    int64_t minor_size;
    IndexSet s = random_set(&minor_size), moved = s;
    int64_t at = below(4), size = 1 + below(20);
    List of = elements(&s);
    bool inside = of.at[0] >= at && of.at[of.n - 1] < at + size;
    assert_int_equal(set_restrict(&moved, at, size), inside);
    if (!inside) continue;
    List list = elements(&moved);
    for (int k = 0; k < of.n; k++)
      assert_int_equal(list.at[k], of.at[k] - at);
    assert_true(set_embed(&moved, at, s.size) && set_unify(&moved, &s));
  }
}

TEST_GROUP(index_set) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(splits_are_products),
      cmocka_unit_test(unions_have_all_elements_once),
      cmocka_unit_test(parts_of_parts_unite),
      cmocka_unit_test(places_move),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
