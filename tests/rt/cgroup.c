// The limits of cgroups, read from folders that look like /proc and /sys, and the threads that a
// process starts under them.

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "groups.h"
#include "runtime.h"

static char root[64];

static int make_root(void **state) {
  (void)state;
  strcpy(root, "/tmp/nnrt_cgroup_XXXXXX");
  return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", root);
  return system(command); // NOLINT(cert-env33-c)
}

// Writes a file of the root, and makes the folders above it.
static void put(const char *path, const char *text) {
  char at[256];
  snprintf(at, sizeof at, "%s%s", root, path);
  for (char *end = strchr(at + strlen(root) + 1, '/'); end; end = strchr(end + 1, '/')) {
    *end = 0;
    mkdir(at, 0700);
    *end = '/';
  }
  FILE *f = fopen(at, "we");
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static void quotas_are_parsed(void **state) {
  (void)state;
  assert_true(nnrt_cgroup_quota("150000 100000\n") == 1.5);
  assert_true(nnrt_cgroup_quota("150000\n 100000\n") == 1.5);
  assert_true(nnrt_cgroup_quota("1000 100000") == 0.01);
  const char *none[] = {
      "max 100000\n", "-1 100000",      "",      "150000",         "0 100000", "150000 0",      "x",
      "1.5 1",        "150000 -100000", "nan 1", "150000 100000x", "1 2 3",    "150000x 100000"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    if (!isinf(nnrt_cgroup_quota(none[i]))) fail_msg("'%s' is a quota", none[i]);
}

static void nothing_known_is_no_limit(void **state) {
  (void)state;
  assert_true(isinf(nnrt_cgroup_cpus(root)) && isinf(nnrt_cgroup_memory(root)));
  put("/proc/self/cgroup", "0::/a\n");
  assert_true(isinf(nnrt_cgroup_cpus(root)) && isinf(nnrt_cgroup_memory(root)));
  put("/proc/self/cgroup", "no colon\n4\n5:cpu\n");
  assert_true(isinf(nnrt_cgroup_cpus(root)) && isinf(nnrt_cgroup_memory(root)));
}

// Each level of version 2 may hold the least limit.
static void parents_limit_their_groups(void **state) {
  (void)state;
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/a/b/memory.max", "4096\n");
  assert_true(isinf(nnrt_cgroup_cpus(root)) && nnrt_cgroup_memory(root) == 4096);
  put("/sys/fs/cgroup/cpu.max", "800000 100000\n");
  put("/sys/fs/cgroup/memory.max", "max\n");
  assert_true(nnrt_cgroup_cpus(root) == 8 && nnrt_cgroup_memory(root) == 4096);
  put("/sys/fs/cgroup/a/cpu.max", "25000 10000\n");
  put("/sys/fs/cgroup/a/memory.max", "1024\n");
  assert_true(nnrt_cgroup_cpus(root) == 2.5 && nnrt_cgroup_memory(root) == 1024);
  put("/sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
  assert_true(nnrt_cgroup_cpus(root) == 1);
  // A group beside this process's own.
  put("/sys/fs/cgroup/a/c/cpu.max", "1000 100000\n");
  assert_true(nnrt_cgroup_cpus(root) == 1);
}

// In a container the path is the host's: the files are in the folder of the controller.
static void version_1_has_a_folder_for_each_controller(void **state) {
  (void)state;
  put("/proc/self/cgroup", "5:cpuset:/x\n4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n0::/\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
  assert_true(nnrt_cgroup_cpus(root) == 2 && nnrt_cgroup_memory(root) == 8192);
  put("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  assert_true(nnrt_cgroup_cpus(root) == 2);
  put("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "50000\n");
  assert_true(nnrt_cgroup_cpus(root) == 0.5);
  // Neither cpuset nor cpuacct is the controller of quotas.
  put("/proc/self/cgroup", "5:cpuset:/docker/1\n3:cpuacct:/docker/1\n");
  assert_true(isinf(nnrt_cgroup_cpus(root)));
}

static void ranks_divide_processors_and_quota(void **state) {
  (void)state;
  Launch threads = {.kind = LAUNCH_none}, processes = {.kind = LAUNCH_mpi};
  assert_int_equal(nnrt_launch_share(&threads, 1, 64, 64, INFINITY), 64);
  assert_int_equal(nnrt_launch_share(&threads, 1, 64, 64, 2), 2);
  assert_int_equal(nnrt_launch_share(&threads, 1, 64, 64, 1.5), 2);
  assert_int_equal(nnrt_launch_share(&threads, 1, 64, 64, 0.2), 1);
  assert_int_equal(nnrt_launch_share(&threads, 1, 2, 64, 8), 2); // affinity is less
  assert_int_equal(nnrt_launch_share(&threads, 4, 64, 64, 8), 2);
  assert_int_equal(nnrt_launch_share(&threads, 4, 64, 64, INFINITY), 16);
  assert_int_equal(nnrt_launch_share(&threads, 4, 2, 2, 1), 1);
  // Each rank is bound to 16 of 64 processors, but the quota is one for all.
  assert_int_equal(nnrt_launch_share(&processes, 4, 16, 64, INFINITY), 16);
  assert_int_equal(nnrt_launch_share(&processes, 4, 16, 64, 8), 2);
  assert_int_equal(nnrt_launch_share(&processes, 4, 64, 64, INFINITY), 16);
  // The processors of a rank, of which a thread has a part.
  assert_true(nnrt_launch_processors(&threads, 4, 2, 2, INFINITY) == 0.5);
  assert_true(nnrt_launch_processors(&threads, 1, 64, 64, 1.5) == 1.5);
  assert_true(nnrt_launch_processors(&processes, 4, 16, 64, INFINITY) == 16);
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

TEST_GROUP(cgroup) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quotas_are_parsed),
      WITH_ROOT(nothing_known_is_no_limit),
      WITH_ROOT(parents_limit_their_groups),
      WITH_ROOT(version_1_has_a_folder_for_each_controller),
      cmocka_unit_test(ranks_divide_processors_and_quota),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
