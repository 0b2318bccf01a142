// What the parts of solver_solve share.

#ifndef SOLVER_SOLVE_H
#define SOLVER_SOLVE_H

#include "solver/effort.h"
#include "solver/improve.h"
#include "solver/lagrange.h"

typedef struct Solve {
  Arena *arena; // of the result
  const SolverProblem *problem;
  const SolverOptions *options;
  double begin; // by the clock
  Effort *effort;
  bool alone;  // CBC is not asked
  int *choice; // of each node, when `has`
  bool has;
  SolverCost cost;
  double best;  // the cost, or infinity
  double bound; // of the whole problem, the best so far
  // What is being worked on: the problem, or a part of its choices.
  Model *model;
  Arena *round;
  Core *core;
  int64_t n_entries; // of its tables
  Dual *dual;
  Search *search;
} Solve;

// A choice that costs more is not better: costs are whole numbers.
double solve_target(const Solve *s);
bool solve_over(Solve *s);

// Makes `m`, which is reduced, what is being worked on; `round` is new.
void solve_begin(Solve *s, Model *m);
// Raises the dual's bound, until 100 steps close less than a part `least` of the gap, or half of
// the work that is left is done.
void solve_ascend(Solve *s, int steps, double least);
// Something that fits.
bool solve_find(Solve *s, int tries);
void solve_improve(Solve *s, int moves);
// Labels that no better choice has go from the model.  False: too few to be worth a new core.
bool solve_exclude(Solve *s);
// What the search has found, with everything that went, may be the best.
void solve_offer(Solve *s, const int *label);
void solve_say(const Solve *s, const char *what);

// The same by CBC, if it is there, and what is left is small enough for it.
double solve_cbc(Solve *s);
// Everything that the model can be, by trying labels one after the other.  Returns a bound of it
// all.
double solve_branch(Solve *s);

#endif
