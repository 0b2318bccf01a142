// Collectives of ranks that are processes with a GPU each: NCCL.
//
//     open     ncclGetUniqueId at the first rank of each group, sent over the processes' connections
//              (../comm.h); ncclCommInitRankConfig, nonblocking
//     memory   ncclMemAlloc, ncclCommRegister: if possible, NCCL reads and writes the slab directly
//     all_reduce       ncclAllReduce         all_gather   ncclAllGather
//     reduce_scatter   ncclReduceScatter
//     all_to_all       ncclSend to all and ncclRecv from all, itself too, as one group
//     move             the same with the peers of the route
//     watch.c  ncclCommGetAsyncError
//
// There is a communicator per group of the program, and one of all ranks for moves.  All of them
// use the rank's stream for collectives, so no two wait for each other in different orders.  Moves
// between segments have another communicator of all ranks, and a stream: see collectives.h.  All
// ranks open the groups in one order, also those without them.  A call that returns ncclInProgress
// is polled until it is done: the first call of a kind makes connections, for which the host waits
// until the peer calls, too.
//
// The library is the one linked with the program, else it is loaded on demand: a program on one GPU
// runs without it.

#include <dlfcn.h>
#include <nccl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "collectives.h"
#include "machine.h"
#include "watch.h"

#define FUNCTIONS(F)                                                                               \
  F(GetVersion)                                                                                    \
  F(GetUniqueId)                                                                                   \
  F(CommInitRankConfig)                                                                            \
  F(CommGetAsyncError)                                                                             \
  F(CommFinalize)                                                                                  \
  F(CommDestroy)                                                                                   \
  F(CommRegister)                                                                                  \
  F(CommDeregister)                                                                                \
  F(MemAlloc)                                                                                      \
  F(MemFree)                                                                                       \
  F(AllReduce)                                                                                     \
  F(AllGather)                                                                                     \
  F(ReduceScatter)                                                                                 \
  F(Send)                                                                                          \
  F(Recv)                                                                                          \
  F(GroupStart)                                                                                    \
  F(GroupEnd)                                                                                      \
  F(GetErrorString)                                                                                \
  F(GetLastError)

#define WEAK(name) extern __typeof__(nccl##name) nccl##name __attribute__((weak));
FUNCTIONS(WEAK)

#define POINTER(name) __typeof__(nccl##name) *name;
typedef struct Library {
  FUNCTIONS(POINTER)
} Library;

static Library nccl;

typedef struct State {
  // [n_comms]: of the groups, NULL for a group of one rank or without this rank; then of moves, and
  // of moves between segments, NULL if there are none.
  ncclComm_t *comm;
  void **registered; // [n_comms] handle of the slab, by communicator
  bool from_nccl;    // the slab is from ncclMemAlloc
  int n_comms;
  double stall_timeout; // seconds
  Watch *watch;
  // Any thread that polls a communicator may complete its pending operation, so the rank's thread
  // and the watching thread must not poll at the same time.
  pthread_mutex_t lock;
} State;

// ---- the library

enum { OLDEST = 21900 }; // the first with memory registration

static int find_library(void) {
#define LINKED(name) nccl.name = nccl##name;
  FUNCTIONS(LINKED)
  if (nccl.GetVersion) return 0;
  // Not linked: load it.
  const char *name = getenv("NNRT_NCCL_LIBRARY");
  void *library = dlopen(name ? name : "libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    return nnrt_error(NNRT_LIBRARY,
                      "NCCL is not found: %s\nhint: install NCCL 2, set LD_LIBRARY_PATH, or "
                      "NNRT_NCCL_LIBRARY to the library's file",
                      dlerror());
#define FIND(name)                                                                                 \
  {                                                                                                \
    void *symbol = dlsym(library, "nccl" #name);                                                   \
    if (!symbol)                                                                                   \
      return nnrt_error(NNRT_LIBRARY,                                                              \
                        "NCCL is too old: it has no 'nccl" #name "'\nhint: 2.19 or newer");        \
    memcpy(&nccl.name, &symbol, sizeof symbol);                                                    \
  }
  FUNCTIONS(FIND)
  return 0;
}

int nnrt_gpu_nccl_version(void) {
  int have = 0;
  if (find_library() || nccl.GetVersion(&have) != ncclSuccess) return 0;
  return have;
}

// ---- calls

static int failed(ncclResult_t result, ncclComm_t comm, const char *what) {
  const char *more = nccl.GetLastError(comm);
  return nnrt_error(NNRT_COMM,
                    "nccl: %s: %s%s%s\nhint: NCCL_DEBUG=INFO in the environment says more", what,
                    nccl.GetErrorString(result), more && *more ? ": " : "", more ? more : "");
}

// Waits until a communicator has completed its pending operation.
static int wait_nonblocking(ncclResult_t result, ncclComm_t *comm, double stall_timeout,
                            const char *what) {
  double until = nnrt_now_us() + stall_timeout * 1e6;
  while (result == ncclInProgress) {
    // Polling also makes progress.
    if (*comm) {
      ncclResult_t asked = nccl.CommGetAsyncError(*comm, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result == ncclInProgress && nnrt_now_us() > until)
      return nnrt_error(NNRT_COMM, "nccl: %s: other ranks have not come in %.0f seconds", what,
                        stall_timeout);
    if (result == ncclInProgress) sched_yield();
  }
  return result == ncclSuccess ? 0 : failed(result, *comm, what);
}

// ---- opening

static int open_group(NnrtRank *r, State *s, const Group *g, ncclComm_t *out) {
  enum { WORDS = sizeof(ncclUniqueId) / sizeof(int64_t) };
  // The group's first rank makes its id.  A sum over all ranks, of ids and zeros, shares the ids of
  // all groups that open at once.
  int64_t *all = nnrt_must_alloc((size_t)r->ranks * WORDS * sizeof *all);
  ncclUniqueId id;
  int code = 0;
  if (g->n > 0 && g->me == 0) {
    ncclResult_t result = nccl.GetUniqueId(&id);
    if (result != ncclSuccess) code = failed(result, NULL, "making an id");
    memcpy(all + (int64_t)r->rank * WORDS, &id, sizeof id);
  }
  nnrt_comm_sum(r, all, r->ranks * WORDS);
  if (g->n > 0) memcpy(&id, all + (int64_t)g->rank[0] * WORDS, sizeof id);
  free(all);
  if (code || g->n == 0) return code;
  // Nonblocking, so that a rank that never comes ends in an error.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return wait_nonblocking(nccl.CommInitRankConfig(out, g->n, id, g->me, &config), out,
                          s->stall_timeout, "connecting ranks");
}

static bool any_move(const NnrtProgram *p, bool ahead) {
  for (int i = 0; i < p->n_moves; i++)
    if (p->move[i].ahead == ahead) return true;
  return false;
}

static int async_error(void *state, char *text, size_t size) {
  State *s = state;
  int code = 0;
  // While the rank's thread is in NCCL it gets the errors itself.
  if (pthread_mutex_trylock(&s->lock)) return 0;
  for (int g = 0; g < s->n_comms && !code; g++) {
    ncclResult_t result = ncclSuccess;
    if (!s->comm[g]) continue;
    ncclResult_t asked = nccl.CommGetAsyncError(s->comm[g], &result);
    if (asked != ncclSuccess) result = asked;
    if (result == ncclSuccess || result == ncclInProgress) continue;
    const char *more = nccl.GetLastError(s->comm[g]);
    snprintf(text, size, "nccl: %s%s%s", nccl.GetErrorString(result), more && *more ? ": " : "",
             more ? more : "");
    code = NNRT_COMM;
  }
  pthread_mutex_unlock(&s->lock);
  return code;
}

static int open_nccl(NnrtRank *r) {
  State *s = r->device->comm->state = nnrt_must_alloc(sizeof *s);
  const NnrtProgram *p = r->program;
  pthread_mutex_init(&s->lock, NULL);
  int code = find_library(), have = 0;
  if (code) return code;
  nccl.GetVersion(&have);
  if (have < OLDEST)
    return nnrt_error(NNRT_LIBRARY, "NCCL is too old: it is %d.%d.%d\nhint: 2.19 or newer",
                      have / 10000, have / 100 % 100, have % 100);
  // A communicator per group, then those of moves.  All ranks open them in this order.
  s->stall_timeout = nnrt_stall_timeout(&r->run->flags);
  s->n_comms = p->n_groups + 2;
  s->comm = nnrt_must_alloc((size_t)s->n_comms * sizeof(ncclComm_t));
  s->registered = nnrt_must_alloc((size_t)s->n_comms * sizeof(void *));
  for (int g = 0; g < p->n_groups && !code; g++)
    if (nnrt_group_size(p, g) > 1) code = open_group(r, s, &r->comm->group[g], &s->comm[g]);
  for (int ahead = 0; ahead < 2 && !code; ahead++)
    if (any_move(p, ahead)) code = open_group(r, s, &r->comm->world, &s->comm[p->n_groups + ahead]);
  if (!code) code = nnrt_watch_start(&s->watch, r, async_error, s);
  return code;
}

static void close_nccl(NnrtRank *r) {
  State *s = r->device->comm->state;
  nnrt_comm_part(r);
  // All ranks have finished, so silence is no sign of a lost rank any more.
  nnrt_watch_stop(s->watch);
  for (int g = 0; g < s->n_comms; g++) {
    if (!s->comm[g]) continue;
    if (s->registered[g]) nccl.CommDeregister(s->comm[g], s->registered[g]);
    wait_nonblocking(nccl.CommFinalize(s->comm[g]), &s->comm[g], s->stall_timeout, "closing");
    nccl.CommDestroy(s->comm[g]);
  }
  if (s->from_nccl)
    nccl.MemFree(r->slab);
  else
    cudaFree(r->slab);
  pthread_mutex_destroy(&s->lock);
  free(s->comm);
  free(s->registered);
  free(s);
}

static int memory_nccl(NnrtRank *r, void **out, size_t bytes) {
  State *s = r->device->comm->state;
  // NCCL can register memory that it allocated; without support for that, plain memory serves.
  if (nccl.MemAlloc(out, bytes) != ncclSuccess) {
    cudaGetLastError();
    return nnrt_cuda(cudaMalloc(out, bytes), "memory for the slab");
  }
  // Each communicator registers the slab.
  s->from_nccl = true;
  for (int g = 0; g < s->n_comms; g++) {
    if (!s->comm[g]) continue;
    // Without registration NCCL copies through memory of its own.
    pthread_mutex_lock(&s->lock);
    ncclResult_t result = nccl.CommRegister(s->comm[g], *out, bytes, &s->registered[g]);
    while (result == ncclInProgress && nccl.CommGetAsyncError(s->comm[g], &result) == ncclSuccess)
      sched_yield();
    pthread_mutex_unlock(&s->lock);
  }
  return 0;
}

// ---- collectives

// Before a call: starts watching it, and takes the lock.
static int begin(NnrtRank *r, bool ahead) {
  State *s = r->device->comm->state;
  int code = nnrt_watch_begin(s->watch, *r->op, ahead, nnrt_gpu_comm_stream(r, ahead));
  if (!code) pthread_mutex_lock(&s->lock);
  return code;
}

static int end(NnrtRank *r, bool ahead, ncclComm_t *comm, ncclResult_t result, const char *what) {
  State *s = r->device->comm->state;
  int code = wait_nonblocking(result, comm, s->stall_timeout, what);
  pthread_mutex_unlock(&s->lock);
  return code ? code : nnrt_watch_end(s->watch, ahead, nnrt_gpu_comm_stream(r, ahead));
}

static bool refused(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

// Sends a part of x to each rank, and receives one of y from each, of n bytes.
static ncclResult_t call_all_to_all(const Group *g, char *y, const char *x, size_t n,
                                    ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = nccl.GroupStart();
  if (result != ncclSuccess) return result;
  for (int i = 0; i < g->n && !refused(result); i++) {
    result = nccl.Send(x + (size_t)i * n, n, ncclUint8, i, comm, stream);
    if (!refused(result)) result = nccl.Recv(y + (size_t)i * n, n, ncclUint8, i, comm, stream);
  }
  // A group that was started is always ended; its first error is returned.
  ncclResult_t end = nccl.GroupEnd();
  return refused(result) ? result : end;
}

static ncclResult_t call_collective(const Job *job, ncclComm_t comm, cudaStream_t stream) {
  size_t n = (size_t)job->n;
  ncclDataType_t type = job->dtype == NNRT_f32   ? ncclFloat32
                        : job->dtype == NNRT_i64 ? ncclInt64
                                                 : ncclUint8;
  switch (job->kind) {
  case JOB_all_reduce: return nccl.AllReduce(job->x, job->y, n, type, ncclSum, comm, stream);
  case JOB_all_gather: return nccl.AllGather(job->x, job->y, n, type, comm, stream);
  case JOB_reduce_scatter:
    return nccl.ReduceScatter(job->x, job->y, n, type, ncclSum, comm, stream);
  case JOB_all_to_all: return call_all_to_all(job->group, job->y, job->x, n, comm, stream);
  default: return ncclInvalidArgument;
  }
}

static int collective_nccl(NnrtRank *r, const Job *job) {
  State *s = r->device->comm->state;
  ncclComm_t *comm = &s->comm[job->group - r->comm->group];
  int code = begin(r, false);
  if (code) return code;
  return end(r, false, comm, call_collective(job, *comm, r->device->gpu.comm),
             nnrt_job_shape[job->kind].name);
}

static ncclResult_t call_move(const Route *route, int64_t width, char *y, const char *x,
                              ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = nccl.GroupStart();
  if (result != ncclSuccess) return result;
  // All sends and receives of a rank form one group, so that none waits for another.
  for (int i = 0; i < route->n_to && !refused(result); i++) {
    const RoutePeer *to = &route->to[i];
    result =
        nccl.Send(x + to->at * width, (size_t)(to->n * width), ncclUint8, to->rank, comm, stream);
  }
  for (int i = 0; i < route->n_from && !refused(result); i++) {
    const RoutePeer *from = &route->from[i];
    result = nccl.Recv(y + from->at * width, (size_t)(from->n * width), ncclUint8, from->rank, comm,
                       stream);
  }
  ncclResult_t ended = nccl.GroupEnd();
  return refused(result) ? result : ended;
}

static int move_nccl(NnrtRank *r, const Job *job) {
  State *s = r->device->comm->state;
  bool ahead = job->route->move->ahead;
  // Moves between segments have a communicator and a stream of their own.
  ncclComm_t *comm = &s->comm[r->program->n_groups + ahead];
  cudaStream_t stream = nnrt_gpu_comm_stream(r, ahead);
  int code = begin(r, ahead);
  if (code) return code;
  return end(r, ahead, comm, call_move(job->route, job->width, job->y, job->x, *comm, stream),
             "move");
}

static int waits_in_nccl(NnrtRank *r) {
  State *s = r->device->comm->state;
  return s && s->watch ? nnrt_watch_op(s->watch) : -1;
}

static int run_nccl(NnrtRank *r, const Job *job) {
  return job->kind == JOB_move ? move_nccl(r, job) : collective_nccl(r, job);
}

const GpuTransport nnrt_gpu_nccl = {
    .records = true,
    .open = open_nccl,
    .close = close_nccl,
    .memory = memory_nccl,
    .run = run_nccl,
    .waits_in = waits_in_nccl,
};
