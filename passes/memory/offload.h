// Estimates by the pass offload for other passes.

#ifndef OFFLOAD_H
#define OFFLOAD_H

#include "ir/graph.h"

// Pieces of offloaded states that are on the device at a time, at most, each no larger than those
// of the largest update.
enum { OFFLOAD_AT_ONCE = 3 };

// The bytes that are copied to the device for the update `op`.
int64_t offload_bytes(const Op *op);

// Whether updating offloaded parameters in backward reduces the memory of a rank: the gradients of
// all weights exceed the states that are on the device at a time. For use before the pass.
bool offload_wants_early(const Graph *g);

#endif
