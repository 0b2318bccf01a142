// Small random problems, and their optimum by exhaustive enumeration.

#ifndef TESTS_SOLVER_RANDOM_H
#define TESTS_SOLVER_RANDOM_H

#include "solver/core.h"

typedef struct Shape {
  int nodes, strategies, edges;
  int infinite; // percent of costs
  int moments;  // the longest live range of a node
  bool tied;    // some edges determine a node's strategy from its neighbour's
} Shape;

static inline int64_t *random_numbers(Arena *a, Dice *r, int n, int most, int infinite) {
  int64_t *x = arena_array(a, int64_t, n);
  for (int i = 0; i < n; i++)
    x[i] = dice_below(r, 100) < infinite ? SOLVER_INFINITE + dice_below(r, 2) : dice_below(r, most);
  return x;
}

static inline SolverProblem *random_problem(Arena *a, Dice *r, const Shape *s) {
  SolverProblem *p = arena_one(a, SolverProblem);
  SolverNode *node = arena_array(a, SolverNode, s->nodes);
  SolverEdge *edge = arena_array(a, SolverEdge, s->edges);
  for (int i = 0; i < s->nodes; i++) {
    int n = 1 + dice_below(r, s->strategies), n_uses = dice_below(r, 4);
    SolverUse *use = arena_array(a, SolverUse, n_uses);
    for (int k = 0; k < n_uses; k++) {
      int lo = dice_below(r, s->moments);
      use[k] = (SolverUse){random_numbers(a, r, n, 20, 0), lo, lo + dice_below(r, s->moments)};
    }
    node[i] = (SolverNode){n, random_numbers(a, r, n, 50, s->infinite / 2), use, n_uses};
  }
  for (int i = 0; i < s->edges; i++) {
    int x = dice_below(r, s->nodes), y = dice_below(r, s->nodes);
    int64_t *cost = random_numbers(a, r, node[x].n * node[y].n, 60, s->infinite);
    if (s->tied && dice_below(r, 2))
      for (int k = 0; k < node[x].n * node[y].n; k++)
        if (k / node[y].n % node[y].n != k % node[y].n) cost[k] = SOLVER_INFINITE;
    edge[i] = (SolverEdge){{x, y}, cost};
  }
  *p = (SolverProblem){node, edge, s->nodes, s->edges, SOLVER_NO_LIMIT};
  return p;
}

// Enumerates every combination.  Returns false if none fits.
static inline bool try_everything(Arena *a, const SolverProblem *p, SolverCost *out_best) {
  int *choice = arena_array(a, int, p->n_nodes);
  bool any = false;
  for (int v = 0; v < p->n_nodes;) {
    SolverCost cost;
    int64_t moment;
    if (solver_cost(p, choice, &cost) && (!any || cost < *out_best) &&
        (p->limit == SOLVER_NO_LIMIT || solver_peak(p, choice, &moment) <= p->limit)) {
      any = true;
      *out_best = cost;
    }
    for (v = 0; v < p->n_nodes && ++choice[v] == p->node[v].n; v++)
      choice[v] = 0;
  }
  return any;
}

#endif
