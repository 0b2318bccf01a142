// Collectives of generated code on CPUs: jobs of the rank's queue (comm.h), and copies.

#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "small_operand.h"

// Bytes of the copies of all started collectives of a rank; one alone may have more.
enum { MOST_SORTED = 16 << 20 };

// Splits a tensor into contiguous parts of ranks, part[n, outer, run].  If the sharded dimension
// has others before it, parts alternate in the tensor: whole[outer, n, run].
static void take_apart(char *part, const char *whole, int n, int64_t outer, int64_t run) {
  // The loops are in the order of the tensor.
  for (int64_t o = 0; o < outer; o++)
    for (int i = 0; i < n; i++)
      memcpy(part + (i * outer + o) * run, whole + (o * n + i) * run, (size_t)run);
}

static void put_together(char *whole, const char *part, int n, int64_t outer, int64_t run) {
  for (int64_t o = 0; o < outer; o++)
    for (int i = 0; i < n; i++)
      memcpy(whole + (o * n + i) * run, part + (i * outer + o) * run, (size_t)run);
}

static int64_t product(int64_t n, const int64_t *dims) {
  int64_t product = 1;
  for (int64_t d = 0; d < n; d++)
    product *= dims[d];
  return product;
}

// Ends a job on copies: the rank waits for it, and gets its result.
static int end_sorted(NnrtComm *c, SortedJob **at) {
  SortedJob *s = *at;
  int code = nnrt_comm_wait(c, s->got ? s->got : s->y);
  if (code) return code;
  if (s->got) put_together(s->y, s->got, s->n, s->runs, s->run);
  c->sorted_bytes -= s->bytes;
  *at = s->next;
  nnrt_block_free(s->given);
  nnrt_block_free(s->got);
  nnrt_block_free(s);
  return 0;
}

// Starts a collective.  nnrt_wait(r, y) ends it; until then the queue owns y, and x unless it is
// small.
static int collective(JobKind kind, void *y, const void *x, int64_t ndim, const int64_t *dims,
                      int64_t from, int64_t to, NnrtRank *r, int group, NnrtDtype t, int64_t unit) {
  NnrtComm *c = r->comm;
  const Group *g = &c->group[group];
  int64_t n = product(ndim, dims) * unit / (to >= 0 ? g->n : 1), bytes = n * nnrt_dtype_size(t);
  int64_t x_bytes = to < 0 ? bytes : bytes * g->n, y_bytes = from < 0 ? bytes : bytes * g->n;
  bool copies = kind != JOB_all_reduce && x_bytes <= NNRT_SMALL_OPERAND;
  Job job = {kind, g, y, x, n, t, .everyone = true, .of = nnrt_trace_of(r)};
  if (bytes == 0) return 0;
  if (r->in_use) nnrt_in_use_lend(r, y, y_bytes, copies ? NULL : x, x_bytes);
  // The operand is sorted by receiver, the result by sender: each only if its split dimension has
  // others before it.
  int64_t x_runs = to < 0 ? 1 : product(to, dims);
  int64_t y_runs = from < 0 ? 1 : product(from, dims) / (to >= 0 && to < from ? g->n : 1);
  if (g->n == 1 || (!copies && x_runs == 1 && y_runs == 1)) return nnrt_comm_start(c, job);
  SortedJob *s = nnrt_block_new(sizeof *s), **end = &c->sorted;
  *s = (SortedJob){.y = y, .n = g->n, .runs = y_runs, .run = bytes / y_runs};
  s->bytes = (copies || x_runs > 1 ? x_bytes : 0) + (y_runs > 1 ? y_bytes : 0);
  // Copies of jobs in flight are not in the slab, so they have a limit of their own.
  while (c->sorted && c->sorted_bytes + s->bytes > MOST_SORTED) {
    int code = end_sorted(c, &c->sorted);
    if (code) return code;
  }
  c->sorted_bytes += s->bytes;
  if (copies || x_runs > 1) {
    job.x = s->given = nnrt_block_new(x_bytes);
    take_apart(s->given, x, to < 0 ? 1 : g->n, x_runs, x_bytes / x_runs / (to < 0 ? 1 : g->n));
  }
  if (y_runs > 1) job.y = s->got = nnrt_block_new(y_bytes);
  while (*end)
    end = &(*end)->next;
  *end = s;
  return nnrt_comm_start(c, job);
}

int nnrt_wait(NnrtRank *r, const void *y) {
  // The result of a collective may be in a block, sorted by sender.
  SortedJob **at = &r->comm->sorted;
  while (*at && (*at)->y != y)
    at = &(*at)->next;
  int code = *at ? end_sorted(r->comm, at) : nnrt_comm_wait(r->comm, y);
  if (r->in_use) nnrt_in_use_back(r, y);
  return code;
}

static int slice(void *y, const void *x, int64_t ndim, const int64_t *dims, int64_t dim,
                 NnrtRank *r, int group, int64_t size) {
  int64_t outer = 1, run = size;
  for (int64_t d = 0; d < ndim; d++) {
    if (d < dim)
      outer *= dims[d];
    else
      run *= dims[d];
  }
  // A rank takes its own part of each run; nothing is sent.
  int parts, mine = nnrt_group_place(r, group, &parts);
  int64_t part = run / parts;
  const char *from = (const char *)x + part * mine;
  for (int64_t o = 0; o < outer; o++)
    memmove((char *)y + o * part, from + o * run, (size_t)part);
  return 0;
}

// Packs the sends of this rank into parcels, and lists its receives.
static Exchange *pack(const Route *route, const void *x, int64_t size) {
  Exchange *e = nnrt_exchange_new(route->n_to, route->n_from);
  for (int i = 0; i < route->n_to; i++)
    e->to[i] = nnrt_parcel_new(route->to[i].rank, route->to[i].n * size);
  for (int i = 0; i < route->n_from; i++)
    e->from[i] = (Parcel){.peer = route->from[i].rank, .bytes = route->from[i].n * size};
  for (int i = 0; i < route->n_give; i++) {
    // Each box has its place in the parcel of its receiver.
    const RouteBox *b = &route->give[i];
    Box box = nnrt_route_given(route, b);
    nnrt_box_copy(e->to[b->peer].at + (b->at - route->to[b->peer].at) * size, x, size, &box);
  }
  return e;
}

// Unpacks all boxes for this rank, in the order of the messages.  Boxes from the rank to itself
// come from x, or from their copy `kept` if x is NULL.
static void unpack(const Route *route, void *y, const Exchange *e, const void *x, const char *kept,
                   int64_t size, bool sums, NnrtDtype t) {
  // A sum begins with zeros: several boxes may cover the same elements.
  if (y && sums) memset(y, 0, (size_t)(product(route->move->ndim, route->move->to_dim) * size));
  for (int i = 0; i < route->n_get; i++) {
    const RouteBox *b = &route->get[i];
    const void *from = x;
    Box box = b->peer < 0 && x ? nnrt_route_own(route, b) : nnrt_route_got(route, b);
    if (b->peer >= 0)
      from = e->from[b->peer].at + (b->at - route->from[b->peer].at) * size;
    else if (!x)
      from = kept + b->at * size;
    if (sums)
      nnrt_box_add(y, from, t, &box);
    else
      nnrt_box_copy(y, from, size, &box);
  }
}

static bool meets_others(const Route *route) {
  return route->n_to + route->n_from > 0;
}

// Frees an exchange, unless it has sends but no receives: then the queue owns it.
static void free_exchange(const Route *route, Exchange *e) {
  if (route->n_from > 0 || route->n_to == 0) nnrt_exchange_free(e);
}

static int move(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums,
                NnrtDtype t) {
  const Route *route = &r->comm->route[number];
  Exchange *e = pack(route, x, size);
  int code =
      meets_others(route) ? nnrt_comm_move(r->comm, e, route->move->ahead, nnrt_trace_of(r)) : 0;
  if (code) return code;
  // All parcels have arrived.
  unpack(route, y, e, x, NULL, size, sums, t);
  free_exchange(route, e);
  return 0;
}

static int move_start(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums) {
  const Route *route = &r->comm->route[number];
  Exchange *e = pack(route, x, size);
  int64_t job = -1;
  (void)sums;
  int code = 0;
  // A move within the rank needs no job.
  if (meets_others(route))
    code = nnrt_comm_move_start(r->comm, e, route->move->ahead, nnrt_trace_of(r), &job);
  if (code) return code;
  // A rank that only sends has no wait.
  if (!y) {
    free_exchange(route, e);
    return 0;
  }
  StartedMove *m = nnrt_block_new(sizeof *m), **end = &r->comm->started[number];
  if (r->in_use)
    nnrt_in_use_lend(r, y, product(route->move->ndim, route->move->to_dim) * size, NULL, 0);
  *m = (StartedMove){.exchange = e, .job = job};
  // x may be overwritten after this call, so the boxes from this rank to itself are copied now.
  if (route->kept > 0) m->kept = nnrt_parcel_new(0, route->kept * size).at;
  for (int i = 0; i < route->n_get && m->kept; i++) {
    const RouteBox *b = &route->get[i];
    if (b->peer >= 0) continue;
    Box box = nnrt_route_given(route, b);
    nnrt_box_copy(m->kept + b->at * size, x, size, &box);
  }
  // Waits come in the order of starts.
  while (*end)
    end = &(*end)->next;
  *end = m;
  return 0;
}

static int move_wait(void *y, NnrtRank *r, int number, int64_t size, bool sums, NnrtDtype t) {
  const Route *route = &r->comm->route[number];
  StartedMove *m = r->comm->started[number];
  int code = route->n_from > 0 ? nnrt_comm_move_wait(r->comm, route->move->ahead, m->job) : 0;
  if (code) return code;
  // Sums and copies are in the order of the messages, so all runs agree.
  unpack(route, y, m->exchange, NULL, m->kept, size, sums, t);
  if (r->in_use) nnrt_in_use_back(r, y);
  r->comm->started[number] = m->next;
  free_exchange(route, m->exchange);
  nnrt_block_free(m->kept);
  nnrt_block_free(m);
  return 0;
}

#include "comm_calls.h"
