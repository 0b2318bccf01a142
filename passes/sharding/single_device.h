// A graph, such as the training step, as one device would do it, slice of time after slice: a copy
// of the module without its other graphs, of which nothing is decided, put through passes.
//
// Values of the copy are called after their numbers in the module, v7, so that whoever reads the
// copy finds what it is about.

#ifndef SINGLE_DEVICE_H
#define SINGLE_DEVICE_H

#include "ir/graph.h"

// Through shard, and then the passes of `more`; NULL where that cannot be done.  The caller frees
// it.
Module *graph_on_one_device(const Graph *g, int64_t slices, const char *more);

#endif
