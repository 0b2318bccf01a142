// Local search over a core, with exact moves of many variables.

#ifndef SOLVER_IMPROVE_H
#define SOLVER_IMPROVE_H

#include "solver/block.h"

typedef struct Search {
  const Core *core;
  Random random;
  bool verbose;
  double end; // of clock_seconds
  Block *block;
  int *label;    // the best that fits, or what is nearest to fitting
  double cost;   // of it
  double over;   // by how much all rows together overflow; 0: it fits
  int64_t *used; // of each row
  double *price; // of each row, from the last of the prices that did well
  double target; // stop when something that fits costs no more
  // scratch
  int *try, *queue;
  bool *seen;
  int64_t *difference;
  double *sum, *trial;
} Search;

Search *search_new(Arena *a, const Core *c, const SolverOptions *o, double end);

// Puts a choice in, if it is better than what there is.
bool search_offer(Search *s, const int *label);
// Looks for something that fits, from a choice that need not, at prices that are raised where rows
// overflow.  Tries `sweeps` times.
bool search_fit(Search *s, const int *label, const double *price, int sweeps);
// Makes it cheaper until the moment `until` at most.
void search_improve(Search *s, double until);

#endif
