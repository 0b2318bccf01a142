// Local search over a core, with exact moves of many variables.

#ifndef SOLVER_IMPROVE_H
#define SOLVER_IMPROVE_H

#include "solver/block.h"
#include "solver/effort.h"

typedef struct Search {
  const Core *core;
  Dice dice;
  bool verbose;
  Effort *effort;
  Block *block;
  int *label;    // the best feasible choice, or the one nearest to feasibility
  double cost;   // of that choice
  double over;   // total overflow of all rows; 0: feasible
  int64_t *used; // per row
  double *price; // per row: the last prices that led to an improvement
  // Per row.  The penalty for each byte of overflow, while infeasible; and the usage limit: the
  // capacity, or the present usage if that is larger.
  double *weight;
  int64_t *limit;
  double target; // stop at a feasible choice of this cost or less
  // scratch
  int *attempt, *queue;
  bool *seen;
  int64_t *difference;
  double *sum, *trial;
} Search;

Search *search_new(Arena *a, const Core *c, const SolverOptions *o, Effort *e);

// Takes this choice if it is better than the present one.
bool search_offer(Search *s, const int *label);
// The optimum without memory, by elimination alone, into `label`.  False if tables would be too
// large.
bool search_free(Search *s, int *label);
// Searches for a feasible choice, from one that may be infeasible, with rising penalties for
// overflow.
bool search_fit(Search *s, const int *label, const double *price, int sweeps);
// Lowers the cost, by this many moves; returns the number of improving ones.
int search_improve(Search *s, int moves);
// Another attempt, as search_fit; keeps the better choice of before and after.
bool search_again(Search *s, const int *label, const double *price, int moves);
// The same from the present choice, with one block re-optimised at roughly these prices.
bool search_kick(Search *s, const double *price, int moves);

#endif
