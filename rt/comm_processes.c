// Ranks as processes that send to each other: jobs of a queue are under way together.
//
// A job that waits for the network lets those after it begin, up to a number of jobs and bytes, the
// window of the queue.  Small jobs that are pending together take one delay, larger ones two:
//
//     job 1   phase 1 ─── delay ───→ sum, phase 2 ─── delay ───→ done
//     job 2     phase 1 ─── delay ───→ sum, phase 2 ─── delay ───→ done
//     job 3       small ─── delay ───→ sum                          done, since those before it are
//
// Each of the two phases has its channel (wire.h), with the messages between two ranks in the order
// of the jobs: jobs begin in it, and so do second phases.  So nothing has to be agreed: how
// far each rank has come, and the size of its window, do not change the order of bytes.  Were both
// phases on one channel, its order would depend on the arrival of the messages of others.  A large
// job has one channel for both, and those after it begin after its end.
//
// Jobs cannot deadlock.  All ranks put them in one order.  Of the jobs that some rank has not
// finished, take the first, J:
//
// - Its ranks have finished all jobs before it, so none of them waits for another job before it
//   puts J, and J is the oldest of each queue: the window has it, whatever else is in it.
// - All messages before those of J in their streams are of jobs before J, and have arrived.  So
//   those of its first phase are next at both ends, on every channel, and arrive.
// - Then each of its ranks adds, and the same holds for the second phase, which no job before J
//   holds back.
//
// Jobs whose memory overlaps run one after the other.

#include <stdlib.h>
#include <string.h>

#include "phases.h"

enum { MOST_JOBS = 256, WINDOW_BYTES = 16 << 20 };

// The jobs under way of a queue.
typedef struct Window {
  Lane lane;
  Work work[MOST_JOBS]; // job i at i modulo MOST_JOBS
  int64_t first, end;   // the jobs from `first` on, before `end`
  int64_t received;     // bytes of the parcels that they receive
  // Memory of the jobs, in their order: from `head` on, around the end, up to `tail`.
  char *scratch;
  int64_t size, head, tail;
  double since_us; // the first has been the first
  bool warned;     // of its wait
} Window;

static int open_processes(NnrtComm *c) {
  Why w;
  for (int i = 0; i < c->n_queues; i++) {
    Window *window = c->queue[i].window = nnrt_must_alloc(sizeof *window);
    nnrt_lane_open(&window->lane, i, c->rank->ranks, &c->record->lane[i].moved);
  }
  return c->wire->open(c->wire, &w) ? 0 : nnrt_error(NNRT_COMM, "%s", w.text);
}

static void close_processes(NnrtComm *c) {
  c->wire->close(c->wire);
  for (int i = 0; i < c->n_queues; i++) {
    nnrt_lane_close(&c->queue[i].window->lane);
    free(c->queue[i].window->scratch);
    free(c->queue[i].window);
  }
}

static void wake_processes(Queue *q) {
  q->comm->wire->wake(q->comm->wire, q->lane);
}

// ---- the window

static Work *work_of(Window *w, int64_t number) {
  return &w->work[number % MOST_JOBS];
}

// Returns memory for a job after all others; NULL: they must end first.
static char *reserve(Window *w, int64_t bytes) {
  if (w->first == w->end) {
    w->head = w->tail = 0;
    if (bytes > w->size) {
      // It grows to the largest use and stays.
      free(w->scratch);
      w->size = bytes > WINDOW_BYTES ? bytes : WINDOW_BYTES;
      w->scratch = nnrt_must_alloc((size_t)w->size);
    }
  } else if (w->tail <= w->head) {
    // The memory of all jobs goes around the end.
    if (w->head - w->tail < bytes) return NULL;
  } else if (w->size - w->tail < bytes) {
    if (w->head < bytes) return NULL;
    w->tail = 0;
  }
  char *at = w->scratch + w->tail;
  w->tail += bytes;
  return at;
}

static int64_t received_bytes(const Job *job) {
  int64_t bytes = 0;
  for (int i = 0; job->kind == JOB_move && i < job->exchange->n_from; i++)
    bytes += job->exchange->from[i].bytes;
  return bytes;
}

static bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
  return (uintptr_t)a < (uintptr_t)b + (uintptr_t)b_bytes &&
         (uintptr_t)b < (uintptr_t)a + (uintptr_t)a_bytes;
}

// Whether a job writes memory that the other reads or writes; the parcels of moves are their own.
static bool disturbs(const Job *job, const Job *other) {
  if (job->kind == JOB_move || other->kind == JOB_move) return false;
  const JobShape *a = &nnrt_job_shape[job->kind], *b = &nnrt_job_shape[other->kind];
  int64_t n = job->n * nnrt_dtype_size(job->dtype), m = other->n * nnrt_dtype_size(other->dtype);
  int64_t y = n * (a->y_parts ? job->group->n : 1), p = other->group->n;
  return overlap(job->y, y, other->x, m * (b->x_parts ? p : 1)) ||
         overlap(job->y, y, other->y, m * (b->y_parts ? p : 1));
}

static bool is_alone(const Work *w) {
  return !w->ended && nnrt_work_is_alone(w->job);
}

// Whether the job, the next one, can begin beside those under way.
static bool fits(Window *w, const Job *job) {
  if (w->end - w->first == MOST_JOBS) return false;
  if (w->first < w->end && is_alone(work_of(w, w->end - 1))) return false;
  if (w->first < w->end && w->received + received_bytes(job) > WINDOW_BYTES) return false;
  for (int64_t i = w->first; i < w->end; i++) {
    const Work *other = work_of(w, i);
    if (!other->ended && (disturbs(job, other->job) || disturbs(other->job, job))) return false;
  }
  return true;
}

static void begin_jobs(Queue *q) {
  Window *w = q->window;
  for (Job *job; (job = nnrt_queue_next(q)) && fits(w, job);) {
    int64_t bytes = (nnrt_work_bytes(job) + 63) / 64 * 64;
    char *memory = reserve(w, bytes);
    if (!memory) return;
    nnrt_queue_begin(q);
    if (w->first == w->end) w->since_us = nnrt_now_us();
    Work *work = work_of(w, w->end++);
    w->received += received_bytes(job);
    nnrt_work_begin(work, job, &w->lane, memory);
    work->end = w->tail;
  }
}

// Ends the oldest jobs that are complete: a job is done once all before it are.
static void retire(Queue *q) {
  Window *w = q->window;
  while (w->first < w->end && work_of(w, w->first)->ended) {
    const Work *work = work_of(w, w->first++);
    w->head = work->end;
    w->received -= received_bytes(work->job);
    w->since_us = nnrt_now_us();
    w->warned = false;
    nnrt_queue_end(q);
  }
}

// Continues the jobs without pending messages; returns whether one has ended.
static bool step_jobs(Queue *q) {
  Window *w = q->window;
  bool some = false, held = false;
  for (int64_t i = w->first; i < w->end; i++) {
    Work *work = work_of(w, i);
    if (work->ended) continue;
    // Second phases begin in the order of jobs, too, whichever first phase ends first.
    while (!work->pending && !work->ended && !(held && nnrt_work_has_second(work)))
      nnrt_work_step(work);
    held |= nnrt_work_has_second(work);
    some |= work->ended;
    // Sums of the jobs after it may take long.
    if (work->ended) retire(q);
  }
  return some;
}

static int run_processes(Queue *q) {
  const NnrtComm *c = q->comm;
  Window *w = q->window;
  Wire *wire = c->wire;
  atomic_int *waits_for = &c->record->lane[q->lane].waits_for;
  int code = 0;
  while (!code) {
    begin_jobs(q);
    // The window may have room again.
    if (step_jobs(q)) continue;
    if (w->first == w->end) break;
    int awaited = nnrt_work_awaits(work_of(w, w->first));
    atomic_store_explicit(waits_for, awaited, memory_order_relaxed);
    nnrt_wait_warn(wire->peers, wire->rank, awaited, w->since_us, &w->warned);
    code = wire->exchange(wire, &w->lane, &q->waiting);
    nnrt_lane_tidy(&w->lane);
  }
  atomic_store_explicit(waits_for, -1, memory_order_relaxed);
  return code;
}

const Transport nnrt_comm_processes = {
    .open = open_processes,
    .close = close_processes,
    .run = run_processes,
    .wake = wake_processes,
};
