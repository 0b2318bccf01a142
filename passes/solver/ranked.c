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

// Fixes the nodes before `from`, and excludes strategies of node `from`.
static SolverProblem without(Arena *a, const SolverProblem *p, const int *choice, int from,
                             const bool *gone) {
  SolverProblem out = *p;
  SolverNode *node = arena_copy(a, p->node, (size_t)p->n_nodes * sizeof *node);
  for (int v = 0; v <= from; v++) {
    int64_t *cost = arena_copy(a, node[v].cost, (size_t)node[v].n * sizeof *cost);
    for (int i = 0; i < node[v].n; i++)
      if (v < from ? i != choice[v] : gone[i]) cost[i] = SOLVER_INFINITE;
    node[v].cost = cost;
  }
  out.node = node;
  return out;
}

// Solves and adds the part of choices that agree with `choice` before `from`.
static void add_part(Ranking *r, const int *choice, int from, const bool *gone) {
  Arena *scratch = arena_new();
  SolverProblem p = without(scratch, r->problem, choice, from, gone);
  SolverResult found = solver_solve(scratch, &p, r->options);
  if (found.choice && found.cost <= r->worst) {
    const int *best = arena_copy(r->arena, found.choice, (size_t)p.n_nodes * sizeof *best);
    vec_push(r->arena, &r->part, ((Part){best, found.cost, from, gone}));
  }
  arena_free(scratch);
}

// Partitions a part without its best choice.
static void take_apart(Ranking *r, const Part *part, int n) {
  for (int v = part->from; v < n; v++) {
    int strategies = r->problem->node[v].n;
    bool *gone = arena_array(r->arena, bool, strategies);
    if (v == part->from) memcpy(gone, part->gone, (size_t)strategies * sizeof *gone);
    gone[part->best[v]] = true;
    add_part(r, part->best, v, gone);
  }
}

int solver_ranked(Arena *a, const SolverProblem *p, const SolverOptions *o, int n, SolverCost worst,
                  int most, const int **out) {
  Ranking r = {.arena = a, .problem = p, .options = o, .worst = worst};
  int count = 0;
  if (n) add_part(&r, NULL, 0, arena_array(a, bool, p->node[0].n));
  while (r.part.n && count < most) {
    int least = 0;
    for (int i = 1; i < r.part.n; i++)
      if (r.part.at[i].cost < r.part.at[least].cost) least = i;
    Part best = r.part.at[least];
    r.part.at[least] = r.part.at[--r.part.n];
    out[count++] = best.best;
    if (count < most) take_apart(&r, &best, n);
  }
  return count;
}
