// NCCL: ranks are threads or processes of this machine, which talk through a file in shared memory
// that the unique id names.
//
// A collective is done in steps of at most CHUNK bytes.  In a step every rank posts a piece of what
// it gives in its own slot, waits until all have, reads what it needs from the others' slots, and
// says that it has; nobody posts again before all have said so.  What ranks post is labelled with
// the call, so ranks that call different things are told, where the real one hangs.  send and recv
// have a slot for each pair, and are done when the receiver has everything.
//
// What is waited for is not waited for here: work answers that it is not done, and is called again
// (emulator.h).  So a rank that died makes its peers hang until they abort, as with NCCL.
//
// As with the real one: a communicator that is not blocking is `in progress` after it was made,
// and after its first call, until ncclCommGetAsyncError says otherwise, and refuses calls till
// then; two ranks on one gpu are refused; the calls of a group are one piece of work.

#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "emulator.h"

enum { MAX_RANKS = 64, CHUNK = 64 * 1024, PAIR_CHUNK = 16 * 1024 };

__extension__ typedef _Float16 Half;

typedef enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, SEND, RECV } Kind;
static const char *const kind_name[] = {
    "ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast",
    "ncclReduce",    "ncclSend",          "ncclRecv",
};

// What ranks must agree on.
typedef struct Label {
  int32_t kind, type, reduction, root;
  uint64_t count;
} Label;

typedef struct Slot {
  _Atomic uint64_t posted, read; // steps
  Label label;
  char data[CHUNK];
} Slot;

typedef struct Pair {
  _Atomic uint64_t posted, read;
  uint64_t bytes; // of the whole message
  char data[PAIR_CHUNK];
} Pair;

typedef struct Shared {
  _Atomic int joined, refused;
  _Atomic int gpu[MAX_RANKS]; // 1 + index
  Slot slot[MAX_RANKS];
  Pair pair[MAX_RANKS][MAX_RANKS]; // [from][to]
} Shared;

struct ncclComm {
  int rank, n, device;
  bool blocking;
  ncclUniqueId id;
  Shared *shared;
  uint64_t step, sent[MAX_RANKS], received[MAX_RANKS];
  // What ncclCommGetAsyncError says.
  enum { JOINING, IN_PROGRESS, READY, FINALIZED, FAILED } state;
  ncclResult_t failure;
  bool used, used_pair;
  _Atomic bool aborted;
  _Atomic int users; // itself, and work that is not freed
  _Atomic int running;
  char error[256];
  struct ncclComm *next; // in the group
};

typedef struct Call {
  Label label;
  int peer;
  const char *from;
  char *to;
  ncclComm_t comm;
  cudaStream_t stream;
  // While it runs.
  uint64_t at; // steps, or bytes of a message, that are done
  bool posted, done;
} Call;

typedef struct Group {
  EmulatedWork work;
  ncclComm_t comm;
  int n;
  Call call[];
} Group;

static __thread char last_error[256];

static ncclResult_t fail(ncclComm_t c, ncclResult_t result, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static ncclResult_t fail(ncclComm_t c, ncclResult_t result, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(last_error, sizeof last_error, fmt, args);
  va_end(args);
  if (c) memcpy(c->error, last_error, sizeof c->error);
  return result;
}

// ---- Elements

static size_t size_of(int type) {
  switch ((ncclDataType_t)type) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32: return 4;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64: return 8;
  case ncclFloat8e4m3:
  case ncclFloat8e5m2:
  case ncclNumTypes: break;
  }
  return 0;
}

static float from_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = x != x ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
  return (uint16_t)(bits >> 16);
}

static double combine(double a, double b, int reduction) {
  switch ((ncclRedOp_t)reduction) {
  case ncclSum:
  case ncclAvg: return a + b;
  case ncclProd: return a * b;
  case ncclMax: return a > b || a != a ? a : b;
  case ncclMin: return a < b || a != a ? a : b;
  case ncclNumOps:
  case ncclMaxRedOp: break;
  }
  return 0;
}

// into = into (+) from.  Between two ranks the sum has the type of the elements.
static void reduce(char *into, const char *from, size_t n, int type, int reduction) {
#define FLOATS(T, READ, WRITE)                                                                     \
  for (size_t i = 0; i < n; i++) {                                                                 \
    T *a = (T *)into + i;                                                                          \
    const T *b = (const T *)from + i;                                                              \
    *a = WRITE((float)combine((double)READ(*a), (double)READ(*b), reduction));                     \
  }                                                                                                \
  return
#define INTEGERS(T, U)                                                                             \
  for (size_t i = 0; i < n; i++) {                                                                 \
    T *a = (T *)into + i, b = ((const T *)from)[i];                                                \
    *a = reduction == ncclSum    ? (T)((U)*a + (U)b)                                               \
         : reduction == ncclProd ? (T)((U)*a * (U)b)                                               \
         : reduction == ncclMax  ? (*a > b ? *a : b)                                               \
                                 : (*a < b ? *a : b);                                               \
  }                                                                                                \
  return
  switch ((ncclDataType_t)type) {
  case ncclFloat32: FLOATS(float, , );
  case ncclFloat16: FLOATS(Half, , (Half));
  case ncclBfloat16: FLOATS(uint16_t, from_bf16, to_bf16);
  case ncclFloat64:
    for (size_t i = 0; i < n; i++)
      ((double *)into)[i] = combine(((double *)into)[i], ((const double *)from)[i], reduction);
    return;
  case ncclInt8: INTEGERS(int8_t, unsigned);
  case ncclUint8: INTEGERS(uint8_t, unsigned);
  case ncclInt32: INTEGERS(int32_t, uint32_t);
  case ncclUint32: INTEGERS(uint32_t, uint32_t);
  case ncclInt64: INTEGERS(int64_t, uint64_t);
  case ncclUint64: INTEGERS(uint64_t, uint64_t);
  case ncclFloat8e4m3:
  case ncclFloat8e5m2:
  case ncclNumTypes: break;
  }
}

static void average(char *x, size_t n, int type, int ranks) {
  float f = 1.0f / (float)ranks;
  for (size_t i = 0; i < n; i++)
    switch ((ncclDataType_t)type) {
    case ncclFloat32: ((float *)x)[i] *= f; break;
    case ncclFloat64: ((double *)x)[i] /= ranks; break;
    case ncclFloat16: ((Half *)x)[i] = (Half)((float)((Half *)x)[i] * f); break;
    case ncclBfloat16: ((uint16_t *)x)[i] = to_bf16(from_bf16(((uint16_t *)x)[i]) * f); break;
    default: break; // refused
    }
}

// ---- Running

// How a collective is cut into steps: `blocks` of count elements, each in pieces of a chunk.
static uint64_t pieces(const Call *c) {
  uint64_t most = CHUNK / size_of(c->label.type);
  return (c->label.count + most - 1) / most;
}

static uint64_t steps(const Call *c) {
  return pieces(c) * (c->label.kind == REDUCE_SCATTER ? (uint64_t)c->comm->n : 1);
}

static const char *describe(const Label *l, char *out, size_t bytes) {
  snprintf(out, bytes, "%s of %llu elements of type %d", kind_name[l->kind],
           (unsigned long long)l->count, l->type);
  return out;
}

static void check_labels(const Call *call) {
  ncclComm_t c = call->comm;
  for (int r = 0; r < c->n; r++) {
    const Label *other = &c->shared->slot[r].label;
    char a[100], b[100];
    if (memcmp(other, &call->label, sizeof *other))
      emulated_abort("nccl: ranks call different things: rank %d %s, rank %d %s", c->rank,
                     describe(&call->label, a, sizeof a), r, describe(other, b, sizeof b));
  }
}

// One step, if all ranks have come to it; false if they have not.
static bool try_step(Call *call) {
  ncclComm_t c = call->comm;
  const Label *l = &call->label;
  size_t size = size_of(l->type), most = CHUNK / size;
  uint64_t n_pieces = pieces(call), piece = call->at % n_pieces, block = call->at / n_pieces;
  size_t first = (size_t)piece * most;
  size_t n = l->count - first < most ? (size_t)(l->count - first) : most;
  Slot *mine = &c->shared->slot[c->rank];
  if (!call->posted) {
    for (int r = 0; r < c->n; r++)
      if (atomic_load(&c->shared->slot[r].read) < c->step) return false;
    mine->label = *l;
    if (l->kind != BROADCAST || c->rank == l->root)
      memcpy(mine->data, call->from + (block * l->count + first) * size, n * size);
    atomic_store(&mine->posted, c->step + 1);
    call->posted = true;
  }
  for (int r = 0; r < c->n; r++)
    if (atomic_load(&c->shared->slot[r].posted) < c->step + 1) return false;
  check_labels(call);
  char *to = call->to + first * size;
  bool reduces = l->kind == ALL_REDUCE || (l->kind == REDUCE_SCATTER && (int)block == c->rank) ||
                 (l->kind == REDUCE && c->rank == l->root);
  if (reduces) {
    memcpy(to, c->shared->slot[0].data, n * size);
    for (int r = 1; r < c->n; r++)
      reduce(to, c->shared->slot[r].data, n, l->type, l->reduction);
    if (l->reduction == ncclAvg) average(to, n, l->type, c->n);
  }
  if (l->kind == BROADCAST) memcpy(to, c->shared->slot[l->root].data, n * size);
  if (l->kind == ALL_GATHER)
    for (int r = 0; r < c->n; r++)
      memcpy(to + (size_t)r * l->count * size, c->shared->slot[r].data, n * size);
  atomic_store(&mine->read, ++c->step);
  call->posted = false;
  return true;
}

static bool try_send(Call *call) {
  ncclComm_t c = call->comm;
  Pair *p = &c->shared->pair[c->rank][call->peer];
  uint64_t bytes = call->label.count * size_of(call->label.type);
  while (call->at < bytes) {
    if (atomic_load(&p->read) < c->sent[call->peer]) return false;
    uint64_t n = bytes - call->at < PAIR_CHUNK ? bytes - call->at : PAIR_CHUNK;
    p->bytes = bytes;
    memcpy(p->data, call->from + call->at, n);
    atomic_store(&p->posted, ++c->sent[call->peer]);
    call->at += n;
  }
  return atomic_load(&p->read) == c->sent[call->peer];
}

static bool try_recv(Call *call) {
  ncclComm_t c = call->comm;
  Pair *p = &c->shared->pair[call->peer][c->rank];
  uint64_t bytes = call->label.count * size_of(call->label.type);
  while (call->at < bytes) {
    if (atomic_load(&p->posted) == c->received[call->peer]) return false;
    if (p->bytes != bytes)
      emulated_abort("nccl: rank %d sends %llu bytes to rank %d, which wants %llu", call->peer,
                     (unsigned long long)p->bytes, c->rank, (unsigned long long)bytes);
    uint64_t n = bytes - call->at < PAIR_CHUNK ? bytes - call->at : PAIR_CHUNK;
    memcpy(call->to + call->at, p->data, n);
    atomic_store(&p->read, ++c->received[call->peer]);
    call->at += n;
  }
  return true;
}

static bool is_message(const Call *c) {
  return c->label.kind == SEND || c->label.kind == RECV;
}

static bool try_call(Call *c) {
  if (c->label.kind == SEND) return try_send(c);
  if (c->label.kind == RECV) return try_recv(c);
  while (c->at < steps(c)) {
    if (!try_step(c)) return false;
    c->at++;
  }
  return true;
}

static bool run_group(EmulatedWork *w, bool again) {
  Group *g = (Group *)w;
  for (int i = 0; i < g->n && !again; i++) {
    g->call[i].at = 0;
    g->call[i].posted = g->call[i].done = false;
  }
  if (!again) atomic_fetch_add(&g->comm->running, 1);
  bool all = true, collective_waits = false;
  for (int i = 0; i < g->n && !atomic_load(&g->comm->aborted); i++) {
    Call *c = &g->call[i];
    if (c->done) continue;
    // Messages between two ranks stay in order, and collectives do.
    bool behind = !is_message(c) && collective_waits;
    for (int j = 0; j < i && is_message(c); j++)
      behind |=
          !g->call[j].done && g->call[j].label.kind == c->label.kind && g->call[j].peer == c->peer;
    if (!behind) c->done = try_call(c);
    collective_waits |= !is_message(c) && !c->done;
    all &= c->done;
  }
  if (all) atomic_fetch_sub(&g->comm->running, 1);
  return all;
}

static void release(ncclComm_t c) {
  if (atomic_fetch_sub(&c->users, 1) != 1) return;
  if (c->shared) munmap(c->shared, sizeof *c->shared);
  free(c);
}

static void free_group(EmulatedWork *w) {
  Group *g = (Group *)w;
  release(g->comm);
  free(g);
}

// ---- Communicators

ncclResult_t ncclGetVersion(int *out) {
  if (!out) return fail(NULL, ncclInvalidArgument, "ncclGetVersion: no place for it");
  const char *other = getenv("EMULATED_NCCL");
  *out = other ? atoi(other) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

static void path_of(const ncclUniqueId *id, char *out, size_t bytes) {
  snprintf(out, bytes, "/emulated-nccl-%.64s", id->internal);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
  if (!out) return fail(NULL, ncclInvalidArgument, "ncclGetUniqueId: no place for it");
  static _Atomic int count;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  memset(out, 0, sizeof *out);
  snprintf(out->internal, sizeof out->internal, "%d-%d-%lld-%ld", (int)getpid(),
           atomic_fetch_add(&count, 1), (long long)t.tv_sec, t.tv_nsec);
  // Also the far bytes of an id matter.
  memset(out->internal + 64, 0x5a, sizeof out->internal - 64);
  return ncclSuccess;
}

// Opens the file; the first one makes it.
static ncclResult_t open_shared(ncclComm_t c) {
  char path[128];
  path_of(&c->id, path, sizeof path);
  for (size_t i = 64; i < sizeof c->id.internal; i++)
    if (c->id.internal[i] != 0x5a)
      return fail(c, ncclInvalidArgument, "the unique id is not one that ncclGetUniqueId made");
  int fd = shm_open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)))
    return fail(c, ncclSystemError, "cannot open shared memory: %s", strerror(errno));
  void *at = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED)
    return fail(c, ncclSystemError, "cannot map shared memory: %s", strerror(errno));
  c->shared = at;
  if (atomic_exchange(&c->shared->gpu[c->rank], 1 + c->device))
    return fail(c, ncclInvalidUsage, "rank %d joins twice", c->rank);
  atomic_fetch_add(&c->shared->joined, 1);
  return ncclSuccess;
}

// Goes on with joining: once all have come, everybody finds the same.
static void try_join(ncclComm_t c) {
  if (c->state != JOINING || atomic_load(&c->shared->joined) < c->n) return;
  char path[128];
  path_of(&c->id, path, sizeof path);
  shm_unlink(path);
  c->state = READY;
  for (int i = 0; i < c->n; i++)
    for (int j = 0; j < i; j++)
      if (atomic_load(&c->shared->gpu[i]) == atomic_load(&c->shared->gpu[j])) {
        c->state = FAILED;
        c->failure = fail(c, ncclInvalidUsage,
                          "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", i,
                          j, (unsigned)atomic_load(&c->shared->gpu[i]) << 12);
      }
}

static void wait_joined(ncclComm_t c) {
  while (c->state == JOINING && !atomic_load(&c->aborted)) {
    try_join(c);
    usleep(100);
  }
}

// ---- Groups.  Calls are collected, and put into their stream at the end.

// nccl.h declares these without prototypes.
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static __thread int depth;
static __thread Call *collected;
static __thread int n_collected;
static __thread ncclComm_t joining; // those whose ncclCommInitRank is in the group
static __thread ncclResult_t group_error;

static ncclResult_t put(ncclComm_t c) {
  int n = 0;
  for (int i = 0; i < n_collected; i++)
    n += collected[i].comm == c;
  Group *g = emulated_alloc(sizeof *g + (size_t)n * sizeof *g->call);
  g->work = (EmulatedWork){"nccl", run_group, free_group};
  g->comm = c;
  atomic_fetch_add(&c->users, 1);
  cudaStream_t stream = NULL;
  bool pairs = false;
  for (int i = 0; i < n_collected; i++) {
    if (collected[i].comm != c) continue;
    if (g->n && collected[i].stream != stream)
      emulated_abort("nccl: calls of a group in several streams are not emulated");
    stream = collected[i].stream;
    g->call[g->n++] = collected[i];
    pairs |= is_message(&collected[i]);
  }
  // NCCL changes to the communicator's gpu by itself.
  int device;
  cudaGetDevice(&device);
  cudaSetDevice(c->device);
  cudaError_t e = emulated_enqueue(stream, &g->work, c);
  cudaSetDevice(device);
  if (e != cudaSuccess)
    return fail(c, ncclUnhandledCudaError, "Cuda failure '%s'", cudaGetErrorString(e));
  // Connections are made when they are first needed, and who is not blocking does not wait for
  // them.
  bool connects = !c->used || (pairs && !c->used_pair);
  c->used = true;
  c->used_pair |= pairs;
  if (c->blocking || !connects) return ncclSuccess;
  c->state = IN_PROGRESS;
  return ncclInProgress;
}

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  if (depth == 0) return fail(NULL, ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  if (--depth > 0) return ncclSuccess;
  ncclResult_t result = group_error;
  group_error = ncclSuccess;
  // First all of them have come, then one after the other can be waited for.
  for (ncclComm_t c = joining, next; c; c = next) {
    next = c->next;
    if (c->blocking) wait_joined(c);
    if (result == ncclSuccess && c->state == FAILED) result = c->failure;
    if (result == ncclSuccess && c->state == JOINING) result = ncclInProgress;
  }
  joining = NULL;
  for (int i = 0; i < n_collected && (result == ncclSuccess || result == ncclInProgress); i++) {
    bool first = true;
    for (int j = 0; j < i; j++)
      first &= collected[j].comm != collected[i].comm;
    if (!first) continue;
    ncclResult_t r = put(collected[i].comm);
    if (r != ncclSuccess) result = r;
  }
  free(collected);
  collected = NULL;
  n_collected = 0;
  return result;
}

static ncclResult_t in_group(ncclResult_t r) {
  if (r != ncclSuccess && r != ncclInProgress && depth && group_error == ncclSuccess)
    group_error = r;
  return r;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (!out) return in_group(fail(NULL, ncclInvalidArgument, "ncclCommInitRank: no place for it"));
  *out = NULL;
  if (n < 1 || n > MAX_RANKS || rank < 0 || rank >= n)
    return in_group(fail(NULL, ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, n));
  if (config && config->magic != 0xcafebeef)
    return in_group(fail(NULL, ncclInvalidArgument,
                         "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER"));
  ncclComm_t c = emulated_alloc(sizeof *c);
  c->rank = rank;
  c->n = n;
  c->id = id;
  c->users = 1;
  c->blocking = !config || config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking != 0;
  // It allocates: not while a graph is recorded, nor without a gpu.
  if (cudaFree(NULL) != cudaSuccess || cudaGetDevice(&c->device) != cudaSuccess) {
    free(c);
    return in_group(fail(NULL, ncclUnhandledCudaError, "Cuda failure '%s'",
                         cudaGetErrorString(cudaPeekAtLastError())));
  }
  ncclResult_t r = open_shared(c);
  if (r != ncclSuccess) {
    release(c);
    return in_group(r);
  }
  *out = c;
  if (depth) {
    c->next = joining;
    joining = c;
    return ncclSuccess;
  }
  if (!c->blocking) return ncclInProgress;
  wait_joined(c);
  if (c->state != FAILED) return ncclSuccess;
  *out = NULL;
  r = c->failure;
  release(c);
  return r;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, n, id, rank, NULL);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out) {
  if (!c || !out) return fail(c, ncclInvalidArgument, "ncclCommGetAsyncError: NULL argument");
  try_join(c);
  *out = ncclSuccess;
  switch (c->state) {
  case JOINING: *out = ncclInProgress; break;
  case IN_PROGRESS:
    *out = ncclInProgress; // the next time it is not
    c->state = READY;
    break;
  case FINALIZED: *out = atomic_load(&c->users) > 1 ? ncclInProgress : ncclSuccess; break;
  case FAILED: *out = c->failure; break;
  case READY: break;
  }
  return ncclSuccess;
}

// Every call begins with this.
static ncclResult_t check_ready(ncclComm_t c, const char *what) {
  if (!c) return fail(NULL, ncclInvalidArgument, "%s : comm argument is NULL", what);
  if (c->state == JOINING || c->state == IN_PROGRESS)
    return fail(c, ncclInvalidArgument,
                "Attempt to use communicator before the previous operation returned ncclSuccess");
  if (c->state == FAILED) return c->failure;
  if (c->state == FINALIZED || atomic_load(&c->aborted))
    return fail(c, ncclInvalidArgument, "%s : the communicator has been finalized", what);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  ncclResult_t r = check_ready(c, "ncclCommFinalize");
  if (r != ncclSuccess) return r;
  c->state = FINALIZED;
  if (!c->blocking) return ncclInProgress;
  int device;
  cudaGetDevice(&device);
  cudaSetDevice(c->device);
  cudaDeviceSynchronize();
  cudaSetDevice(device);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  if (!c) return ncclSuccess;
  if (c->state == JOINING || c->state == IN_PROGRESS)
    return fail(c, ncclInvalidArgument,
                "Attempt to use communicator before the previous operation returned ncclSuccess");
  int device;
  cudaGetDevice(&device);
  cudaSetDevice(c->device);
  cudaDeviceSynchronize();
  cudaSetDevice(device);
  release(c);
  return ncclSuccess;
}

// Work that waits for other ranks ends, as it is; nobody else is told.
ncclResult_t ncclCommAbort(ncclComm_t c) {
  if (!c) return ncclSuccess;
  atomic_store(&c->aborted, true);
  // Nobody is to find what has not come together.
  char path[128];
  path_of(&c->id, path, sizeof path);
  if (c->state == JOINING) shm_unlink(path);
  while (atomic_load(&c->running) > 0) {
    // Whoever runs it finds out; if nobody does, it is us.
    int device;
    cudaGetDevice(&device);
    cudaSetDevice(c->device);
    cudaDeviceSynchronize();
    cudaSetDevice(device);
  }
  release(c);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *out) {
  if (!c || !out) return fail(c, ncclInvalidArgument, "ncclCommCount: NULL argument");
  *out = c->n;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *out) {
  if (!c || !out) return fail(c, ncclInvalidArgument, "ncclCommUserRank: NULL argument");
  *out = c->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t c, int *out) {
  if (!c || !out) return fail(c, ncclInvalidArgument, "ncclCommCuDevice: NULL argument");
  *out = c->device;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r) {
  switch (r) {
  case ncclSuccess: return "no error";
  case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError: return "remote process exited or there was a network error";
  case ncclInProgress: return "NCCL operation in progress";
  case ncclNumResults: break;
  }
  return "unknown result code";
}

const char *ncclGetLastError(ncclComm_t c) {
  return c && *c->error ? c->error : last_error;
}

// ---- Memory

ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
  cudaError_t e = cudaMalloc(out, bytes);
  return e == cudaSuccess
             ? ncclSuccess
             : fail(NULL, ncclUnhandledCudaError, "Cuda failure '%s'", cudaGetErrorString(e));
}

ncclResult_t ncclMemFree(void *p) {
  return cudaFree(p) == cudaSuccess
             ? ncclSuccess
             : fail(NULL, ncclInvalidArgument, "ncclMemFree: not allocated by ncclMemAlloc");
}

// A handle is the address itself.
static ncclResult_t register_memory(ncclComm_t c, void *at, size_t bytes, void **out) {
  ncclResult_t r = check_ready(c, "ncclCommRegister");
  if (r != ncclSuccess) return r;
  if (!out || !emulated_on_device(at, bytes))
    return fail(c, ncclInvalidArgument, "ncclCommRegister: not memory of the gpu");
  *out = at;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void *at, size_t bytes, void **out) {
  return register_memory(c, at, bytes, out);
}

ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
  return c && handle ? ncclSuccess : fail(c, ncclInvalidArgument, "ncclCommDeregister: NULL");
}

ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *at, size_t bytes, ncclWindow_t *out,
                                    int flags) {
  if (flags & ~NCCL_WIN_COLL_SYMMETRIC || (uintptr_t)at % NCCL_WIN_REQUIRED_ALIGNMENT)
    return fail(c, ncclInvalidArgument, "ncclCommWindowRegister: flags or alignment");
  return register_memory(c, at, bytes, (void **)out);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t w) {
  return ncclCommDeregister(c, w);
}

// ---- Calls

static ncclResult_t collect(Call call) {
  ncclComm_t c = call.comm;
  const Label *l = &call.label;
  const char *name = kind_name[l->kind];
  ncclResult_t r = check_ready(c, name);
  if (r != ncclSuccess) return in_group(r);
  size_t size = size_of(l->type);
  if (size == 0)
    return in_group(fail(c, ncclInvalidArgument, "%s : invalid type %d", name, l->type));
  bool floats = l->type >= ncclFloat16 && l->type <= ncclBfloat16;
  if (l->reduction < 0 || l->reduction >= ncclNumOps || (l->reduction == ncclAvg && !floats))
    return in_group(
        fail(c, ncclInvalidArgument, "%s : invalid reduction operation %d", name, l->reduction));
  if (l->root < 0 || l->root >= c->n || call.peer < 0 || call.peer >= c->n)
    return in_group(fail(c, ncclInvalidArgument, "%s : invalid root %d", name,
                         is_message(&call) ? call.peer : l->root));
  size_t n = (size_t)c->n, from = l->count * size, to = from;
  if (l->kind == REDUCE_SCATTER) from *= n;
  if (l->kind == ALL_GATHER) to *= n;
  bool reads = l->kind != RECV && (l->kind != BROADCAST || c->rank == l->root);
  bool writes = l->kind != SEND && (l->kind != REDUCE || c->rank == l->root);
  if (l->count && ((reads && !emulated_reachable(call.from, from)) ||
                   (writes && !emulated_reachable(call.to, to))))
    emulated_abort("%s of rank %d: a buffer is not in the gpu's memory", name, c->rank);
  if (l->count) {
    collected = realloc(collected, (size_t)(n_collected + 1) * sizeof *collected);
    if (!collected) emulated_abort("no memory");
    collected[n_collected++] = call;
  }
  return ncclSuccess;
}

// A call outside of a group is a group of one.
static ncclResult_t do_call(Call call) {
  ncclGroupStart();
  ncclResult_t r = collect(call), end = ncclGroupEnd();
  return r != ncclSuccess ? r : end;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return do_call((Call){{ALL_REDUCE, (int)type, (int)op, 0, count}, 0, from, to, c, s, 0, 0, 0});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return do_call(
      (Call){{REDUCE_SCATTER, (int)type, (int)op, 0, count}, 0, from, to, c, s, 0, 0, 0});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t s) {
  return do_call((Call){{ALL_GATHER, (int)type, 0, 0, count}, 0, from, to, c, s, 0, 0, 0});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t s) {
  return do_call((Call){{BROADCAST, (int)type, 0, root, count}, 0, from, to, c, s, 0, 0, 0});
}

ncclResult_t ncclBcast(void *at, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                       cudaStream_t s) {
  return ncclBroadcast(at, at, count, type, root, c, s);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s) {
  return do_call((Call){{REDUCE, (int)type, (int)op, root, count}, 0, from, to, c, s, 0, 0, 0});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s) {
  return do_call((Call){{SEND, (int)type, 0, 0, count}, peer, from, NULL, c, s, 0, 0, 0});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s) {
  return do_call((Call){{RECV, (int)type, 0, 0, count}, peer, NULL, to, c, s, 0, 0, 0});
}
