// From a problem to the best choice that time allows (solver.h).
//
//     model_reduce ─► rounds of:  dual_step     bounds from below, and prices of memory
//                                 search        choices that fit, better and better
//                                 dual_exclude  labels that no better choice has go, and
//                                 model_reduce  what has become simple with them
//
// until the bound meets the cost, nothing is left, or the time is over.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "solver/improve.h"
#include "solver/lagrange.h"
#include "solver/reduce.h"

typedef struct Solve {
  Arena *arena; // of the result
  const SolverProblem *problem;
  const SolverOptions *options;
  double begin, end;
  Model *model;
  int *choice; // of each node, when `has`
  bool has;
  SolverCost cost;
  double best, bound; // the cost; the best bound of any round
  // of one round
  Arena *round;
  Core *core;
  Dual *dual;
  Search *search;
} Solve;

static void say(const Solve *s, const char *what) {
  if (!s->options->verbose) return;
  fprintf(stderr, "%7.2f s  %-8s cost %.0f bound %.0f", clock_seconds() - s->begin, what, s->best,
          s->bound);
  if (s->core)
    fprintf(stderr, "  %d variables %d labels %d rows", s->core->n_vars, s->core->n_labels,
            s->core->n_rows);
  fputc('\n', stderr);
}

// -- Choices ---------------------------------------------------------------------------------

static bool fits(const SolverProblem *p, const int *choice) {
  int64_t moment;
  return p->limit == SOLVER_NO_LIMIT || solver_peak(p, choice, &moment) <= p->limit;
}

static void offer(Solve *s, const int *choice) {
  SolverCost cost;
  if (!solver_cost(s->problem, choice, &cost) || !fits(s->problem, choice)) return;
  if (s->has && cost >= s->cost) return;
  s->has = true;
  s->cost = cost;
  s->best = (double)cost;
  memcpy(s->choice, choice, (size_t)s->problem->n_nodes * sizeof *choice);
}

// What the search has found, and everything that went.
static void offer_label(Solve *s, const int *label) {
  Arena *a = arena_new();
  int *choice = arena_array(a, int, s->problem->n_nodes);
  for (int i = 0; s->core && i < s->core->n_vars; i++)
    choice[s->core->var[i].origin] = label[i];
  model_recover(s->model, choice);
  offer(s, choice);
  arena_free(a);
}

// Nothing costs less than the best by a whole unit.
static double target_of(const Solve *s) {
  return s->best - 0.5;
}

static bool is_proven(const Solve *s) {
  return s->has && s->bound > target_of(s);
}

static bool is_over(const Solve *s) {
  return is_proven(s) || clock_seconds() >= s->end;
}

// -- Rounds ----------------------------------------------------------------------------------

static void begin_round(Solve *s) {
  if (s->round) arena_free(s->round);
  s->round = arena_new();
  s->core = core_build(s->round, s->model);
  s->dual = dual_new(s->round, s->core);
  s->search = search_new(s->round, s->core, s->options, s->end);
}

static void raise_bound(Solve *s, double bound) {
  if (bound > s->bound) s->bound = bound;
}

// Until the bound hardly rises any more.  Returns whether it did rise.
static void ascend(Solve *s, double until) {
  Dual *d = s->dual;
  double before = d->bound;
  for (int k = 1; !is_over(s) && clock_seconds() < until; k++) {
    double target = s->has ? s->best : d->bound + 0.05 * fabs(d->bound) + 1;
    dual_step(d, isfinite(target) ? target : 1e18);
    if (d->bound > target_of(s) && s->has) break;
    if (k % 100) continue;
    if (d->bound - before < 1e-5 * (fabs(before) + 1) && s->has) break;
    before = d->bound;
  }
  raise_bound(s, dual_settle(d));
  say(s, "ascend");
}

static void find(Solve *s) {
  Search *x = s->search;
  for (int k = 0; k < 20 && x->over > 0 && clock_seconds() < s->end; k++) {
    if (search_fit(x, s->dual->label, s->dual->price, 40)) break;
    for (int i = 0; i < 20; i++)
      dual_step(s->dual, s->dual->bound + 0.05 * fabs(s->dual->bound) + 1);
  }
  if (x->over == 0) offer_label(s, x->label);
  say(s, "find");
}

static void improve(Solve *s, double until) {
  Search *x = s->search;
  if (x->over > 0) return;
  x->target = s->bound + 0.5;
  memcpy(x->price, s->dual->price, (size_t)s->core->n_rows * sizeof *x->price);
  search_improve(x, until < s->end ? until : s->end);
  offer_label(s, x->label);
  say(s, "improve");
}

// What was found becomes the choice that stays possible in the model.
static void hold(Solve *s) {
  for (int i = 0; i < s->core->n_vars; i++)
    s->model->hold[s->core->var[i].origin] = s->search->label[i];
}

// Labels of no better choice go.  Whether they are worth a new round.
static bool exclude(Solve *s) {
  if (s->search->over > 0 || s->search->cost > s->best) return false;
  Arena *a = arena_new();
  const Core *c = s->core;
  bool *gone = arena_array(a, bool, c->n_labels);
  Label *label = arena_array(a, Label, c->most_labels);
  int n = dual_exclude(s->dual, target_of(s), gone), went = 0;
  if (n > c->n_labels / 50) {
    hold(s);
    for (int v = 0; v < c->n_vars; v++) {
      int kept = 0, var = c->var[v].origin;
      for (int i = 0; i < c->var[v].n; i++)
        if (!gone[s->dual->first_label[v] + i] || s->model->hold[var] == i)
          label[kept++] = (Label)i;
      went += c->var[v].n - kept;
      model_keep(s->model, var, label, kept);
    }
  }
  arena_free(a);
  return went > 0;
}

static void run(Solve *s) {
  begin_round(s);
  ascend(s, clock_seconds() + 0.02 * (s->end - s->begin));
  find(s);
  double slice = 0.05 * (s->end - s->begin);
  while (!is_over(s)) {
    improve(s, clock_seconds() + slice);
    if (is_over(s)) break;
    ascend(s, clock_seconds() + slice);
    if (is_over(s) || !exclude(s)) continue;
    model_reduce(s->model);
    begin_round(s);
    int *label = arena_array(s->round, int, s->core->n_vars);
    for (int i = 0; i < s->core->n_vars; i++)
      label[i] = s->model->hold[s->core->var[i].origin];
    search_offer(s->search, label);
    offer_label(s, label);
    if (!s->core->n_vars) s->bound = s->best;
    ascend(s, clock_seconds() + slice);
  }
}

// -- The result ------------------------------------------------------------------------------

static SolverResult infeasible(const Solve *s) {
  SolverResult r = {.status = SOLVER_infeasible};
  const Model *m = s->model;
  if (m->full_row >= 0) {
    r.has_moment = true;
    r.moment = m->time[m->full_row];
    r.needed = (SolverCost)s->problem->limit - m->room[m->full_row];
  }
  return r;
}

static SolverResult result(const Solve *s) {
  if (!s->has) return (SolverResult){.status = SOLVER_time_out};
  SolverResult r = {.status = SOLVER_feasible,
                    .choice = s->choice,
                    .cost = s->cost,
                    .has_bound = isfinite(s->bound)};
  if (is_proven(s)) {
    r.status = SOLVER_optimal;
    r.bound = r.cost;
    return r;
  }
  if (!r.has_bound) return r;
  r.bound = (SolverCost)ceil(s->bound);
  r.gap = (s->best - s->bound) / fmax(fabs(s->best), 1);
  return r;
}

SolverResult solver_solve(Arena *a, const SolverProblem *p, const SolverOptions *o) {
  Arena *scratch = arena_new();
  Solve s = {.arena = a,
             .problem = p,
             .options = o,
             .begin = clock_seconds(),
             .best = INFINITY,
             .bound = -INFINITY};
  s.end = s.begin + o->seconds;
  s.choice = arena_array(a, int, p->n_nodes);
  s.model = model_build(scratch, p);
  if (o->start) offer(&s, o->start);
  model_reduce(s.model);
  SolverResult r;
  if (s.model->infeasible) {
    r = infeasible(&s);
  } else {
    s.model->hold = arena_array(scratch, int, p->n_nodes);
    run(&s);
    r = result(&s);
  }
  if (s.round) arena_free(s.round);
  arena_free(scratch);
  return r;
}
