// What ranks compare as they begin: the differences of their terms, and sketches of arrays that
// they hold in common.

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "groups.h"
#include "nnrt_random.h"
#include "runtime.h"
#include "sketch.h"

enum { RANKS = 3 };

static Terms terms_of(const char *library, const char *caches, const char *tuned) {
  Terms t = {0};
  nnrt_terms_add(&t, "oneDNN", "%s", library);
  nnrt_terms_add(&t, "its cache", "%s", caches);
  if (tuned) nnrt_terms_add(&t, "the file of --tune", "%s", tuned);
  return t;
}

// The list of three ranks on hosts a, a and b.
static char *list_of(Terms t[RANKS]) {
  const char *hosts[RANKS] = {"a", "a", "b"};
  TermsOf of[RANKS];
  for (int i = 0; i < RANKS; i++)
    of[i] = (TermsOf){t[i].at, i, hosts[i]};
  char *text = nnrt_terms_list(of, RANKS);
  for (int i = 0; i < RANKS; i++)
    nnrt_terms_free(&t[i]);
  return text;
}

static void expect_list(Terms t[RANKS], const char *want) {
  char *text = list_of(t);
  assert_non_null(text);
  assert_string_equal(text, want);
  free(text);
}

static void every_difference_is_listed(void **state) {
  (void)state;
  assert_null(
      list_of((Terms[]){terms_of("3.2.0", "L1 32 KiB", "1"), terms_of("3.2.0", "L1 32 KiB", "1"),
                        terms_of("3.2.0", "L1 32 KiB", "1")}));
  // Hosts are named if they differ.
  expect_list((Terms[]){terms_of("3.2.0", "L1 32 KiB", NULL), terms_of("3.2.0", "L1 32 KiB", NULL),
                        terms_of("3.5.0", "L1 32 KiB", NULL)},
              "oneDNN is 3.2.0 at rank 0 on a, but 3.5.0 at rank 2 on b");
  expect_list(
      (Terms[]){terms_of("3.2.0", "L1 32 KiB", NULL), terms_of("3.2.1", "L1 32 KiB", NULL),
                terms_of("3.5.0", "L1 48 KiB", NULL)},
      "oneDNN is 3.2.0 at rank 0, but 3.2.1 at rank 1; its cache is L1 32 KiB at rank 0 on a, "
      "but L1 48 KiB at rank 2 on b");
}

// The program of one rank may have no products, and no library for them.
static void a_missing_term_moves_no_other(void **state) {
  (void)state;
  Terms t[RANKS] = {terms_of("3.2.0", "x", "1"), {0}, terms_of("3.2.0", "x", "2")};
  nnrt_terms_add(&t[1], "its cache", "x");
  nnrt_terms_add(&t[1], "the file of --tune", "1");
  expect_list(t, "the file of --tune is 1 at rank 0 on a, but 2 at rank 2 on b");
}

// Of the terms of data the name is that of a flag.
static void names_of_terms_are_compared(void **state) {
  (void)state;
  Terms one = {0}, other = {0};
  Why w;
  nnrt_terms_add(&one, "the number of files of --input x", "1");
  nnrt_terms_add(&other, "the number of files of --tokens x", "1");
  TermsOf first = {one.at, 0, "a"}, second = {other.at, 1, "b"};
  assert_false(nnrt_terms_differ(first, first, &w));
  assert_true(nnrt_terms_differ(first, second, &w));
  assert_string_equal(w.text,
                      "the number of files of --input x is 1 at rank 0 on a, but the number of "
                      "files of --tokens x is 1 at rank 1 on b");
  nnrt_terms_free(&one);
  nnrt_terms_free(&other);
}

// ---- sketches

enum { N = 100000 };

static float *drawn(int64_t key, double deviation, const float *around) {
  float *x = nnrt_must_alloc(N * sizeof *x);
  for (int64_t i = 0; i < N; i++)
    x[i] = (float)((around ? around[i] : 0) + deviation * nnrt_random_normal(1, 0, key, i));
  return x;
}

static double square(const float *x, const float *y) {
  double sum = 0;
  for (int64_t i = 0; i < N; i++) {
    double d = (double)x[i] - (y ? y[i] : 0);
    sum += d * d;
  }
  return sum;
}

// In pieces of unequal sizes, as from a device.
static void sketch(double s[SKETCH], const float *x) {
  memset(s, 0, SKETCH * sizeof *s);
  for (int64_t at = 0, n = 1; at < N; at += n, n *= 3) {
    if (n > N - at) n = N - at;
    nnrt_sketch_add(s, NNRT_f32, x + at, at, n);
  }
}

static void expect_near(double got, double want) {
  // Of a square the standard deviation is 9 %: five of them.
  assert_true(got > 0.55 * want && got < 1.45 * want);
}

static void sketches_estimate_distances(void **state) {
  (void)state;
  double s[SKETCH], s_near[SKETCH], s_far[SKETCH];
  float *x = drawn(1, 0.02, NULL), *near = drawn(2, 1e-6, x), *far = drawn(3, 0.02, NULL);
  sketch(s, x);
  sketch(s_near, near);
  sketch(s_far, far);
  expect_near(nnrt_sketch_square(s, NULL), square(x, NULL));
  expect_near(nnrt_sketch_square(s, s_near), square(x, near));
  expect_near(nnrt_sketch_square(s, s_far), square(x, far));
  assert_true(nnrt_sketch_square(s, s) == 0);
  free(x);
  free(near);
  free(far);
}

static void a_change_of_one_element_is_exact(void **state) {
  (void)state;
  double s[SKETCH], other[SKETCH];
  float *x = drawn(1, 0.02, NULL);
  sketch(s, x);
  for (int64_t i = 0; i < N; i += 9999) {
    float was = x[i];
    x[i] += 0.5f;
    sketch(other, x);
    assert_true(fabs(sqrt(nnrt_sketch_square(s, other)) - fabs((double)x[i] - was)) < 1e-9);
    x[i] = i % 2 ? NAN : INFINITY;
    sketch(other, x);
    assert_false(isfinite(nnrt_sketch_square(other, NULL)));
    assert_false(isfinite(nnrt_sketch_square(s, other)));
    x[i] = was;
  }
  free(x);
}

TEST_GROUP(agreement) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_difference_is_listed),
      cmocka_unit_test(a_missing_term_moves_no_other),
      cmocka_unit_test(names_of_terms_are_compared),
      cmocka_unit_test(sketches_estimate_distances),
      cmocka_unit_test(a_change_of_one_element_is_exact),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
