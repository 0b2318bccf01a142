// SIGTERM and SIGINT finish the step, save the outputs, and end; a second signal ends at once.  The
// handler only sets a flag: ranks agree at the end of a step (step.c).

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

static atomic_int seen;

static void remember(int signal) {
  if (atomic_exchange(&seen, signal) == 0) return;
  _exit(128 + signal);
}

void nnrt_signals_catch(void) {
  struct sigaction action = {.sa_handler = remember, .sa_flags = SA_RESTART};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  // A file beyond the size limit and a reader that has closed are errors of write.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
}

int nnrt_signal_seen(void) {
  return atomic_load(&seen);
}
