// Start and end of a job of MPI: MPI_Init within --connect-timeout, and MPI_Abort after an error.

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "mpi_wire.h"

// Of nnrt_end_job; a process has one.
static MpiLibrary *open_library;
static const NnrtRun *open_run;

// MPI_Abort ends all processes at once, and output that the launcher has not read is lost.  So a
// rank with an error waits until its stderr, a pipe, is read; one without gives another the time
// for its message.
static void wait_for_messages(bool has_error) {
  enum { PIECE_MS = 20, TURNS = 50, QUIET_TURNS = 25 };
  int unread = 0, quiet = has_error ? 5 : QUIET_TURNS;
  fflush(stdout);
  fflush(stderr);
  for (int turn = 0; turn < TURNS && quiet > 0; turn++) {
    nanosleep(&(struct timespec){.tv_nsec = PIECE_MS * 1000000}, NULL);
    if (ioctl(STDERR_FILENO, FIONREAD, &unread) != 0 || unread == 0) quiet--;
  }
}

// Ends the processes of all machines before this one ends with an error: not every launcher does
// so by itself.
static void abort_all(int status, const char *error) {
  MpiLibrary *m = open_library;
  if (!m) return;
  wait_for_messages(error != NULL);
  // A call of another thread may never return.
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  if (pthread_mutex_timedlock(&m->calls, &until) != 0) return;
  nnrt_mpi_abort(m, status);
}

// On SIGQUIT, in its handler, which cannot call MPI: processes of this machine.
static void tell_quit(void) {
  if (open_library) nnrt_peers_signal(open_run->peers, SIGQUIT);
}

void nnrt_mpi_end_with(MpiLibrary *m, const NnrtRun *run) {
  open_run = run;
  open_library = m;
  nnrt_before_end(abort_all);
  nnrt_stacks_tell(tell_quit);
}

void nnrt_mpi_finalize(MpiLibrary *m) {
  open_library = NULL;
  m->finalize();
}

// ---- MPI_Init, which waits for all ranks without a limit of its own

typedef struct Patience {
  const NnrtRun *run;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  bool done;
} Patience;

// Ends the process if MPI_Init has not returned in time; then the launcher ends the others.
static void *watch_init(void *arg) {
  Patience *p = arg;
  nnrt_crash_thread(NULL, "the thread that watches MPI_Init");
  double seconds = nnrt_connect_timeout(&p->run->flags);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += (time_t)(seconds < 1e9 ? seconds + 1 : 1e9);
  pthread_mutex_lock(&p->lock);
  while (!p->done)
    if (pthread_cond_timedwait(&p->ended, &p->lock, &until) == ETIMEDOUT && !p->done) {
      nnrt_mpi_say_missing(p->run);
      wait_for_messages(true);
      nnrt_end_job(1);
    }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

int nnrt_mpi_init(MpiLibrary *m, const NnrtRun *run, int wanted, int *out_provided) {
  Patience p = {.run = run};
  pthread_mutex_init(&p.lock, NULL);
  pthread_cond_init(&p.ended, NULL);
  bool watched = pthread_create(&p.thread, NULL, watch_init, &p) == 0;
  // The arguments are not needed: the launcher's variables are in the environment.
  int code = m->init_thread(NULL, NULL, wanted, out_provided);
  pthread_mutex_lock(&p.lock);
  p.done = true;
  pthread_cond_signal(&p.ended);
  pthread_mutex_unlock(&p.lock);
  if (watched) pthread_join(p.thread, NULL);
  pthread_cond_destroy(&p.ended);
  pthread_mutex_destroy(&p.lock);
  return code;
}
