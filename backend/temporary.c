// See temporary.h.  The handler may run at any instruction, so it calls only functions that POSIX
// allows there (unlink, rmdir, kill, waitpid), on paths that were put together before.

#include "temporary.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const names[] = {"program.c",
                                    "kernels.cu",
                                    "constants.bin",
                                    "payload.bin",
                                    "program.c.part",
                                    "kernels.cu.part",
                                    "constants.bin.part",
                                    "payload.bin.part",
                                    "program.o",
                                    "kernels.o",
                                    "program",
                                    "plans",
                                    "plans.one",
                                    "plans.one.part",
                                    "log",
                                    "trace"};
enum { N_NAMES = sizeof names / sizeof *names };

static char in_dir[N_NAMES][PATH_MAX], dir[PATH_MAX], file[PATH_MAX];
static volatile sig_atomic_t has_dir, has_file;
static volatile pid_t children[MAX_CHILDREN]; // 0: free

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
enum { N_SIGNALS = sizeof signals / sizeof *signals };

void temporary_dir(const char *path) {
  has_dir = 0;
  if (!path) return;
  snprintf(dir, sizeof dir, "%s", path);
  for (int i = 0; i < N_NAMES; i++)
    if (snprintf(in_dir[i], PATH_MAX, "%s/%s", path, names[i]) >= PATH_MAX) in_dir[i][0] = 0;
  has_dir = 1;
}

void temporary_file(const char *path) {
  has_file = 0;
  if (!path) return;
  has_file = snprintf(file, sizeof file, "%s", path) < (int)sizeof file;
}

void temporary_dir_remove(void) {
  if (!has_dir) return;
  for (int i = 0; i < N_NAMES; i++)
    unlink(in_dir[i]);
  rmdir(dir);
  has_dir = 0;
}

static void stop(int signal_number) {
  for (int i = 0; i < MAX_CHILDREN; i++)
    if (children[i] > 0) kill(children[i], SIGTERM);
  for (int i = 0; i < MAX_CHILDREN; i++)
    while (children[i] > 0 && waitpid(children[i], NULL, 0) < 0 && errno == EINTR) {
    }
  // Children have ended, so nothing writes there any more.
  temporary_dir_remove();
  if (has_file) unlink(file);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

static void each(sigset_t *set) {
  sigemptyset(set);
  for (int i = 0; i < N_SIGNALS; i++)
    sigaddset(set, signals[i]);
}

void temporary_watch(void) {
  struct sigaction new = {.sa_handler = stop, .sa_flags = SA_RESTART}, old;
  each(&new.sa_mask); // block the other signals meanwhile
  for (int i = 0; i < N_SIGNALS; i++)
    if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
      sigaction(signals[i], &new, NULL);
}

// Signals are blocked meanwhile, so that every child is recorded.
pid_t temporary_fork(void) {
  sigset_t ours, before;
  int slot = 0;
  while (slot < MAX_CHILDREN && children[slot])
    slot++;
  if (slot == MAX_CHILDREN) {
    errno = EAGAIN;
    return -1;
  }
  each(&ours);
  sigprocmask(SIG_BLOCK, &ours, &before);
  pid_t child = fork();
  if (child == 0) {
    // The recorded paths and processes are the parent's.
    struct sigaction old;
    has_dir = has_file = 0;
    for (int i = 0; i < MAX_CHILDREN; i++)
      children[i] = 0;
    for (int i = 0; i < N_SIGNALS; i++)
      if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        signal(signals[i], SIG_DFL);
  }
  if (child > 0) children[slot] = child;
  sigprocmask(SIG_SETMASK, &before, NULL);
  return child;
}

pid_t temporary_wait(pid_t child, int *status) {
  pid_t ended;
  do
    ended = waitpid(child, status, 0);
  while (ended < 0 && errno == EINTR);
  for (int i = 0; ended > 0 && i < MAX_CHILDREN; i++)
    if (children[i] == ended) children[i] = 0;
  return ended;
}
