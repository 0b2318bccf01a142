// Solves a 0/1 program (program.h) with CBC, in a child process: CBC does not check the clock
// everywhere, and some versions crash if time runs out during preprocessing.
//
//     double *value = arena_array(a, double, p->n_columns);
//     ZeroOneAnswer x = zero_one_ask(p, &(ZeroOneAsk){.start = known, .end = end}, value);
//
// All columns are within [0, 1]; the first n_binary are integers.  If CBC is not built in, or gives
// no answer, the result has neither solution nor bound.

#ifndef SOLVER_ZERO_ONE_H
#define SOLVER_ZERO_ONE_H

#include "solver/program.h"

typedef struct ZeroOneAsk {
  const double *start; // a good solution, a value for each column, or NULL
  double cutoff;       // answers above this cost are useless; INFINITY: none is
  double end;          // in clock_seconds
  int most_nodes;      // limit of the search, the same on every machine; 0: none
} ZeroOneAsk;

typedef struct ZeroOneAnswer {
  double bound; // no solution costs less; without the program's constant
  bool has;     // `value` is a solution
  bool proven;  // optimal, or infeasible
  int nodes;    // of the search
} ZeroOneAnswer;

ZeroOneAnswer zero_one_ask(const ZeroOne *p, const ZeroOneAsk *ask, double *value);

#endif
