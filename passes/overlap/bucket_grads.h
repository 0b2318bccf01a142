// The rule of bucket_grads, for estimates before it runs: many small all_reduces share one latency.

#ifndef BUCKET_GRADS_H
#define BUCKET_GRADS_H

#include "ir/graph.h"

// The default bucket size.

enum { PACK_BUCKET = 4 << 20 }; // bytes

// Whether a change of layout completes partial sums and nothing else: bucket_grads joins such
// reductions.
bool is_all_reduced(const Layout *from, const Layout *to);

#endif
