// Checks that the slabs of this machine's ranks fit into its memory.
//
// A slab is mapped without being reserved: without this check, the kernel would kill the process in
// the middle of a step.  Free memory and, in a container, the limits of the cgroups are known
// before. Neither is exact, so only impossible sizes are refused: cached files count as free, and
// so does swap.

#include <math.h>
#include <string.h>

#include "runtime.h"

// Returns the least limit of a group and its parents: FOLDER/a/b, FOLDER/a, FOLDER.  Truncates
// `group`.
static double limit_of(const char *folder, char *group, const char *file) {
  double least = INFINITY;
  for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
    char path[8192];
    *end = 0;
    snprintf(path, sizeof path, "%s%s/%s", folder, group, file);
    // No limit: the file holds a word ("max"), or does not exist.
    double limit = INFINITY;
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%lf", &limit) != 1) limit = INFINITY;
    if (f) fclose(f);
    least = fmin(least, limit);
  }
  return least;
}

double nnrt_memory_free(void) {
  char line[256];
  double kib = 0, x;
  bool known = false;
  FILE *f = fopen("/proc/meminfo", "re");
  while (f && fgets(line, sizeof line, f)) {
    // Kernels before 3.14 have no MemAvailable: then nothing is known.
    bool available = sscanf(line, "MemAvailable: %lf kB", &x) == 1;
    if (available || sscanf(line, "SwapFree: %lf kB", &x) == 1) kib += x;
    known |= available;
  }
  if (f) fclose(f);
  // "0::/a/b" is a group of cgroup version 2, "4:memory:/a/b" of version 1.
  double least = known ? 1024 * kib : INFINITY;
  char entry[4096];
  f = fopen("/proc/self/cgroup", "re");
  while (f && fgets(entry, sizeof entry, f)) {
    entry[strcspn(entry, "\n")] = 0;
    char *kind = strchr(entry, ':'), *group = kind ? strchr(kind + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    // The two versions have files of other names, in other folders.
    if (kind[1] == 0)
      least = fmin(least, limit_of("/sys/fs/cgroup", group, "memory.max"));
    else if (strcmp(kind + 1, "memory") == 0)
      least = fmin(least, limit_of("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  if (f) fclose(f);
  return least;
}

Amount nnrt_amount(double bytes) {
  static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int i = 0;
  for (; bytes >= 1024 && i < 6; i++)
    bytes /= 1024;
  Amount a;
  snprintf(a.text, sizeof a.text, "%.*f %s", i > 0, bytes, unit[i]);
  return a;
}

void nnrt_slabs_add(Slabs *s, const NnrtProgram *p, int rank, bool slab, bool host) {
  const NnrtRankProgram *code = nnrt_code_of(p, rank);
  double bytes = (slab ? (double)code->slab_bytes : 0) + (host ? (double)code->host_bytes : 0);
  s->n++;
  s->all += bytes;
  if (bytes > s->largest) s->largest = bytes;
}

bool nnrt_memory_enough(const Slabs *s, double bytes, const char *what, Why *w) {
  if (s->all <= bytes) return true;
  char each[64] = "";
  // Ranks of one machine share its memory.
  if (s->n > 1)
    snprintf(each, sizeof each, " for %d ranks of %s%s", s->n,
             s->all < s->n * s->largest ? "up to " : "", nnrt_amount(s->largest).text);
  return why(w, "training needs %s of %s%s, there are %s\n" NNRT_MEMORY_HINT,
             nnrt_amount(s->all).text, what, each, nnrt_amount(bytes).text);
}
