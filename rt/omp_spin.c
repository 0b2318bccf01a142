// How long OpenMP's threads turn in circles before they sleep.
//
// After a parallel loop the threads of libgomp wait for the next one without sleeping, for 300,000
// turns, on cores that other programs may want; when one of a team has lost its core, the others
// burn theirs until it is back.  The next loop comes soon or not for long, so 10,000 turns are as
// good where nothing else runs, and where two programs share two cores steps take 2/3 of the time.
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
  execv(path, argv); // by its name, which is what ps shows; if it cannot, all is as it was
}
