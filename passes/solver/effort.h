// Counts work and checks its limits.
//
// Work is the number of table entries read: the same problem takes the same work on every machine,
// and ends with the same choice.  A second is about 6e8 of them.  The clock is the fallback if that
// estimate is bad; then the result depends on the speed of the machine.

#ifndef SOLVER_EFFORT_H
#define SOLVER_EFFORT_H

#include "solver/solver.h"

typedef struct Effort {
  double work, most_work; // done, and the limit; INFINITY: none
  double end;             // in clock_seconds
  SolverEnd ended;        // the limit that was reached, if any
  const struct Stop *stop;
} Effort;

Effort effort_new(const SolverOptions *o);
bool effort_over(Effort *e);

#endif
