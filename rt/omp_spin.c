// Limits the time that OpenMP's threads spin before they sleep.
//
// After a parallel loop the threads of libgomp spin for the next one, for 300,000 iterations, on
// cores that other programs may need.  When one thread of a team has lost its core, the others spin
// until it is back.  The next loop comes soon or not for long, so 10,000 iterations are as good on
// an idle machine.  If two programs share two cores, a step takes 2/3 of its time with the default.
//
// If the machine is busy as the process starts, a thread of a team often waits for a core: then 100
// iterations, so that the others leave theirs to it.  No sum depends on these numbers.
//
// libgomp reads its environment when it is loaded, before main: the process starts itself again. It
// does not if OMP_PROC_BIND has bound this thread to one core by then: the new process would have
// no other.

#include <omp.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

int nnrt_spin_runnable(const char *root) {
  char path[4096], line[256];
  int n = -1;
  snprintf(path, sizeof path, "%s/proc/stat", root);
  FILE *f = fopen(path, "re");
  // The line of interrupts may be longer than `line`: its pieces begin with digits or spaces.
  while (f && n < 0 && fgets(line, sizeof line, f))
    if (sscanf(line, "procs_running %d", &n) != 1) n = -1;
  if (f) fclose(f);
  return n;
}

int nnrt_spin_count(int others, int threads, int processors) {
  if (threads > processors) threads = processors; // then all are needed
  return others > 0 && others > processors - threads ? 100 : 10000;
}

// Returns the number of threads besides `own` that need a processor, the least of some samples: a
// program that runs for a moment is no load.
static int others_running(int own) {
  enum { SAMPLES = 5 };
  int least = 0;
  for (int i = 0; i < SAMPLES; i++) {
    int n = nnrt_spin_runnable("") - own;
    if (i == 0 || n < least) least = n;
    if (least <= 0) break;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return least;
}

void nnrt_spin_less(char **argv) {
  char path[4096], count[16];
  Launch l;
  bool bound = omp_get_proc_bind() != omp_proc_bind_false;
  if (bound || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
  // The other ranks of this machine, which start as this one does, are no load.
  int ranks = 1;
  if (nnrt_launch_find(&l, &(Why){0})) ranks = l.local_world > 0 ? l.local_world : l.world;
  int processors = (int)sysconf(_SC_NPROCESSORS_ONLN), each = nnrt_launch_threads(&l, ranks);
  if (each == 0) each = omp_get_max_threads();
  int threads = each < processors / ranks ? each * ranks : processors;
  snprintf(count, sizeof count, "%d", nnrt_spin_count(others_running(ranks), threads, processors));
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n < 0 || setenv("GOMP_SPINCOUNT", count, 1) != 0) return;
  path[n] = 0;
  execv(path, argv); // argv keeps the name that ps shows; on failure nothing changes
}
