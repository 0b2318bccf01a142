// A graph, such as the training step, as a single device runs it, time slice by time slice: a copy
// of the module without its other graphs and without decisions, after some passes.
//
// Values of the copy are named by their numbers in the module (v7), which identify them for readers
// of the copy.

#ifndef SINGLE_DEVICE_H
#define SINGLE_DEVICE_H

#include "ir/graph.h"

// A copy after shard and then the passes of `more`; NULL if these fail. The caller frees it.
Module *graph_on_one_device(const Graph *g, int64_t slices, const char *more);

#endif
