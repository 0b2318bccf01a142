// One executable holds all programs of a table and runs the one named by argv[0]; the build links
// each name to it (programs.cmake).
//
//     build/tests/rt/line2 -> rt_line       PROGRAM(line2, .ranks = 2)

#ifndef TESTS_RT_PROGRAM_ROW_H
#define TESTS_RT_PROGRAM_ROW_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Returns the row of a program started as "…/name" or "…/gpu_name", in a table of `n` rows of
// `bytes` bytes that begin with their name.
static int program_row(const char *started_as, const void *rows, int n, size_t bytes) {
  const char *slash = strrchr(started_as, '/'), *name = slash ? slash + 1 : started_as;
  if (strncmp(name, "gpu_", 4) == 0) name += 4;
  for (int i = 0; i < n; i++)
    if (strcmp(name, *(const char *const *)((const char *)rows + (size_t)i * bytes)) == 0) return i;
  fprintf(stderr, "%s: error: no program of this table has the name '%s'\n", started_as, name);
  exit(2);
}

#endif
