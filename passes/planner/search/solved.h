// The problem solved: the cheapest choice that fits, what is about as cheap, how much of it is
// hidden, why it is so, and what leaves no choice.

#ifndef SEARCH_SOLVED_H
#define SEARCH_SOLVED_H

#include "problem.h"

// How much of what reduces gradients and the loss is done beside backward.
typedef struct Overlap {
  double hidden;  // seconds
  double exposed; // the part of it all that is not hidden; 1 where there is none
} Overlap;

Overlap overlap_of(const Problem *p, const int *choice);

// The cheapest choice that fits.
typedef struct Solved {
  SolverProblem problem; // that was solved at last, in which this is the cheapest
  SolverResult result;
  int64_t peak; // bytes of a rank; 0: it is not known
  bool bound;   // with more memory it may be cheaper
  Overlap overlap;
  double step;    // seconds, without what is hidden
  double seconds; // that it took to find
  double work;    // the same, as the solver counts
} Solved;

Solved search_solve(Problem *p);
// Answers of about the same cost, best first, in `a`; none of a large problem (k_best.c).  Returns
// how many.
int search_others(const Problem *p, const Solved *solved, Arena *a, const int ***out);
// What is found first within the options.
SolverResult search_any(Problem *p);

// What the choices of a value, or of the ops of a kind or place, would cost; NULL: nothing is
// called so.  `choice`, or NULL, is the answer taken, which need not be the cheapest (k_best.c).
const char *search_explain(const Problem *p, const SolverProblem *problem, const char *what,
                           const int *choice);

// After an error that nothing can be had: notes about the fewest lines of programs that leave
// nothing. False where there is nothing without them either.
bool search_conflict(const Problem *p, Diag *d);

#endif
