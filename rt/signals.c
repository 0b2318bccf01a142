// Signals of users, launchers and schedulers:
//
//     SIGTERM SIGINT   finish the step, save the outputs, and end; a second signal ends at once
//     SIGUSR1 SIGHUP   save a checkpoint after the step, and go on
//     SIGQUIT          every rank prints its stacks, and the job ends (stacks.c)
//
// Handlers only count: ranks agree at the end of a step (step.c).  A terminal that is closed sends
// SIGHUP; training goes on, as under nohup, which has it ignored.
//
// A launcher passes one signal on to all ranks, and they may get it in different steps.  It is one
// request, so each rank counts its signals, and a save serves the largest count of any rank:
//
//     signals of           rank 0   rank 1   saves
//     step 7, at its end        1        0   1: rank 1 now has one signal less than none
//     step 8, at its end        0        0   none: its signal has come, and made up for that
//
// A user may signal one rank only, so a signal that is missing is expected for a few seconds.
// Within these, signals of one kind to different ranks are one request.
//
// Handlers run on a thread of their own.  oneDNN's kernels keep data below the stack pointer, where
// a handler on their thread would write.

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

enum {
  EXPECTED_SECONDS = 5,
  SECOND_REQUEST_SECONDS = 2 // from which another signal to end is a request of its own
};
static const int64_t NANO = 1000000000;

static atomic_int ends; // the signal; 0: none

// Signals of a kind that asks for a checkpoint.
typedef struct Requests {
  atomic_int open;         // signals that no save has served; below 0: signals that are expected
  _Atomic int64_t expires; // second of the monotonic clock from which none is expected
} Requests;

static Requests user, hangup;

static Requests *requests_of(int signal) {
  return signal == SIGHUP ? &hangup : &user;
}

static int64_t now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// Adds n to the open requests, after the expected signals that have not come are forgotten.
static void add_requests(Requests *q, int n) {
  bool expired = now_seconds() >= atomic_load(&q->expires);
  int open = atomic_load(&q->open);
  while (!atomic_compare_exchange_weak(&q->open, &open, (open < 0 && expired ? 0 : open) + n))
    ;
}

static void remember_end(int signal) {
  static int64_t first;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t nanoseconds = now.tv_sec * NANO + now.tv_nsec;
  if (atomic_exchange(&ends, signal) == 0) {
    first = nanoseconds;
    return;
  }
  // A launcher and its scheduler may both signal a rank: that is one request.
  if (nanoseconds - first >= SECOND_REQUEST_SECONDS * NANO) _exit(128 + signal);
}

static void remember_save(int signal) {
  add_requests(requests_of(signal), 1);
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
}

_Noreturn static void *listen(void *set) {
  nnrt_crash_thread(NULL, "the thread of signals");
  pthread_sigmask(SIG_UNBLOCK, set, NULL);
  for (;;)
    pause();
}

void nnrt_signals_listen(void) {
  enum { STACK = 256 << 10 };
  static sigset_t set; // of the thread, too
  pthread_attr_t attributes;
  pthread_t thread;
  nnrt_stacks_begin();
  nnrt_stacks_add(NULL, "the main thread"); // until it is one of a rank
  sigemptyset(&set);
  const int taken[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGQUIT};
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
    sigaddset(&set, taken[i]);
  // Threads that this one starts block them as well.
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  Why w;
  int code = pthread_create(&thread, &attributes, listen, &set);
  pthread_attr_destroy(&attributes);
  if (!code) return;
  nnrt_why_thread(&w, "the thread of signals", code);
  nnrt_say_error("%s", w.text);
  nnrt_end_job(1);
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

int nnrt_signal_requests(int signal) {
  int open = atomic_load(&requests_of(signal)->open);
  return open > 0 ? open : 0;
}

void nnrt_signal_served(int signal, int n) {
  Requests *q = requests_of(signal);
  if (n == 0) return;
  add_requests(q, -n);
  atomic_store(&q->expires, now_seconds() + EXPECTED_SECONDS);
}
