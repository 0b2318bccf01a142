// Watching collectives: see watch.h.

#include "watch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "machine.h"

struct Watch {
  NnrtRank *rank;
  Progress *progress;
  int (*errors)(void *state, char *text, size_t size);
  void *state;
  double patience; // seconds
  pthread_t thread;
  atomic_bool stop;
};

_Noreturn static void fail(Watch *w, int code, const char *text) {
  // A copy: the rank's thread goes on with the real one.
  NnrtRank seen = *w->rank;
  seen.step = atomic_load(&w->rank->device->step);
  nnrt_error(code, "%s", text);
  nnrt_fail(&seen, nnrt_watch_op(w), code);
}

int nnrt_watch_op(Watch *w) {
  const volatile Progress *p = w->progress;
  if (p->begun == p->done) return -1;
  nnrt_error(NNRT_COMM, "collective %lld: %s", p->begun, nnrt_error_detail());
  return p->op;
}

static void *watch(void *arg) {
  Watch *w = arg;
  const volatile Progress *p = w->progress;
  long long begun = -1, done = -1;
  double since = nnrt_now_us();
  while (!atomic_load(&w->stop)) {
    char text[400];
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    int code = w->errors(w->state, text, sizeof text);
    if (code) fail(w, code, text);
    // Nobody parts before all are done; so the collective waits for who is gone.
    if (p->begun != p->done && nnrt_comm_lost(w->rank->comm, text, sizeof text))
      fail(w, NNRT_COMM, text);
    if (p->begun != begun || p->done != done || p->begun == p->done) {
      begun = p->begun;
      done = p->done;
      since = nnrt_now_us();
    } else if (nnrt_now_us() - since > w->patience * 1e6) {
      snprintf(text, sizeof text,
               "no progress for %.0f seconds (--stall-timeout): another rank is gone or stopped",
               w->patience);
      fail(w, NNRT_COMM, text);
    }
  }
  return NULL;
}

int nnrt_watch_start(Watch **out, NnrtRank *r, int (*errors)(void *state, char *text, size_t size),
                     void *state) {
  Watch *w = *out = nnrt_must_alloc(sizeof *w);
  w->rank = r;
  w->errors = errors;
  w->state = state;
  w->patience = nnrt_device_patience(r->run);
  int code = nnrt_cuda(cudaMallocHost((void **)&w->progress, sizeof *w->progress),
                       "pinned memory of this machine");
  if (code) return code;
  memset(w->progress, 0, sizeof *w->progress);
  int error = pthread_create(&w->thread, NULL, watch, w);
  return error ? nnrt_error(NNRT_LIBRARY, "cannot start a thread: %s", strerror(error)) : 0;
}

void nnrt_watch_stop(Watch *w) {
  atomic_store(&w->stop, true);
  pthread_join(w->thread, NULL);
  cudaFreeHost(w->progress);
  free(w);
}

int nnrt_watch_begin(Watch *w, int op, cudaStream_t stream) {
  return nnrt_gpu_announce(w->progress, op, true, stream);
}

int nnrt_watch_end(Watch *w, cudaStream_t stream) {
  return nnrt_gpu_announce(w->progress, 0, false, stream);
}
