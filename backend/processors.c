// The number of processors that this process may use: those it may run on, or fewer if its control
// group has a quota of time, as containers have.

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "build.h"

// Whole processors of a quota of both numbers in microseconds; 0: there is no quota.
static int quota(double time, double period) {
  if (!(time > 0 && period > 0)) return 0;
  double n = time / period;
  return n >= INT_MAX ? 0 : n < 1 ? 1 : (int)n;
}

// "max 100000" or "150000 100000" of the file cpu.max of a folder.
static int quota_of(const char *folder) {
  char path[PATH_MAX];
  double time = 0, period = 0;
  if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= (int)sizeof path) return 0;
  FILE *f = fopen(path, "r");
  int n = f ? fscanf(f, "%lf %lf", &time, &period) : 0;
  if (f) fclose(f);
  return n == 2 ? quota(time, period) : 0;
}

static double number_in(const char *path) {
  double x = 0;
  FILE *f = fopen(path, "r");
  if (f && fscanf(f, "%lf", &x) != 1) x = 0;
  if (f) fclose(f);
  return x;
}

// The least quota of the group and all groups around it; 0: none.
static int group_quota(void) {
  static const char root[] = "/sys/fs/cgroup";
  char line[PATH_MAX], folder[PATH_MAX + sizeof root];
  FILE *f = fopen("/proc/self/cgroup", "r");
  int least = quota(number_in("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
                    number_in("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  while (f && fgets(line, sizeof line, f)) {
    if (strncmp(line, "0::", 3) != 0) continue;
    line[strcspn(line, "\n")] = 0;
    snprintf(folder, sizeof folder, "%s%s", root, line + 3);
    for (char *slash = folder; slash && strlen(folder) >= sizeof root - 1;) {
      int n = quota_of(folder);
      if (n && (!least || n < least)) least = n;
      slash = strrchr(folder, '/');
      if (slash) *slash = 0;
    }
  }
  if (f) fclose(f);
  return least;
}

int processors_available(void) {
  cpu_set_t set;
  int online = (int)sysconf(_SC_NPROCESSORS_ONLN), limit = group_quota();
  int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online;
  if (limit && limit < n) n = limit;
  return n > 0 ? n : 1;
}
