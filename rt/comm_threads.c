// Ranks as threads of one process: they read each other's memory.
//
// An all_reduce of n ranks splits the tensor into n chunks.  Every rank publishes the address of
// its x.  Rank i sums chunk i of all x into its y; then every rank copies the other chunks from the
// ranks that have them.  A barrier separates the three parts:
//
//     show x, y │ y_i[chunk i] = Σ x_k[chunk i] │ y_i[chunk k] = y_k[chunk k] │
//
// y may be x: in the second part only rank i accesses chunk i, in the third no rank reads x. Data
// that fits into a cell of the meeting needs only one barrier: every rank leaves a copy there.
//
// In the other collectives every rank adds or copies a part of every x (job.h), between two
// barriers.
//
// A move has no barrier.  A sender leaves its parcels with their receivers and continues; a
// receiver takes the first parcel from a sender, or waits for it.

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"

enum { CELL = 2048 };

typedef struct Place { // one rank's entry in a meeting
  _Alignas(64) const void *x;
  void *y;
  atomic_uint barrier; // the number of the last one that it has come to, from 1
  // The cells alternate: before a rank overwrites one, a barrier has followed every read of it.
  _Alignas(64) char cell[2][CELL];
  int turn;
} Place;

typedef struct Meeting {
  _Alignas(64) atomic_int here;
  _Alignas(64) atomic_uint times; // number of barriers so far
  int n, spins;
  Place *place; // [n]
} Meeting;

// A parcel that arrived at a rank, in a list with the oldest first.
typedef struct Letter {
  int from;
  char *at;
  struct Letter *next;
} Letter;

typedef struct Mailbox {
  pthread_mutex_t lock;
  pthread_cond_t come;
  Letter *first, **end;
} Mailbox;

typedef struct Shared {
  Meeting *world;
  Meeting **group;            // [n_groups, ranks], at the first rank of each group
  Meeting **movers;           // [n_moves]
  Mailbox *mailbox[N_QUEUES]; // [ranks]
} Shared;

static Meeting *new_meeting(int n, int ranks) {
  // Each rank's place has cache lines of its own.
  Meeting *m = aligned_alloc(64, (sizeof *m + 63) / 64 * 64);
  Place *place = aligned_alloc(64, (size_t)n * sizeof *place);
  if (!m || !place) nnrt_must_alloc((size_t)-1);
  memset(m, 0, sizeof *m);
  memset(place, 0, (size_t)n * sizeof *place);
  m->n = n;
  m->place = place;
  // An early rank spins before it sleeps, unless spinning would keep a late rank off a core.
  m->spins = sysconf(_SC_NPROCESSORS_ONLN) >= 2 * ranks ? 2000 : 0;
  return m;
}

void *nnrt_comm_threads_new(const NnrtProgram *p) {
  Shared *s = nnrt_must_alloc(sizeof *s);
  s->world = new_meeting(p->ranks, p->ranks);
  s->group = nnrt_must_alloc((size_t)p->n_groups * (size_t)p->ranks * sizeof *s->group);
  // Each group has one meeting, under its first rank.
  for (int g = 0; g < p->n_groups; g++)
    for (int rank = 0; rank < p->ranks; rank++) {
      Group of = nnrt_group_of(p, g, rank);
      if (of.n > 0 && of.me == 0) s->group[g * p->ranks + rank] = new_meeting(of.n, p->ranks);
      free(of.rank);
    }
  // A move has a meeting of the ranks that take part in it.
  int *movers = nnrt_must_alloc((size_t)p->ranks * sizeof *movers);
  s->movers = nnrt_must_alloc((size_t)p->n_moves * sizeof *s->movers);
  for (int i = 0; i < p->n_moves; i++) {
    int n = nnrt_move_ranks(p, i, movers);
    if (n > 0) s->movers[i] = new_meeting(n, p->ranks);
  }
  free(movers);
  // Queues have separate mailboxes, so that their moves are independent.
  for (int i = 0; i < N_QUEUES; i++) {
    s->mailbox[i] = nnrt_must_alloc((size_t)p->ranks * sizeof *s->mailbox[i]);
    for (int rank = 0; rank < p->ranks; rank++) {
      // An empty list ends at its own head.
      Mailbox *m = &s->mailbox[i][rank];
      pthread_mutex_init(&m->lock, NULL);
      pthread_cond_init(&m->come, NULL);
      m->end = &m->first;
    }
  }
  return s;
}

static void free_meeting(Meeting *m) {
  if (m) free(m->place);
  free(m);
}

void nnrt_comm_threads_free(void *shared, const NnrtProgram *p) {
  Shared *s = shared;
  if (!s) return;
  free_meeting(s->world);
  // Entries without a meeting are NULL.
  for (int i = 0; i < p->n_groups * p->ranks; i++)
    free_meeting(s->group[i]);
  for (int i = 0; i < p->n_moves; i++)
    free_meeting(s->movers[i]);
  for (int i = 0; i < N_QUEUES; i++) {
    for (int rank = 0; rank < p->ranks; rank++) {
      Mailbox *m = &s->mailbox[i][rank];
      pthread_mutex_destroy(&m->lock);
      pthread_cond_destroy(&m->come);
    }
    free(s->mailbox[i]);
  }
  free(s->group);
  free(s->movers);
  free(s);
}

// Notes the first rank that has not come to the barrier, for ranks that look for it.
static void note_absent(const Group *g, RankRecord *record, unsigned barrier) {
  for (int i = 0; i < g->n; i++)
    if (atomic_load(&g->meeting->place[i].barrier) != barrier) {
      atomic_store(&record->lane[QUEUE_here].waits_for, g->rank[i]);
      return;
    }
}

// A barrier of the group.  A thread that finds its rank stalled there ends the job if `stalls`; the
// communicating threads leave that to the threads that wait for them.
static void meet(const Group *g, NnrtComm *c, bool stalls) {
  Meeting *m = g->meeting;
  unsigned before = atomic_load(&m->times);
  atomic_store_explicit(&m->place[g->me].barrier, before + 1, memory_order_relaxed);
  // The last rank resets the count before it lets the others go.
  if (atomic_fetch_add(&m->here, 1) + 1 == m->n) {
    atomic_store(&m->here, 0);
    atomic_store(&m->times, before + 1);
    syscall(SYS_futex, &m->times, FUTEX_WAKE_PRIVATE, m->n, NULL, NULL, 0);
    return;
  }
  // Spin first: a system call takes longer than most waits.
  for (int i = 0; i < m->spins && atomic_load(&m->times) == before; i++)
    sched_yield();
  // Once a second it looks who is missing; most waits are shorter.
  const struct timespec second = {.tv_sec = 1};
  int waited = 0;
  while (atomic_load(&m->times) == before) {
    long woken = syscall(SYS_futex, &m->times, FUTEX_WAIT_PRIVATE, before, &second, NULL, 0);
    if (woken == 0 || errno != ETIMEDOUT) continue;
    note_absent(g, c->record, before + 1);
    waited++;
    char text[1100];
    if (!stalls || waited < c->stall_timeout) continue;
    waited = 0;
    if (nnrt_stall_find(c, QUEUE_here, c->stall_timeout, text, sizeof text) &&
        atomic_load(&m->times) == before)
      nnrt_fail(c->rank, __atomic_load_n(c->rank->op, __ATOMIC_RELAXED),
                nnrt_error(NNRT_COMM, "%s", text));
  }
  atomic_store_explicit(&c->record->lane[QUEUE_here].waits_for, -1, memory_order_relaxed);
}

void nnrt_comm_meet(NnrtRank *r, const Group *g) {
  RankRecord *record = r->comm->record;
  // The rank's own thread communicates.
  atomic_store(&record->lane[QUEUE_here].active, 1);
  meet(g, r->comm, true);
  atomic_store(&record->lane[QUEUE_here].active, 0);
}

static int open_threads(NnrtComm *c) {
  Shared *s = (void *)c->wire;
  c->world.meeting = s->world;
  const NnrtProgram *p = c->rank->program;
  // A group's meeting is under its first rank.
  for (int g = 0; g < p->n_groups; g++)
    if (c->group[g].n > 0) c->group[g].meeting = s->group[g * p->ranks + c->group[g].rank[0]];
  for (int i = 0; i < p->n_moves; i++)
    c->movers[i].meeting = s->movers[i];
  return 0;
}

static void close_threads(NnrtComm *c) {
  (void)c; // nnrt_comm_threads_free frees the shared part
}

static int reduce_threads(NnrtComm *c, const Job *job) {
  const Group *g = job->group;
  int64_t size = nnrt_dtype_size(job->dtype);
  Place *place = g->meeting->place;
  // Every rank leaves a copy of a small tensor in a cell, and adds the copies of all ranks.
  if (job->n * size <= CELL) {
    int turn = place[g->me].turn ^= 1;
    memcpy(place[g->me].cell[turn], job->x, (size_t)(job->n * size));
    meet(g, c, false);
    const void **copy = (void *)nnrt_comm_scratch(c, g->n * (int64_t)sizeof *copy);
    for (int i = 0; i < g->n; i++)
      copy[i] = place[i].cell[turn];
    nnrt_comm_add(job->y, copy, g->n, job->n, job->dtype);
    return 0;
  }
  // Chunks begin at cache lines, so no two ranks write to the same line.
  int64_t chunk = (job->n + g->n - 1) / g->n, line = 64 / size;
  chunk = (chunk + line - 1) / line * line;
  place[g->me].x = job->x;
  place[g->me].y = job->y;
  meet(g, c, false);
  const void **x = (void *)nnrt_comm_scratch(c, g->n * (int64_t)sizeof *x);
  // Part one is done: all addresses are visible.
  int64_t first = chunk * g->me, end = first + chunk < job->n ? first + chunk : job->n;
  for (int i = 0; i < g->n; i++)
    x[i] = (const char *)place[i].x + first * size;
  if (end > first) nnrt_comm_add((char *)job->y + first * size, x, g->n, end - first, job->dtype);
  // No rank copies a chunk before its sum is complete.
  meet(g, c, false);
  for (int k = 1; k < g->n; k++) {
    int i = (g->me + k) % g->n; // not all from the same rank at once
    first = chunk * i;
    end = first + chunk < job->n ? first + chunk : job->n;
    if (end > first)
      memcpy((char *)job->y + first * size, (char *)place[i].y + first * size,
             (size_t)((end - first) * size));
  }
  meet(g, c, false);
  return 0;
}

// Copies or adds a part of the x of every rank: y[i] or a term of y is rank i's x, or its x[me].
static int read_parts(NnrtComm *c, const Job *job) {
  const JobShape *shape = &nnrt_job_shape[job->kind];
  const Group *g = job->group;
  int64_t bytes = job->n * nnrt_dtype_size(job->dtype);
  Place *place = g->meeting->place;
  place[g->me].x = job->x;
  meet(g, c, false);
  const void **x = (void *)nnrt_comm_scratch(c, g->n * (int64_t)sizeof *x);
  for (int i = 0; i < g->n; i++)
    x[i] = (const char *)place[i].x + (shape->x_parts ? g->me * bytes : 0);
  if (shape->sums) nnrt_comm_add(job->y, x, g->n, job->n, job->dtype);
  // Only the first rank copies, unless everyone wants the result.
  for (int k = 0; k < g->n && !shape->sums && (job->everyone || g->me == 0); k++) {
    int i = (g->me + k) % g->n; // not all from the same rank at once
    memcpy((char *)job->y + i * bytes, x[i], (size_t)bytes);
  }
  // No rank changes its x while another reads it.
  meet(g, c, false);
  return 0;
}

static void leave(Mailbox *m, int from, char *at) {
  Letter *letter = nnrt_block_new(sizeof *letter);
  *letter = (Letter){.from = from, .at = at};
  // Receivers may wait for other senders: each looks for its own.
  pthread_mutex_lock(&m->lock);
  *m->end = letter;
  m->end = &letter->next;
  pthread_cond_signal(&m->come);
  pthread_mutex_unlock(&m->lock);
}

// Returns the first parcel from this rank, waiting for it; the caller frees it.
static char *take(Mailbox *m, int from, atomic_int *waits_for) {
  pthread_mutex_lock(&m->lock);
  Letter **place = &m->first;
  while (!*place || (*place)->from != from) {
    // Parcels of other senders stay in the list.
    if (*place) {
      place = &(*place)->next;
      continue;
    }
    atomic_store(waits_for, from);
    pthread_cond_wait(&m->come, &m->lock);
    place = &m->first;
  }
  atomic_store(waits_for, -1);
  Letter *letter = *place;
  *place = letter->next;
  // The last parcel was taken: the list ends one place earlier.
  if (m->end == &letter->next) m->end = place;
  pthread_mutex_unlock(&m->lock);
  char *at = letter->at;
  nnrt_block_free(letter);
  return at;
}

static int move_threads(NnrtComm *c, const Job *job) {
  const Shared *s = (void *)c->wire;
  int lane = job->ahead ? QUEUE_ahead : QUEUE_here;
  Mailbox *mailbox = s->mailbox[lane];
  Exchange *e = job->exchange;
  for (int i = 0; i < e->n_to; i++) {
    // A parcel changes hands without a copy.
    leave(&mailbox[e->to[i].peer], c->rank->rank, e->to[i].at);
    e->to[i].at = NULL; // the receiver owns it now
  }
  for (int i = 0; i < e->n_from; i++)
    e->from[i].at =
        take(&mailbox[c->rank->rank], e->from[i].peer, &c->record->lane[lane].waits_for);
  return 0;
}

static int run_job(NnrtComm *c, const Job *job) {
  switch (job->kind) {
  case JOB_all_reduce: return reduce_threads(c, job);
  case JOB_all_gather:
  case JOB_reduce_scatter:
  case JOB_all_to_all: return read_parts(c, job);
  default: return move_threads(c, job);
  }
}

// One job after the other: they take microseconds.
static int run_threads(Queue *q) {
  int code = 0;
  for (const Job *job; !code && (job = nnrt_queue_next(q));) {
    nnrt_queue_begin(q);
    code = run_job(q->comm, job);
    if (!code) nnrt_queue_end(q);
  }
  return code;
}

const Transport nnrt_comm_threads = {
    .open = open_threads,
    .close = close_threads,
    .run = run_threads,
};
