// Collectives of ranks that are processes and share a GPU, which NCCL refuses: through host memory
// and the connections of the processes.  Slow, and only meant for experiments.
//
// The host waits for the GPU, copies, and runs the job like CPU ranks (../comm_processes.c).

#include <stdlib.h>

#include "collectives.h"
#include "machine.h"

typedef struct Staged {
  char *x, *y; // pinned
  int64_t x_bytes, y_bytes;
} Staged;

static int open_staged(NnrtRank *r) {
  r->device->comm->state = nnrt_must_alloc(sizeof(Staged));
  return 0;
}

static void close_staged(NnrtRank *r) {
  Staged *s = r->device->comm->state;
  // A transport also frees the slab.
  cudaFreeHost(s->x);
  cudaFreeHost(s->y);
  cudaFree(r->slab);
  free(s);
}

static int memory_staged(NnrtRank *r, void **out, size_t bytes) {
  (void)r;
  return nnrt_cuda(cudaMalloc(out, bytes), "memory for the slab");
}

static int grow(char **at, int64_t *have, int64_t bytes) {
  if (*have >= bytes) return 0;
  // The contents of the old memory have been used.
  cudaFreeHost(*at);
  *at = NULL;
  *have = 0;
  int code = nnrt_cuda(cudaMallocHost((void **)at, (size_t)bytes), "pinned memory of this machine");
  if (!code) *have = bytes;
  return code;
}

static int collective_staged(NnrtRank *r, Job job) {
  const JobShape *shape = &nnrt_job_shape[job.kind];
  int64_t bytes = job.n * nnrt_dtype_size(job.dtype);
  int64_t x_bytes = bytes * (shape->x_parts ? job.group->n : 1);
  int64_t y_bytes = bytes * (shape->y_parts ? job.group->n : 1);
  Staged *s = r->device->comm->state;
  cudaStream_t stream = r->device->gpu.comm;
  void *y = job.y;
  int code = grow(&s->x, &s->x_bytes, x_bytes);
  if (!code) code = grow(&s->y, &s->y_bytes, y_bytes);
  if (!code)
    code = nnrt_cuda(cudaMemcpyAsync(s->x, job.x, (size_t)x_bytes, cudaMemcpyDeviceToHost, stream),
                     "copying from the gpu");
  // The host runs the job, so it waits for the copies before and after.
  if (!code) code = nnrt_cuda(cudaStreamSynchronize(stream), "waiting for the gpu");
  job.x = s->x;
  job.y = s->y;
  if (!code) code = nnrt_comm_do(r->comm, job);
  if (!code)
    code = nnrt_cuda(cudaMemcpyAsync(y, s->y, (size_t)y_bytes, cudaMemcpyHostToDevice, stream),
                     "copying to the gpu");
  return code ? code : nnrt_cuda(cudaStreamSynchronize(stream), "waiting for the gpu");
}

static int move_staged(NnrtRank *r, const Job *job) {
  const Route *route = job->route;
  int64_t width = job->width;
  cudaStream_t stream = nnrt_gpu_comm_stream(r, route->move->ahead);
  Exchange *e = nnrt_exchange_new(route->n_to, route->n_from);
  int code = 0;
  // A parcel per receiver, copied from its place in x.
  for (int i = 0; i < route->n_to; i++) {
    const RoutePeer *to = &route->to[i];
    e->to[i] = nnrt_parcel_new(to->rank, to->n * width);
    if (!code)
      code = nnrt_cuda(cudaMemcpyAsync(e->to[i].at, (const char *)job->x + to->at * width,
                                       (size_t)e->to[i].bytes, cudaMemcpyDeviceToHost, stream),
                       "copying from the gpu");
  }
  for (int i = 0; i < route->n_from; i++)
    e->from[i] = (Parcel){.peer = route->from[i].rank, .bytes = route->from[i].n * width};
  if (!code) code = nnrt_cuda(cudaStreamSynchronize(stream), "waiting for the gpu");
  if (!code) code = nnrt_comm_move(r->comm, e, route->move->ahead, (TraceOf){0});
  for (int i = 0; i < route->n_from && !code; i++)
    code = nnrt_cuda(cudaMemcpyAsync((char *)job->y + route->from[i].at * width, e->from[i].at,
                                     (size_t)e->from[i].bytes, cudaMemcpyHostToDevice, stream),
                     "copying to the gpu");
  if (!code) code = nnrt_cuda(cudaStreamSynchronize(stream), "waiting for the gpu");
  // The queue owns an exchange without receives.
  if (route->n_from > 0) nnrt_exchange_free(e);
  return code;
}

static int run_staged(NnrtRank *r, const Job *job) {
  return job->kind == JOB_move ? move_staged(r, job) : collective_staged(r, *job);
}

const GpuTransport nnrt_gpu_host = {
    .records = false,
    .open = open_staged,
    .close = close_staged,
    .memory = memory_staged,
    .run = run_staged,
};
