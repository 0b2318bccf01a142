// Memory of the bodies of loops: plan_loops.c.

#ifndef PLAN_LOOPS_H
#define PLAN_LOOPS_H

#include "gaps.h"

// Plans the bodies of the loops of a graph, and gives each loop a workspace for them.  False after
// an error.
bool loops_plan(Graph *g, Meets meets, int64_t align, Arena *scratch, Diag *d);
// Places the values of the bodies, once the loops of `g` have their places.
void loops_place(Graph *g);

#endif
