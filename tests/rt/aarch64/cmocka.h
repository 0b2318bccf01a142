// In place of cmocka, which Debian has for the machine's own processor only: what the tests of
// kernels use of it.  A failure ends the program.

#ifndef CMOCKA_OF_AARCH64_H
#define CMOCKA_OF_AARCH64_H

#include <stdio.h>
#include <stdlib.h>

struct CMUnitTest {
  const char *name;
  void (*run)(void **state);
};

static inline int run_tests(const struct CMUnitTest *test, size_t n) {
  void *state = NULL;
  for (size_t i = 0; i < n; i++) {
    printf("[ RUN      ] %s\n", test[i].name);
    test[i].run(&state);
  }
  printf("[  PASSED  ] %zu test(s).\n", n);
  return 0;
}

#define cmocka_unit_test(function)                                                                 \
  { #function, function }
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
  run_tests(tests, sizeof(tests) / sizeof *(tests))
#define fail_msg(...)                                                                              \
  (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n"), exit(1))
#define assert_true(x)         ((x) ? (void)0 : fail_msg("%s", #x))
#define assert_non_null(x)     assert_true((x) != NULL)
#define assert_null(x)         assert_true((x) == NULL)
#define assert_int_equal(a, b) assert_true((a) == (b))

#endif
