// Removal of unnecessary weight copies: see unstash.c.

#ifndef UNSTASH_H
#define UNSTASH_H

#include "ir/graph.h"

// Removes every `stash` if backward could as well read the weight. The graph's schedule is written,
// or it has none.
void unstash_weights(Graph *g, Arena *scratch);

#endif
