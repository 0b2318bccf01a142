// main of the C tests of a folder: runs the named group.  nnaot_unit_tests in CMakeLists.txt writes
// groups.def, with a GROUP(name) for each.

#include <stdio.h>
#include <string.h>

#include "groups.h"

const char *group_option = "";

#define GROUP(name) int group_##name(void);
#include "groups.def"
#undef GROUP

static const struct {
  const char *name;
  int (*run)(void);
} groups[] = {
#define GROUP(name) {#name, group_##name},
#include "groups.def"
};

int main(int argc, char **argv) {
  const int n = sizeof groups / sizeof *groups;
  if (argc > 2) group_option = argv[2];
  for (int i = 0; i < n && argc > 1; i++)
    if (strcmp(argv[1], groups[i].name) == 0) return groups[i].run();
  fprintf(stderr, "usage: %s GROUP\ngroups:", argv[0]);
  for (int i = 0; i < n; i++)
    fprintf(stderr, " %s", groups[i].name);
  fprintf(stderr, "\n");
  return 2;
}
