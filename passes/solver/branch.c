// Branch and bound (solve.h), depth first, the most promising part first.
//
// If memory binds, a few large items take most of a row's capacity, and the dual takes a fraction
// of each: that is why its bound is low.  So it branches first on the variable with the largest
// spread of memory costs at the prices, on groups of labels with equal memory costs; each group
// fixes the capacity that remains for the other variables:
//
//     row 215   room 1157284   price * room 162413      %20 uses 0.88, 0.44, 0.22, … of the room
//       %20 uses 0.88 of it    no other large item fits: bound 1622396, pruned
//       %20 uses 0.44          …
//
// Once memory costs no longer differ, it branches on single labels, of the most decisive variable.
// With labels removed, tables become costs of the neighbours, and reduction and the dual start
// again on the rest, which is much smaller.  A part is pruned when its bound reaches the best cost.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "solver/reduce.h"
#include "solver/solve.h"

enum { MAX_VARS = 1000, MAX_DEPTH = 60, SMALL_ENTRIES = 8000 }; // small enough for CBC

// The least spread of memory costs, as a share of the gap, for a branch on memory.
static const double worth_splitting = 0.02;

// -- The branching variable and its parts ------------------------------------------------------

typedef struct Split {
  int var, n_labels, n_parts;
  bool memory;   // parts have equal memory costs
  int *part;     // of each label
  double *least; // of each part: its best label's extra cost over the best of all
  int *order;    // parts, most promising first
} Split;

typedef struct Ranked {
  double by;
  int at;
} Ranked;

static int rank_order(const void *x, const void *y) {
  const Ranked *a = x, *b = y;
  return a->by != b->by ? (a->by > b->by) - (a->by < b->by) : (a->at > b->at) - (a->at < b->at);
}

static double spread_of(const double *at, int n) {
  double least = INFINITY, most = -INFINITY;
  for (int i = 0; i < n; i++) {
    least = fmin(least, at[i]);
    most = fmax(most, at[i]);
  }
  return most - least;
}

// The variable with the largest spread of memory costs.
static int most_spread(const Core *c, const double *sum, double *pay, double *out_spread) {
  int best = 0;
  *out_spread = -1;
  for (int v = 0; v < c->n_vars; v++) {
    core_pay(&c->var[v], sum, pay);
    double spread = spread_of(pay, c->var[v].n);
    if (spread > *out_spread) *out_spread = spread, best = v;
  }
  return best;
}

// The most decisive variable: with many and large tables, relative to its number of labels.
static int decisive(const Core *c) {
  int best = 0;
  double most = -1;
  for (int v = 0; v < c->n_vars; v++) {
    const CoreVar *x = &c->var[v];
    double weight = 0;
    for (int k = 0; k < x->n_links; k++)
      weight += log2(c->var[x->link[k].other].n);
    weight /= log2(x->n + 1); // few labels are few parts
    if (weight > most) most = weight, best = v;
  }
  return best;
}

// Chooses the variable to branch on, and groups its labels.
static Split choose_split(const Solve *s) {
  const Core *c = s->core;
  Arena *a = s->round;
  double *sum = arena_array(a, double, c->n_rows + 1),
         *pay = arena_array(a, double, c->most_labels);
  for (int t = 0; t < c->n_rows; t++)
    sum[t + 1] = sum[t] + s->dual->price[t];
  // Branch on memory if its costs differ enough.
  double spread;
  Split x = {.var = most_spread(c, sum, pay, &spread)};
  x.memory = spread > worth_splitting * fabs(s->best - s->dual->bound);
  // Without a relevant spread of memory costs: single labels.
  if (!x.memory) x.var = decisive(c);
  x.n_labels = c->var[x.var].n;
  x.part = arena_array(a, int, x.n_labels);
  core_pay(&c->var[x.var], sum, pay);
  if (x.memory) {
    // Parts have equal memory costs, up to a thousandth of their spread.
    Ranked *ranked = arena_array(a, Ranked, x.n_labels);
    for (int i = 0; i < x.n_labels; i++)
      ranked[i] = (Ranked){pay[i], i};
    qsort(ranked, (size_t)x.n_labels, sizeof *ranked, rank_order);
    double same = 1e-3 * spread_of(pay, x.n_labels);
    for (int i = 0; i < x.n_labels; i++) {
      if (!i || ranked[i].by - ranked[i - 1].by > same) x.n_parts++;
      x.part[ranked[i].at] = x.n_parts - 1;
    }
  } else {
    x.n_parts = x.n_labels;
    for (int i = 0; i < x.n_labels; i++)
      x.part[i] = i;
  }
  // The most promising part first: by the reduced cost of its best label.
  double *cost = arena_array(a, double, x.n_labels);
  dual_reduced(s->dual, x.var, cost);
  x.least = arena_array(a, double, x.n_parts);
  x.order = arena_array(a, int, x.n_parts);
  Ranked *ranked = arena_array(a, Ranked, x.n_parts);
  for (int k = 0; k < x.n_parts; k++)
    ranked[k] = (Ranked){INFINITY, k};
  for (int i = 0; i < x.n_labels; i++)
    ranked[x.part[i]].by = fmin(ranked[x.part[i]].by, cost[i]);
  for (int k = 0; k < x.n_parts; k++)
    x.least[k] = ranked[k].by;
  qsort(ranked, (size_t)x.n_parts, sizeof *ranked, rank_order);
  for (int k = 0; k < x.n_parts; k++)
    x.order[k] = ranked[k].at;
  return x;
}

// -- Part by part ------------------------------------------------------------------------------

// Restores the enclosing subproblem.
static void go_back(Solve *s, const Solve *before) {
  s->model = before->model;
  s->round = before->round;
  s->core = before->core;
  s->n_entries = before->n_entries;
  s->dual = before->dual;
  s->search = before->search;
}

static double part(Solve *s, Model *m, const Model *from, const Dual *its, int depth);

// Solves all parts of one variable's labels, in turn.
static double split(Solve *s, int depth) {
  Solve here = *s; // this subproblem; choices that are found go to *s
  Split x = choose_split(s);
  double least = INFINITY;
  for (int k = 0; k < x.n_parts; k++) {
    // A part whose reduced cost already exceeds the gap is pruned.
    double bound = here.dual->bound + x.least[x.order[k]];
    if (!solve_over(s) && bound <= solve_target(s)) {
      // Solve the subproblem with the labels of this part only.  The variables of the copy are
      // those of the core, in the same order.
      Arena *a = arena_new();
      Model *m = model_copy(a, here.model);
      Label *label = arena_array(a, Label, x.n_labels);
      int n = 0;
      for (int i = 0; i < x.n_labels; i++)
        if (x.part[i] == x.order[k]) label[n++] = (Label)i;
      model_keep(m, x.var, label, n);
      bound = fmax(bound, part(s, m, here.model, here.dual, depth + 1));
      arena_free(a);
      if (depth < 2 && s->options->verbose)
        fprintf(stderr, "%*s%d/%d of %d%s: %.0f\n", 2 * depth + 2, "", k + 1, x.n_parts, x.var,
                x.memory ? " by memory" : "", bound);
      s->core = NULL;
      if (!depth) solve_say(s, "branch");
    }
    least = fmin(least, bound);
  }
  go_back(s, &here);
  return least;
}

static double part(Solve *s, Model *m, const Model *from, const Dual *its, int depth) {
  double bound = -INFINITY;
  for (bool first = true, again = true; again; first = false) {
    model_reduce(m);
    if (m->infeasible) return INFINITY;
    // The dual starts with the prices of the enclosing subproblem.
    solve_begin(s, m);
    dual_take_prices(s->dual, m->time, from->time, its->price, from->n_rows);
    solve_ascend(s, 400, 0.02);
    if (s->dual->bound > bound) bound = s->dual->bound;
    again = false;
    // Not pruned by the dual: local search, exclusion of labels (then again), CBC, branches.
    if (bound <= solve_target(s) && !solve_over(s)) {
      if (first && s->core->n_vars && solve_find(s, 2)) solve_improve(s, 30);
      if (!s->core->n_vars) {
        solve_offer(s, NULL);
        bound = fmax(bound, s->core->constant);
      } else {
        again = solve_exclude(s);
        if (!again && s->n_entries < SMALL_ENTRIES) bound = fmax(bound, solve_cbc(s));
        if (!again && bound <= solve_target(s) && !solve_over(s) && depth < MAX_DEPTH)
          bound = fmax(bound, split(s, depth));
      }
    }
    arena_free(s->round);
    s->round = NULL;
    s->core = NULL;
  }
  return bound;
}

double solve_branch(Solve *s) {
  if (s->core->n_vars > MAX_VARS) return -INFINITY;
  // Parts edit copies of the model; the caller goes on with its own.
  Solve whole = *s;
  Arena *a = arena_new();
  double bound = part(s, model_copy(a, s->model), s->model, s->dual, 0);
  arena_free(a);
  go_back(s, &whole);
  return bound;
}
