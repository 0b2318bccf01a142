// A GPU as the device (device.h): the slab in its memory, and copies to and from it.
//
// Copies from memory that is not pinned block the host.  So inputs go through the ring of
// machine.h; the host only waits if the ring is full of copies in flight.  Outputs come back
// through two pieces of pinned memory: one is filled while the other is emptied.

#include <stdlib.h>
#include <string.h>

#include "collectives.h"
#include "dnn.h"
#include "machine.h"
#include "products.h"

_Noreturn void nnrt_gpu_die(NnrtRank *r, int code) {
  nnrt_fail(r, -1, code);
}

// ---- host to device

static int64_t input_bytes(const NnrtRank *r) { // per step
  const NnrtProgram *p = r->program;
  int64_t bytes = 0;
  for (int i = 0; i < p->train.n_tensors; i++) {
    const NnrtTensor *t = &p->train.tensors[i];
    // Only inputs that this rank has, or a shard of them, are copied to it.
    Part part;
    if (t->role != NNRT_input || !nnrt_part_here(r, t, &part)) continue;
    bytes += nnrt_part_count(t, &part) * nnrt_dtype_size(t->dtype) * p->micro_batches;
  }
  return bytes;
}

static void ring_open(NnrtRank *r) {
  Ring *ring = &r->device->ring;
  // Capacity for two steps, so that the host can fill one while the previous one is pending.
  int64_t most = ((int64_t)1 << 30) / SEGMENT;
  int64_t n = 4 + (2 * input_bytes(r) + SEGMENT - 1) / SEGMENT;
  ring->n = (int)(n < most ? n : most);
  ring->copied = nnrt_must_alloc((size_t)ring->n * sizeof *ring->copied);
  ring->waits = nnrt_must_alloc((size_t)ring->n * sizeof *ring->waits);
  MUST(r, nnrt_cuda(cudaMallocHost((void **)&ring->at, (size_t)ring->n * SEGMENT),
                    "pinned memory of this machine"));
  for (int i = 0; i < ring->n; i++)
    MUST(r, nnrt_cuda(cudaEventCreateWithFlags(&ring->copied[i],
                                               cudaEventDisableTiming | cudaEventBlockingSync),
                      "making an event"));
}

static void ring_open_far(NnrtRank *r) {
  enum { FEW = 256 << 10 };
  Ring *ring = &r->device->ring;
  if (input_bytes(r) < FEW) return;
  // Without this memory copies start later.
  if (cudaMalloc((void **)&ring->far, (size_t)ring->n * SEGMENT) != cudaSuccess) {
    cudaGetLastError();
    ring->far = NULL;
    return;
  }
  MUST(r, nnrt_cuda(cudaStreamCreateWithFlags(&ring->stream, cudaStreamNonBlocking),
                    "making a stream"));
  MUST(r, nnrt_cuda(cudaEventCreateWithFlags(&ring->arrived, cudaEventDisableTiming),
                    "making an event"));
}

void nnrt_gpu_flush(NnrtRank *r) {
  enum { FEW = 64 << 10 };
  Ring *ring = &r->device->ring;
  cudaStream_t stream = r->device->gpu.stream;
  size_t bytes = (size_t)ring->bytes;
  if (ring->bytes == 0) return;
  if (ring->far && ring->bytes >= FEW) {
    // Many bytes go to `far` at once, in a stream of their own, while the GPU works on a step.  In
    // their turn they are copied from there to the slab.
    char *far = ring->far + (ring->from - ring->at);
    MUST(r, nnrt_cuda(cudaMemcpyAsync(far, ring->from, bytes, cudaMemcpyHostToDevice, ring->stream),
                      "copying to the gpu"));
    MUST(r, nnrt_cuda(cudaEventRecord(ring->arrived, ring->stream), "copying to the gpu"));
    MUST(r, nnrt_cuda(cudaStreamWaitEvent(stream, ring->arrived, 0), "copying to the gpu"));
    MUST(r, nnrt_cuda(cudaMemcpyAsync(ring->to, far, bytes, cudaMemcpyDeviceToDevice, stream),
                      "copying to the gpu"));
  } else {
    MUST(r, nnrt_cuda(cudaMemcpyAsync(ring->to, ring->from, bytes, cudaMemcpyHostToDevice, stream),
                      "copying to the gpu"));
  }
  ring->bytes = 0;
}

static void next_segment(NnrtRank *r) {
  Ring *ring = &r->device->ring;
  nnrt_gpu_flush(r);
  MUST(r, nnrt_cuda(cudaEventRecord(ring->copied[ring->current], r->device->gpu.stream),
                    "copying to the gpu"));
  // A segment is reused when its copies are complete.
  ring->waits[ring->current] = true;
  ring->current = (ring->current + 1) % ring->n;
  ring->used = 0;
  if (ring->waits[ring->current])
    MUST(r, nnrt_cuda(cudaEventSynchronize(ring->copied[ring->current]), "copying to the gpu"));
}

// Several threads read at once: page faults of a mapped file then request more than a page at a
// time from a disk.
static void copy(char *to, const char *from, int64_t bytes) {
  enum { PIECE = 256 << 10 };
#pragma omp parallel for if (bytes > 4 * PIECE)
  for (int64_t at = 0; at < bytes; at += PIECE)
    memcpy(to + at, from + at, (size_t)(bytes - at < PIECE ? bytes - at : PIECE));
}

// Host memory may have copies in flight in both directions; a step's copies are complete when its
// stream is.
static void wait_for_host(NnrtRank *r) {
  nnrt_gpu_flush(r);
  MUST(r, nnrt_cuda(cudaStreamSynchronize(r->device->gpu.stream), "waiting for the gpu"));
}

void nnrt_device_put(NnrtRank *r, void *to, const void *from, int64_t bytes) {
  if (nnrt_on_host(r, to)) {
    wait_for_host(r);
    copy(to, from, bytes);
    return;
  }
  Ring *ring = &r->device->ring;
  char *y = to;
  for (const char *x = from; bytes > 0;) {
    // Contiguous puts are gathered into one copy.
    if (y != ring->to + ring->bytes) nnrt_gpu_flush(r);
    if (ring->bytes == 0) {
      ring->used = (ring->used + 15) / 16 * 16;
      if (ring->used >= SEGMENT) next_segment(r);
      ring->to = y;
      ring->from = ring->at + (int64_t)ring->current * SEGMENT + ring->used;
    }
    // A put may span several segments.
    int64_t room = SEGMENT - ring->used, n = bytes < room ? bytes : room;
    copy(ring->from + ring->bytes, x, n);
    ring->used += n;
    ring->bytes += n;
    if (ring->used == SEGMENT) next_segment(r);
    x += n;
    y += n;
    bytes -= n;
  }
}

void nnrt_device_flush(NnrtRank *r) {
  nnrt_gpu_flush(r);
}

void nnrt_device_narrow(NnrtRank *r, void *to, NnrtDtype type, const void *from, int64_t n) {
  nnrt_gpu_flush(r);
  MUST(r, nnrt_gpu_narrow(to, type, from, n));
}

// ---- device to host

const void *nnrt_device_read(NnrtRank *r, const void *from, int64_t bytes) {
  NnrtDevice *d = r->device;
  if (nnrt_on_host(r, from)) {
    wait_for_host(r);
    return from;
  }
  nnrt_gpu_flush(r);
  if (d->host_bytes < bytes) {
    free(d->host);
    d->host = nnrt_must_alloc((size_t)bytes);
    d->host_bytes = bytes;
  }
  // Most ranks never read, so the pinned memory is allocated on first use.
  for (int i = 0; i < 2 && !d->out[i]; i++) {
    MUST(r,
         nnrt_cuda(cudaMallocHost((void **)&d->out[i], SEGMENT), "pinned memory of this machine"));
    MUST(r, nnrt_cuda(cudaEventCreateWithFlags(&d->out_done[i],
                                               cudaEventDisableTiming | cudaEventBlockingSync),
                      "making an event"));
  }
  // Double buffering: piece i is in flight while piece i - 1 is copied out.
  int64_t pieces = (bytes + SEGMENT - 1) / SEGMENT;
  for (int64_t i = 0; i <= pieces; i++) {
    int64_t at = i * SEGMENT, done = at - SEGMENT;
    if (i < pieces) {
      size_t n = (size_t)(bytes - at < SEGMENT ? bytes - at : SEGMENT);
      MUST(r, nnrt_cuda(cudaMemcpyAsync(d->out[i % 2], (const char *)from + at, n,
                                        cudaMemcpyDeviceToHost, d->gpu.stream),
                        "copying from the gpu"));
      MUST(r,
           nnrt_cuda(cudaEventRecord(d->out_done[i % 2], d->gpu.stream), "copying from the gpu"));
    }
    if (i == 0) continue;
    MUST(r, nnrt_cuda(cudaEventSynchronize(d->out_done[(i - 1) % 2]), "copying from the gpu"));
    memcpy(d->host + done, d->out[(i - 1) % 2],
           (size_t)(bytes - done < SEGMENT ? bytes - done : SEGMENT));
  }
  return d->host;
}

// The scratch is the same in every call, so that the first one, before the step is recorded, is
// the only one that allocates.
void nnrt_device_checksums(NnrtRank *r, const Range *range, int n, uint64_t *out) {
  if (n == 0) return;
  size_t bytes = (size_t)n * sizeof *out;
  // Copies to host memory are complete when the stream is.
  wait_for_host(r);
  uint64_t *sum = nnrt_gpu_scratch((int64_t)bytes);
  if (!sum) nnrt_gpu_die(r, NNRT_MEMORY);
  MUST(r, nnrt_cuda(cudaMemsetAsync(sum, 0, bytes, r->device->gpu.stream), "clearing checksums"));
  for (int i = 0; i < n; i++)
    MUST(r, nnrt_gpu_checksum(&sum[i], range[i].at, range[i].bytes));
  memcpy(out, nnrt_device_read(r, sum, (int64_t)bytes), bytes);
}

// ---- instruction sets of CPU kernels, which a program for GPUs has none of

bool nnrt_device_isa(int64_t *out_set, Why *w) {
  (void)w;
  *out_set = -1;
  return true;
}

bool nnrt_device_use_isa(int64_t set, Why *w) {
  (void)set;
  (void)w;
  return true;
}

const char *nnrt_device_isa_name(int64_t set) {
  (void)set;
  return "";
}

char *nnrt_device_isa_note(int64_t set, const Flags *f) {
  (void)set;
  (void)f;
  return NULL;
}

// ---- opening and closing

static void open_gpu(NnrtRank *r) {
  NnrtGpu *g = &r->device->gpu;
  int major, minor, least, greatest;
  nnrt_gpu_use(g);
  g->index = nnrt_gpu_of_rank(r->run, r->rank);
  MUST(r, nnrt_cuda(cudaSetDevice(g->index), "choosing a gpu"));
  MUST(r, nnrt_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, g->index),
                    "asking the gpu"));
  MUST(r, nnrt_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, g->index),
                    "asking the gpu"));
  MUST(r,
       nnrt_cuda(cudaDeviceGetAttribute(&g->processors, cudaDevAttrMultiProcessorCount, g->index),
                 "asking the gpu"));
  g->sm = 10 * major + minor;
  // Collectives go before computation: other ranks wait for them.
  MUST(r, nnrt_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking the gpu"));
  // Blocking streams would wait for the libraries' work in the default stream.
  MUST(r, nnrt_cuda(cudaStreamCreateWithPriority(&g->stream, cudaStreamNonBlocking, least),
                    "making a stream"));
  MUST(r, nnrt_cuda(cudaStreamCreateWithPriority(&g->comm, cudaStreamNonBlocking, greatest),
                    "making a stream"));
  MUST(r, nnrt_cuda(cudaStreamCreateWithPriority(&g->ahead, cudaStreamNonBlocking, greatest),
                    "making a stream"));
  MUST(r, nnrt_cuda(cudaMalloc((void **)&g->finding, sizeof *g->finding), "memory of the gpu"));
  MUST(r,
       nnrt_cuda(cudaMemsetAsync(g->finding, 0, sizeof *g->finding, g->stream), "clearing memory"));
  r->op = &g->op;
}

static void copy_constants(NnrtRank *r) {
  const NnrtProgram *p = r->program;
  int64_t bytes = 0;
  for (int i = 0; i < p->n_constants; i++)
    bytes += (p->constants[i].bytes + 255) / 256 * 256;
  r->constant = nnrt_must_alloc((size_t)p->n_constants * sizeof *r->constant);
  if (bytes == 0) return;
  // One block for all, each at a multiple of 256 bytes.
  char *at;
  MUST(r, nnrt_cuda(cudaMalloc((void **)&at, (size_t)bytes), "memory for constants"));
  for (int i = 0; i < p->n_constants; i++) {
    r->constant[i] = at;
    nnrt_device_put(r, at, p->constants[i].at, p->constants[i].bytes);
    at += (p->constants[i].bytes + 255) / 256 * 256;
  }
}

void nnrt_device_open(NnrtRank *r) {
  NnrtDevice *d = r->device = nnrt_must_alloc(sizeof *d);
  size_t bytes = (size_t)(r->code->slab_bytes > 0 ? r->code->slab_bytes : 1);
  open_gpu(r);
  // Blocking launches identify the failing op, unless it is one of many in a graph.
  const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
  d->records = !blocking || strcmp(blocking, "0") == 0;
  ring_open(r);
  // The results of a step arrive in pinned memory.
  for (int i = 0; i < NNRT_SLOTS; i++) {
    Slot *s = &d->slot[i];
    MUST(r, nnrt_cuda(cudaMallocHost((void **)&s->report, sizeof *s->report),
                      "pinned memory of this machine"));
    MUST(r, nnrt_cuda(
                cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming | cudaEventBlockingSync),
                "making an event"));
  }
  // The transport may allocate the slab in its own way.
  MUST(r, nnrt_gpu_comm_open(r));
  MUST(r, nnrt_gpu_moves_open(r));
  MUST(r, nnrt_gpu_comm_memory(r, (void **)&r->slab, bytes));
  MUST(r, nnrt_cuda(cudaMemsetAsync(r->slab, 0, bytes, d->gpu.stream), "clearing the slab"));
  MUST(r, nnrt_gpu_swaps_open(r));
  // After the slab, which must fit.
  ring_open_far(r);
  copy_constants(r);
}

void nnrt_device_finish(NnrtRank *r) {
  if (cudaStreamSynchronize(r->device->gpu.stream) == cudaSuccess && r->rank == 0)
    nnrt_gpu_say_memory(r);
}

void nnrt_device_close(NnrtRank *r) {
  NnrtDevice *d = r->device;
  // NCCL's communicators must outlive the graphs captured from them.
  nnrt_gpu_recordings_close(d);
  nnrt_gpu_swaps_close(r);
  nnrt_gpu_moves_close(r);
  nnrt_gpu_comm_close(r);
  nnrt_gpu_blas_free(&d->gpu);
  nnrt_gpu_dnn_free(&d->gpu);
  // Copies to the GPU.
  Ring *ring = &d->ring;
  for (int i = 0; i < ring->n; i++)
    cudaEventDestroy(ring->copied[i]);
  if (ring->far) {
    cudaEventDestroy(ring->arrived);
    cudaStreamDestroy(ring->stream);
    cudaFree(ring->far);
  }
  cudaFreeHost(ring->at);
  free(ring->copied);
  free(ring->waits);
  // Copies from the GPU, results and timestamps.
  for (int i = 0; i < 2 && d->out[i]; i++) {
    cudaEventDestroy(d->out_done[i]);
    cudaFreeHost(d->out[i]);
  }
  for (int i = 0; i < NNRT_SLOTS; i++) {
    cudaEventDestroy(d->slot[i].done);
    cudaFreeHost(d->slot[i].report);
  }
  for (int i = 0; i < d->marks_room; i++)
    cudaEventDestroy(d->mark[i]);
  if (d->zero) cudaEventDestroy(d->zero);
  free(d->mark);
  free(d->host);

  if (r->program->n_constants > 0)
    cudaFree((void *)(uintptr_t)r->constant[0]); // the first constant begins their memory
  free(r->constant);
  cudaFree(d->gpu.scratch);
  cudaFree(d->gpu.finding);
  cudaStreamDestroy(d->gpu.stream);
  cudaStreamDestroy(d->gpu.comm);
  cudaStreamDestroy(d->gpu.ahead);
  free(d);
}
