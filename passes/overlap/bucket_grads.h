// The rule of bucket_grads, for estimates before it runs: many small all_reduces share
// a start.

#ifndef BUCKET_GRADS_H
#define BUCKET_GRADS_H

#include "ir/graph.h"

// How much it reduces at a time where its option does not say otherwise.

enum { PACK_BUCKET = 4 << 20 }; // bytes

// Whether sums become whole, and nothing else: what it joins.
bool is_all_reduced(const Layout *from, const Layout *to);

#endif
