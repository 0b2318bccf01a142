// Limits the time that OpenMP's threads spin before they sleep.
//
// After a parallel loop the threads of libgomp spin for the next one, for 300,000 iterations, on
// cores that other programs may need.  When one thread of a team has lost its core, the others spin
// until it is back.  The next loop comes soon or not for long, so 10,000 iterations are as good on
// an idle machine.  If two programs share two cores, a step takes 2/3 of its time with the default.
//
// libgomp reads its environment when it is loaded, before main: the process starts itself again.

#include <stdlib.h>
#include <unistd.h>

#include "runtime.h"

void nnrt_spin_less(char **argv) {
  char path[4096];
  if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n < 0 || setenv("GOMP_SPINCOUNT", "10000", 1) != 0) return;
  path[n] = 0;
  execv(path, argv); // argv keeps the name that ps shows; on failure nothing changes
}
