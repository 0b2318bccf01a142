// The emulated NCCL: calls.  They are collected, and those of one communicator are enqueued in
// their stream as one piece of work when the group ends; a call outside of a group is a group of
// one.

#include <stdlib.h>

#include "nccl_internal.h"

const char *const nccl_kind_name[] = {
    "ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast",
    "ncclReduce",    "ncclSend",          "ncclRecv",
};

// ---- Groups

// nccl.h declares these without prototypes.
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static __thread int depth;
static __thread Call *collected;
static __thread int n_collected;
static __thread ncclComm_t joining; // communicators with ncclCommInitRank in the group
static __thread ncclResult_t group_error;

static void free_group(EmulatedWork *w) {
  Group *g = (Group *)w;
  nccl_release(g->comm);
  free(g);
}

static ncclResult_t put(ncclComm_t c) {
  int n = 0;
  for (int i = 0; i < n_collected; i++)
    n += collected[i].comm == c;
  Group *g = emulated_alloc(sizeof *g + (size_t)n * sizeof *g->call);
  g->work = (EmulatedWork){"nccl", nccl_run_group, free_group};
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
    pairs |= nccl_is_message(&collected[i]);
  }
  // NCCL switches to the communicator's GPU by itself.
  int device;
  cudaGetDevice(&device);
  cudaSetDevice(c->device);
  cudaError_t e = emulated_enqueue(stream, &g->work, c);
  cudaSetDevice(device);
  if (e != cudaSuccess)
    return nccl_fail(c, ncclUnhandledCudaError, "Cuda failure '%s'", cudaGetErrorString(e));
  // Connections are made on first use, and a nonblocking communicator does not wait for them.
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
  if (depth == 0) return nccl_fail(NULL, ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  if (--depth > 0) return ncclSuccess;
  ncclResult_t result = group_error;
  group_error = ncclSuccess;
  // Only after all have been opened can each be waited for.
  for (ncclComm_t c = joining, next; c; c = next) {
    next = c->next;
    if (c->blocking) nccl_wait_joined(c);
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

ncclResult_t nccl_in_group(ncclResult_t r) {
  if (r != ncclSuccess && r != ncclInProgress && depth && group_error == ncclSuccess)
    group_error = r;
  return r;
}

bool nccl_join_later(ncclComm_t c) {
  if (depth == 0) return false;
  c->next = joining;
  joining = c;
  return true;
}

// ---- Calls

static ncclResult_t collect(Call call) {
  ncclComm_t c = call.comm;
  const Label *l = &call.label;
  const char *name = nccl_kind_name[l->kind];
  ncclResult_t r = nccl_check_ready(c, name);
  if (r != ncclSuccess) return nccl_in_group(r);
  size_t size = nccl_size_of(l->type);
  if (size == 0)
    return nccl_in_group(nccl_fail(c, ncclInvalidArgument, "%s : invalid type %d", name, l->type));
  bool floats = l->type >= ncclFloat16 && l->type <= ncclBfloat16;
  if (l->reduction < 0 || l->reduction >= ncclNumOps || (l->reduction == ncclAvg && !floats))
    return nccl_in_group(nccl_fail(c, ncclInvalidArgument, "%s : invalid reduction operation %d",
                                   name, l->reduction));
  if (l->root < 0 || l->root >= c->n || call.peer < 0 || call.peer >= c->n)
    return nccl_in_group(nccl_fail(c, ncclInvalidArgument, "%s : invalid root %d", name,
                                   nccl_is_message(&call) ? call.peer : l->root));
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
