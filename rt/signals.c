// Signals of users, launchers and schedulers:
//
//     SIGTERM SIGINT   finish the step, save the outputs, and end; a second signal ends at once
//     SIGUSR1 SIGHUP   save a checkpoint after the step, and go on
//     SIGQUIT          every rank prints its stacks, and the job ends (stacks.c)
//
// Handlers only set flags: ranks agree at the end of a step (step.c).  A terminal that is closed
// sends SIGHUP; training goes on, as under nohup, which has it ignored.

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "runtime.h"

static atomic_int ends, saves; // the signal; 0: none

static void remember_end(int signal) {
  if (atomic_exchange(&ends, signal) == 0) return;
  _exit(128 + signal);
}

static void remember_save(int signal) {
  atomic_store(&saves, signal);
}

static bool is_ignored(int signal) {
  struct sigaction now;
  return sigaction(signal, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static bool hangup_ignored; // by the process that started this one

static void catch_saves(void) {
  struct sigaction action = {.sa_handler = remember_save, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  if (!hangup_ignored) sigaction(SIGHUP, &action, NULL);
}

void nnrt_signals_begin(void) {
  hangup_ignored = is_ignored(SIGHUP);
  catch_saves();
  nnrt_stacks_begin();
}

void nnrt_signals_catch(void) {
  struct sigaction action = {.sa_handler = remember_end, .sa_flags = SA_RESTART};
  catch_saves(); // again: UCX, which an MPI library may use, has taken SIGHUP for its debugging
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  // A file beyond the size limit and a reader that has closed are errors of write.
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
}

int nnrt_signal_seen(void) {
  return atomic_load(&ends);
}

int nnrt_signal_saves(void) {
  return atomic_exchange(&saves, 0);
}
