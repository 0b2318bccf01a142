// How long OpenMP's threads turn in circles before they sleep.
//
// After a parallel loop the threads of libgomp wait for the next one without sleeping, 300,000
// turns or some 15 ms, on cores that other programs may want; when one of a team has lost its core,
// the others burn theirs until it is back, and a step that takes 1 ms takes 48.  The next loop
// comes within microseconds or not for long, so 10,000 turns are as good where nothing else runs.
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
