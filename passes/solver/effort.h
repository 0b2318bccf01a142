// How much has been done, and whether that is enough.
//
// Work is counted in numbers of tables that were looked at: the same problem does the same work on
// every machine, and ends with the same choice.  A second is about 6e8 of them.  The clock is there
// for when that is a bad guess; what it ends depends on how fast the machine was.

#ifndef SOLVER_EFFORT_H
#define SOLVER_EFFORT_H

#include "solver/solver.h"

typedef struct Effort {
  double work, most_work; // done, and to do at most; INFINITY: any
  double end;             // of clock_seconds
  SolverEnd ended;        // by what, once it is over
} Effort;

Effort effort_new(const SolverOptions *o);
bool effort_over(Effort *e);

#endif
