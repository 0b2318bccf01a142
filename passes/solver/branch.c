// Trying labels one after the other (solve.h), depth first, the most promising first.
//
// With one label given to a variable its tables become costs of the neighbours, and reduction and
// the dual begin again on what is left, which is much less.  A part of the choices whose bound
// reaches the best cost is done with.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "solver/reduce.h"
#include "solver/solve.h"

enum { MAX_VARS = 1000, MAX_DEPTH = 60, SMALL_ENTRIES = 50000 }; // small: for CBC

// The one whose label decides most: with many tables, and large ones, for its number of labels.
static int decisive(const Core *c) {
  int best = 0;
  double most = -1;
  for (int v = 0; v < c->n_vars; v++) {
    const CoreVar *x = &c->var[v];
    double weight = 0;
    for (int k = 0; k < x->n_links; k++)
      weight += log2(c->var[x->link[k].other].n);
    weight /= log2(x->n + 1);
    if (weight > most) most = weight, best = v;
  }
  return best;
}

typedef struct Ranked {
  double cost;
  int label;
} Ranked;

static int rank_order(const void *x, const void *y) {
  const Ranked *a = x, *b = y;
  return a->cost != b->cost ? (a->cost > b->cost) - (a->cost < b->cost)
                            : (a->label > b->label) - (a->label < b->label);
}

// To what was worked on before.
static void go_back(Solve *s, const Solve *before) {
  s->model = before->model;
  s->round = before->round;
  s->core = before->core;
  s->dual = before->dual;
  s->search = before->search;
}

static double part(Solve *s, Model *m, const Model *from, const Dual *its, int depth);

// Each label of one variable in turn.
static double split(Solve *s, int depth) {
  Solve here = *s; // what is being worked on here; choices that are found go to *s
  int v = decisive(here.core), n = here.core->var[v].n;
  Ranked *ranked = arena_array(here.round, Ranked, n);
  double *cost = arena_array(here.round, double, n);
  dual_reduced(here.dual, v, cost);
  for (int i = 0; i < n; i++)
    ranked[i] = (Ranked){cost[i], i};
  qsort(ranked, (size_t)n, sizeof *ranked, rank_order);
  double least = INFINITY;
  for (int k = 0; k < n; k++) {
    double bound = here.dual->bound + ranked[k].cost;
    if (!solve_over(s) && bound <= solve_target(s)) {
      Arena *a = arena_new();
      Model *m = model_copy(a, here.model);
      // The copy's variables are those of the core, in the same order.
      model_keep(m, v, &(Label){(Label)ranked[k].label}, 1);
      double found = part(s, m, here.model, here.dual, depth + 1);
      if (found > bound) bound = found;
      arena_free(a);
      if (depth < 2 && s->options->verbose) {
        fprintf(stderr, "%*s%d/%d of %d: %.0f\n", 2 * depth + 2, "", k + 1, n, v, bound);
        s->core = NULL;
        if (!depth) solve_say(s, "branch");
      }
    }
    if (bound < least) least = bound;
  }
  go_back(s, &here);
  return least;
}

static void end_round(Solve *s) {
  arena_free(s->round);
  s->round = NULL;
  s->core = NULL;
}

static double part(Solve *s, Model *m, const Model *from, const Dual *its, int depth) {
  double bound = -INFINITY;
  for (bool first = true, again = true; again; first = false) {
    model_reduce(m);
    if (m->infeasible) return INFINITY;
    solve_begin(s, m);
    dual_take_prices(s->dual, m->time, from->time, its->price, from->n_rows);
    solve_ascend(s, 400, 0.02);
    if (s->dual->bound > bound) bound = s->dual->bound;
    again = false;
    if (bound <= solve_target(s) && !solve_over(s)) {
      if (first && s->core->n_vars && solve_find(s, 2)) solve_improve(s, 30);
      if (!s->core->n_vars) {
        solve_offer(s, NULL);
        bound = fmax(bound, s->core->constant);
      } else {
        again = solve_exclude(s);
        if (!again && core_entries(s->core) < SMALL_ENTRIES) bound = fmax(bound, solve_cbc(s));
        if (!again && bound <= solve_target(s) && !solve_over(s) && depth < MAX_DEPTH)
          bound = fmax(bound, split(s, depth));
      }
    }
    end_round(s);
  }
  return bound;
}

double solve_branch(Solve *s) {
  if (s->core->n_vars > MAX_VARS) return -INFINITY;
  Solve whole = *s;
  Arena *a = arena_new();
  double bound = part(s, model_copy(a, s->model), s->model, s->dual, 0);
  arena_free(a);
  go_back(s, &whole);
  return bound;
}
