// Copies between the slab and host memory.  On CPUs both are ordinary memory, and the copies are
// made all the same: one to host memory at its wait, and one back at its start.  These are the
// latest and earliest times that the plan permits, so a plan that reuses memory too soon gives
// wrong numbers here on any machine.

#include <string.h>

#include "runtime.h"

static int copy_now(NnrtRank *r, int track, TraceOf of, void *to, const void *from, int64_t bytes) {
  // The trace has a track for each direction.
  double begun = r->trace ? nnrt_now_us() : 0;
  memcpy(to, from, (size_t)bytes);
  if (r->trace) nnrt_trace_host(r, track, of, begun, nnrt_now_us());
  return NNRT_OK;
}

int nnrt_swap_out(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes) {
  (void)host, (void)x, (void)bytes;
  nnrt_trace_elsewhere(r);
  nnrt_trace_later(r, copy);
  return NNRT_OK;
}

int nnrt_swap_out_wait(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes) {
  return copy_now(r, TRACE_out, nnrt_trace_said(r, copy), host, x, bytes);
}

int nnrt_swap_out_accumulate(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes) {
  return nnrt_swap_out(r, copy, host, x, bytes);
}

int nnrt_swap_out_accumulate_wait(NnrtRank *r, int copy, void *host, const void *x, int64_t bytes) {
  TraceOf of = nnrt_trace_said(r, copy);
  if (r->micro == 0) return copy_now(r, TRACE_out, of, host, x, bytes);
  double begun = r->trace ? nnrt_now_us() : 0;
  int code = nnrt_accumulate_f32(host, x, bytes / (int64_t)sizeof(float));
  if (r->trace) nnrt_trace_host(r, TRACE_out, of, begun, nnrt_now_us());
  return code;
}

int nnrt_swap_in(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes) {
  (void)copy;
  nnrt_trace_elsewhere(r);
  return copy_now(r, TRACE_in, nnrt_trace_of(r), y, host, bytes);
}

int nnrt_swap_in_wait(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes) {
  (void)r, (void)copy, (void)y, (void)host, (void)bytes;
  return NNRT_OK;
}
