// The k best choices of a small problem, in order (Lawler 1972, "A procedure for computing the K
// best solutions to discrete optimization problems").
//
//     all choices                                  best: a1 b2 c0
//       but a1                                     best: a0 b2 c0
//       with a1, but b2                            best: a1 b1 c0
//       with a1 and b2, but c0                     best: a1 b2 c1
//
// The rest of a part without its best choice is partitioned, so that each choice is in exactly one
// part: the choices of a part agree with the best in the first nodes, and differ in the next.  The
// next best of all is the best of some part, which is partitioned in turn.

#include <string.h>

#include "base/vec.h"
#include "solver/solver.h"

// The choices that agree with `best` in the nodes before `from`, and have no `gone` strategy at
// `from`.
typedef struct Part {
  const int *best; // [n_nodes] the cheapest of the part
  SolverCost cost;
  int from;
  const bool *gone; // [strategies of node `from`]
} Part;

typedef struct Ranking {
  Arena *arena;
  const SolverProblem *problem;
  const SolverOptions *options;
  SolverCost worst;
  Vec(Part) part;
} Ranking;

// Solves and adds the part of choices that agree with `choice` before `from`.
static void add_part(Ranking *r, const int *choice, int from, const bool *gone) {
  Arena *scratch = arena_new();
  // Infinite costs fix the nodes before `from`, and exclude strategies of node `from`.
  SolverProblem p = *r->problem;
  SolverNode *node = arena_copy(scratch, p.node, (size_t)p.n_nodes * sizeof *node);
  for (int v = 0; v <= from; v++) {
    int64_t *cost = arena_copy(scratch, node[v].cost, (size_t)node[v].n * sizeof *cost);
    for (int i = 0; i < node[v].n; i++)
      if (v < from ? i != choice[v] : gone[i]) cost[i] = SOLVER_INFINITE;
    node[v].cost = cost;
  }
  p.node = node;
  // An infeasible part, or one of too expensive choices, is left out.
  SolverResult found = solver_solve(scratch, &p, r->options);
  if (found.choice && found.cost <= r->worst) {
    const int *best = arena_copy(r->arena, found.choice, (size_t)p.n_nodes * sizeof *best);
    vec_push(r->arena, &r->part, ((Part){best, found.cost, from, gone}));
  }
  arena_free(scratch);
}

int solver_ranked(Arena *a, const SolverProblem *p, const SolverOptions *o, int n, SolverCost worst,
                  int most, const int **out) {
  Ranking r = {.arena = a, .problem = p, .options = o, .worst = worst};
  int count = 0;
  if (n) add_part(&r, NULL, 0, arena_array(a, bool, p->node[0].n));
  while (r.part.n && count < most) {
    // The next best choice of all is that of the part with the least cost.
    int least = 0;
    for (int i = 1; i < r.part.n; i++)
      if (r.part.at[i].cost < r.part.at[least].cost) least = i;
    Part best = r.part.at[least];
    r.part.at[least] = r.part.at[--r.part.n];
    out[count++] = best.best;
    // Partition the rest of its part: choices that differ from it first in node v.
    for (int v = best.from; count < most && v < n; v++) {
      int strategies = p->node[v].n;
      bool *gone = arena_array(a, bool, strategies);
      if (v == best.from) memcpy(gone, best.gone, (size_t)strategies * sizeof *gone);
      gone[best.best[v]] = true;
      add_part(&r, best.best, v, gone);
    }
  }
  return count;
}
