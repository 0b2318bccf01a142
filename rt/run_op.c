// What generated code does around every op (RUN): the rank knows where it is, and --memory, --trace
// and --check-values see it.
//
// Two functions, since the calls of a large model are thousands: branches in every one of them took
// compilers half of their time.

#include "nnrt.h"

void nnrt_run_begin(NnrtRank *r, int i) {
  *r->op = i;
  if (r->in_use) nnrt_in_use_op(r, i);
  if (r->trace) nnrt_trace_begin(r, i);
}

void nnrt_run_end(NnrtRank *r, int i, int code) {
  if (code) nnrt_fail(r, i, code);
  if (r->trace) nnrt_trace_end(r, i);
  if (r->checks) nnrt_check_values(r, i);
  if (r->in_use) nnrt_in_use_op(r, -1);
}
