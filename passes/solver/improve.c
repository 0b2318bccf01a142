// Local search with exact moves (improve.h).
//
// A move takes a block of variables that lie close together, or at the same full rows, and finds
// their best labels by elimination while all others keep theirs.  Memory is priced: where the best
// choice does not fit, prices of the rows that overflow rise by Polyak's rule (Minimization of
// unsmooth functionals) until it does, or until the bound that they give says that this block can
// save nothing.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "solver/improve.h"

enum {
  MOST_VARS = 1024,
  MOST_ENTRIES = 1 << 21, // of all tables of a block
  PRICE_STEPS = 12,       // for one block
};

Search *search_new(Arena *a, const Core *c, const SolverOptions *o, double end) {
  Search *s = arena_one(a, Search);
  *s = (Search){.core = c,
                .random = {o->seed},
                .verbose = o->verbose,
                .end = end,
                .cost = INFINITY,
                .over = INFINITY,
                .target = -INFINITY};
  s->block = block_new(a, c, MOST_VARS, MOST_ENTRIES);
  s->label = arena_array(a, int, c->n_vars);
  s->try = arena_array(a, int, c->n_vars);
  s->queue = arena_array(a, int, c->n_vars);
  s->seen = arena_array(a, bool, c->n_vars);
  s->used = arena_array(a, int64_t, c->n_rows + 1);
  s->difference = arena_array(a, int64_t, c->n_rows + 1);
  s->price = arena_array(a, double, c->n_rows + 1);
  s->trial = arena_array(a, double, c->n_rows + 1);
  s->sum = arena_array(a, double, c->n_rows + 1);
  return s;
}

bool search_offer(Search *s, const int *label) {
  double cost = core_cost(s->core, label);
  int64_t *used = s->difference;
  double over = core_usage(s->core, label, used);
  if (over > s->over || (over == s->over && cost >= s->cost)) return false;
  memcpy(s->label, label, (size_t)s->core->n_vars * sizeof *label);
  memcpy(s->used, used, (size_t)s->core->n_rows * sizeof *used);
  s->cost = cost;
  s->over = over;
  return true;
}

static void say(const Search *s, const char *what) {
  if (s->verbose)
    fprintf(stderr, "%8.2f s left: %s: cost %.0f over %.0f\n", s->end - clock_seconds(), what,
            s->cost, s->over);
}

static const double *sums_of(Search *s, const double *price) {
  double sum = 0;
  for (int t = 0; t < s->core->n_rows; t++) {
    s->sum[t] = sum;
    sum += price[t];
  }
  s->sum[s->core->n_rows] = sum;
  return s->sum;
}

// -- Blocks ----------------------------------------------------------------------------------

// Variables around some seeds, breadth first, each neighbour with some chance.
static int grow(Search *s, int n_seeds, int most) {
  const Core *c = s->core;
  int n = n_seeds;
  for (int k = 0; k < n && n < most; k++) {
    const CoreVar *v = &c->var[s->queue[k]];
    int first = v->n_links ? random_below(&s->random, v->n_links) : 0;
    for (int i = 0; i < v->n_links && n < most; i++) {
      int other = v->link[(first + i) % v->n_links].other;
      if (s->seen[other] || random_below(&s->random, 4) == 0) continue;
      s->seen[other] = true;
      s->queue[n++] = other;
    }
  }
  for (int k = 0; k < n; k++)
    s->seen[s->queue[k]] = false;
  return n;
}

static int seed(Search *s, int n, int var) {
  if (s->seen[var]) return n;
  s->seen[var] = true;
  s->queue[n] = var;
  return n + 1;
}

static int choose_block(Search *s, int most) {
  int n = 0, seeds = 1 + random_below(&s->random, 3);
  for (int k = 0; k < seeds; k++)
    n = seed(s, n, random_below(&s->random, s->core->n_vars));
  return grow(s, n, most);
}

// -- One block -------------------------------------------------------------------------------

// The usage of a block's labels, at each row, into s->difference.
static void block_usage(Search *s, const int *var, int n, const int *label) {
  memset(s->difference, 0, (size_t)(s->core->n_rows + 1) * sizeof *s->difference);
  for (int k = 0; k < n; k++)
    core_add(&s->core->var[var[k]], label[var[k]], 1, s->difference);
  for (int t = 1; t <= s->core->n_rows; t++)
    s->difference[t] += s->difference[t - 1];
}

// The others' usage instead of everybody's.
static void take_off(Search *s, const int *var, int n, int sign) {
  block_usage(s, var, n, s->label);
  for (int t = 0; t < s->core->n_rows; t++)
    s->used[t] -= sign * s->difference[t];
}

typedef struct Slack {
  double paid;   // sum of price times room
  double length; // of the direction in which prices go, squared
  double over;
} Slack;

static Slack slack(const Search *s, const double *price) {
  Slack x = {0, 0, 0};
  for (int t = 0; t < s->core->n_rows; t++) {
    int64_t room = s->core->room[t] - s->used[t], more = s->difference[t] - room;
    if (price[t] > 0) x.paid += price[t] * (double)room;
    if (more > 0) x.over += (double)more;
    if (more > 0 || price[t] > 0) x.length += (double)more * (double)more;
  }
  return x;
}

static void raise(Search *s, double *price, double step) {
  for (int t = 0; t < s->core->n_rows; t++) {
    int64_t more = s->difference[t] - (s->core->room[t] - s->used[t]);
    if (more <= 0 && price[t] <= 0) continue;
    price[t] += step * (double)more;
    if (price[t] < 0) price[t] = 0;
  }
}

// Something cheaper that fits, from a choice that does.
static bool improve_block(Search *s, int n, int64_t table) {
  const int *var;
  block_plan(s->block, s->queue, n, s->label, table, &s->random);
  n = block_free(s->block, &var);
  double old = block_cost(s->block, s->label), best = old;
  double least = 1e-9 * fabs(s->cost); // what is worth the trouble; below it may be rounding
  if (least > 0.5) least = 0.5;
  double bound = block_solve(s->block, NULL, s->try);
  if (bound > old - least) return false;
  take_off(s, var, n, 1);
  bool found = false;
  double *price = s->trial;
  memset(price, 0, (size_t)s->core->n_rows * sizeof *price);
  for (int step = 0;; step++) {
    block_usage(s, var, n, s->try);
    Slack x = slack(s, price);
    if (x.over == 0) {
      double cost = block_cost(s->block, s->try);
      if (cost < best - least) {
        best = cost;
        found = true;
        for (int k = 0; k < n; k++)
          s->label[var[k]] = s->try[var[k]];
        if (step) memcpy(s->price, price, (size_t)s->core->n_rows * sizeof *price);
      }
    }
    if (bound - x.paid > best - least || step == PRICE_STEPS || x.length <= 0) break;
    if (step == 0)
      memcpy(price, s->price, (size_t)s->core->n_rows * sizeof *price);
    else
      raise(s, price, 1.2 * (best - (bound - x.paid)) / x.length);
    bound = block_solve(s->block, sums_of(s, price), s->try);
  }
  s->cost += best - old;
  take_off(s, var, n, -1);
  return found;
}

void search_improve(Search *s, double until) {
  int most = s->core->n_vars < MOST_VARS ? s->core->n_vars : MOST_VARS;
  int64_t moves = 0, good = 0;
  double said = clock_seconds();
  while (clock_seconds() < until && s->cost > s->target) {
    int size = 1 + (int)(most * pow(random_unit(&s->random), 2));
    int n = choose_block(s, size);
    moves++;
    if (improve_block(s, n, INT64_C(1) << (8 + random_below(&s->random, 8)))) good++;
    if (s->verbose && clock_seconds() > said + 2) {
      said = clock_seconds();
      fprintf(stderr, "%lld moves, %lld good ", (long long)moves, (long long)good);
      say(s, "improve");
    }
  }
  s->cost = core_cost(s->core, s->label);
}

// -- Something that fits ---------------------------------------------------------------------

// The best labels of a block at the prices, whether they fit or not.
static void settle_block(Search *s, int n, int *label) {
  block_plan(s->block, s->queue, n, label, 1 << 13, &s->random);
  block_solve(s->block, s->sum, label);
}

// Prices of rows that overflow go up together, by a part of what all costs.
static void raise_full(Search *s, const int64_t *used, double by) {
  const Core *c = s->core;
  double length = 0;
  for (int t = 0; t < c->n_rows; t++) {
    double more = (double)(used[t] - c->room[t]);
    if (more > 0) length += more * more;
  }
  for (int t = 0; t < c->n_rows; t++) {
    double more = (double)(used[t] - c->room[t]);
    if (more > 0) s->trial[t] += by * more / length;
  }
}

bool search_fit(Search *s, const int *start, const double *price, int sweeps) {
  const Core *c = s->core;
  Arena *a = arena_new();
  int *label = arena_copy(a, start, (size_t)c->n_vars * sizeof *label);
  int64_t *used = arena_array(a, int64_t, c->n_rows + 1);
  memcpy(s->trial, price, (size_t)c->n_rows * sizeof *price);
  int most = c->n_vars < 256 ? c->n_vars : 256;
  double growth = 0.001;
  bool fits = false;
  for (int k = 0; k < sweeps && !fits && clock_seconds() < s->end; k++) {
    sums_of(s, s->trial);
    for (int done = 0; done < 2 * c->n_vars; done += most)
      settle_block(s, choose_block(s, most), label);
    double cost = core_cost(c, label);
    fits = core_usage(c, label, used) == 0;
    search_offer(s, label);
    raise_full(s, used, growth * (isfinite(cost) ? fabs(cost) + 1 : 1));
    growth *= 1.3;
  }
  arena_free(a);
  return s->over == 0;
}
