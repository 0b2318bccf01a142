// Local search with exact moves (improve.h).
//
// A move takes a block of variables near each other, or at the same full rows, and finds their best
// labels by elimination while all others stay fixed.  Memory is priced: if the best choice
// overflows, the prices of those rows rise by Polyak's rule (Minimization of unsmooth functionals)
// until it is feasible, or until their bound proves that the block cannot save anything.

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "solver/improve.h"

// In large cores small blocks save more per second, and large tables pay off: S after 40 s costs
// 1.682e9 with blocks up to 1024 and tables up to 2^15, 1.626e9 with 256 and 2^18.
enum {
  MOST_VARS = 1024,
  MOST_OF_MANY = 256,
  MOST_ENTRIES = 1 << 21, // in all tables of a block
  PRICE_STEPS = 12,       // per block
};

Search *search_new(Arena *a, const Core *c, const SolverOptions *o, Effort *e) {
  Search *s = arena_one(a, Search);
  *s = (Search){.core = c,
                .dice = {o->seed},
                .verbose = o->verbose,
                .effort = e,
                .cost = INFINITY,
                .over = INFINITY,
                .target = -INFINITY};
  s->block = block_new(a, c, MOST_VARS, MOST_ENTRIES);
  s->label = arena_array(a, int, c->n_vars);
  s->attempt = arena_array(a, int, c->n_vars);
  s->queue = arena_array(a, int, c->n_vars);
  s->seen = arena_array(a, bool, c->n_vars);
  s->used = arena_array(a, int64_t, c->n_rows + 1);
  s->difference = arena_array(a, int64_t, c->n_rows + 1);
  s->price = arena_array(a, double, c->n_rows + 1);
  s->trial = arena_array(a, double, c->n_rows + 1);
  s->sum = arena_array(a, double, c->n_rows + 1);
  s->weight = arena_array(a, double, c->n_rows + 1);
  s->limit = arena_array(a, int64_t, c->n_rows + 1);
  return s;
}

bool search_offer(Search *s, const int *label) {
  double cost = core_cost(s->core, label);
  int64_t *used = s->difference;
  double over = core_usage(s->core, label, used);
  // Less overflow counts more than less cost.
  if (over > s->over || (over == s->over && cost >= s->cost)) return false;
  memcpy(s->label, label, (size_t)s->core->n_vars * sizeof *label);
  memcpy(s->used, used, (size_t)s->core->n_rows * sizeof *used);
  s->cost = cost;
  s->over = over;
  return true;
}

static const double *sums_of(Search *s, const double *price, const double *weight) {
  double sum = 0;
  for (int t = 0; t < s->core->n_rows; t++) {
    s->sum[t] = sum;
    sum += price[t] + weight[t];
  }
  s->sum[s->core->n_rows] = sum;
  return s->sum;
}

// -- Blocks ----------------------------------------------------------------------------------

// Writes a random block of about `most` variables to s->queue; returns their number.
static int choose_block(Search *s, int most) {
  const Core *c = s->core;
  int n = 0, seeds = 1 + dice_below(&s->dice, 3);
  for (int k = 0; k < seeds; k++) {
    int var = dice_below(&s->dice, c->n_vars);
    if (s->seen[var]) continue;
    s->seen[var] = true;
    s->queue[n++] = var;
  }
  // Breadth first from the seeds; each neighbour joins with some probability.
  for (int k = 0; k < n && n < most; k++) {
    const CoreVar *v = &c->var[s->queue[k]];
    int first = v->n_links ? dice_below(&s->dice, v->n_links) : 0;
    for (int i = 0; i < v->n_links && n < most; i++) {
      int other = v->link[(first + i) % v->n_links].other;
      if (s->seen[other] || dice_below(&s->dice, 4) == 0) continue;
      s->seen[other] = true;
      s->queue[n++] = other;
    }
  }
  // Clear the marks for the next block.
  for (int k = 0; k < n; k++)
    s->seen[s->queue[k]] = false;
  return n;
}

// -- One block -------------------------------------------------------------------------------

static int plan(Search *s, const int *var, int n, const int *label, int64_t table) {
  int n_free = block_plan(s->block, var, n, label, table, &s->dice);
  s->effort->work += (double)n * n; // each elimination scans all
  return n_free;
}

// A table entry costs about a quarter of a message entry.  The caller also adds up rows.
static double solve(Search *s, const double *sum, int *label) {
  s->effort->work += block_work(s->block) / 4 + 4.0 * s->core->n_rows;
  return block_solve(s->block, sum, label);
}

// Writes the usage of a block's labels, per row, to s->difference.
static void block_usage(Search *s, const int *var, int n, const int *label) {
  memset(s->difference, 0, (size_t)(s->core->n_rows + 1) * sizeof *s->difference);
  for (int k = 0; k < n; k++)
    core_add(&s->core->var[var[k]], label[var[k]], 1, s->difference);
  for (int t = 1; t <= s->core->n_rows; t++)
    s->difference[t] += s->difference[t - 1];
}

// Subtracts the block's usage from s->used (sign 1), or adds it back (-1).
static void take_off(Search *s, const int *var, int n, int sign) {
  block_usage(s, var, n, s->label);
  for (int t = 0; t < s->core->n_rows; t++)
    s->used[t] -= sign * s->difference[t];
}

typedef struct Slack {
  double paid;   // priced capacity left by the other variables
  double length; // squared, of the subgradient
  double fine;   // penalty for overflow
  bool fits;     // within the limits
} Slack;

static Slack slack(const Search *s, const double *price) {
  Slack x = {0, 0, 0, true};
  for (int t = 0; t < s->core->n_rows; t++) {
    int64_t more = s->difference[t] - (s->limit[t] - s->used[t]);
    if (more > 0) x.fits = false;
    if (price[t] > 0) x.paid += price[t] * (double)(s->limit[t] - s->used[t]);
    if (more > 0 || price[t] > 0) x.length += (double)more * (double)more;
    // The penalty counts from the real capacity; the limit of an overflowing row is its usage.
    if (s->weight[t] <= 0) continue;
    int64_t room = s->core->room[t] - s->used[t];
    x.paid += s->weight[t] * (double)room;
    if (s->difference[t] > room) x.fine += s->weight[t] * (double)(s->difference[t] - room);
  }
  return x;
}

// Sets the limits of moves: no row gets fuller than its capacity, or than now if it overflows.
static void set_limits(Search *s) {
  for (int t = 0; t < s->core->n_rows; t++)
    s->limit[t] = s->used[t] > s->core->room[t] ? s->used[t] : s->core->room[t];
}

// Searches for a cheaper choice of one block, penalties included, within the limits.
static bool improve_block(Search *s, int n, int64_t table) {
  const int *var;
  plan(s, s->queue, n, s->label, table);
  n = block_free(s->block, &var);
  double *price = s->trial;
  memset(price, 0, (size_t)s->core->n_rows * sizeof *price);
  double old = block_cost(s->block, s->label);
  double least = fmin(1e-9 * fabs(s->cost), 0.5); // the least saving that counts
  // Without prices the block's least cost is a bound: often it alone shows that nothing is saved.
  bool fined = s->over > 0;
  double bound = solve(s, fined ? sums_of(s, price, s->weight) : NULL, s->attempt);
  if (!fined && bound > old - least) return false;
  take_off(s, var, n, 1); // leaves the block's usage in s->difference
  double paid = old + slack(s, price).fine, best = paid, cost = old;
  bool found = false;
  // Step 0 has no prices; step 1 tries those of the last success; then Polyak's rule raises them.
  for (int step = 0;; step++) {
    block_usage(s, var, n, s->attempt);
    Slack x = slack(s, price);
    double of_block = block_cost(s->block, s->attempt);
    if (x.fits && of_block + x.fine < best - least) {
      best = of_block + x.fine;
      cost = of_block;
      found = true;
      for (int k = 0; k < n; k++)
        s->label[var[k]] = s->attempt[var[k]];
      if (step) memcpy(s->price, price, (size_t)s->core->n_rows * sizeof *price);
    }
    if (bound - x.paid > best - least || step == PRICE_STEPS || x.length <= 0) break;
    if (step == 0) {
      memcpy(price, s->price, (size_t)s->core->n_rows * sizeof *price);
    } else {
      // Polyak's rule, at rows that overflow or have a price.
      double by = 1.2 * (best - (bound - x.paid)) / x.length;
      for (int t = 0; t < s->core->n_rows; t++) {
        int64_t more = s->difference[t] - (s->limit[t] - s->used[t]);
        if (more <= 0 && price[t] <= 0) continue;
        price[t] += by * (double)more;
        if (price[t] < 0) price[t] = 0;
      }
    }
    bound = solve(s, sums_of(s, price, s->weight), s->attempt);
  }
  // Add the usage of the labels found.
  s->cost += cost - old;
  take_off(s, var, n, -1);
  if (fined && found) set_limits(s);
  return found;
}

static bool move(Search *s, int most) {
  int n = choose_block(s, 1 + (int)(most * pow(dice_unit(&s->dice), 2)));
  return improve_block(s, n, INT64_C(1) << (8 + dice_below(&s->dice, 11)));
}

int search_improve(Search *s, int moves) {
  int good = 0;
  int most = s->core->n_vars < MOST_VARS ? s->core->n_vars : MOST_OF_MANY;
  set_limits(s);
  for (int k = 0; k < moves && !effort_over(s->effort) && s->cost > s->target; k++)
    good += move(s, most);
  s->cost = core_cost(s->core, s->label);
  return good;
}

// -- Feasibility -----------------------------------------------------------------------------

// The best labels of a block at the prices, feasible or not.
static void settle_block(Search *s, int n, int *label) {
  plan(s, s->queue, n, label, 1 << 13);
  solve(s, s->sum, label);
}

bool search_free(Search *s, int *label) {
  int n = s->core->n_vars;
  if (n > MOST_VARS) return false;
  // All variables are one block; with a variable fixed, its choice would be no optimum.
  for (int v = 0; v < n; v++)
    s->queue[v] = v;
  if (plan(s, s->queue, n, label, MOST_ENTRIES) < n) return false;
  solve(s, NULL, label);
  return true;
}

// Makes s->label feasible.
static bool fit(Search *s, int moves, int sweeps) {
  int most = s->core->n_vars < 256 ? s->core->n_vars : 256;
  for (int k = 0; k < sweeps && s->over > 0 && !effort_over(s->effort); k++) {
    set_limits(s);
    // Raise the penalties of overflowing rows, initially to a fraction of the cost in total.
    double part = 0.002 * (isfinite(s->cost) ? fabs(s->cost) + 1 : 1);
    double length = 0;
    for (int t = 0; t < s->core->n_rows; t++) {
      double more = (double)(s->used[t] - s->core->room[t]);
      if (more > 0) length += more * more;
    }
    for (int t = 0; t < s->core->n_rows; t++) {
      double more = (double)(s->used[t] - s->core->room[t]);
      s->weight[t] = more > 0 ? s->weight[t] * 1.3 + part * more / length : 0;
    }
    for (int i = 0; i < moves; i++)
      move(s, most);
    // The moves updated s->used: add up the overflow.
    s->over = 0;
    for (int t = 0; t < s->core->n_rows; t++)
      if (s->used[t] > s->core->room[t]) s->over += (double)(s->used[t] - s->core->room[t]);
    s->cost = core_cost(s->core, s->label);
  }
  memset(s->weight, 0, (size_t)s->core->n_rows * sizeof *s->weight);
  return s->over == 0;
}

static void put(Search *s, const int *label) {
  s->over = s->cost = INFINITY;
  search_offer(s, label);
}

bool search_fit(Search *s, const int *start, const double *price, int sweeps) {
  const Core *c = s->core;
  Arena *a = arena_new();
  int *label = arena_copy(a, start, (size_t)c->n_vars * sizeof *label);
  int most = c->n_vars < 256 ? c->n_vars : 256, moves = 1 + 4 * c->n_vars / most;
  // Blocks, one after the other, take their best labels at the prices; then they are made feasible.
  sums_of(s, price, s->weight);
  for (int k = 0; k < moves; k++)
    settle_block(s, choose_block(s, most), label);
  memcpy(s->price, price, (size_t)c->n_rows * sizeof *price);
  put(s, label);
  arena_free(a);
  return fit(s, moves, sweeps);
}

// Restores the choice `before` unless the present one is better.
static bool keep_better(Search *s, const int *before, double cost) {
  if (s->over == 0 && s->cost < cost) return true;
  put(s, before);
  return false;
}

bool search_again(Search *s, const int *start, const double *price, int moves) {
  Arena *a = arena_new();
  int *before = arena_copy(a, s->label, (size_t)s->core->n_vars * sizeof *before);
  double cost = s->cost;
  if (search_fit(s, start, price, 40)) search_improve(s, moves);
  bool better = keep_better(s, before, cost);
  arena_free(a);
  return better;
}

bool search_kick(Search *s, const double *price, int moves) {
  const Core *c = s->core;
  Arena *a = arena_new();
  int *before = arena_copy(a, s->label, (size_t)c->n_vars * sizeof *before);
  int *label = arena_copy(a, s->label, (size_t)c->n_vars * sizeof *label);
  double *about = arena_copy(a, price, (size_t)c->n_rows * sizeof *about);
  // One block takes its best labels at other prices: a start for the search near the best choice.
  double cost = s->cost, scale = 0.6 + 0.6 * dice_unit(&s->dice);
  for (int t = 0; t < c->n_rows; t++)
    about[t] *= scale;
  int most = c->n_vars < MOST_VARS ? c->n_vars : MOST_VARS;
  sums_of(s, about, s->weight);
  settle_block(s, choose_block(s, 1 + dice_below(&s->dice, most)), label);
  put(s, label);
  if (fit(s, 5, 40)) search_improve(s, moves);
  bool better = keep_better(s, before, cost);
  arena_free(a);
  return better;
}
