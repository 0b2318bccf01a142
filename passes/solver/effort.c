// Counts work of the solver, and checks its limits: see effort.h.

#include "solver/effort.h"

#include <math.h>

#include "base/clock.h"
#include "base/stop.h"

Effort effort_new(const SolverOptions *o) {
  return (Effort){.most_work = o->work > 0 ? o->work : INFINITY,
                  .end = clock_seconds() + o->seconds,
                  .stop = o->stop};
}

// The first limit reached stays the reason.
bool effort_over(Effort *e) {
  if (e->ended != SOLVER_done) return true;
  if (e->work >= e->most_work)
    e->ended = SOLVER_worked;
  else if (clock_seconds() >= e->end || stop_wanted(e->stop))
    e->ended = SOLVER_late;
  return e->ended != SOLVER_done;
}
