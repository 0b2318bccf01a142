// What the pass offload tells others of itself.

#ifndef OFFLOAD_H
#define OFFLOAD_H

#include "ir/graph.h"

// Whether a rank needs less memory if what is offloaded is updated in backward: where the gradients
// of all weights are more than the states that are on the device at a time.  Before the pass.
bool offload_wants_early(const Graph *g);

#endif
