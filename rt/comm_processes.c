// Ranks as processes that send to each other.
//
// An all_reduce of n ranks splits the tensor into n chunks.  Rank i receives chunk i of all other
// ranks and adds them in rank order; then every rank receives the sums of the other ranks.  Each
// rank sends twice (n-1)/n of the tensor, as in a ring, and the order of the additions is the same
// as in every other transport. In round k rank i sends to i+k and receives from i-k: all links are
// busy, and no waits form a cycle.  Small tensors are sent whole, in one phase of rounds instead of
// two.
//
// A reduce_scatter is the first of the two phases, with the parts as chunks; an all_to_all is such
// a phase without additions.

#include <stdlib.h>
#include <string.h>

#include "comm.h"

enum { SMALL = 4096 };

static int open_processes(NnrtComm *c) {
  Why w;
  return c->wire->open(c->wire, &w) ? 0 : nnrt_error(NNRT_COMM, "%s", w.text);
}

static void close_processes(NnrtComm *c) {
  c->wire->close(c->wire);
}

// Returns the rank k positions after this one in the group; before it for a negative k.
static int member(const Group *g, int k) {
  return ((g->me + k) % g->n + g->n) % g->n;
}

static int exchange(NnrtComm *c, const Group *g, int to, const void *out, int64_t n_out, int from,
                    void *in, int64_t n_in) {
  return c->wire->exchange(c->wire, QUEUE_here, g->rank[to], out, n_out, g->rank[from], in, n_in,
                           &c->queue[QUEUE_here].waiting);
}

// y[i] = rank i's x of `bytes` bytes, or its x[me] if x has parts.
static int copy_parts(NnrtComm *c, const Group *g, char *y, const char *x, int64_t bytes,
                      bool x_parts) {
  int64_t step = x_parts ? bytes : 0;
  char *mine = y + g->me * bytes;
  if (mine != x + g->me * step && bytes > 0) memmove(mine, x + g->me * step, (size_t)bytes);
  for (int k = 1; k < g->n; k++) {
    // In round k all links are busy, and each part goes to its final place.
    int to = member(g, k), from = member(g, -k);
    int code = exchange(c, g, to, x + to * step, bytes, from, y + from * bytes, bytes);
    if (code) return code;
  }
  return 0;
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
  int64_t size = nnrt_dtype_size(t), mine = chunk_size(n, chunk, g->me);
  char *parts;
  const void **part = room(c, g, chunk * size, &parts);
  // This rank's own part needs no copy.
  part[g->me] = x + chunk * g->me * size;
  for (int k = 1; k < g->n; k++) {
    int to = member(g, k), from = member(g, -k);
    int code = exchange(c, g, to, x + chunk * to * size, chunk_size(n, chunk, to) * size, from,
                        parts + from * chunk * size, mine * size);
    if (code) return code;
  }
  // Parts are added in rank order, so that all transports give the same bits.
  if (mine > 0) nnrt_comm_add(sum, part, g->n, mine, t);
  return 0;
}

static int reduce_processes(NnrtComm *c, const Job *job) {
  const Group *g = job->group;
  int64_t size = nnrt_dtype_size(job->dtype), chunk = (job->n + g->n - 1) / g->n;
  if (job->n * size <= SMALL) {
    // Small tensors are sent whole: one phase of rounds has half the latency of two.
    char *parts;
    int64_t bytes = job->n * nnrt_dtype_size(job->dtype);
    const void **part = room(c, job->group, bytes, &parts);
    int code = copy_parts(c, job->group, parts, job->x, bytes, false);
    if (!code) nnrt_comm_add(job->y, part, job->group->n, job->n, job->dtype);
    return code;
  }
  char *y = job->y, *mine = y + chunk * g->me * size;
  // Phase one: the sum of this rank's chunk.
  int code = reduce_chunk(c, g, mine, job->x, job->n, chunk, job->dtype);
  // Phase two: every rank sends its sum to all others.
  for (int k = 1; k < g->n && !code; k++) {
    int to = member(g, k), from = member(g, -k);
    code = exchange(c, g, to, mine, chunk_size(job->n, chunk, g->me) * size, from,
                    y + chunk * from * size, chunk_size(job->n, chunk, from) * size);
  }
  return code;
}

// Only the first rank of the group receives.
static int gather_at_first(NnrtComm *c, const Job *job) {
  const Group *g = job->group;
  if (g->me != 0) return exchange(c, g, 0, job->x, job->n, g->me, NULL, 0);
  memmove(job->y, job->x, (size_t)job->n);
  for (int i = 1; i < g->n; i++) {
    int code = exchange(c, g, 0, NULL, 0, i, (char *)job->y + i * job->n, job->n);
    if (code) return code;
  }
  return 0;
}

// In round k parcels go k ranks further; a rank without such a parcel skips the round.  A rank
// enters a round only after all earlier ones, so the ranks in the earliest round can always
// continue.
static int move_processes(NnrtComm *c, const Job *job) {
  const Exchange *e = job->exchange;
  int me = c->rank->rank, n = c->rank->ranks, lane = job->ahead ? QUEUE_ahead : QUEUE_here;
  for (int i = 0, j = 0; i < e->n_to || j < e->n_from;) {
    Parcel none = {.peer = me}, *to = &none, *from = &none;
    int to_round = i < e->n_to ? (e->to[i].peer - me + n) % n : n;
    int from_round = j < e->n_from ? (me - e->from[j].peer + n) % n : n;
    // A send and a receive of the same round are one exchange.
    bool gives = to_round <= from_round, gets = from_round <= to_round;
    if (gives) to = &e->to[i++];
    if (gets) {
      from = &e->from[j++];
      *from = nnrt_parcel_new(from->peer, from->bytes);
    }
    // The transport sleeps unless this rank waits for the job.
    int code = c->wire->exchange(c->wire, lane, to->peer, to->at, to->bytes, from->peer, from->at,
                                 from->bytes, &c->queue[lane].waiting);
    if (code) return code;
    free(to->at); // sent
    to->at = NULL;
  }
  return 0;
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
