// Collectives of ranks that are threads of this process, on one GPU or on several with peer access.
//
// As in ../comm_threads.c, an all_reduce of n ranks splits the tensor into n chunks, and rank i
// adds chunk i of all x:
//
//     x of all │ y_i[chunk i] = Σ x_k[chunk i] │ y_i[chunk k] = y_k[chunk k] │
//
// The bars are events: a rank's stream waits for the events that all others have recorded in
// theirs. An event must be recorded before another stream can wait for it.  So the threads meet
// after they have enqueued their parts, and continue without waiting for the GPU.  They meet once
// more at the end, so that no event is recorded again before all streams wait for its previous
// state.
//
// The order of addition is the order of ranks, as on CPUs.
//
// The threads are therefore one queue for both streams: a move blocks its host thread until the
// other participants arrive, and with it all later work.

#include <stdlib.h>

#include "collectives.h"
#include "machine.h"
#include "ranks.h"

enum { BARS = 3 };

typedef struct Shown { // published by one rank
  const void *x;
  void *y;
  const Route *route; // of a move
  cudaEvent_t bar[BARS];
} Shown;

static _Atomic(Shown *) shown; // [ranks]; of the process

// Enables peer access from this rank's GPU to the others.
static int allow_peers(const NnrtRank *r) {
  int here = r->device->gpu.index;
  for (int i = 0; i < r->ranks; i++) {
    int there = nnrt_gpu_of_rank(r->run, i), can = 0;
    if (there == here) continue;
    int code = nnrt_cuda(cudaDeviceCanAccessPeer(&can, here, there), "asking the gpu");
    if (code) return code;
    if (!can)
      return nnrt_error(NNRT_COMM,
                        "gpu %d cannot read the memory of gpu %d\n"
                        "hint: one process for each rank, as in: mpirun -n %d",
                        here, there, r->ranks);
    // Access is enabled once per pair of GPUs.
    cudaError_t e = cudaDeviceEnablePeerAccess(there, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError(); // enabled by another rank on this GPU
    else if ((code = nnrt_cuda(e, "reading another gpu's memory")))
      return code;
  }
  return 0;
}

static int open_threads(NnrtRank *r) {
  // Every rank has a place in a table of the process.
  if (r->rank == 0) atomic_store(&shown, nnrt_must_alloc((size_t)r->ranks * sizeof(Shown)));
  nnrt_comm_meet(r, &r->comm->world);
  Shown *mine = &atomic_load(&shown)[r->rank];
  int code = 0;
  for (int i = 0; i < BARS && !code; i++)
    code = nnrt_cuda(cudaEventCreateWithFlags(&mine->bar[i], cudaEventDisableTiming),
                     "making an event");
  return code ? code : allow_peers(r);
}

static void close_threads(NnrtRank *r) {
  // No rank reads this slab or waits for these events after this.
  nnrt_comm_meet(r, &r->comm->world);
  for (int i = 0; i < BARS; i++)
    cudaEventDestroy(atomic_load(&shown)[r->rank].bar[i]);
  cudaFree(r->slab);
  nnrt_comm_meet(r, &r->comm->world);
  if (r->rank == 0) free(atomic_load(&shown));
}

static int memory_threads(NnrtRank *r, void **out, size_t bytes) {
  (void)r;
  return nnrt_cuda(cudaMalloc(out, bytes), "memory for the slab");
}

// A barrier for the streams of the group.
static int bar(NnrtRank *r, const Group *g, int number, cudaStream_t stream) {
  Shown *s = atomic_load(&shown);
  int code = nnrt_cuda(cudaEventRecord(s[r->rank].bar[number], stream), "meeting other ranks");
  // An event must be recorded before another stream can wait for it.
  nnrt_comm_meet(r, g);
  for (int i = 0; i < g->n && !code; i++)
    if (i != g->me)
      code = nnrt_cuda(cudaStreamWaitEvent(stream, s[g->rank[i]].bar[number], 0),
                       "meeting other ranks");
  return code;
}

static int copy(void *y, const void *x, int64_t bytes, cudaStream_t stream) {
  return nnrt_cuda(cudaMemcpyAsync(y, x, (size_t)bytes, cudaMemcpyDefault, stream),
                   "copying from another rank");
}

static int reduce_threads(NnrtRank *r, const Job *job) {
  const Group *g = job->group;
  int64_t n = job->n;
  Shown *s = atomic_load(&shown), *mine = &s[r->rank];
  cudaStream_t stream = r->device->gpu.comm;
  int64_t size = nnrt_dtype_size(job->dtype), line = 128 / size;
  int64_t chunk = ((n + g->n - 1) / g->n + line - 1) / line * line;
  mine->x = job->x;
  mine->y = job->y;
  int code = bar(r, g, 0, stream);
  if (code) return code;
  // This rank adds its chunk of all ranks' x.
  const void **parts = nnrt_must_alloc((size_t)g->n * sizeof *parts);
  int64_t first = chunk * g->me, count = n - first < chunk ? n - first : chunk;
  for (int i = 0; i < g->n; i++)
    parts[i] = (const char *)s[g->rank[i]].x + first * size;
  if (count > 0)
    code = nnrt_gpu_add((char *)job->y + first * size, parts, g->n, count, job->dtype, stream);
  free(parts);
  if (!code) code = bar(r, g, 1, stream);
  // Now all chunks are complete, and those of the others are copied.
  for (int k = 1; k < g->n && !code; k++) {
    int i = (g->me + k) % g->n; // spreads the load over ranks
    first = chunk * i;
    count = n - first < chunk ? n - first : chunk;
    if (count > 0)
      code = copy((char *)job->y + first * size, (char *)s[g->rank[i]].y + first * size,
                  count * size, stream);
  }
  if (!code) code = bar(r, g, 2, stream);
  nnrt_comm_meet(r, g);
  return code;
}

// Copies or adds a part of the x of every rank: y[i] or a term of y is rank i's x, or its x[me].
static int read_parts(NnrtRank *r, const Job *job) {
  const JobShape *shape = &nnrt_job_shape[job->kind];
  const Group *g = job->group;
  int64_t bytes = job->n * nnrt_dtype_size(job->dtype);
  Shown *s = atomic_load(&shown);
  cudaStream_t stream = r->device->gpu.comm;
  s[r->rank].x = job->x;
  int code = bar(r, g, 0, stream);
  const void **parts = nnrt_must_alloc((size_t)g->n * sizeof *parts);
  for (int i = 0; i < g->n; i++)
    parts[i] = (const char *)s[g->rank[i]].x + (shape->x_parts ? g->me * bytes : 0);
  if (!code && shape->sums) code = nnrt_gpu_add(job->y, parts, g->n, job->n, job->dtype, stream);
  for (int k = 0; k < g->n && !code && !shape->sums; k++) {
    int i = (g->me + k) % g->n; // spreads the load over ranks
    code = copy((char *)job->y + i * bytes, parts[i], bytes, stream);
  }
  free(parts);
  if (!code) code = bar(r, g, 1, stream);
  nnrt_comm_meet(r, g);
  return code;
}

static int move_threads(NnrtRank *r, const Job *job) {
  const Group *g = job->group;
  const Route *route = job->route;
  int64_t width = job->width;
  Shown *s = atomic_load(&shown);
  cudaStream_t stream = nnrt_gpu_comm_stream(r, route->move->ahead);
  s[r->rank].x = job->x;
  s[r->rank].route = route;
  int code = bar(r, g, 0, stream);
  for (int i = 0; i < route->n_from && !code; i++) {
    const RoutePeer *from = &route->from[i];
    const Shown *theirs = &s[from->rank];
    // Their parcel for this rank is at an offset among all their parcels.
    const RoutePeer *to = theirs->route->to;
    while (to->rank != r->rank)
      to++;
    int64_t at = to->at;
    code = copy((char *)job->y + from->at * width, (const char *)theirs->x + at * width,
                from->n * width, stream);
  }
  if (!code) code = bar(r, g, 1, stream);
  nnrt_comm_meet(r, g);
  return code;
}

static int run_threads(NnrtRank *r, const Job *job) {
  switch (job->kind) {
  case JOB_all_reduce: return reduce_threads(r, job);
  case JOB_all_gather:
  case JOB_reduce_scatter:
  case JOB_all_to_all: return read_parts(r, job);
  default: return move_threads(r, job);
  }
}

const GpuTransport nnrt_gpu_threads = {
    .records = false,
    .open = open_threads,
    .close = close_threads,
    .memory = memory_threads,
    .run = run_threads,
};
