// The phases of a job between processes: see phases.h.

#include "phases.h"

#include <string.h>

enum { SMALL = 4096, LARGE = 1 << 20 };

// Returns the position in the group of the rank k positions after this one.
static int member(const Group *g, int k) {
  return (g->me + k) % g->n;
}

static int64_t bytes_of(const Job *job) {
  return job->n * nnrt_dtype_size(job->dtype);
}

// Whether an all_reduce sends its tensor whole: one phase has half the latency of two.
static bool is_small(const Job *job) {
  return bytes_of(job) <= SMALL;
}

bool nnrt_work_is_alone(const Job *job) {
  if (job->kind == JOB_move) return false;
  int64_t parts = job->kind == JOB_all_reduce ? 1 : job->group->n;
  return bytes_of(job) * parts > LARGE;
}

// Returns the elements of a chunk of a sum; the last ones of an all_reduce may have less.
static int64_t chunk_of(const Job *job) {
  return job->kind == JOB_reduce_scatter ? job->n : (job->n + job->group->n - 1) / job->group->n;
}

static int64_t chunk_size(const Job *job, int i) {
  if (job->kind == JOB_reduce_scatter) return job->n;
  int64_t chunk = chunk_of(job), left = job->n - chunk * i;
  return left < 0 ? 0 : left < chunk ? left : chunk;
}

// Returns the bytes of the terms of a sum, of which each has as many.
static int64_t term_bytes(const Job *job) {
  if (!nnrt_job_shape[job->kind].sums) return 0;
  bool whole = job->kind == JOB_all_reduce && is_small(job);
  return whole ? bytes_of(job) : chunk_of(job) * nnrt_dtype_size(job->dtype);
}

static int most_messages(const Job *job) {
  if (job->kind == JOB_move) return job->exchange->n_to + job->exchange->n_from;
  return 2 * (job->group->n - 1);
}

int64_t nnrt_work_bytes(const Job *job) {
  int64_t bytes = most_messages(job) * (int64_t)sizeof(Message), term = term_bytes(job);
  if (term > 0) bytes += job->group->n * ((int64_t)sizeof(void *) + term);
  return bytes;
}

static void add_message(Work *w, int peer, bool in, const void *at, int64_t bytes) {
  if (bytes == 0) return;
  Message *m = &w->message[w->n_messages++];
  // A message to another rank is not written.
  *m = (Message){
      .at = (char *)(uintptr_t)at, .left = bytes, .peer = peer, .in = in, .pending = &w->pending};
  w->pending++;
  int channel = w->lane->first_channel + (w->phase && !nnrt_work_is_alone(w->job));
  nnrt_lane_add(w->lane, channel, m);
}

// Receives the terms of this rank's chunk of a sum, and sends those of the others.
static void send_chunks(Work *w) {
  const Job *job = w->job;
  const Group *g = job->group;
  int64_t size = nnrt_dtype_size(job->dtype), chunk = chunk_of(job);
  char *terms = (char *)(w->part + g->n);
  for (int i = 0; i < g->n; i++)
    w->part[i] = terms + i * chunk * size;
  // This rank's own part needs no copy.
  const char *x = job->x;
  w->part[g->me] = x + chunk * g->me * size;
  for (int k = 1; k < g->n; k++) {
    int i = member(g, k);
    add_message(w, g->rank[i], true, w->part[i], chunk_size(job, g->me) * size);
    add_message(w, g->rank[i], false, x + chunk * i * size, chunk_size(job, i) * size);
  }
}

// Every rank sends the sum of its chunk to all others.
static void send_sums(Work *w) {
  const Job *job = w->job;
  const Group *g = job->group;
  int64_t size = nnrt_dtype_size(job->dtype), chunk = chunk_of(job);
  char *y = job->y;
  for (int k = 1; k < g->n; k++) {
    int i = member(g, k);
    add_message(w, g->rank[i], true, y + chunk * i * size, chunk_size(job, i) * size);
    add_message(w, g->rank[i], false, y + chunk * g->me * size, chunk_size(job, g->me) * size);
  }
}

// y[i] = rank i's x, or its x[me] if x has parts.
static void copy_parts(Work *w, char *y, bool x_parts) {
  const Job *job = w->job;
  const Group *g = job->group;
  const char *x = job->x;
  int64_t bytes = bytes_of(job), step = x_parts ? bytes : 0;
  char *mine = y + g->me * bytes;
  if (mine != x + g->me * step && bytes > 0) memmove(mine, x + g->me * step, (size_t)bytes);
  for (int k = 1; k < g->n; k++) {
    int i = member(g, k);
    // Each part arrives at its final place.
    add_message(w, g->rank[i], true, y + i * bytes, bytes);
    add_message(w, g->rank[i], false, x + i * step, bytes);
  }
}

// Receives the whole tensors of the others as terms of a sum.
static void send_whole(Work *w) {
  const Group *g = w->job->group;
  char *terms = (char *)(w->part + g->n);
  for (int i = 0; i < g->n; i++)
    w->part[i] = terms + i * bytes_of(w->job);
  copy_parts(w, terms, false);
}

// Only the first rank of the group receives.
static void gather_at_first(Work *w) {
  const Job *job = w->job;
  const Group *g = job->group;
  int64_t bytes = bytes_of(job);
  if (g->me != 0) {
    add_message(w, g->rank[0], false, job->x, bytes);
    return;
  }
  if (bytes > 0) memmove(job->y, job->x, (size_t)bytes);
  for (int i = 1; i < g->n; i++)
    add_message(w, g->rank[i], true, (char *)job->y + i * bytes, bytes);
}

static void send_parcels(Work *w) {
  const Exchange *e = w->job->exchange;
  for (int i = 0; i < e->n_from; i++) {
    e->from[i] = nnrt_parcel_new(e->from[i].peer, e->from[i].bytes);
    add_message(w, e->from[i].peer, true, e->from[i].at, e->from[i].bytes);
  }
  for (int i = 0; i < e->n_to; i++)
    add_message(w, e->to[i].peer, false, e->to[i].at, e->to[i].bytes);
}

void nnrt_work_begin(Work *w, const Job *job, Lane *lane, char *memory) {
  *w = (Work){.job = job, .lane = lane, .message = (Message *)memory};
  // The terms of a sum follow the messages.
  if (term_bytes(job) > 0) w->part = (const void **)(w->message + most_messages(job));
  switch (job->kind) {
  case JOB_all_reduce:
    if (!w->part) break; // it has no elements
    if (is_small(job))
      send_whole(w);
    else
      send_chunks(w);
    break;
  case JOB_reduce_scatter:
    if (w->part) send_chunks(w);
    break;
  case JOB_all_gather:
    if (job->everyone)
      copy_parts(w, job->y, false);
    else
      gather_at_first(w);
    break;
  case JOB_all_to_all: copy_parts(w, job->y, true); break;
  default: send_parcels(w);
  }
}

// Parts are added in rank order, so that all transports give the same bits.
static void sum_chunk(const Work *w, void *y) {
  const Job *job = w->job;
  int64_t n = chunk_size(job, job->group->me);
  if (n > 0) nnrt_comm_add(y, w->part, job->group->n, n, job->dtype);
}

bool nnrt_work_has_second(const Work *w) {
  return w->job->kind == JOB_all_reduce && w->part && !is_small(w->job) && w->phase == 0;
}

static void step_all_reduce(Work *w) {
  const Job *job = w->job;
  const Group *g = job->group;
  if (nnrt_work_has_second(w)) {
    sum_chunk(w, (char *)job->y + chunk_of(job) * g->me * nnrt_dtype_size(job->dtype));
    w->phase = 1;
    w->n_messages = 0;
    send_sums(w);
    return;
  }
  if (w->phase == 0 && w->part) nnrt_comm_add(job->y, w->part, g->n, job->n, job->dtype);
  w->ended = true;
}

void nnrt_work_step(Work *w) {
  const Job *job = w->job;
  if (job->kind == JOB_all_reduce) {
    step_all_reduce(w);
    return;
  }
  if (job->kind == JOB_reduce_scatter && w->part) sum_chunk(w, job->y);
  for (int i = 0; job->kind == JOB_move && i < job->exchange->n_to; i++) {
    nnrt_block_free(job->exchange->to[i].at); // sent
    job->exchange->to[i].at = NULL;
  }
  w->ended = true;
}

int nnrt_work_awaits(const Work *w) {
  int rank = -1;
  for (int i = 0; i < w->n_messages; i++) {
    const Message *m = &w->message[i];
    if (m->left > 0 && m->in) return m->peer;
    if (m->left > 0 && rank < 0) rank = m->peer;
  }
  return rank;
}
