// Asks CBC for the best of a 0/1 program (program.h), in a process of its own: CBC does not look at
// the clock everywhere, and some of its versions crash when time is over while they preprocess.
//
//     double *value = arena_array(a, double, p->n_columns);
//     ZeroOneAnswer x = zero_one_ask(p, &(ZeroOneAsk){.start = known, .end = end}, value);
//
// All columns are from 0 to 1; the first n_binary are one of both.  Where CBC is not built in, or
// says nothing, the answer is that nothing is known.

#ifndef SOLVER_ZERO_ONE_H
#define SOLVER_ZERO_ONE_H

#include "solver/program.h"

typedef struct ZeroOneAsk {
  const double *start; // a value for each column that is good already, or NULL
  double cutoff;       // no answer that costs more is of use; INFINITY: any is
  double end;          // by clock_seconds
  int most_nodes;      // of the search, so that it ends at the same place however slow; 0: any
} ZeroOneAsk;

typedef struct ZeroOneAnswer {
  double bound; // no answer costs less; without the program's constant
  bool has;     // `value` is an answer
  bool proven;  // that it is the best, or that there is none
  int nodes;    // of the search
} ZeroOneAnswer;

ZeroOneAnswer zero_one_ask(const ZeroOne *p, const ZeroOneAsk *ask, double *value);

#endif
