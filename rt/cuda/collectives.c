// The order of collectives, and the copies around them.  See collectives.h.

#include "collectives.h"

#include <stdlib.h>

#include "machine.h"

// ---- opening

// Returns the slabs of all ranks on this rank's GPU, each a process; *out_shared: any two ranks
// share a GPU.  Collective.
static Slabs slabs_on_gpu(NnrtRank *r, bool *out_shared) {
  struct cudaDeviceProp p;
  MUST(r, nnrt_cuda(cudaGetDeviceProperties(&p, r->device->gpu.index), "asking the gpu"));
  int64_t *id = nnrt_must_alloc((size_t)r->ranks * sizeof *id);
  // Identifies the GPU independently of its index in a process.
  id[r->rank] = (int64_t)nnrt_xxh64(p.uuid.bytes, sizeof p.uuid.bytes, 0);
  nnrt_comm_sum(r, id, r->ranks);
  Slabs here = {0};
  *out_shared = false;
  for (int i = 0; i < r->ranks; i++) {
    if (id[i] == id[r->rank]) nnrt_slabs_add(&here, r->program, i, true, false);
    for (int j = 0; j < i; j++)
      *out_shared |= id[i] == id[j];
  }
  free(id);
  return here;
}

static const GpuTransport *choose_transport(NnrtRank *r) {
  if (r->run->launch.kind == LAUNCH_none) {
    // All ranks are threads of this process.
    if (r->rank == 0 && nnrt_gpu_of_rank(r->run, 1) != nnrt_gpu_of_rank(r->run, 0))
      nnrt_say_note("several gpus are used by one process; faster is one for each rank, as in: "
                    "mpirun -n %d",
                    r->ranks);
    return &nnrt_gpu_threads;
  }
  // Ranks that share a GPU all allocate from its memory, which check.c could not know.
  bool shared;
  Slabs here = slabs_on_gpu(r, &shared);
  if (!shared) return &nnrt_gpu_nccl;
  Why w;
  if (!nnrt_gpu_memory_enough(r->device->gpu.index, &here, &w)) {
    nnrt_say_error("%s", w.text);
    nnrt_end_job(1);
  }
  if (r->rank == 0)
    nnrt_say_note("some ranks share a gpu: their tensors go through this machine's memory, which "
                  "is slow");
  return &nnrt_gpu_host;
}

static int make_event(cudaEvent_t *out) {
  return nnrt_cuda(cudaEventCreateWithFlags(out, cudaEventDisableTiming), "making an event");
}

int nnrt_gpu_comm_open(NnrtRank *r) {
  if (r->ranks == 1) return 0;
  GpuComm *c = r->device->comm = nnrt_must_alloc(sizeof *c);
  c->transport = choose_transport(r);
  int64_t calls = !c->transport->records || !r->device->records;
  nnrt_comm_sum(r, &calls, 1);
  r->device->records = calls == 0; // all or none
  // An event per collective that may be in flight, made before any step.
  int code = make_event(&c->fork);
  for (int i = 0; i < MOST_STARTED && !code; i++)
    code = make_event(&c->started[i].done);
  return code ? code : c->transport->open(r);
}

void nnrt_gpu_comm_close(NnrtRank *r) {
  GpuComm *c = r->device->comm;
  // A single rank has allocated its slab without a transport.
  if (!c) {
    cudaFree(r->slab);
    return;
  }
  c->transport->close(r);
  cudaEventDestroy(c->fork);
  for (int i = 0; i < MOST_STARTED; i++)
    cudaEventDestroy(c->started[i].done);
  free(c);
}

int nnrt_device_waits_in(NnrtRank *r) {
  GpuComm *c = r->device ? r->device->comm : NULL;
  return c && c->transport->waits_in ? c->transport->waits_in(r) : -1;
}

int nnrt_gpu_comm_memory(NnrtRank *r, void **out, size_t bytes) {
  GpuComm *c = r->device->comm;
  if (c) return c->transport->memory(r, out, bytes);
  return nnrt_cuda(cudaMalloc(out, bytes), "memory for the slab");
}

// ---- dependencies between streams

cudaStream_t nnrt_gpu_comm_stream(const NnrtRank *r, bool ahead) {
  return ahead ? r->device->gpu.ahead : r->device->gpu.comm;
}

// Makes the compute stream wait for collective `number` and all before it.
static int join(NnrtRank *r, int64_t number) {
  GpuComm *c = r->device->comm;
  if (number < c->n_joined) return 0;
  c->n_joined = number + 1;
  return nnrt_cuda(
      cudaStreamWaitEvent(r->device->gpu.stream, c->started[number % MOST_STARTED].done, 0),
      "waiting for a collective");
}

int nnrt_gpu_comm_join(NnrtRank *r) {
  GpuComm *c = r->device->comm;
  return c && c->n_started > c->n_joined ? join(r, c->n_started - 1) : 0;
}

int nnrt_gpu_comm_call(NnrtRank *r, const Job *job) {
  cudaStream_t stream = nnrt_gpu_comm_stream(r, job->ahead);
  // The stream first waits for all earlier work of the compute stream.
  cudaEvent_t fork = r->device->comm->fork;
  int code = nnrt_cuda(cudaEventRecord(fork, r->device->gpu.stream), "starting a collective");
  if (!code) code = nnrt_cuda(cudaStreamWaitEvent(stream, fork, 0), "starting a collective");
  if (code) return code;
  int64_t from = r->trace ? nnrt_gpu_mark(r, stream) : 0;
  code = r->device->comm->transport->run(r, job);
  if (!code && r->trace)
    nnrt_trace_device(r, job->ahead ? TRACE_moves : TRACE_comm, nnrt_trace_of(r), from,
                      nnrt_gpu_mark(r, stream));
  return code;
}

static int start(NnrtRank *r, const Job *job) {
  GpuComm *c = r->device->comm;
  // The oldest one gives up its event.
  if (c->n_started - c->n_joined == MOST_STARTED) {
    int code = join(r, c->n_joined);
    if (code) return code;
  }
  int code = nnrt_gpu_comm_call(r, job);
  if (code) return code;
  // nnrt_wait finds a collective by the address of its result.
  Started *s = &c->started[c->n_started++ % MOST_STARTED];
  s->y = job->y;
  s->bytes = job->n * nnrt_dtype_size(job->dtype);
  c->n_ahead += job->ahead;
  return nnrt_cuda(cudaEventRecord(s->done, nnrt_gpu_comm_stream(r, job->ahead)),
                   "starting a collective");
}

int nnrt_gpu_comm_do(NnrtRank *r, const Job *job) {
  int code = start(r, job);
  return code ? code : join(r, r->device->comm->n_started - 1);
}

// ---- functions of comm_calls.h, which generated code calls

int nnrt_wait(NnrtRank *r, const void *y) {
  GpuComm *c = r->device->comm;
  if (!c) return 0;
  const char *at = y;
  // The newest collective that wrote there.
  for (int64_t i = c->n_started - 1; i >= c->n_joined; i--) {
    const Started *s = &c->started[i % MOST_STARTED];
    if (s->y <= at && at < s->y + s->bytes) return join(r, i);
  }
  return 0;
}

// Copies `rows` pieces of `width` bytes with these strides in bytes.
static int copy_rows(char *y, int64_t y_step, const char *x, int64_t x_step, int64_t width,
                     int64_t rows, cudaStream_t stream) {
  // A stride must fit in 31 bits (the device property memPitch).
  if (y_step <= INT32_MAX && x_step <= INT32_MAX && rows > 1)
    return nnrt_cuda(cudaMemcpy2DAsync(y, (size_t)y_step, x, (size_t)x_step, (size_t)width,
                                       (size_t)rows, cudaMemcpyDeviceToDevice, stream),
                     "copying parts");
  for (int64_t i = 0; i < rows; i++) {
    int code = nnrt_cuda(cudaMemcpyAsync(y + i * y_step, x + i * x_step, (size_t)width,
                                         cudaMemcpyDeviceToDevice, stream),
                         "copying parts");
    if (code) return code;
  }
  return 0;
}

// Parts of ranks are concatenated: part[n, outer, run].  A tensor sharded along a later dimension
// interleaves them: whole[outer, n, run].
static int take_apart(NnrtRank *r, char *part, const char *whole, int n, int64_t outer,
                      int64_t run) {
  int code = 0;
  for (int i = 0; i < n && !code; i++)
    code = copy_rows(part + i * outer * run, run, whole + i * run, n * run, run, outer,
                     r->device->gpu.stream);
  return code;
}

static int put_together(NnrtRank *r, char *whole, const char *part, int n, int64_t outer,
                        int64_t run) {
  int code = 0;
  for (int i = 0; i < n && !code; i++)
    code = copy_rows(whole + i * run, n * run, part + i * outer * run, run, run, outer,
                     r->device->gpu.stream);
  return code;
}

static int64_t product(int64_t n, const int64_t *dims) {
  int64_t product = 1;
  for (int64_t d = 0; d < n; d++)
    product *= dims[d];
  return product;
}

static int collective(JobKind kind, void *y, const void *x, int64_t ndim, const int64_t *dims,
                      int64_t from, int64_t to, NnrtRank *r, int group, NnrtDtype t, int64_t unit) {
  const Group *g = &r->comm->group[group];
  int64_t n = product(ndim, dims) * unit / (to >= 0 ? g->n : 1), bytes = n * nnrt_dtype_size(t);
  Job job = {kind, g, y, x, n, t, .everyone = true};
  if (g->n == 1) return nnrt_copy(y, x, bytes);
  if (bytes == 0) return 0;
  // nnrt_wait joins it.
  if (kind == JOB_all_reduce) return start(r, &job);
  // The dimensions before the split ones decide whether parts are contiguous in x, and in y.
  int64_t x_runs = to < 0 ? 1 : product(to, dims);
  int64_t y_runs = from < 0 ? 1 : product(from, dims) / (to >= 0 && to < from ? g->n : 1);
  int64_t room = (bytes * g->n + 255) / 256 * 256;
  char *parts = NULL;
  if (x_runs > 1 || y_runs > 1) {
    parts = nnrt_gpu_scratch(room * ((x_runs > 1) + (y_runs > 1)));
    if (!parts) return NNRT_MEMORY;
  }
  if (x_runs > 1) {
    int code = take_apart(r, parts, x, g->n, x_runs, bytes / x_runs);
    if (code) return code;
    job.x = parts;
    parts += room;
  }
  if (y_runs > 1) job.y = parts;
  // The reader follows at once, so the collective is joined.
  int code = nnrt_gpu_comm_do(r, &job);
  if (!code && y_runs > 1) code = put_together(r, y, parts, g->n, y_runs, bytes / y_runs);
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
  // No communication: each rank keeps its part of the replicated tensor.
  int parts, mine = nnrt_group_place(r, group, &parts);
  int64_t part = run / parts;
  if (part == 0 || outer == 0) return 0;
  return copy_rows(y, part, (const char *)x + part * mine, run, part, outer, r->device->gpu.stream);
}

static int move(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums,
                NnrtDtype t) {
  return nnrt_gpu_move(y, x, r, number, size, sums, t);
}

static int move_start(void *y, const void *x, NnrtRank *r, int number, int64_t size, bool sums) {
  return nnrt_gpu_move_start(y, x, r, number, size, sums);
}

static int move_wait(void *y, NnrtRank *r, int number, int64_t size, bool sums, NnrtDtype t) {
  return nnrt_gpu_move_wait(y, r, number, size, sums, t);
}

#include "comm_calls.h"
