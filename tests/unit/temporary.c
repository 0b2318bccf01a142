// Processes that make their folders in one TMPDIR at once, as parallel builds do: each keeps its
// own, and the next one removes that of a killed process.

#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/temporary.h"

enum { PROCESSES = 8, FOLDERS = 400 };

static int entries(const char *path) {
  int n = 0;
  DIR *all = opendir(path);
  for (struct dirent *e; all && (e = readdir(all));)
    n += e->d_name[0] != '.';
  if (all) closedir(all);
  return n;
}

// Returns errno of the first folder that was not made or did not last, and 0.
static int make_folders(void) {
  char path[PATH_MAX];
  struct stat st;
  for (int i = 0; i < FOLDERS; i++) {
    if (!temporary_dir_make(path, sizeof path, "nnaot")) return errno;
    temporary_dir(path);
    if (stat(path, &st) != 0) return errno;
    temporary_dir_remove();
    if (stat(path, &st) == 0) return EEXIST;
  }
  return 0;
}

static void parallel_processes_keep_their_folders(void **state) {
  (void)state;
  char in[] = "/tmp/temporary-XXXXXX", file[PATH_MAX];
  assert_non_null(mkdtemp(in));
  assert_int_equal(setenv("TMPDIR", in, 1), 0);
  // A file with the name of a folder is the user's.
  snprintf(file, sizeof file, "%s/nnaot-notes", in);
  int f = open(file, O_CREAT | O_WRONLY, 0600);
  assert_true(f >= 0 && close(f) == 0);

  pid_t child[PROCESSES];
  for (int i = 0; i < PROCESSES; i++)
    if ((child[i] = fork()) == 0) _exit(make_folders());
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    assert_int_equal(waitpid(child[i], &status, 0), child[i]);
    assert_true(WIFEXITED(status));
    assert_string_equal(strerror(WEXITSTATUS(status)), strerror(0));
  }
  assert_int_equal(entries(in), 1);
  assert_int_equal(unlink(file), 0);
  assert_int_equal(rmdir(in), 0);
}

static void a_killed_process_leaves_its_folder_to_the_next(void **state) {
  (void)state;
  char in[] = "/tmp/temporary-XXXXXX", path[PATH_MAX];
  assert_non_null(mkdtemp(in));
  assert_int_equal(setenv("TMPDIR", in, 1), 0);
  pid_t child = fork();
  if (child == 0) {
    if (!temporary_dir_make(path, sizeof path, "nnaot")) _exit(1);
    raise(SIGKILL);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(entries(in), 1);

  assert_true(temporary_dir_make(path, sizeof path, "nnaot"));
  assert_int_equal(entries(in), 1);
  temporary_dir(path);
  temporary_dir_remove();
  assert_int_equal(entries(in), 0);
  assert_int_equal(rmdir(in), 0);
}

TEST_GROUP(temporary) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parallel_processes_keep_their_folders),
      cmocka_unit_test(a_killed_process_leaves_its_folder_to_the_next),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
