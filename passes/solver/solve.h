// State shared by the parts of solver_solve.

#ifndef SOLVER_SOLVE_H
#define SOLVER_SOLVE_H

#include "solver/effort.h"
#include "solver/improve.h"
#include "solver/lagrange.h"

typedef struct Solve {
  Arena *arena; // of the result
  const SolverProblem *problem;
  const SolverOptions *options;
  double begin; // clock time
  Effort *effort;
  bool alone;  // without CBC
  int *choice; // of each node, when `has`
  bool has;
  SolverCost cost;
  double best;  // the cost, or infinity
  double bound; // of the whole problem, the best so far
  // The current subproblem: the problem, or a part of its choices.
  Model *model;
  Arena *round;
  Core *core;
  int64_t n_entries; // of its tables
  Dual *dual;
  Search *search;
} Solve;

// A choice above this is no improvement: costs are integers.
double solve_target(const Solve *s);
bool solve_over(Solve *s);

// Makes `m`, a reduced model, the current subproblem; `round` is a new arena.
void solve_begin(Solve *s, Model *m);
// Raises the dual bound, until 100 steps close less than the share `least` of the gap, or use half
// of the remaining work.
void solve_ascend(Solve *s, int steps, double least);
// Searches for a feasible choice.
bool solve_find(Solve *s, int tries);
void solve_improve(Solve *s, int moves);
// Removes labels that no better choice has.  False: too few for a new core.
bool solve_exclude(Solve *s);
// Offers the choice of the original problem that these labels stand for.
void solve_offer(Solve *s, const int *label);
void solve_say(const Solve *s, const char *what);

// The same by CBC, if it is built in and the core is small enough.
double solve_cbc(Solve *s);
// Branch and bound over all choices of the model.  Returns a lower bound of them.
double solve_branch(Solve *s);

#endif
