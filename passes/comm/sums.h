// The order of sums: terms with the same layout first.

#ifndef COMM_SUMS_H
#define COMM_SUMS_H

#include "ir/graph.h"

// Rebuilds sums of scalars in updates and sums of gradients of a sharded graph; those in 16 bits
// keep their order, and are reduced once on each mesh. False after an error.
bool order_sums(Graph *g, Arena *scratch, Diag *d);

#endif
