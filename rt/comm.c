// Groups of ranks, and job queues.  See comm.h.

#include "comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"

// ---- jobs

// Whether a layout is split, or a partial sum.
enum { SPLIT_B = false, SPLIT_S = true, SPLIT_P = false };
enum { SUM_B = false, SUM_S = false, SUM_P = true };

const JobShape nnrt_job_shape[N_JOB_KINDS] = {
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl)                                           \
  {#op, SPLIT_##to, SPLIT_##from, SUM_##from},
#include "collectives.def"
    {"move", false, false, false},
};

// ---- groups

static bool group_has(const NnrtGroup *g, int axis) {
  for (int i = 0; i < NNRT_MAX_AXES && g->axis[i] >= 0; i++)
    if (g->axis[i] == axis) return true;
  return false;
}

int nnrt_group_size(const NnrtProgram *p, int group) {
  const NnrtGroup *g = &p->group[group];
  const NnrtMesh *mesh = &p->mesh[g->mesh];
  int n = 1;
  // Axes of time split no ranks.
  for (int a = 0; a < mesh->n_axes; a++)
    if (!mesh->axis[a].time && group_has(g, a)) n *= mesh->axis[a].size;
  return n;
}

int nnrt_group_place(const NnrtRank *r, int group, int *n) {
  const NnrtGroup *g = &r->program->group[group];
  const NnrtMesh *mesh = &r->program->mesh[g->mesh];
  int place = 0;
  *n = 1;
  for (int a = 0; a < mesh->n_axes; a++) {
    // The last axis is the fastest digit.
    if (!group_has(g, a)) continue;
    *n *= mesh->axis[a].size;
    place = place * mesh->axis[a].size + r->coord[g->mesh][a];
  }
  return place;
}

// Positions on a mesh are mixed-radix numbers over the axes other than time; the last axis is
// fastest. Positions in a group are the same over the axes of the group.
Group nnrt_group_of(const NnrtProgram *p, int group, int rank) {
  const NnrtGroup *of = &p->group[group];
  const NnrtMesh *mesh = &p->mesh[of->mesh];
  int n = 1, stride = 1, place = nnrt_mesh_place(mesh, rank), first = place;
  Group g = {.rank = nnrt_must_alloc((size_t)nnrt_group_size(p, group) * sizeof(int))};
  if (place < 0) return g;
  for (int a = mesh->n_axes - 1; a >= 0; a--) {
    if (mesh->axis[a].time) continue;
    int size = mesh->axis[a].size, digit = place / stride % size;
    if (group_has(of, a)) {
      // Repeats the positions so far `size` times, each copy offset by another `stride`.
      for (int i = n * size - 1; i >= 0; i--)
        g.rank[i] = g.rank[i % n] + i / n * stride;
      g.me += digit * n;
      first -= digit * stride;
      n *= size;
    }
    stride *= size;
  }
  for (int i = 0; i < n; i++)
    g.rank[i] = mesh->rank[g.rank[i] + first];
  g.n = n;
  return g;
}

Group nnrt_movers_of(const NnrtProgram *p, int move, int rank) {
  Group g = {.rank = nnrt_must_alloc((size_t)p->ranks * sizeof(int))};
  // A rank that neither sends nor receives is in no group.
  int n = nnrt_move_ranks(p, move, g.rank);
  for (int i = 0; i < n; i++)
    if (g.rank[i] == rank) {
      g.n = n;
      g.me = i;
    }
  return g;
}

// ---- parcels

// The exchange and its parcels are one block.
Exchange *nnrt_exchange_new(int n_to, int n_from) {
  size_t bytes = sizeof(Exchange) + (size_t)(n_to + n_from) * sizeof(Parcel);
  Exchange *e = nnrt_block_new((int64_t)bytes);
  memset(e, 0, bytes);
  *e = (Exchange){.n_to = n_to, .n_from = n_from};
  e->to = (Parcel *)(e + 1);
  e->from = e->to + n_to;
  return e;
}

Parcel nnrt_parcel_new(int peer, int64_t bytes) {
  return (Parcel){peer, bytes, nnrt_block_new(bytes)};
}

void nnrt_exchange_free(Exchange *e) {
  for (int i = 0; i < e->n_to; i++)
    nnrt_block_free(e->to[i].at);
  for (int i = 0; i < e->n_from; i++)
    nnrt_block_free(e->from[i].at);
  nnrt_block_free(e);
}

// ---- the communicating threads

Job *nnrt_queue_next(Queue *q) {
  pthread_mutex_lock(&q->comm->lock);
  bool none = q->n_begun == q->n_put || q->comm->code;
  pthread_mutex_unlock(&q->comm->lock);
  return none ? NULL : &q->job[q->n_begun % QUEUE_LENGTH];
}

void nnrt_queue_begin(Queue *q) {
  NnrtComm *c = q->comm;
  if (c->rank->trace) q->job[q->n_begun % QUEUE_LENGTH].began_us = nnrt_now_us();
  atomic_store_explicit(&c->record->lane[q->lane].active, 1, memory_order_relaxed);
  q->n_begun++;
}

// Jobs overlap, but the events of a thread do not: of a job it is the time in which no job before
// it was under way.
static void trace_job(Queue *q, const Job *job) {
  double now = nnrt_now_us(), from = job->began_us > q->ended_us ? job->began_us : q->ended_us;
  TraceOf of = job->of;
  if (!of.name) of.name = nnrt_job_shape[job->kind].name;
  nnrt_trace_host(q->comm->rank, q->lane == QUEUE_ahead ? TRACE_moves : TRACE_comm, of, from, now);
  q->ended_us = now;
}

void nnrt_queue_end(Queue *q) {
  NnrtComm *c = q->comm;
  const Job *job = &q->job[q->n_done % QUEUE_LENGTH];
  if (c->rank->trace) trace_job(q, job);
  // No rank waits for a move that only sends: its parcels are freed here.
  if (job->kind == JOB_move && job->exchange->n_from == 0) nnrt_exchange_free(job->exchange);
  if (q->n_done + 1 == q->n_begun)
    atomic_store_explicit(&c->record->lane[q->lane].active, 0, memory_order_relaxed);
  pthread_mutex_lock(&c->lock);
  // Waiters compare their job's number with this one.
  q->n_done++;
  pthread_cond_broadcast(&q->fewer);
  pthread_mutex_unlock(&c->lock);
}

static void set_code(NnrtComm *c, int code) {
  // Later failures follow from the first.
  if (c->code || !code) return;
  c->code = code;
  snprintf(c->text, sizeof c->text, "%s", nnrt_error_detail());
}

// The job has ended for others, and this rank's thread has not come to see it: it may compute for
// ever.
static _Noreturn void end_lost(NnrtComm *c) {
  NnrtRank *r = c->rank;
  nnrt_error(NNRT_COMM, "%s", c->lost_text);
  nnrt_fail(r, r->op ? __atomic_load_n(r->op, __ATOMIC_RELAXED) : -1, NNRT_COMM);
}

// Waits until there is a job, or for a second if the wire must be checked; with the lock held.
static void wait_for_more(Queue *q) {
  NnrtComm *c = q->comm;
  bool checks = q->lane == QUEUE_here && c->transport == &nnrt_comm_processes && c->wire->check;
  if (!checks) {
    pthread_cond_wait(&q->more, &c->lock);
    return;
  }
  // An idle wire is checked every second for peers that are gone.
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  if (pthread_cond_timedwait(&q->more, &c->lock, &until) != ETIMEDOUT || q->n_done < q->n_put)
    return;
  // The loss is reported by the rank's own thread, which knows its operation.
  if (c->lost) c->lost_for++;
  // A checkpoint that is being written is worth more than an early end.
  bool busy = atomic_load(&c->record->files) || atomic_load(&c->parted);
  if (c->lost && c->lost_for > c->stall_timeout && !busy) end_lost(c);
  if (c->lost) return;
  // A check may take seconds, in which ranks put jobs and wait for those of the other queue.
  pthread_mutex_unlock(&c->lock);
  bool lost = c->wire->check(c->wire) != 0;
  pthread_mutex_lock(&c->lock);
  c->lost = lost;
  if (lost) snprintf(c->lost_text, sizeof c->lost_text, "%s", nnrt_error_detail());
}

// Wakes all waiters of all queues: a failure in one queue ends every queue.
static void tell_all(NnrtComm *c) {
  for (int i = 0; i < c->n_queues; i++) {
    pthread_cond_broadcast(&c->queue[i].more);
    pthread_cond_broadcast(&c->queue[i].fewer);
  }
}

// Runs jobs until the queue is closed and empty; false: a job failed.  With the lock held.
static bool run_jobs(Queue *q) {
  NnrtComm *c = q->comm;
  while (!c->code) {
    while (q->n_done == q->n_put && !c->closing && !c->code)
      wait_for_more(q);
    if (q->n_done == q->n_put) break;
    q->running = true;
    pthread_mutex_unlock(&c->lock);
    int code = c->transport->run(q);
    pthread_mutex_lock(&c->lock);
    q->running = false;
    set_code(c, code);
    if (code) tell_all(c);
  }
  return !c->code;
}

static void *run_ahead(void *arg) {
  Queue *q = arg;
  nnrt_stacks_add(q->comm->rank, "its thread for moves");
  pthread_mutex_lock(&q->comm->lock);
  run_jobs(q);
  pthread_mutex_unlock(&q->comm->lock);
  return NULL;
}

static void *communicate(void *arg) {
  Queue *q = arg;
  NnrtComm *c = q->comm;
  nnrt_stacks_add(c->rank, "its communicating thread");
  // Transports are opened by the thread that uses them, as MPI wants it.
  int code = c->transport->open(c);
  pthread_mutex_lock(&c->lock);
  set_code(c, code);
  c->ready = true;
  tell_all(c);
  bool orderly = run_jobs(q);
  pthread_mutex_unlock(&c->lock);
  // The transport may be closed only after the other thread has ended.
  if (c->n_queues > 1) pthread_join(c->queue[QUEUE_ahead].thread, NULL);
  if (orderly) c->transport->close(c);
  return NULL;
}

bool nnrt_comm_open(NnrtRank *r, const Transport *transport, void *shared, Why *w) {
  NnrtComm *c = r->comm = nnrt_must_alloc(sizeof *c);
  const NnrtProgram *p = r->program;
  c->rank = r;
  c->transport = transport;
  c->stall_timeout = nnrt_stall_timeout(&r->run->flags);
  c->record = nnrt_record_of(r);
  // The group of all ranks, and those of the program's collectives.
  c->world = (Group){.n = r->ranks, .me = r->rank};
  c->world.rank = nnrt_must_alloc((size_t)r->ranks * sizeof *c->world.rank);
  for (int i = 0; i < r->ranks; i++)
    c->world.rank[i] = i;
  c->group = nnrt_must_alloc((size_t)p->n_groups * sizeof *c->group);
  for (int g = 0; g < p->n_groups; g++)
    c->group[g] = nnrt_group_of(p, g, r->rank);
  // Routes of moves are computed once, and reused in every step.
  c->route = nnrt_must_alloc((size_t)p->n_moves * sizeof *c->route);
  c->movers = nnrt_must_alloc((size_t)p->n_moves * sizeof *c->movers);
  c->started = nnrt_must_alloc((size_t)p->n_moves * sizeof *c->started);
  for (int i = 0; i < p->n_moves; i++) {
    c->route[i] = nnrt_route_of(p, i, r->rank);
    c->movers[i] = nnrt_movers_of(p, i, r->rank);
  }
  nnrt_traffic_open(r);
  if (r->ranks == 1) return true;

  c->wire = shared; // comm_threads casts it back to its own type
  // Moves ahead of their use have a queue of their own, so that collectives overtake them.
  bool ahead = p->n_deferred > 0;
  for (int i = 0; i < p->n_moves; i++)
    ahead |= p->move[i].ahead;
  c->n_queues = ahead ? N_QUEUES : 1;
  if (transport == &nnrt_comm_processes) {
    c->wire->lanes = c->n_queues;
    c->wire->channels = c->n_queues > 1 ? N_CHANNELS : CHANNEL_ahead;
    c->wire->peers = r->run->peers;
    c->wire->record = c->record;
  }
  pthread_mutex_init(&c->lock, NULL);
  int code = 0;
  // A thread per queue.  The first queue's is last, since it uses the others.
  for (int i = c->n_queues - 1; i >= 0 && !code; i--) {
    Queue *q = &c->queue[i];
    q->comm = c;
    q->lane = i;
    pthread_cond_init(&q->more, NULL);
    // Timeouts do not depend on corrections of the clock.
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&q->fewer, &monotonic);
    pthread_condattr_destroy(&monotonic);
    code = pthread_create(&q->thread, NULL, i == QUEUE_here ? communicate : run_ahead, q);
  }
  if (code) return nnrt_why_thread(w, "a thread for communication", code);
  // The transport may fail to open: wait for it.
  pthread_mutex_lock(&c->lock);
  while (!c->ready)
    pthread_cond_wait(&c->queue[QUEUE_here].fewer, &c->lock);
  code = c->code;
  pthread_mutex_unlock(&c->lock);
  return code ? why(w, "%s", c->text) : true;
}

void nnrt_comm_close(NnrtRank *r) {
  NnrtComm *c = r->comm;
  // The threads finish the jobs that are queued before they end.
  if (c->n_queues) {
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    tell_all(c);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->queue[QUEUE_here].thread, NULL); // joins the other thread
    pthread_mutex_destroy(&c->lock);
    for (int i = 0; i < c->n_queues; i++) {
      pthread_cond_destroy(&c->queue[i].more);
      pthread_cond_destroy(&c->queue[i].fewer);
    }
  }
  // The threads have ended, so nothing reads the groups and routes.
  free(c->world.rank);
  for (int g = 0; g < r->program->n_groups; g++)
    free(c->group[g].rank);
  free(c->group);
  for (int i = 0; i < r->program->n_moves; i++) {
    nnrt_route_free(&c->route[i]);
    free(c->movers[i].rank);
  }
  free(c->route);
  free(c->movers);
  free(c->started);
  free(c->scratch);
  nnrt_traffic_close(r);
  free(c);
  r->comm = NULL;
}

char *nnrt_comm_scratch(NnrtComm *c, int64_t bytes) {
  if (c->scratch_bytes < bytes) {
    // It grows to the largest use and stays.
    free(c->scratch);
    c->scratch = nnrt_must_alloc((size_t)bytes);
    c->scratch_bytes = bytes;
  }
  return c->scratch;
}

// ---- the queues

// Returns the code of the first failure, and sets its text for nnrt_fail.
static int failed(NnrtComm *c) {
  return c->code ? nnrt_error(c->code, "%s", c->text) : 0;
}

static Queue *queue_of(NnrtComm *c, bool ahead) {
  return &c->queue[ahead ? QUEUE_ahead : QUEUE_here];
}

// Waits until job `end` - 1 of the queue is done, or a failure; with the lock held.
static void wait_until(Queue *q, int64_t end) {
  NnrtComm *c = q->comm;
  double slice = c->stall_timeout / 4 < 1 ? c->stall_timeout / 4 : 1, waited = 0;
  atomic_store(&c->record->waits_in, q->lane);
  while (q->n_done < end && !c->code) {
    // The timeout counts from the last finished job, not from the start of the wait.  It is the sum
    // of slices: time in which this process was stopped itself does not count.
    int64_t before = q->n_done;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)(slice * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    bool late = pthread_cond_timedwait(&q->fewer, &c->lock, &until) == ETIMEDOUT;
    waited = late && q->n_done == before ? waited + slice : 0;
    if (waited < c->stall_timeout) continue;
    // Ranks are asked, which takes seconds.
    char text[1100];
    pthread_mutex_unlock(&c->lock);
    bool stalled = nnrt_stall_find(c, q->lane, c->stall_timeout, text, sizeof text);
    pthread_mutex_lock(&c->lock);
    waited = 0;
    if (!stalled || c->code || q->n_done != before) continue;
    set_code(c, nnrt_error(NNRT_COMM, "%s", text));
  }
  atomic_store(&c->record->waits_in, -1);
}

// Puts a job into its queue; returns its number there, for wait_for.  -1 after a failure.
static int64_t put(NnrtComm *c, Job job) {
  Queue *q = queue_of(c, job.ahead);
  pthread_mutex_lock(&c->lock);
  // A full queue makes the rank wait, so that it cannot run ahead without limit.
  if (q->n_put - q->n_done == QUEUE_LENGTH) wait_until(q, q->n_done + 1);
  int64_t number = -1;
  // Without an operation the trace shows the step.
  if (!job.of.name) job.of = (TraceOf){.step = c->rank->step, .slice = -1};
  if (!c->code) {
    q->job[q->n_put % QUEUE_LENGTH] = job;
    number = q->n_put++;
    pthread_cond_signal(&q->more);
    // It joins the jobs under way.
    if (q->running && c->transport->wake) c->transport->wake(q);
  }
  pthread_mutex_unlock(&c->lock);
  return number;
}

// Waits until job `number` of the queue and all before it are done.
static int wait_for(Queue *q, int64_t number) {
  NnrtComm *c = q->comm;
  pthread_mutex_lock(&c->lock);
  atomic_store(&q->waiting, true);
  if (q->n_done <= number) wait_until(q, number + 1);
  atomic_store(&q->waiting, false);
  int code = failed(c);
  pthread_mutex_unlock(&c->lock);
  return code;
}

int nnrt_comm_start(NnrtComm *c, Job job) {
  if (job.group->n == 1) {
    // A group of one rank only copies.
    int64_t bytes = job.n * nnrt_dtype_size(job.dtype);
    if (job.y != job.x && bytes > 0) memmove(job.y, job.x, (size_t)bytes);
    return 0;
  }
  return put(c, job) < 0 ? failed(c) : 0;
}

int nnrt_comm_do(NnrtComm *c, Job job) {
  int code = nnrt_comm_start(c, job);
  Queue *q = queue_of(c, false);
  return code || !c->n_queues ? code : wait_for(q, q->n_put - 1);
}

int nnrt_comm_move_start(NnrtComm *c, Exchange *e, bool ahead, TraceOf of, int64_t *out_job) {
  *out_job = put(c, (Job){.kind = JOB_move, .exchange = e, .ahead = ahead, .of = of});
  return *out_job < 0 ? failed(c) : 0;
}

int nnrt_comm_move_wait(NnrtComm *c, bool ahead, int64_t job) {
  return wait_for(queue_of(c, ahead), job);
}

int nnrt_comm_move(NnrtComm *c, Exchange *e, bool ahead, TraceOf of) {
  bool gets = e->n_from > 0;
  int64_t job;
  // A rank that only sends need not wait.
  int code = nnrt_comm_move_start(c, e, ahead, of, &job);
  return code || !gets ? code : nnrt_comm_move_wait(c, ahead, job);
}

int nnrt_comm_wait(NnrtComm *c, const void *y) {
  Queue *q = queue_of(c, false);
  if (!c->n_queues) return 0;
  pthread_mutex_lock(&c->lock);
  // The last pending job that writes `y`; all before it are then done as well.
  int64_t number = q->n_put - 1;
  for (; number >= q->n_done; number--) {
    const Job *job = &q->job[number % QUEUE_LENGTH];
    const char *first = job->y, *end = first + job->n * nnrt_dtype_size(job->dtype);
    if (first <= (const char *)y && (const char *)y < end) break;
  }
  pthread_mutex_unlock(&c->lock);
  return wait_for(q, number);
}

static _Noreturn void fail(NnrtRank *r, int code) {
  nnrt_fail(r, nnrt_device_waits_in(r), code);
}

void nnrt_comm_exchange(NnrtRank *r, Exchange *e) {
  int code = nnrt_comm_move(r->comm, e, false, (TraceOf){0});
  if (code) fail(r, code);
}

void nnrt_comm_sum(NnrtRank *r, int64_t *x, int n) {
  if (r->ranks == 1 || !r->program->n_deferred) {
    Job job = {JOB_all_reduce, &r->comm->world, x, x, n, NNRT_i64, .everyone = true};
    int code = nnrt_comm_do(r->comm, job);
    if (code) fail(r, code);
    return;
  }
  // Sums by parcels in the queue of moves, which has no deferred updates of the previous step to
  // wait for.
  int others = r->ranks - 1;
  int64_t bytes = n * (int64_t)sizeof *x;
  Exchange *e = nnrt_exchange_new(others, others);
  for (int i = 0; i < others; i++) {
    e->to[i] = nnrt_parcel_new((r->rank + 1 + i) % r->ranks, bytes);
    memcpy(e->to[i].at, x, (size_t)bytes);
    e->from[i] = (Parcel){.peer = (r->rank + others - i) % r->ranks, .bytes = bytes};
  }
  int code = nnrt_comm_move(r->comm, e, true, (TraceOf){0});
  if (code) fail(r, code);
  // The sums are of integers, so the order of arrival does not matter.
  for (int i = 0; i < others; i++) {
    const int64_t *got = (const void *)e->from[i].at;
    for (int k = 0; k < n; k++)
      x[k] += got[k];
  }
  nnrt_exchange_free(e);
}

void nnrt_comm_gather(NnrtRank *r, void *y, const void *x, int64_t bytes) {
  int code = nnrt_comm_do(
      r->comm, (Job){JOB_all_gather, &r->comm->world, y, x, bytes, NNRT_u8, .everyone = false});
  if (code) fail(r, code);
}

void nnrt_comm_drain(NnrtRank *r) {
  NnrtComm *c = r->comm;
  for (int i = 0; i < c->n_queues; i++) {
    int code = wait_for(&c->queue[i], c->queue[i].n_put - 1);
    if (code) fail(r, code);
  }
}

void nnrt_comm_begin_files(NnrtRank *r) {
  atomic_store(&r->comm->record->files, 1);
}

void nnrt_comm_end_files(NnrtRank *r) {
  int64_t none = 0;
  // Messages of files are larger than those of steps.
  nnrt_blocks_release();
  // The timeout starts again only after the slowest rank has finished its files.
  nnrt_comm_sum(r, &none, 1);
  atomic_store(&r->comm->record->files, 0);
}

void nnrt_comm_part(NnrtRank *r) {
  nnrt_comm_begin_files(r);
  nnrt_comm_end_files(r);
}

bool nnrt_comm_lost(NnrtComm *c, char *text, size_t size) {
  pthread_mutex_lock(&c->lock);
  bool lost = c->lost;
  if (lost) snprintf(text, size, "%s", c->lost_text);
  pthread_mutex_unlock(&c->lock);
  return lost;
}

// ---- arithmetic shared by the transports

#define ADD(type)                                                                                  \
  do {                                                                                             \
    type block[BLOCK];                                                                             \
    for (int64_t at = 0; at < count; at += BLOCK) {                                                \
      int64_t m = count - at < BLOCK ? count - at : BLOCK;                                         \
      memcpy(block, (const type *)x[0] + at, (size_t)m * sizeof(type));                            \
      for (int k = 1; k < n; k++)                                                                  \
        for (int64_t i = 0; i < m; i++)                                                            \
          block[i] += ((const type *)x[k])[at + i];                                                \
      memcpy((type *)y + at, block, (size_t)m * sizeof(type));                                     \
    }                                                                                              \
  } while (0)

void nnrt_comm_add(void *y, const void *const *x, int n, int64_t count, NnrtDtype t) {
  enum { BLOCK = 1024 }; // fits the L1 cache; y may be one of x
  if (t == NNRT_f32)
    ADD(float);
  else
    ADD(int64_t);
}
