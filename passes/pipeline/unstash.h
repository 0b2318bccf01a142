// Weights that need no copy after all: see unstash.c.

#ifndef UNSTASH_H
#define UNSTASH_H

#include "ir/graph.h"

// Of a graph whose schedule is written, or that has none: takes out every `stash` of which backward
// could as well read the weight.
void unstash(Graph *g, Arena *scratch);

#endif
