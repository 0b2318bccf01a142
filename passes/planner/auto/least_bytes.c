// See least_bytes.h.

#include "least_bytes.h"

#include "bounds.h"
#include "candidates.h"

LeastBytes least_bytes_of(const StepWork *w, Arena *a, const char *plan, int64_t ranks,
                          int64_t micro_batches) {
  Point p;
  LeastBytes out = {0};
  const char *base = plan_without_savers(a, plan, &out.offloads);
  // One micro-batch has no sums of gradients.
  if (plan_offloads_gradients(plan)) micro_batches = 1;
  out.known = plan_numbers(base, ranks, micro_batches, &p);
  if (out.known) {
    out.own = least_point_bytes(w, &p, out.offloads);
    p.micro_batches = 1;
    out.saved = least_point_bytes(w, &p, true);
  } else {
    out.own = least_bytes(w, ranks, step_slices(w, micro_batches), out.offloads);
    out.saved = least_bytes(w, ranks, 1, true);
  }
  return out;
}
