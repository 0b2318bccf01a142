// Watches collectives: see watch.h.

#include "watch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "machine.h"

struct Watch {
  NnrtRank *rank;
  Progress *progress; // [2]: of collectives, of moves between segments
  int (*errors)(void *state, char *text, size_t size);
  void *state;
  double stall_timeout; // seconds
  pthread_t thread;
  atomic_bool stop;
};

_Noreturn static void fail(Watch *w, int code, const char *text) {
  // A copy: the rank's thread continues to use the original.
  NnrtRank seen = *w->rank;
  seen.step = atomic_load(&w->rank->device->step);
  nnrt_error(code, "%s", text);
  nnrt_fail(&seen, nnrt_watch_op(w), code);
}

static bool is_on(const volatile Progress *p) {
  return p->begun != p->done;
}

int nnrt_watch_op(Watch *w) {
  for (int i = 0; i < 2; i++) {
    const volatile Progress *p = &w->progress[i];
    if (!is_on(p)) continue;
    // The message names the collective by its number.
    nnrt_error(NNRT_COMM, "%s %lld: %s", i ? "move" : "collective", p->begun, nnrt_error_detail());
    return p->op;
  }
  return -1;
}

static void *watch(void *arg) {
  Watch *w = arg;
  enum { TURN_MS = 100 };
  long long seen = -1;
  // A sum of turns: time in which this process was stopped itself does not count.
  double waited = 0;
  while (!atomic_load(&w->stop)) {
    char text[1200];
    nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000}, NULL);
    waited += TURN_MS / 1e3;
    int code = w->errors(w->state, text, sizeof text);
    if (code) fail(w, code, text);
    // No rank disconnects before all are done, so the collective is waiting for a lost rank.
    bool on = is_on(&w->progress[0]) || is_on(&w->progress[1]);
    // Starts and completions: the sum grows as long as anything progresses.
    const volatile Progress *p = w->progress;
    long long now = p[0].begun + p[0].done + p[1].begun + p[1].done;
    if (on && nnrt_comm_lost(w->rank->comm, text, sizeof text)) fail(w, NNRT_COMM, text);
    if (now != seen || !on) {
      seen = now;
      waited = 0;
    } else if (waited > w->stall_timeout) {
      // The GPU does not know for which rank it waits: all are asked.
      nnrt_stall_find_any(w->rank->comm, w->stall_timeout, text, sizeof text);
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
  w->stall_timeout = nnrt_stall_timeout(&r->run->flags);
  // Kernels announce progress in pinned memory, which the thread reads.
  int code = nnrt_cuda(cudaMallocHost((void **)&w->progress, 2 * sizeof *w->progress),
                       "pinned memory of this machine");
  if (code) return code;
  memset(w->progress, 0, 2 * sizeof *w->progress);
  int error = pthread_create(&w->thread, NULL, watch, w);
  return error ? nnrt_error(NNRT_LIBRARY, "cannot start a thread: %s", strerror(error)) : 0;
}

void nnrt_watch_stop(Watch *w) {
  atomic_store(&w->stop, true);
  pthread_join(w->thread, NULL);
  cudaFreeHost(w->progress);
  free(w);
}

int nnrt_watch_begin(Watch *w, int op, bool ahead, cudaStream_t stream) {
  return nnrt_gpu_announce(&w->progress[ahead], op, true, stream);
}

int nnrt_watch_end(Watch *w, bool ahead, cudaStream_t stream) {
  return nnrt_gpu_announce(&w->progress[ahead], 0, false, stream);
}
