// The calls around every op of generated code (RUN): they record the current op for errors, and
// serve --memory, --trace, --check-values and --check-against.
//
// They are functions because a large model has thousands of calls: with inline branches in each,
// compilers took twice the time.

#include "nnrt.h"

void nnrt_run_begin(NnrtRank *r, int i) {
  __atomic_store_n(r->op, i, __ATOMIC_RELAXED); // other threads and processes read it (peers.h)
  if (r->in_use) nnrt_in_use_op(r, i);
  if (r->against) nnrt_against_before(r, i);
  if (r->trace) nnrt_trace_begin(r, i);
}

void nnrt_run_end(NnrtRank *r, int i, int code) {
  if (code) nnrt_fail(r, i, code);
  if (r->trace) nnrt_trace_end(r, i);
  if (r->checks) nnrt_check_values(r, i);
  if (r->against) nnrt_against_after(r, i);
  if (r->in_use) nnrt_in_use_op(r, -1);
}
