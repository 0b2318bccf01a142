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
  int *label;    // the best that fits, or what is nearest to fitting
  double cost;   // of it
  double over;   // by how much all rows together overflow; 0: it fits
  int64_t *used; // of each row
  double *price; // of each row, from the last of the prices that did well
  // While something does not fit: what a row pays for each byte that it overflows by, and what it
  // may use, which is its room or, where it overflows, what it uses.
  double *weight;
  int64_t *limit;
  double target; // stop when something that fits costs no more
  // scratch
  int *attempt, *queue;
  bool *seen;
  int64_t *difference;
  double *sum, *trial;
} Search;

Search *search_new(Arena *a, const Core *c, const SolverOptions *o, Effort *e);

// Puts a choice in, if it is better than what there is.
bool search_offer(Search *s, const int *label);
// The optimum without memory, by elimination alone, into `label`.  False: tables would be too
// large.
bool search_free(Search *s, int *label);
// Looks for something that fits, from a choice that need not: what overflows pays more and more.
bool search_fit(Search *s, const int *label, const double *price, int sweeps);
// Makes it cheaper, by so many moves; returns how many helped.
int search_improve(Search *s, int moves);
// Another try, as search_fit; the better one of before and after stays.
bool search_again(Search *s, const int *label, const double *price, int moves);
// The same from the choice there is, of which a block is made anew at about these prices.
bool search_kick(Search *s, const double *price, int moves);

#endif
