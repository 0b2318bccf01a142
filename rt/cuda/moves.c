// Moves between the GPUs of ranks: packing, sending, unpacking.
//
// A blocking move packs into scratch, or sends directly from the tensor if its data is contiguous
// there.  A split move (start, wait) has memory of its own, because x may be overwritten as soon as
// it has started, and scratch is shared:
//
//     operations    F0 │ pack        F0' …  B0 │ wait, unpack │
//     ahead            └─► send, receive ──────┘
//
// The same move reuses the memory after its contents have been unpacked or sent.

#include <stdlib.h>

#include "collectives.h"
#include "machine.h"

// A started move on one rank.
typedef struct Flight {
  char *memory; // sent, received and kept data
  char *in;     // received data: in `memory`, or in place in y
  bool in_place;
  char *kept;
  cudaEvent_t done;
  struct Flight *next;
} Flight;

typedef struct Flights {
  Flight *started; // without a wait yet, oldest first
  Flight *sent;    // sends only: they need no wait
  int n_sent;
  Flight *idle; // with reusable memory
} Flights;

struct GpuMoves {
  Flights *flights;  // [n_moves]
  cudaEvent_t moved; // the last started move
  bool any;          // started since the beginning of the step
};

enum { MOST_SENT = 4 }; // maximal sends of a move in flight

// The address of the box in a tensor of these dimensions if it is contiguous there, else NULL.
static char *side_by_side(const void *tensor, const Box *b, const int64_t *dim, const int64_t *at,
                          int64_t size) {
  int64_t stride[NNRT_MAX_NDIM], begin = nnrt_box_strides(b, dim, at, stride);
  // Contiguous: of the first dimension longer than 1 any range, of all later ones everything.
  int d = 0;
  while (d < b->ndim && b->size[d] == 1)
    d++;
  for (d++; d < b->ndim; d++)
    if (b->size[d] != dim[d]) return NULL;
  return (char *)unconst(tensor) + begin * size;
}

// A parcel of one box is sent or received in place, if it is the only one of this rank.
static char *given_in_place(const Route *route, const void *x, int64_t size) {
  if (route->n_give != 1) return NULL;
  Box b = nnrt_route_given(route, route->give);
  return side_by_side(x, &b, b.from_dim, b.from_at, size);
}

static char *got_in_place(const Route *route, void *y, int64_t size) {
  if (route->n_get != 1 || route->get->peer < 0) return NULL;
  Box b = nnrt_route_got(route, route->get);
  return side_by_side(y, &b, b.to_dim, b.to_at, size);
}

static int pack_parcels(const Route *route, char *out, const void *x, int64_t size) {
  int code = 0;
  for (int i = 0; i < route->n_give && !code; i++) {
    Box box = nnrt_route_given(route, &route->give[i]);
    code = nnrt_box_copy(out + route->give[i].at * size, x, size, &box);
  }
  return code;
}

// Packs the boxes that stay on this rank, one after the other.
static int pack_kept(const Route *route, char *out, const void *x, int64_t size) {
  int code = 0;
  for (int i = 0; i < route->n_get && !code; i++) {
    if (route->get[i].peer >= 0) continue;
    Box box = nnrt_route_given(route, &route->get[i]);
    code = nnrt_box_copy(out + route->get[i].at * size, x, size, &box);
  }
  return code;
}

static int64_t product(int64_t n, const int64_t *dims) {
  int64_t product = 1;
  for (int64_t d = 0; d < n; d++)
    product *= dims[d];
  return product;
}

// Unpacks in the order of the messages; boxes that stay on this rank come from x, or from their
// packed copy.
static int unpack_parcels(const Route *route, void *y, const char *in, const void *x,
                          const char *kept, int64_t size, bool sums, NnrtDtype t) {
  const NnrtMove *m = route->move;
  int code = y && sums ? nnrt_zero(y, product(m->ndim, m->to_dim) * size) : 0;
  for (int i = 0; i < route->n_get && !code; i++) {
    const RouteBox *b = &route->get[i];
    // From the received parcel, from x, or from the copy of x.
    const void *from = b->peer >= 0 ? in + b->at * size : x ? x : kept + b->at * size;
    Box box = b->peer < 0 && x ? nnrt_route_own(route, b) : nnrt_route_got(route, b);
    code = sums ? nnrt_box_add(y, from, t, &box) : nnrt_box_copy(y, from, size, &box);
  }
  return code;
}

// ---- blocking moves

static Job job_of(NnrtRank *r, int number, void *in, const void *out, int64_t size) {
  const Route *route = &r->comm->route[number];
  Job job = {.kind = JOB_move, .group = &r->comm->movers[number], .y = in, .x = out};
  // Elements are bytes: a move has no arithmetic.
  job.n = route->got * size;
  job.dtype = NNRT_u8;
  job.route = route;
  job.ahead = route->move->ahead;
  job.width = size;
  return job;
}

int nnrt_gpu_move(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums,
                  NnrtDtype t) {
  const Route *route = &r->comm->route[number];
  char *out = given_in_place(route, x, size), *in = sums ? NULL : got_in_place(route, y, size);
  // Scratch only for data that is not contiguous.
  bool packs = !out, unpacks = !in;
  int64_t given = packs ? round_256(route->given * size) : 0;
  int64_t got = unpacks ? round_256(route->got * size) : 0;
  char *scratch = given + got > 0 ? nnrt_gpu_scratch(given + got) : NULL;
  if (given + got > 0 && !scratch) return NNRT_MEMORY;
  if (packs) out = scratch;
  if (unpacks) in = scratch ? scratch + given : NULL;
  // A rank without peers moves only its own boxes.
  int code = packs ? pack_parcels(route, out, x, size) : 0;
  Job job = job_of(r, number, in, out, size);
  if (route->n_to + route->n_from > 0 && !code) code = nnrt_gpu_comm_do(r, &job);
  return code || !unpacks ? code : unpack_parcels(route, y, in, x, NULL, size, sums, t);
}

// ---- split moves

static void push_last(Flight **list, Flight *f) {
  f->next = NULL;
  while (*list)
    list = &(*list)->next;
  *list = f;
}

static Flight *pop(Flight **list) {
  Flight *f = *list;
  *list = f->next;
  return f;
}

static int wait_for(NnrtRank *r, cudaEvent_t done) {
  return nnrt_cuda(cudaStreamWaitEvent(r->device->gpu.stream, done, 0), "waiting for a move");
}

static int take_flight(NnrtRank *r, Flights *all, int64_t bytes, Flight **out) {
  if (all->idle) {
    *out = pop(&all->idle);
    return 0;
  }
  // A rank that only sends waits for the oldest send if too many are in flight.
  if (all->n_sent >= MOST_SENT) {
    all->n_sent--;
    *out = pop(&all->sent);
    return wait_for(r, (*out)->done);
  }
  // No memory is free: the move gets more.
  Flight *f = *out = nnrt_must_alloc(sizeof *f);
  int code =
      nnrt_cuda(cudaEventCreateWithFlags(&f->done, cudaEventDisableTiming), "making an event");
  if (!code && bytes > 0)
    code = nnrt_cuda(cudaMalloc((void **)&f->memory, (size_t)bytes), "memory for a move");
  return code;
}

static int send(NnrtRank *r, int number, Flight *f, int64_t size) {
  const Route *route = &r->comm->route[number];
  GpuMoves *moves = r->device->moves;
  cudaStream_t stream = nnrt_gpu_comm_stream(r, route->move->ahead);
  if (route->n_to + route->n_from == 0) return 0;
  // The flight's event ends its wait, `moved` the step's.
  Job job = job_of(r, number, f->in, f->memory, size);
  int code = nnrt_gpu_comm_call(r, &job);
  if (!code) code = nnrt_cuda(cudaEventRecord(f->done, stream), "starting a move");
  if (!code) code = nnrt_cuda(cudaEventRecord(moves->moved, stream), "starting a move");
  moves->any = true;
  return code;
}

int nnrt_gpu_move_start(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums) {
  const Route *route = &r->comm->route[number];
  Flights *all = &r->device->moves->flights[number];
  // On a rank that also sends, y may be in use until it waits.
  char *in = sums || x ? NULL : got_in_place(route, y, size);
  int64_t given = round_256(route->given * size), got = in ? 0 : round_256(route->got * size);
  Flight *f;
  int code = take_flight(r, all, given + got + round_256(route->kept * size), &f);
  if (code) return code;
  // Memory of a flight: sent, received, kept.
  f->in = in ? in : f->memory + given;
  f->in_place = in != NULL;
  f->kept = f->memory + given + got;
  code = pack_parcels(route, f->memory, x, size);
  if (!code) code = pack_kept(route, f->kept, x, size);
  if (!code) code = send(r, number, f, size);
  // Without y the rank does not wait: its send is recycled later.
  push_last(y ? &all->started : &all->sent, f);
  all->n_sent += !y;
  return code;
}

int nnrt_gpu_move_wait(void *y, NnrtRank *r, int number, int64_t size, bool sums, NnrtDtype t) {
  const Route *route = &r->comm->route[number];
  Flights *all = &r->device->moves->flights[number];
  Flight *f = pop(&all->started);
  // The oldest start belongs to this wait.
  int code = route->n_to + route->n_from > 0 ? wait_for(r, f->done) : 0;
  if (!code && !f->in_place) code = unpack_parcels(route, y, f->in, NULL, f->kept, size, sums, t);
  push_last(&all->idle, f);
  return code;
}

int nnrt_gpu_moves_join(NnrtRank *r) {
  GpuMoves *moves = r->device->moves;
  if (!moves->any) return 0;
  moves->any = false;
  return wait_for(r, moves->moved);
}

int nnrt_gpu_moves_open(NnrtRank *r) {
  GpuMoves *moves = r->device->moves = nnrt_must_alloc(sizeof *moves);
  moves->flights = nnrt_must_alloc((size_t)r->program->n_moves * sizeof *moves->flights);
  return nnrt_cuda(cudaEventCreateWithFlags(&moves->moved, cudaEventDisableTiming),
                   "making an event");
}

static void free_flights(Flight *f) {
  while (f) {
    Flight *next = f->next;
    cudaEventDestroy(f->done);
    cudaFree(f->memory);
    free(f);
    f = next;
  }
}

void nnrt_gpu_moves_close(NnrtRank *r) {
  GpuMoves *moves = r->device->moves;
  for (int i = 0; i < r->program->n_moves; i++) {
    // Flights of every move: started, sent only, and idle.
    free_flights(moves->flights[i].started);
    free_flights(moves->flights[i].sent);
    free_flights(moves->flights[i].idle);
  }
  cudaEventDestroy(moves->moved);
  free(moves->flights);
  free(moves);
}
