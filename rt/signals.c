// SIGTERM and SIGINT finish the step, save what is to be saved, and end; the same once more ends at
// once.  The handler only remembers: ranks agree at the end of a step (step.c).

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
  // A file that grows too large and a reader that goes away are errors of write.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
}

int nnrt_signal_seen(void) {
  return atomic_load(&seen);
}
