// The least bytes of a rank under a plan, by its text, with its savers or with all that it may get.
//
//     GPT-3 175B, 8 ranks, 1 micro-batch     own       with states offloaded
//         zero3                              263 GB    44 GB
//         zero3,swap=1,offload=1              44 GB    44 GB
//         dp                               2,103 GB   351 GB
//         search                             263 GB    44 GB     no point: any plan's
//
// In several micro-batches there are the sums of gradients, too, unless the plan has these in host
// memory. `saved` is without them.

#ifndef LEAST_BYTES_H
#define LEAST_BYTES_H

#include "step_work.h"

typedef struct LeastBytes {
  bool known;    // the plan is a point, but for its savers; else the bytes are those of any plan
  bool offloads; // it offloads its states
  double own, saved;
} LeastBytes;

LeastBytes least_bytes_of(const StepWork *w, Arena *a, const char *plan, int64_t ranks,
                          int64_t micro_batches);

#endif
