// The solved problem: the cheapest choice that fits, choices of about the same cost, hidden
// reductions, explanations, and conflicts.

#ifndef SEARCH_SOLVED_H
#define SEARCH_SOLVED_H

#include "problem.h"

// The reductions of gradients and of the loss that run beside backward.
typedef struct Overlap {
  double hidden;  // seconds
  double exposed; // the part not hidden; 1: there are no reductions
} Overlap;

Overlap overlap_of(const Problem *p, const int *choice);

// The cheapest choice that fits.
typedef struct Solved {
  SolverProblem problem; // solved last; `result` is its optimum
  SolverResult result;
  int64_t peak;   // bytes of a rank; 0: unknown
  int64_t needed; // if there is no choice: of any choices at one time; 0: unknown
  bool bound;     // more memory may make it cheaper
  bool above;     // then there is no choice: all take longer than SearchEnv.worth,
  bool slow;      // in any memory
  Overlap overlap;
  double step;    // seconds, without hidden reductions
  double seconds; // of solving
  double work;    // of solving, in the solver's unit
} Solved;

Solved search_solve(Problem *p);
// Answers of about the same cost, best first, in `a`; none of a large problem (k_best.c).  Returns
// how many.
int search_others(const Problem *p, const Solved *solved, Arena *a, const int ***out);
// Returns the first choice found within the options.
SolverResult search_any(Problem *p);

// Explains the costs of the choices of a value, or of the ops of a kind or place; NULL: none has
// that name. `choice`, or NULL, is the answer taken, which need not be the cheapest (k_best.c).
const char *search_explain(const Problem *p, const SolverProblem *problem, const char *what,
                           const int *choice);

// After an error of infeasibility, notes a minimal set of conflicting lines of programs. False if
// the problem is infeasible without constraints, too.
bool search_conflict(const Problem *p, Diag *d);

#endif
