// Values between the slab and host memory.  On processors both are memory of this machine, and the
// copies are done for all that: one to host memory where it is waited for, and one back where it
// begins.  That is as late and as early as may be, so a plan that gives a place away too soon gives
// wrong numbers here, whatever the machine does.

#include <string.h>

#include "runtime.h"

static int copy_now(NnrtRank *r, int track, TraceOf of, void *to, const void *from, int64_t bytes) {
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

int nnrt_swap_in(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes) {
  (void)copy;
  nnrt_trace_elsewhere(r);
  return copy_now(r, TRACE_in, nnrt_trace_of(r), y, host, bytes);
}

int nnrt_swap_in_wait(NnrtRank *r, int copy, void *y, const void *host, int64_t bytes) {
  (void)r, (void)copy, (void)y, (void)host, (void)bytes;
  return NNRT_OK;
}
