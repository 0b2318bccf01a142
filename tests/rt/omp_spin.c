// The iterations that threads spin, by the load of the machine.

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "groups.h"
#include "runtime.h"

static void busy_processors_shorten_the_spin(void **state) {
  (void)state;
  assert_int_equal(nnrt_spin_count(0, 2, 2), 10000);
  assert_int_equal(nnrt_spin_count(1, 2, 2), 100);
  assert_int_equal(nnrt_spin_count(1, 1, 2), 10000); // one processor is left for the other program
  assert_int_equal(nnrt_spin_count(2, 1, 2), 100);
  assert_int_equal(nnrt_spin_count(56, 8, 64), 10000);
  assert_int_equal(nnrt_spin_count(57, 8, 64), 100);
  // More threads than processors, but no other program; unknown load.
  assert_int_equal(nnrt_spin_count(0, 8, 2), 10000);
  assert_int_equal(nnrt_spin_count(1, 8, 2), 100);
  assert_int_equal(nnrt_spin_count(-2, 8, 2), 10000);
}

static void the_load_is_read(void **state) {
  (void)state;
  char root[] = "/tmp/nnrt_spin_XXXXXX", folder[64], path[128];
  assert_non_null(mkdtemp(root));
  assert_int_equal(nnrt_spin_runnable(root), -1);
  snprintf(folder, sizeof folder, "%s/proc", root);
  snprintf(path, sizeof path, "%s/stat", folder);
  assert_int_equal(mkdir(folder, 0700), 0);
  FILE *f = fopen(path, "we");
  assert_non_null(f);
  fputs("cpu 1 2 3\nintr 9", f);
  for (int i = 0; i < 1000; i++)
    fputs(" 0", f);
  fputs("\nprocesses 77\nprocs_running 12\nprocs_blocked 3\n", f);
  assert_int_equal(fclose(f), 0);
  assert_int_equal(nnrt_spin_runnable(root), 12);
  unlink(path);
  assert_int_equal(nnrt_spin_runnable(root), -1);
  rmdir(folder);
  rmdir(root);
  assert_true(nnrt_spin_runnable("") >= 1); // this thread
}

TEST_GROUP(omp_spin) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(busy_processors_shorten_the_spin),
      cmocka_unit_test(the_load_is_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
