// NCCL between two threads and between two processes: results, graphs, waiting, refusals.

#include <nccl.h>
#include <pthread.h>

#include "emulator.h"
#include "test.h"

enum { RANKS = 2, N = 50000, MS = 1000 }; // elements: more than one step

typedef struct Rank {
  ncclUniqueId id;
  int rank;
  ncclComm_t comm;
  cudaStream_t stream;
  float *x, *y; // in GPU memory, RANKS * N
} Rank;

static float given(int rank, int i) {
  return (float)(rank + 1) * (float)(i % 100);
}

static void put(Rank *r) {
  float *from = malloc(RANKS * N * sizeof *from);
  CHECK(from);
  for (int i = 0; i < RANKS * N; i++)
    from[i] = given(r->rank, i);
  OK(cudaMemcpy(r->x, from, RANKS * N * sizeof *from, cudaMemcpyHostToDevice));
  OK(cudaMemset(r->y, 0xff, RANKS * N * sizeof *from));
  OK(cudaStreamSynchronize(NULL));
  free(from);
}

static void check(Rank *r, int n, float (*wanted)(const Rank *r, int i)) {
  float *got = malloc(RANKS * N * sizeof *got);
  CHECK(got);
  OK(cudaStreamSynchronize(r->stream));
  OK(cudaMemcpy(got, r->y, RANKS * N * sizeof *got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++)
    CHECK(got[i] == wanted(r, i));
  CHECK(n == RANKS * N || got[n] != got[n]); // elements after the result
  free(got);
}

static float sum(const Rank *r, int i) {
  (void)r;
  return given(0, i) + given(1, i);
}
static float mean(const Rank *r, int i) {
  return sum(r, i) / 2;
}
static float own_block(const Rank *r, int i) {
  return sum(r, r->rank * N + i);
}
static float gathered(const Rank *r, int i) {
  (void)r;
  return given(i / N, i % N);
}
static float of_1(const Rank *r, int i) {
  (void)r;
  return given(1, i);
}
static float of_other(const Rank *r, int i) {
  return given(1 - r->rank, i);
}

static void wait_until_ready(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress)
    OK(ncclCommGetAsyncError(comm, &state));
  OK(state);
}

static void join(Rank *r) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  OK(cudaSetDevice(r->rank));
  OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
  OK(ncclMemAlloc((void **)&r->x, RANKS * N * sizeof *r->x));
  OK(ncclMemAlloc((void **)&r->y, RANKS * N * sizeof *r->y));
  CHECK_IS(ncclCommInitRankConfig(&r->comm, RANKS, r->id, r->rank, &config), ncclInProgress);
  // Not before it is ready.
  CHECK_IS(ncclAllReduce(r->x, r->y, 1, ncclFloat, ncclSum, r->comm, r->stream),
           ncclInvalidArgument);
  wait_until_ready(r->comm);
}

static void leave(Rank *r) {
  CHECK_IS(ncclCommFinalize(r->comm), ncclInProgress);
  wait_until_ready(r->comm);
  OK(ncclCommDestroy(r->comm));
  OK(ncclMemFree(r->x));
  OK(ncclMemFree(r->y));
  OK(cudaStreamDestroy(r->stream));
}

static void collectives(Rank *r) {
  ncclComm_t c = r->comm;
  cudaStream_t s = r->stream;
  void *handle;
  put(r);
  OK(ncclCommRegister(c, r->y, RANKS * N * sizeof *r->y, &handle));
  // The first call connects, and a nonblocking communicator has to wait for that.
  CHECK_IS(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, c, s), ncclInProgress);
  wait_until_ready(c);
  check(r, N, sum);
  put(r);
  OK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclAvg, c, s));
  check(r, N, mean);
  put(r);
  OK(ncclReduceScatter(r->x, r->y, N, ncclFloat, ncclSum, c, s));
  check(r, N, own_block);
  put(r);
  OK(ncclAllGather(r->x, r->y, N, ncclFloat, c, s));
  check(r, RANKS * N, gathered);
  put(r);
  OK(ncclBroadcast(r->x, r->y, N, ncclFloat, 1, c, s));
  check(r, N, of_1);
  put(r);
  OK(ncclGroupStart());
  OK(ncclSend(r->x, N, ncclFloat, 1 - r->rank, c, s));
  OK(ncclRecv(r->y, N, ncclFloat, 1 - r->rank, c, s));
  CHECK_IS(ncclGroupEnd(), ncclInProgress);
  wait_until_ready(c);
  check(r, N, of_other);
  OK(ncclCommDeregister(c, handle));
}

// In place, twice, in a graph; a replay reads the current data.
static void graph(Rank *r) {
  cudaGraph_t g;
  cudaGraphExec_t exec;
  put(r);
  OK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
  OK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, r->comm, r->stream));
  OK(ncclGroupStart());
  OK(ncclAllReduce(r->x, r->x, N, ncclFloat, ncclSum, r->comm, r->stream));
  OK(ncclAllReduce(r->x + N, r->x + N, 10, ncclFloat, ncclMax, r->comm, r->stream));
  OK(ncclGroupEnd());
  OK(cudaStreamEndCapture(r->stream, &g));
  OK(cudaGraphInstantiate(&exec, g, 0));
  OK(cudaGraphDestroy(g));
  for (int i = 0; i < 2; i++) {
    put(r);
    OK(cudaGraphLaunch(exec, r->stream));
    check(r, N, sum);
  }
  OK(cudaGraphExecDestroy(exec));
}

// A rank that waits on the host for another event still takes part.
static void only_the_first_waits(Rank *r) {
  put(r);
  OK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, r->comm, r->stream));
  if (r->rank == 1) usleep(300 * MS);
  check(r, N, sum);
}

static void *run_rank(void *at) {
  Rank *r = at;
  join(r);
  collectives(r);
  graph(r);
  only_the_first_waits(r);
  leave(r);
  return NULL;
}

static void run_both(void *(*what)(void *), bool by_process) {
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  Rank rank[RANKS] = {{.id = id, .rank = 0}, {.id = id, .rank = 1}};
  if (by_process) {
    for (int i = 0; i < RANKS; i++)
      if (fork() == 0) {
        what(&rank[i]);
        exit(0);
      }
    for (int i = 0; i < RANKS; i++) {
      int status;
      wait(&status);
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return;
  }
  pthread_t thread[RANKS];
  for (int i = 0; i < RANKS; i++)
    OK(pthread_create(&thread[i], NULL, what, &rank[i]));
  for (int i = 0; i < RANKS; i++)
    OK(pthread_join(thread[i], NULL));
}

// ---- Two ranks on one GPU

static void *share_gpu(void *at) {
  Rank *r = at;
  ncclComm_t c;
  OK(cudaSetDevice(0));
  CHECK_IS(ncclCommInitRank(&c, RANKS, r->id, r->rank), ncclInvalidUsage);
  CHECK(strstr(ncclGetLastError(NULL), "Duplicate GPU detected : rank 1 and rank 0"));
  return NULL;
}

// ---- A lost peer: waiting does not end until the communicator is aborted

static void *lose_peer(void *at) {
  Rank *r = at;
  join(r);
  put(r);
  CHECK_IS(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, r->comm, r->stream), ncclInProgress);
  wait_until_ready(r->comm);
  check(r, N, sum);
  if (r->rank == 1) _exit(0);
  OK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, r->comm, r->stream));
  for (int i = 0; i < 200; i++) {
    CHECK_IS(cudaStreamQuery(r->stream), cudaErrorNotReady);
    ncclResult_t state;
    OK(ncclCommGetAsyncError(r->comm, &state));
    OK(state);
    usleep(MS);
  }
  OK(ncclCommAbort(r->comm));
  OK(cudaStreamSynchronize(r->stream));
  return NULL;
}

// ---- Ranks that call different operations get an error

static void *disagree(void *at) {
  Rank *r = at;
  join(r);
  put(r);
  ncclAllReduce(r->x, r->y, r->rank ? 10 : 11, ncclFloat, ncclSum, r->comm, r->stream);
  cudaStreamSynchronize(r->stream);
  return NULL;
}
static void both_disagree(void) {
  run_both(disagree, false);
}

static void refuse_arguments(void) {
  ncclComm_t c;
  ncclUniqueId id;
  float *x;
  OK(ncclGetUniqueId(&id));
  OK(cudaMalloc((void **)&x, 16));
  CHECK_IS(ncclCommInitRank(&c, 2, id, 2), ncclInvalidArgument);
  OK(ncclCommInitRank(&c, 1, id, 0));
  CHECK_IS(ncclAllReduce(x, x, 4, (ncclDataType_t)99, ncclSum, c, NULL), ncclInvalidArgument);
  CHECK_IS(ncclAllReduce(x, x, 4, ncclFloat, (ncclRedOp_t)99, c, NULL), ncclInvalidArgument);
  CHECK_IS(ncclBroadcast(x, x, 4, ncclFloat, 1, c, NULL), ncclInvalidArgument);
  CHECK_IS(ncclGroupEnd(), ncclInvalidUsage);
  OK(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, c, NULL));
  OK(ncclCommDestroy(c));
  OK(cudaFree(x));
  int version;
  OK(ncclGetVersion(&version));
  CHECK(version == NCCL_VERSION_CODE);
}

int main(void) {
  setenv("EMULATED_GPUS", "2", 1);
  // Processes are forked before this one uses a GPU.
  run_both(run_rank, true);
  run_both(share_gpu, true);
  run_both(lose_peer, true);
  check_dies(both_disagree, "nccl: ranks call different things");
  run_both(run_rank, false);
  run_both(share_gpu, false);
  refuse_arguments();
}
