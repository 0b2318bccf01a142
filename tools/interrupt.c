// See interrupt.h.

#include "interrupt.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t seen, allowed;
static const char *some, *none; // messages with a result, and without one
static void (*before)(int);

static void on_interrupt(int signal_number) {
  if (seen) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  seen = 1;
  const char *text = allowed ? some : none;
  // A message that cannot be written changes nothing.
  if (write(STDERR_FILENO, "\ninterrupted: ", 14) < 0 ||
      write(STDERR_FILENO, text, strlen(text)) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
    return;
}

void interrupt_watch(const char *with, const char *without) {
  some = with;
  none = without;
  seen = allowed = 0;
  before = signal(SIGINT, on_interrupt);
}

void interrupt_allow(void) {
  allowed = 1;
}

bool interrupt_seen(void) {
  return seen;
}

void interrupt_release(void) {
  signal(SIGINT, before);
}
