// Copies between the slab and pinned host memory, overlapped with computation.
//
//     stream     linear ──── gelu ──── linear ──── …           swap_out: a copy begins when all
//     out              └─ copy ─────────┘                      earlier work of the stream is done
//     in                                                       wait: the stream waits for the copy
//
// Weights, states and sums of gradients that are resident in host memory use the same pinned
// memory.
//
// There is a stream per direction, since a GPU has a copy engine for each.  A copy is complete when
// its event is, and the compute stream waits for the event in the position of the swap_wait.  Start
// and wait of a copy are in one piece of the step, so they are captured with it.

#include <stdlib.h>
#include <string.h>

#include "machine.h"

int nnrt_gpu_swaps_open(NnrtRank *r) {
  NnrtDevice *d = r->device;
  if (r->code->host_bytes == 0) return 0;
  // A program that offloads nothing has no host memory.
  int code = 0;
  for (int way = 0; way < 2 && !code; way++)
    code = nnrt_cuda(cudaStreamCreateWithFlags(&d->swaps.stream[way], cudaStreamNonBlocking),
                     "making a stream");
  if (!code)
    code = nnrt_cuda(cudaMallocHost((void **)&r->host, (size_t)r->code->host_bytes),
                     "pinned memory of this machine");
  return code;
}

void nnrt_gpu_swaps_close(NnrtRank *r) {
  Swaps *s = &r->device->swaps;
  if (!r->host) return;

  for (int i = 0; i < s->n; i++)
    if (s->event[i]) cudaEventDestroy(s->event[i]);
  for (int way = 0; way < 2; way++)
    cudaStreamDestroy(s->stream[way]);
  cudaFreeHost(r->host);
  free(s->event);
}

// Adds f32 on the device to a sum in host memory, in stream `out`. The kernel reads and writes
// pinned memory itself, so the sum needs no memory on the device.
static int add_to_host(NnrtRank *r, void *to, const void *from, int64_t bytes) {
  NnrtDevice *d = r->device;
  cudaStream_t compute = d->gpu.stream;
  d->gpu.stream = d->swaps.stream[0];
  int code = nnrt_accumulate_f32(to, from, bytes / (int64_t)sizeof(float));
  d->gpu.stream = compute;
  return code;
}

static int start(NnrtRank *r, int copy, void *to, const void *from, int64_t bytes,
                 enum cudaMemcpyKind kind, bool adds) {
  Swaps *s = &r->device->swaps;
  bool in = kind == cudaMemcpyHostToDevice;
  cudaStream_t stream = s->stream[in];
  if (copy >= s->n) {
    cudaEvent_t *more = nnrt_must_alloc((size_t)(copy + 1) * sizeof *more);
    if (s->n) memcpy(more, s->event, (size_t)s->n * sizeof *more);
    free(s->event);
    s->event = more;
    s->n = copy + 1;
  }
  // The event of a copy is created on first use.
  int code = 0;
  if (!s->event[copy])
    code = nnrt_cuda(cudaEventCreateWithFlags(&s->event[copy], cudaEventDisableTiming),
                     "making an event");
  // The copy waits for all earlier work of the compute stream.
  cudaEvent_t event = s->event[copy];
  if (!code) code = nnrt_cuda(cudaEventRecord(event, r->device->gpu.stream), "marking a copy");
  if (!code) code = nnrt_cuda(cudaStreamWaitEvent(stream, event, 0), "beginning a copy");
  int64_t begun = r->trace && !code ? nnrt_gpu_mark(r, stream) : 0;
  if (!code)
    code = adds ? add_to_host(r, to, from, bytes)
                : nnrt_cuda(cudaMemcpyAsync(to, from, (size_t)bytes, kind, stream),
                            "copying to or from host memory");
  if (r->trace && !code) {
    nnrt_trace_elsewhere(r);
    nnrt_trace_device(r, in ? TRACE_in : TRACE_out, nnrt_trace_of(r), begun,
                      nnrt_gpu_mark(r, stream));
  }
  return code ? code : nnrt_cuda(cudaEventRecord(event, stream), "marking the end of a copy");
}

static int wait(NnrtRank *r, int copy) {
  return nnrt_cuda(cudaStreamWaitEvent(r->device->gpu.stream, r->device->swaps.event[copy], 0),
                   "waiting for a copy");
}

int nnrt_swap_out(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes) {
  return start(r, copy, host, x, bytes, cudaMemcpyDeviceToHost, false);
}

int nnrt_swap_out_wait(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes) {
  (void)host, (void)x, (void)bytes;
  return wait(r, copy);
}

int nnrt_swap_out_accumulate(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes) {
  return start(r, copy, host, x, bytes, cudaMemcpyDeviceToHost, r->micro > 0);
}

int nnrt_swap_out_accumulate_wait(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes) {
  (void)host, (void)x, (void)bytes;
  return wait(r, copy);
}

int nnrt_swap_in(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes) {
  return start(r, copy, y, host, bytes, cudaMemcpyHostToDevice, false);
}

int nnrt_swap_in_wait(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes) {
  (void)y, (void)host, (void)bytes;
  return wait(r, copy);
}
