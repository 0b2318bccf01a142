// Other methods, for comparison (solver.h): they work on the unreduced problem.
//
//     exhaustive   every combination, node by node, except infinite or overflowing ones and those
//                  above the best cost; a complete run is a proof
//     metropolis   one node at a time to a random strategy; a worse one is accepted with a
//                  probability that falls with the difference and with time (Metropolis et al.,
//                  Equation of state calculations by fast computing machines)
//     descent      one node at a time to its best strategy, in random order, until none changes;
//                  then from another random start (AutoDDL, section 4.6)
//     random       a random strategy for every node, again and again
//
// Overflow and infinite costs are penalised, the more the longer no choice is feasible.

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "solver/core.h"

typedef struct Compare {
  const SolverProblem *problem;
  const SolverOptions *options;
  Core *core; // the unreduced problem
  Dice dice;
  double end;
  int *label, *best;
  bool has, complete;
  double cost; // of the best
  int64_t *used, *difference;
  double fine, infinite; // penalties: per byte of overflow; per infinite cost
} Compare;

static bool is_late(const Compare *c) {
  return clock_seconds() >= c->end;
}

static void keep(Compare *c, double cost) {
  if (c->has && cost >= c->cost) return;
  c->has = true;
  c->cost = cost;
  memcpy(c->best, c->label, (size_t)c->core->n_vars * sizeof *c->best);
}

// -- Exhaustive ------------------------------------------------------------------------------

// Adds or subtracts the usage of a label; false if some row overflows.
static bool use(Compare *c, int v, int i, int sign) {
  const CoreVar *x = &c->core->var[v];
  bool fits = true;
  for (int k = 0; k < x->n_items; k++)
    for (int t = x->item[k].lo; t < x->item[k].hi; t++) {
      c->used[t] += sign * x->item[k].usage[i];
      if (c->used[t] > c->core->room[t]) fits = false;
    }
  return fits;
}

// With an explicit stack: a problem may have more nodes than the call stack allows.
static void exhaustive(Compare *c, Arena *a) {
  const Core *core = c->core;
  // Lower bounds of the cost of all nodes from one on, over all labels of the rest; each table
  // counts at its later end.
  double *least = arena_array(a, double, core->n_vars + 1);
  for (int n = core->n_vars - 1; n >= 0; n--) {
    const CoreVar *x = &core->var[n];
    double most = INFINITY;
    for (int i = 0; i < x->n; i++) {
      double sum = x->cost[i];
      for (int k = 0; k < x->n_links; k++) {
        if (x->link[k].other > n) continue;
        double edge = INFINITY;
        for (int j = 0; j < core->var[x->link[k].other].n; j++)
          edge = fmin(edge, x->link[k].at[(int64_t)j * x->n + i]);
        sum += edge;
      }
      most = fmin(most, sum);
    }
    least[n] = least[n + 1] + most;
  }
  // cost[v]: of the nodes before v, and of the tables among them.
  double *cost = arena_array(a, double, core->n_vars + 1);
  int v = 0;
  cost[0] = core->constant;
  c->label[0] = -1;
  for (int64_t step = 0; v >= 0; step++) {
    if (step % 1024 == 0 && is_late(c)) return;
    if (v == core->n_vars) {
      keep(c, cost[v--]);
      continue;
    }
    // Undo the previous label of this node, then try the next one.
    if (c->label[v] >= 0) use(c, v, c->label[v], -1);
    if (++c->label[v] == core->var[v].n) {
      v--;
      continue;
    }
    int i = c->label[v];
    const CoreVar *x = &core->var[v];
    double own = x->cost[i];
    for (int k = 0; k < x->n_links; k++)
      if (x->link[k].other < v)
        own += x->link[k].at[(int64_t)c->label[x->link[k].other] * x->n + i];
    cost[v + 1] = cost[v] + own;
    // Go deeper only if a better choice is possible there.
    bool fits = use(c, v, i, 1);
    if (!fits || isinf(cost[v + 1]) || (c->has && cost[v + 1] + least[v + 1] >= c->cost)) continue;
    v++;
    if (v < core->n_vars) c->label[v] = -1;
  }
  c->complete = true;
}

// -- One node at a time ----------------------------------------------------------------------

static double fined(const Compare *c, double cost) {
  return isinf(cost) ? c->infinite : cost;
}

static double local_cost(const Compare *c, int v, int i) {
  const CoreVar *x = &c->core->var[v];
  double cost = fined(c, x->cost[i]);
  for (int k = 0; k < x->n_links; k++)
    cost += fined(c, x->link[k].at[(int64_t)c->label[x->link[k].other] * x->n + i]);
  return cost;
}

// The cost of label i with the penalties; the node's own usage is already subtracted.
static double local(const Compare *c, int v, int i) {
  const CoreVar *x = &c->core->var[v];
  double over = 0;
  for (int k = 0; k < x->n_items; k++)
    for (int t = x->item[k].lo; t < x->item[k].hi; t++) {
      int64_t more = c->used[t] + x->item[k].usage[i] - c->core->room[t];
      if (more > 0) over += (double)more;
    }
  return local_cost(c, v, i) + over * c->fine;
}

static void begin_random(Compare *c) {
  for (int v = 0; v < c->core->n_vars; v++)
    c->label[v] = dice_below(&c->dice, c->core->var[v].n);
  core_usage(c->core, c->label, c->used);
}

// Keeps the present choice if it is feasible and the best; else the penalties rise.
static void look(Compare *c) {
  if (core_usage(c->core, c->label, c->used) > 0) {
    c->fine *= 1.5;
    return;
  }
  double cost = core_cost(c->core, c->label);
  if (isinf(cost))
    c->infinite *= 2;
  else
    keep(c, cost);
}

static void metropolis(Compare *c) {
  const Core *core = c->core;
  double begin = clock_seconds(), heat = 0;
  begin_random(c);
  // Initially every change is likely, in the end none that is worse.
  for (int v = 0; v < core->n_vars; v++)
    heat = fmax(heat, local_cost(c, v, c->label[v]));
  for (int64_t step = 0; !is_late(c); step++) {
    double left = (c->end - clock_seconds()) / (c->end - begin);
    double temperature = 1e-9 + heat * pow(1e-6, 1 - left);
    for (int k = 0; k < core->n_vars; k++) {
      int v = dice_below(&c->dice, core->n_vars), i = dice_below(&c->dice, core->var[v].n);
      use(c, v, c->label[v], -1);
      double more = local(c, v, i) - local(c, v, c->label[v]);
      if (more <= 0 || dice_unit(&c->dice) < exp(-more / temperature)) c->label[v] = i;
      use(c, v, c->label[v], 1);
    }
    look(c);
  }
}

static void descent(Compare *c, Arena *a) {
  int n = c->core->n_vars, *order = arena_array(a, int, n);
  for (int v = 0; v < n; v++)
    order[v] = v;
  while (!is_late(c)) {
    begin_random(c);
    for (bool changed = true; changed && !is_late(c);) {
      changed = false;
      // A random order (Fisher and Yates).
      for (int k = n - 1; k > 0; k--) {
        int other = dice_below(&c->dice, k + 1), v = order[k];
        order[k] = order[other];
        order[other] = v;
      }
      // Each node takes its cheapest label beside those of the others.
      for (int k = 0; k < n; k++) {
        int v = order[k], old = c->label[v], best = old;
        use(c, v, old, -1);
        double least = local(c, v, old);
        for (int i = 0; i < c->core->var[v].n; i++) {
          double cost = local(c, v, i);
          if (cost < least) least = cost, best = i;
        }
        c->label[v] = best;
        use(c, v, best, 1);
        changed |= best != old;
      }
    }
    look(c);
  }
}

static void sample(Compare *c) {
  while (!is_late(c)) {
    begin_random(c);
    look(c);
  }
}

// -- The result ------------------------------------------------------------------------------

static SolverResult result(const Compare *c, Arena *a) {
  SolverResult r = {.status = c->complete ? SOLVER_infeasible : SOLVER_time_out};
  if (!c->has) return r;
  int *choice = arena_array(a, int, c->problem->n_nodes);
  for (int v = 0; v < c->core->n_vars; v++)
    choice[c->core->var[v].origin] = c->best[v];
  r = (SolverResult){.status = c->complete ? SOLVER_optimal : SOLVER_feasible, .choice = choice};
  solver_cost(c->problem, choice, &r.cost);
  r.has_bound = c->complete;
  r.bound = c->complete ? r.cost : 0;
  return r;
}

SolverResult solver_compare(Arena *a, const SolverProblem *p, const SolverOptions *o) {
  Arena *scratch = arena_new();
  Model *m = model_build(scratch, p);
  Core *core = core_build(scratch, m);
  Compare c = {.problem = p,
               .options = o,
               .core = core,
               .dice = {o->seed},
               .end = clock_seconds() + o->seconds,
               .fine = 1,
               .infinite = 1e12};
  c.label = arena_array(scratch, int, core->n_vars + 1);
  c.best = arena_array(scratch, int, core->n_vars + 1);
  c.used = arena_array(scratch, int64_t, core->n_rows + 1);
  // The start counts if it is feasible.
  const int *start = o->start;
  int64_t moment;
  SolverCost of_start;
  bool feasible = start && solver_cost(p, start, &of_start) &&
                  (p->limit == SOLVER_NO_LIMIT || solver_peak(p, start, &moment) <= p->limit);
  for (int v = 0; feasible && v < core->n_vars; v++)
    c.label[v] = start[core->var[v].origin];
  if (feasible) keep(&c, core_cost(core, c.label));
  // Negative capacity: not even the least usage fits.
  bool possible = true;
  for (int t = 0; t < core->n_rows; t++)
    possible = possible && core->room[t] >= 0;
  if (!possible)
    c.complete = true;
  else if (o->method == SOLVER_exhaustive)
    exhaustive(&c, scratch);
  else if (o->method == SOLVER_metropolis)
    metropolis(&c);
  else if (o->method == SOLVER_descent)
    descent(&c, scratch);
  else
    sample(&c);
  SolverResult r = result(&c, a);
  r.ended = c.complete ? SOLVER_done : SOLVER_late;
  arena_free(scratch);
  return r;
}
