// Solves the core with CBC (program.h has the formulation).
//
// Most memory rows never bind: the program has only priced rows and rows that overflowed before; if
// CBC's answer overflows others, they are added, and it runs again.  A program with fewer rows is a
// relaxation, so its bound remains valid.

#include <math.h>

#include "solver/solve.h"
#include "solver/zero_one.h"

#ifndef NNAOT_CBC

double solve_cbc(Solve *s) {
  (void)s;
  return -INFINITY;
}

#else

enum { MAX_ENTRIES = 200000, MAX_TIMES = 20, MOST_ROWS = 100 };
// Estimated work of CBC per table entry: before its first node, and at each node.
enum { OF_ROOT = 30000, OF_NODE = 2000 };

// Adds the fullest row of each run of overflowing rows; returns the number of new ones.
static int want_more(const Core *c, const int *label, bool *wanted) {
  Arena *a = arena_new();
  int64_t *used = arena_array(a, int64_t, c->n_rows + 1);
  core_usage(c, label, used);
  // Neighbouring rows share most items: one of them often relieves all.
  int n = 0;
  for (int t = 0; t < c->n_rows;) {
    int worst = t;
    for (; t < c->n_rows && used[t] > c->room[t]; t++)
      if (used[t] - c->room[t] > used[worst] - c->room[worst]) worst = t;
    if (t == worst) { // not overflowed
      t++;
      continue;
    }
    n += !wanted[worst];
    wanted[worst] = true;
  }
  arena_free(a);
  return n;
}

// Runs CBC: labels of its answer, if any; returns a lower bound of the cost.
static double ask(Solve *s, const ZeroOne *p, int *label, bool *has, Arena *a) {
  // A known choice is a start, and its cost a cutoff.
  bool known = s->search->over == 0 && s->search->cost <= s->best;
  double entries = (double)s->n_entries + 1, left = s->effort->most_work - s->effort->work;
  ZeroOneAsk ask = {.cutoff = s->has ? solve_target(s) - p->constant : INFINITY,
                    .end = s->effort->end};
  if (isfinite(left)) ask.most_nodes = 1 + (int)fmin(left / (entries * OF_NODE), 1e6);
  if (known) ask.start = program_values(a, s->core, p, s->search->label);
  double *value = arena_array(a, double, p->n_columns);
  ZeroOneAnswer x = zero_one_ask(p, &ask, value);
  s->effort->work += entries * (OF_ROOT + (double)OF_NODE * x.nodes);
  // The labels of its answer; a variable without a column at 1 is not integral.
  *has = x.has;
  const CoreVar *v = s->core->var;
  for (int k = 0, n = 0; *has && k < s->core->n_vars; n += v[k++].n) {
    label[k] = 0;
    for (int i = 1; i < v[k].n; i++)
      if (value[n + i] > value[n + label[k]]) label[k] = i;
    *has = value[n + label[k]] >= 0.5;
  }
  // Costs are reduced by the dual, so this concerns the gap and not the whole cost: CBC's
  // tolerances are far less than one unit of it.
  if (x.bound == INFINITY) return s->has ? s->best : -INFINITY; // no better choice
  return p->constant + x.bound - 1e-9 * fabs(x.bound);
}

double solve_cbc(Solve *s) {
  if (s->alone || s->n_entries > MAX_ENTRIES) return -INFINITY;
  Arena *a = arena_new();
  bool *wanted = arena_array(a, bool, s->core->n_rows + 1);
  int *label = arena_array(a, int, s->core->n_vars + 1);
  double bound = -INFINITY;
  // A small program may have all rows.
  for (int t = 0; t < s->core->n_rows; t++)
    wanted[t] = s->dual->price[t] > 0 || s->core->n_rows <= MOST_ROWS;
  // CBC's root alone may exceed the remaining work, as no other bound is as good; but not twice the
  // total limit.
  bool has_work = 2 * s->effort->most_work >= ((double)s->n_entries + 1) * OF_ROOT;
  for (int k = 0; k < MAX_TIMES && !solve_over(s) && has_work; k++) {
    Arena *scratch = arena_new();
    const ZeroOne *p = program_build(scratch, s->core, s->dual, wanted, false);
    bool has;
    double known = ask(s, p, label, &has, scratch);
    arena_free(scratch);
    // Each program has more rows than the last, so bounds rise until its answer is feasible.
    if (known > bound) bound = known;
    solve_say(s, "cbc");
    if (!has) break;
    // Its answer may overflow rows that the program does not have.
    search_offer(s->search, label);
    solve_offer(s, label);
    if (!want_more(s->core, label, wanted)) break;
  }
  arena_free(a);
  return bound;
}

#endif
