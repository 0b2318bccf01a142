// Checks that the slabs of this machine's ranks fit into its memory.
//
// A slab is mapped without being reserved: without this check, the kernel would kill the process in
// the middle of a step.  Free memory and, in a container, the limits of the cgroups are known
// before. Neither is exact, so only impossible sizes are refused: cached files count as free, and
// so does swap.

#include <math.h>

#include "runtime.h"

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
  return fmin(known ? 1024 * kib : INFINITY, nnrt_cgroup_memory(""));
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
