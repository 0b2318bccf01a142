// Solves a problem as well as the limits allow (solver.h).
//
//     model_reduce ─► rounds of:  dual_step     lower bounds, and prices of memory
//                                 search        feasible choices of decreasing cost
//                                 dual_exclude  removes labels that no better choice has, and
//                                 model_reduce  simplifies the rest
//                  ─► branch      if rounds no longer help, and the rest is small enough for
//                                 branch and bound
//
// until the bound meets the cost, the model is empty, or a limit is reached (effort.h).  Decisions
// depend on steps, not on seconds: the same problem takes the same path, and the clock only ends
// it.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "solver/program.h"
#include "solver/reduce.h"
#include "solver/solve.h"

void solve_say(const Solve *s, const char *what) {
  if (!s->options->verbose) return;
  fprintf(stderr, "%7.2f s  %-8s cost %.0f bound %.0f", clock_seconds() - s->begin, what, s->best,
          s->bound);
  if (s->core)
    fprintf(stderr, "  %d variables %d labels %d rows bound %.0f", s->core->n_vars,
            s->core->n_labels, s->core->n_rows, s->dual->bound);
  fputc('\n', stderr);
}

// -- Choices ---------------------------------------------------------------------------------

// Keeps a choice of the whole problem if it is feasible, and better than the best.
static void offer(Solve *s, const int *choice) {
  const SolverProblem *p = s->problem;
  SolverCost cost;
  int64_t moment;
  if (!solver_cost(p, choice, &cost)) return;
  if (p->limit != SOLVER_NO_LIMIT && solver_peak(p, choice, &moment) > p->limit) return;
  if (s->has && cost >= s->cost) return;
  s->has = true;
  s->cost = cost;
  s->best = (double)cost;
  memcpy(s->choice, choice, (size_t)p->n_nodes * sizeof *choice);
}

void solve_offer(Solve *s, const int *label) {
  Arena *a = arena_new();
  int *choice = arena_array(a, int, s->problem->n_nodes);
  int *of_model = arena_array(a, int, s->model->n_vars);
  for (int i = 0; i < s->core->n_vars; i++)
    of_model[s->core->var[i].origin] = label[i];
  model_recover(s->model, of_model, choice);
  offer(s, choice);
  arena_free(a);
}

double solve_target(const Solve *s) {
  return s->best - 0.5;
}

// Whether the bound leaves no improvement beyond the gap.
static bool is_close(const Solve *s) {
  if (!s->has) return false;
  return s->best - s->bound <= s->options->gap * fabs(s->best) || s->bound > solve_target(s);
}

// Whether the bound proves that all choices cost too much.
static bool is_above(const Solve *s) {
  return s->options->most > 0 && s->bound > s->options->most;
}

bool solve_over(Solve *s) {
  return is_above(s) || is_close(s) || effort_over(s->effort);
}

// -- Rounds ----------------------------------------------------------------------------------

void solve_begin(Solve *s, Model *m) {
  s->model = m;
  s->round = arena_new();
  s->core = core_build(s->round, m);
  s->dual = dual_new(s->round, s->core);
  s->n_entries = core_entries(s->core);
  s->search = search_new(s->round, s->core, s->options, s->effort);
}

static void step(Solve *s, double target) {
  dual_step(s->dual, target);
  s->effort->work += 2 * (double)s->n_entries;
}

void solve_ascend(Solve *s, int steps, double least) {
  Dual *d = s->dual;
  const Effort *e = s->effort;
  // At most half of the remaining work; and no more than the bound's rise is worth.
  double before = d->bound, most = e->work + (e->most_work - e->work) / 2;
  for (int k = 1; k <= steps && e->work < most && !solve_over(s); k++) {
    step(s, s->has ? s->best : INFINITY);
    if (s->has && d->bound > solve_target(s)) break;
    if (!s->has || k % 100) continue;
    if (d->bound - before < least * (s->best - d->bound)) break;
    before = d->bound;
  }
  dual_settle(d);
}

bool solve_find(Solve *s, int tries) {
  Search *x = s->search;
  // Better prices between the tries.
  for (int k = 0; k < tries && x->over > 0 && !effort_over(s->effort); k++) {
    if (search_fit(x, s->dual->label, s->dual->price, 40)) break;
    for (int i = 0; i < 20; i++)
      step(s, INFINITY);
  }
  if (x->over == 0) solve_offer(s, x->label);
  return x->over == 0;
}

void solve_improve(Solve *s, int moves) {
  enum { SOME = 100, FEW = 30, KICKS = 3 };
  Search *x = s->search;
  if (x->over > 0) return;
  x->target = s->dual->bound + 0.5;
  memcpy(x->price, s->dual->price, (size_t)s->core->n_rows * sizeof *x->price);
  // If few moves succeed, it is at a local optimum: start again near it, and from the dual's
  // labels.
  for (int done = 0; done < moves && !solve_over(s) && x->cost > x->target; done += SOME)
    if (search_improve(x, SOME) * 50 < SOME) {
      for (int k = 0; k < KICKS && !effort_over(s->effort); k++)
        search_kick(x, s->dual->price, FEW);
      search_again(x, s->dual->label, s->dual->price, FEW);
    }
  solve_offer(s, x->label);
}

bool solve_exclude(Solve *s) {
  Arena *a = arena_new();
  Model *m = s->model;
  const Core *c = s->core;
  bool *gone = arena_array(a, bool, c->n_labels);
  Label *label = arena_array(a, Label, c->most_labels);
  int n = dual_exclude(s->dual, solve_target(s), gone), went = 0;
  // Fewer than one in fifty would not justify a new round.
  for (int v = 0; n > c->n_labels / 50 && v < c->n_vars; v++) {
    int kept = 0, var = c->var[v].origin;
    for (int i = 0; i < c->var[v].n; i++)
      if (!gone[s->dual->first_label[v] + i] || (m->hold && m->hold[var] == i))
        label[kept++] = (Label)i;
    went += c->var[v].n - kept;
    model_keep(m, var, label, kept);
  }
  arena_free(a);
  return went > 0;
}

// -- The problem as a whole ------------------------------------------------------------------

static void ascend(Solve *s, int steps) {
  solve_ascend(s, steps, 0.001);
  if (s->dual->bound > s->bound) s->bound = s->dual->bound;
  solve_say(s, "ascend");
}

enum { MANY_LABELS = 30000 }; // a step takes about 10 ms

// Returns whether labels were removed.
static bool round_of(Solve *s, int moves) {
  double before = s->dual->bound;
  ascend(s, s->core->n_labels > MANY_LABELS ? 200 : 1000);
  if (solve_over(s)) return false;
  // Much better prices justify a new start.
  if (s->dual->bound - before > 0.01 * (s->best - before)) {
    search_again(s->search, s->dual->label, s->dual->price, 100);
    solve_offer(s, s->search->label);
    solve_say(s, "again");
  }
  solve_improve(s, moves);
  solve_say(s, "improve");
  if (solve_over(s) || s->search->over > 0 || s->search->cost > s->best) return false;
  // Hold the best choice found, which all later reductions keep possible.
  Model *m = s->model;
  if (!m->hold) m->hold = arena_array(m->arena, int, m->n_vars);
  for (int i = 0; i < s->core->n_vars; i++)
    m->hold[s->core->var[i].origin] = s->search->label[i];
  dual_settle(s->dual);
  if (!solve_exclude(s)) return false;
  // Simplify the model without these labels; prices and the held choice carry over.
  Arena *a = arena_new();
  int n_rows = m->n_rows;
  const int64_t *time = arena_copy(a, m->time, (size_t)n_rows * sizeof *time);
  const double *price = arena_copy(a, s->dual->price, (size_t)n_rows * sizeof *price);
  model_reduce(m);
  arena_free(s->round);
  solve_begin(s, m);
  dual_take_prices(s->dual, m->time, time, price, n_rows);
  arena_free(a);
  int *label = arena_array(s->round, int, s->core->n_vars);
  for (int i = 0; i < s->core->n_vars; i++)
    label[i] = m->hold[s->core->var[i].origin];
  search_offer(s->search, label);
  solve_offer(s, label);
  if (!s->core->n_vars) s->bound = s->best; // no other choice can be better
  return true;
}

static void try_bound(Solve *s, double (*find)(Solve *)) {
  if (solve_over(s)) return;
  double bound = find(s);
  if (bound > s->bound) s->bound = bound;
}

static void run(Solve *s, Model *m) {
  // Reduction alone may solve it; large sums are rounded.
  solve_begin(s, m);
  if (!s->core->n_vars) {
    double all = s->core->constant;
    solve_offer(s, NULL);
    s->bound = fabs(all) < 0x1p53 ? all : all - 1e-12 * fabs(all);
    return;
  }
  // If memory does not bind, elimination alone may solve it.
  int *label = arena_array(s->round, int, s->core->n_vars);
  if (search_free(s->search, label)) {
    s->bound = core_cost(s->core, label) - 1e-12 * fabs(core_cost(s->core, label));
    solve_offer(s, label);
    if (solve_over(s)) return;
  }
  ascend(s, 200);
  if (solve_over(s)) return;
  solve_find(s, 20);
  solve_say(s, "find");
  // Rounds until three in turn remove no label; CBC after the first of these.
  for (int idle = 0, moves = 200; !solve_over(s) && idle < 3;) {
    bool shrunk = round_of(s, moves);
    idle = shrunk ? 0 : idle + 1;
    moves = shrunk ? 200 : 2 * moves;
    double best = s->best;
    if (idle == 1) try_bound(s, solve_cbc);
    if (s->best < best) idle = 0;
  }
  // Branch and bound, then search for the rest of the limit.
  try_bound(s, solve_branch);
  while (!solve_over(s))
    round_of(s, 1 << 20);
}

// -- The result ------------------------------------------------------------------------------

static SolverResult result(const Solve *s) {
  if (!s->has) {
    bool none = isinf(s->bound) && s->bound > 0;
    return (SolverResult){.status = none ? SOLVER_infeasible : SOLVER_time_out,
                          .ended = none ? SOLVER_done : s->effort->ended};
  }
  // Costs are whole numbers: a bound less than one below the cost proves it.
  SolverResult r = {.status = SOLVER_feasible, .choice = s->choice, .cost = s->cost};
  r.ended = is_close(s) ? SOLVER_done : s->effort->ended;
  r.has_bound = s->bound > -INFINITY;
  if (s->bound > solve_target(s)) {
    r.status = SOLVER_optimal;
    r.bound = r.cost;
  } else if (r.has_bound) {
    r.bound = (SolverCost)ceil(s->bound);
    r.gap = (s->best - s->bound) / fmax(fabs(s->best), 1);
  }
  return r;
}

static bool write_lp(const Model *m, const char *path) {
  Arena *a = arena_new();
  const Core *c = core_build(a, m);
  bool *all = arena_array(a, bool, c->n_rows + 1);
  memset(all, true, (size_t)c->n_rows);
  bool ok = program_write(program_build(a, c, NULL, all, true), path);
  arena_free(a);
  return ok;
}

SolverResult solver_solve(Arena *a, const SolverProblem *p, const SolverOptions *o) {
  if (o->method != SOLVER_auto) return solver_compare(a, p, o);
  Arena *scratch = arena_new();
  Effort effort = effort_new(o);
  Solve s = {.arena = a,
             .problem = p,
             .options = o,
             .begin = clock_seconds(),
             .effort = &effort,
             .best = INFINITY,
             .bound = -INFINITY};
  s.choice = arena_array(a, int, p->n_nodes);
  // The start counts only if it is feasible.
  if (o->start) offer(&s, o->start);
  Model *m = model_build(scratch, p);
  model_reduce(m);
  SolverResult r;
  if (m->infeasible) {
    r = (SolverResult){.status = SOLVER_infeasible};
    // Tell the row that overflows even with the least usage of all.
    if (m->full_row >= 0) {
      r.has_moment = true;
      r.moment = m->time[m->full_row];
      r.needed = (SolverCost)p->limit - m->room[m->full_row];
    }
  } else {
    bool written = !o->lp || write_lp(m, o->lp);
    run(&s, m);
    r = result(&s);
    r.above = is_above(&s);
    r.lp_failed = !written;
  }
  r.work = effort.work;
  if (o->verbose) fprintf(stderr, "%.3g of work\n", effort.work / 1e6);
  arena_free(s.round);
  arena_free(scratch);
  return r;
}
