// Ranks as processes that send to each other.
//
// An all_reduce of n ranks splits the tensor into n chunks.  Rank i receives chunk i of all other
// ranks and adds them in rank order; then every rank receives the sums of the other ranks.  Each
// rank sends twice (n-1)/n of the tensor, as in a ring, and the order of the additions is the same
// as in every other transport.  Small tensors are sent whole, in one phase instead of two.
//
//     phase 1   chunk i of x ── to rank i ─→ sum of chunk i          for all i at once
//     phase 2   sum of chunk i ── to all others ─→ y
//
// A reduce_scatter is the first of the two phases, with the parts as chunks; an all_to_all is such
// a phase without additions.  In a phase a rank sends to all others and receives from all at once,
// so it takes one latency, and all links are busy.  Rank i begins with rank i+1: no two ranks begin
// with the same one.
//
// Jobs cannot deadlock: all ranks run them in one order, and a rank in the earliest unfinished job
// waits only for ranks that are in it, too, or have already sent.

#include <stdlib.h>
#include <string.h>

#include "comm.h"

enum { SMALL = 4096 };

static int open_processes(NnrtComm *c) {
  Why w;
  for (int i = 0; i < c->n_queues; i++)
    c->queue[i].transfer = nnrt_must_alloc((size_t)c->rank->ranks * sizeof(Transfer));
  return c->wire->open(c->wire, &w) ? 0 : nnrt_error(NNRT_COMM, "%s", w.text);
}

static void close_processes(NnrtComm *c) {
  c->wire->close(c->wire);
  for (int i = 0; i < c->n_queues; i++)
    free(c->queue[i].transfer);
}

int nnrt_transfers_await(const Transfer *t, int n) {
  int rank = -1;
  for (int i = 0; i < n; i++) {
    if (t[i].n_in > 0) return t[i].peer;
    if (t[i].n_out > 0 && rank < 0) rank = t[i].peer;
  }
  return rank;
}

// Runs the first n transfers of the queue, a phase of its job.
static int run_phase(Queue *q, int n) {
  // The wire sleeps unless this rank waits for the job.
  Wire *wire = q->comm->wire;
  return wire->exchange(wire, q->lane, q->transfer, n, &q->waiting);
}

// Returns the position in the group of the rank k positions after this one.
static int member(const Group *g, int k) {
  return (g->me + k) % g->n;
}

// y[i] = rank i's x of `bytes` bytes, or its x[me] if x has parts.
static int copy_parts(NnrtComm *c, const Group *g, char *y, const char *x, int64_t bytes,
                      bool x_parts) {
  Queue *q = &c->queue[QUEUE_here];
  int64_t step = x_parts ? bytes : 0;
  char *mine = y + g->me * bytes;
  if (mine != x + g->me * step && bytes > 0) memmove(mine, x + g->me * step, (size_t)bytes);
  for (int k = 1; k < g->n; k++) {
    int i = member(g, k);
    // Each part arrives at its final place.
    q->transfer[k - 1] = (Transfer){g->rank[i], bytes, bytes, x + i * step, y + i * bytes};
  }
  return run_phase(q, g->n - 1);
}

static int64_t chunk_size(int64_t n, int64_t chunk, int i) {
  int64_t left = n - chunk * i;
  return left < 0 ? 0 : left < chunk ? left : chunk;
}

// Returns pointers into scratch memory for `bytes` from each rank, contiguous at *out_parts.
static const void **room(NnrtComm *c, const Group *g, int64_t bytes, char **out_parts) {
  // The pointers and the parts are one block of scratch memory.
  int64_t list = g->n * (int64_t)sizeof(void *);
  const void **part = (void *)nnrt_comm_scratch(c, list + g->n * bytes);
  *out_parts = (char *)part + list;
  for (int i = 0; i < g->n; i++)
    part[i] = *out_parts + i * bytes;
  return part;
}

// sum = the sum of this rank's chunk over all x, which have n elements in chunks of `chunk`.
static int reduce_chunk(NnrtComm *c, const Group *g, void *sum, const char *x, int64_t n,
                        int64_t chunk, NnrtDtype t) {
  Queue *q = &c->queue[QUEUE_here];
  int64_t size = nnrt_dtype_size(t), mine = chunk_size(n, chunk, g->me);
  char *parts;
  const void **part = room(c, g, chunk * size, &parts);
  // This rank's own part needs no copy.
  part[g->me] = x + chunk * g->me * size;
  for (int k = 1; k < g->n; k++) {
    int i = member(g, k);
    int64_t at = chunk * i * size;
    q->transfer[k - 1] =
        (Transfer){g->rank[i], chunk_size(n, chunk, i) * size, mine * size, x + at, parts + at};
  }
  int code = run_phase(q, g->n - 1);
  // Parts are added in rank order, so that all transports give the same bits.
  if (!code && mine > 0) nnrt_comm_add(sum, part, g->n, mine, t);
  return code;
}

static int reduce_processes(NnrtComm *c, const Job *job) {
  const Group *g = job->group;
  Queue *q = &c->queue[QUEUE_here];
  int64_t size = nnrt_dtype_size(job->dtype), chunk = (job->n + g->n - 1) / g->n;
  if (job->n * size <= SMALL) {
    // Small tensors are sent whole: one phase has half the latency of two.
    char *parts;
    int64_t bytes = job->n * size;
    const void **part = room(c, g, bytes, &parts);
    int code = copy_parts(c, g, parts, job->x, bytes, false);
    if (!code) nnrt_comm_add(job->y, part, g->n, job->n, job->dtype);
    return code;
  }
  char *y = job->y, *mine = y + chunk * g->me * size;
  // Phase one: the sum of this rank's chunk.
  int code = reduce_chunk(c, g, mine, job->x, job->n, chunk, job->dtype);
  if (code) return code;
  // Phase two: every rank sends its sum to all others.
  int64_t n_mine = chunk_size(job->n, chunk, g->me) * size;
  for (int k = 1; k < g->n; k++) {
    int i = member(g, k);
    q->transfer[k - 1] = (Transfer){g->rank[i], n_mine, chunk_size(job->n, chunk, i) * size, mine,
                                    y + chunk * i * size};
  }
  return run_phase(q, g->n - 1);
}

// Only the first rank of the group receives.
static int gather_at_first(NnrtComm *c, const Job *job) {
  const Group *g = job->group;
  Queue *q = &c->queue[QUEUE_here];
  if (g->me != 0) {
    q->transfer[0] = (Transfer){.peer = g->rank[0], .n_out = job->n, .out = job->x};
    return run_phase(q, 1);
  }
  memmove(job->y, job->x, (size_t)job->n);
  for (int i = 1; i < g->n; i++)
    q->transfer[i - 1] =
        (Transfer){.peer = g->rank[i], .n_in = job->n, .in = (char *)job->y + i * job->n};
  return run_phase(q, g->n - 1);
}

// Returns the ranks from this one to the peer of a parcel, in a circle.
static int distance(const NnrtComm *c, const Parcel *p) {
  return (p->peer - c->rank->rank + c->rank->ranks) % c->rank->ranks;
}

static int move_processes(NnrtComm *c, const Job *job) {
  const Exchange *e = job->exchange;
  Queue *q = &c->queue[job->ahead ? QUEUE_ahead : QUEUE_here];
  int n = 0;
  // Sends and receives, the latter from their end, are sorted by distance: those with the same rank
  // are one transfer.
  for (int i = 0, j = e->n_from - 1; i < e->n_to || j >= 0;) {
    int to = i < e->n_to ? distance(c, &e->to[i]) : c->rank->ranks;
    int from = j >= 0 ? distance(c, &e->from[j]) : c->rank->ranks;
    Transfer *t = &q->transfer[n++];
    *t = (Transfer){.peer = to <= from ? e->to[i].peer : e->from[j].peer};
    if (to <= from) {
      t->out = e->to[i].at;
      t->n_out = e->to[i++].bytes;
    }
    if (from <= to) {
      e->from[j] = nnrt_parcel_new(e->from[j].peer, e->from[j].bytes);
      t->in = e->from[j].at;
      t->n_in = e->from[j--].bytes;
    }
  }
  int code = run_phase(q, n);
  for (int i = 0; i < e->n_to && !code; i++) {
    nnrt_block_free(e->to[i].at); // sent
    e->to[i].at = NULL;
  }
  return code;
}

static int run_processes(NnrtComm *c, const Job *job) {
  const Group *g = job->group;
  switch (job->kind) {
  case JOB_all_reduce: return reduce_processes(c, job);
  case JOB_reduce_scatter:
    return reduce_chunk(c, g, job->y, job->x, job->n * g->n, job->n, job->dtype);
  case JOB_all_gather:
    return job->everyone ? copy_parts(c, g, job->y, job->x, job->n, false)
                         : gather_at_first(c, job);
  case JOB_all_to_all: return copy_parts(c, g, job->y, job->x, job->n, true);
  default: return move_processes(c, job);
  }
}

const Transport nnrt_comm_processes = {
    .open = open_processes,
    .close = close_processes,
    .run = run_processes,
};
