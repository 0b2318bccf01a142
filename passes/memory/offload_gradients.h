// Sums of gradients in host memory, for other passes between host_gradients and offload_gradients.

#ifndef OFFLOAD_GRADIENTS_H
#define OFFLOAD_GRADIENTS_H

#include "ir/graph.h"

// Whether the value is a sum of gradients that host_gradients selected, or a bucket of them, or
// follows from such values by communication and views alone.
bool gradient_on_host(const Value *v);

#endif
