// The limits of this process's cgroups, which containers and batch systems set.
//
//     0::/a/b           version 2: memory.max and cpu.max in /sys/fs/cgroup/a/b
//     4:memory:/a/b     version 1: memory.limit_in_bytes in /sys/fs/cgroup/memory/a/b
//     5:cpu,cpuacct:/a  version 1: cpu.cfs_quota_us and cpu.cfs_period_us in /sys/fs/cgroup/cpu/a
//
// A group is limited by its parents, too: FOLDER/a/b, FOLDER/a, FOLDER.  In a container /proc may
// tell the host's path of a group whose files are in FOLDER itself.  So a missing file is no limit.

#include <math.h>
#include <string.h>

#include "runtime.h"

// Reads one limit from the files of a folder; INFINITY: there is none.
typedef double Read(const char *folder);

// Reads the first line of a file; an empty text if there is none.
static void read_line(const char *folder, const char *file, char line[256]) {
  char path[8192];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  FILE *f = fopen(path, "re");
  if (!f || !fgets(line, 256, f)) *line = 0;
  if (f) fclose(f);
}

// Without a limit the file of version 2 holds "max".
static double bytes_in(const char *folder, const char *file) {
  char line[256];
  double limit;
  read_line(folder, file, line);
  return sscanf(line, "%lf", &limit) == 1 ? limit : INFINITY;
}

static double memory_2(const char *folder) {
  return bytes_in(folder, "memory.max");
}

static double memory_1(const char *folder) {
  return bytes_in(folder, "memory.limit_in_bytes");
}

double nnrt_cgroup_quota(const char *text) {
  long long quota, period;
  int end = 0;
  // Without a limit the quota is "max" in version 2 and -1 in version 1.
  bool known = sscanf(text, "%18lld %18lld %n", &quota, &period, &end) == 2 && text[end] == 0;
  return known && quota > 0 && period > 0 ? (double)quota / (double)period : INFINITY;
}

static double cpus_2(const char *folder) {
  char line[256];
  read_line(folder, "cpu.max", line);
  return nnrt_cgroup_quota(line);
}

static double cpus_1(const char *folder) {
  char quota[256], period[256], both[520];
  read_line(folder, "cpu.cfs_quota_us", quota);
  read_line(folder, "cpu.cfs_period_us", period);
  snprintf(both, sizeof both, "%s %s", quota, period);
  return nnrt_cgroup_quota(both);
}

// Returns the least limit of a group and its parents.  Truncates `group`.
static double least_of(const char *folder, char *group, Read *read) {
  double least = INFINITY;
  for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
    char path[8000];
    *end = 0;
    snprintf(path, sizeof path, "%s%s", folder, group);
    least = fmin(least, read(path));
  }
  return least;
}

// Whether a list, separated by commas, has a name.
static bool lists(const char *list, const char *name) {
  size_t n = strlen(name);
  for (; *list; list += strcspn(list, ","), list += *list == ',')
    if (strcspn(list, ",") == n && strncmp(list, name, n) == 0) return true;
  return false;
}

// Returns the least limit of a controller in the groups of this process, of both versions.
static double limit_of(const char *root, const char *controller, Read *read_1, Read *read_2) {
  double least = INFINITY;
  char path[4096], folder[4096], entry[4096];
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *f = fopen(path, "re");
  while (f && fgets(entry, sizeof entry, f)) {
    entry[strcspn(entry, "\n")] = 0;
    char *kind = strchr(entry, ':'), *group = kind ? strchr(kind + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    bool second = kind[1] == 0;
    if (!second && !lists(kind + 1, controller)) continue;
    snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s", root, second ? "" : "/",
             second ? "" : controller);
    least = fmin(least, least_of(folder, group, second ? read_2 : read_1));
  }
  if (f) fclose(f);
  return least;
}

double nnrt_cgroup_memory(const char *root) {
  return limit_of(root, "memory", memory_1, memory_2);
}

double nnrt_cgroup_cpus(const char *root) {
  return limit_of(root, "cpu", cpus_1, cpus_2);
}
