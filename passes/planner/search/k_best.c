// Answers of about the same cost as the best, for small models.
//
//     answer       0.2671 ms as the search sees it, 0.2671 in fact
//     others       0.2672                           0.2651: taken
//                  0.2683                           0.2710
//
// The time of a step is not a sum over ops: hidden reductions, joint collectives and memory
// fragmentation are known only after compilation (planner/auto/evaluate.c). In a small model they
// outweigh many choices, and compilation is fast; so the next best answers are compiled, too.

#include "problem.h"

#include <string.h>

#include "search.h"
#include "solved.h"

enum { MOST = 12 };
#define WORK 1e6 // of each run of the solver

int search_others(const Problem *p, const Solved *solved, Arena *a, const int ***out) {
  const int *best = solved->result.choice, *ranked[MOST + 1];
  size_t bytes = (size_t)p->nodes.n * sizeof *best;
  if (p->nodes.n > FEW_NODES) return 0;
  // All answers that are not much worse, in order of cost.
  SolverOptions options = p->options;
  options.work = WORK;
  options.gap = 0;
  SolverCost worst = (SolverCost)((double)solved->result.cost * WORTH_TRYING);
  int n = solver_ranked(a, &solved->problem, &options, p->nodes.n, worst, MOST + 1, ranked);
  // The best is among them.
  int n_others = 0;
  const int **other = *out = arena_array(a, const int *, n);
  for (int i = 0; i < n; i++)
    if (memcmp(ranked[i], best, bytes) != 0) other[n_others++] = ranked[i];
  return n_others;
}
