// The Lagrangian bound (lagrange.h).
//
// At prices p >= 0 of the rows, memory becomes a cost of labels, and every feasible choice x has
//
//     cost(x)  >=  cost(x) + sum p (used(x) - room)  >=  min over all y of the same  =  L(p)
//
// The minimum over y is that of a pairwise model.  A lower bound moves costs between tables and
// labels, which changes no choice's cost, to maximise the sum of all separate minima:
//
//     labels of v     cost(v, i) + pay(v, i) + sum over its tables of message(table -> v, i)
//     table of u, v   table(i, j) - message(table -> u, i) - message(table -> v, j)
//
// A pass sends messages along the variables' order and back, as Kolmogorov's SRMP (A new look at
// reweighted message passing): a variable takes all that the tables to visited variables can give,
// and distributes its costs over the tables to unvisited ones.  No pass lowers the sum.
//
// Prices follow the subgradient used - room of the labels with least cost at each variable's visit,
// with Polyak's step: the bound would reach the target if it were linear.

#include <math.h>
#include <string.h>

#include "solver/lagrange.h"

// One loop takes most of the time; wider vectors make it twice as fast.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_CLONES
#endif

// The share of the previous direction that is kept; steps without a better bound before the step
// length shrinks.
static const double keep = 0.98;
// The distance of the target from the bound, relative, while no feasible cost is known.
static const double guess = 0.2;
enum { PATIENCE = 30 };

static int link_number(const Dual *d, int var, int link) {
  return d->first[var] + link;
}

static int reverse_of(const Core *c, int var, int other) {
  const CoreVar *u = &c->var[other];
  for (int k = 0; k < u->n_links; k++)
    if (u->link[k].other == var) return k;
  BUG("a table has one end");
}

Dual *dual_new(Arena *a, const Core *c) {
  Dual *d = arena_one(a, Dual);
  *d = (Dual){.core = c, .bound = -INFINITY, .factor = 1};
  d->price = arena_array(a, double, c->n_rows + 1);
  d->trial = arena_array(a, double, c->n_rows + 1);
  d->sum = arena_array(a, double, c->n_rows + 1);
  d->used = arena_array(a, int64_t, c->n_rows + 1);
  d->label = arena_array(a, int, c->n_vars);
  d->first = arena_array(a, int, c->n_vars + 1);
  d->first_label = arena_array(a, int, c->n_vars + 1);
  d->paid = arena_array(a, double, c->n_labels);
  d->direction = arena_array(a, double, c->n_rows + 1);
  d->row = arena_array(a, double, c->most_labels);
  // A message to each end of each table, and the number of the other end's message.
  int n = 0;
  for (int v = 0; v < c->n_vars; v++) {
    d->first[v] = n;
    n += c->var[v].n_links;
  }
  d->message = arena_array(a, double *, n);
  d->reverse = arena_array(a, int, n);
  for (int v = 0, at = 0; v < c->n_vars; v++) {
    d->first_label[v] = at;
    at += c->var[v].n;
    for (int k = 0; k < c->var[v].n_links; k++) {
      int other = c->var[v].link[k].other;
      d->message[link_number(d, v, k)] = arena_array(a, double, c->var[v].n);
      d->reverse[link_number(d, v, k)] = link_number(d, other, reverse_of(c, v, other));
    }
  }
  return d;
}

// Computes the costs of labels at the prices; returns the priced capacity of all rows.
static double set_prices(Dual *d, const double *price) {
  const Core *c = d->core;
  // An item pays the sum of the prices of its rows: a difference of prefix sums.
  double sum = 0, worth = 0;
  for (int t = 0; t < c->n_rows; t++) {
    d->sum[t] = sum;
    sum += price[t];
    worth += price[t] * (double)c->room[t];
  }
  d->sum[c->n_rows] = sum;
  for (int v = 0; v < c->n_vars; v++) {
    double *paid = d->paid + d->first_label[v];
    core_pay(&c->var[v], d->sum, paid);
    for (int i = 0; i < c->var[v].n; i++)
      paid[i] += c->var[v].cost[i];
  }
  return worth;
}

// Moves all possible cost from a table to `var`.
VECTOR_CLONES static void take(Dual *d, int var, int k) {
  const CoreVar *v = &d->core->var[var];
  const Link *link = &v->link[k];
  double *mine = d->message[link_number(d, var, k)];
  const double *theirs = d->message[d->reverse[link_number(d, var, k)]];
  int n = v->n, n_other = d->core->var[link->other].n;
  for (int i = 0; i < n; i++)
    mine[i] = INFINITY;
  // Row by row: own labels are contiguous.
  for (int j = 0; j < n_other; j++) {
    const double *row = link->at + (int64_t)j * n;
    double less = theirs[j];
    for (int i = 0; i < n; i++) {
      double x = row[i] - less;
      mine[i] = x < mine[i] ? x : mine[i];
    }
  }
}

static void total(const Dual *d, int var, double *out) {
  const CoreVar *v = &d->core->var[var];
  memcpy(out, d->paid + d->first_label[var], (size_t)v->n * sizeof *out);
  for (int k = 0; k < v->n_links; k++) {
    const double *message = d->message[link_number(d, var, k)];
    for (int i = 0; i < v->n; i++)
      out[i] += message[i];
  }
}

static int smallest(const double *at, int n) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (at[i] < at[best]) best = i;
  return best;
}

// Visits one variable.  `forward`: larger numbers are unvisited.  Returns its least cost.
static double turn(Dual *d, int var, bool forward) {
  const CoreVar *v = &d->core->var[var];
  // Take all that the tables to visited neighbours can give.
  int before = 0;
  for (int k = 0; k < v->n_links; k++) {
    bool is_before = (v->link[k].other > var) == forward;
    before += is_before;
    if (!is_before) take(d, var, k);
  }
  double *have = d->row;
  total(d, var, have);
  int best = smallest(have, v->n), behind = v->n_links - before;
  double least = have[best];
  d->label[var] = best;
  // The least cost stays at the variable; shares of the rest go to the tables of unvisited
  // neighbours.
  double share = 1.0 / (before > behind ? before : behind ? behind : 1);
  for (int k = 0; k < v->n_links; k++) {
    if ((v->link[k].other > var) != forward) continue;
    double *message = d->message[link_number(d, var, k)];
    for (int i = 0; i < v->n; i++)
      message[i] -= share * (have[i] - least);
  }
  return least;
}

// Visits all variables in one direction; returns the bound without the priced capacity.
static double sweep(Dual *d, bool forward) {
  int n = d->core->n_vars;
  double sum = d->core->constant;
  for (int k = 0; k < n; k++)
    sum += turn(d, forward ? k : n - 1 - k, forward);
  return sum;
}

// Messages adapt before prices change further: a bound that is low for lack of messages would cause
// long steps.
void dual_take_prices(Dual *d, const int64_t *time, const int64_t *other_time,
                      const double *other_price, int n_others) {
  enum { SWEEPS = 10 };
  // Rows are in order of time, and reduction removes some: take the price of the next later row.
  for (int t = 0, k = 0; t < d->core->n_rows; t++) {
    while (k < n_others - 1 && other_time[k] < time[t])
      k++;
    d->trial[t] = other_price[k];
  }
  set_prices(d, d->trial);
  for (int k = 0; k < SWEEPS; k++) {
    sweep(d, true);
    sweep(d, false);
  }
}

// The overflow of a row, or its slack if negative.  Overflowing neighbours share most items, so
// only the local maximum counts: if a hundred such rows got a price each, the step would shrink to
// a hundredth, and their prices would have to fall again.
static double excess(const Dual *d, int t) {
  const Core *c = d->core;
  int64_t more = d->used[t] - c->room[t];
  if (more <= 0) return (double)more;
  bool up = t + 1 < c->n_rows && d->used[t + 1] - c->room[t + 1] >= more;
  bool down = t > 0 && d->used[t - 1] - c->room[t - 1] > more;
  return up || down ? 0 : (double)more;
}

bool dual_step(Dual *d, double target) {
  // The bound at the present prices; after many steps without a better one, smaller steps from the
  // best prices.
  double worth = set_prices(d, d->trial);
  sweep(d, true);
  double bound = sweep(d, false) - worth;
  bool better = bound > d->bound;
  if (better) {
    d->bound = bound;
    d->worse = 0;
    memcpy(d->price, d->trial, (size_t)d->core->n_rows * sizeof *d->price);
  } else if (++d->worse >= PATIENCE) {
    d->worse = 0;
    d->factor *= 0.7;
    memcpy(d->trial, d->price, (size_t)d->core->n_rows * sizeof *d->price);
  }
  core_usage(d->core, d->label, d->used);
  if (isinf(target)) target = d->bound + guess * fabs(d->bound) + 1;
  // The direction of prices: the subgradient at peaks plus most of the previous direction, against
  // oscillation (Camerini, Fratta, Maffioli: On improving relaxation methods by modified gradient
  // techniques).  The bound of S, with optimum 1.5113e9, after 500 steps: 1.36e9 with neither,
  // 1.479e9 with the full subgradient and 0.95 of the direction, 1.5096e9 with peaks and 0.98.
  double length = 0;
  for (int t = 0; t < d->core->n_rows; t++) {
    double more = excess(d, t) + keep * d->direction[t];
    if (more < 0 && d->trial[t] <= 0) more = 0;
    d->direction[t] = more;
    length += more * more;
  }
  // Polyak's step; no price falls below zero.
  if (length > 0 && target > bound) {
    double step = d->factor * (target - bound) / length;
    for (int t = 0; t < d->core->n_rows; t++)
      d->trial[t] = fmax(d->trial[t] + step * d->direction[t], 0);
  }
  return better;
}

double dual_settle(Dual *d) {
  const Core *c = d->core;
  double worth = set_prices(d, d->price), size = fabs(c->constant) + worth;
  for (int k = 0; k < 3; k++) {
    sweep(d, true);
    sweep(d, false);
  }
  // The sum of the least costs, less its possible rounding error.
  double sum = c->constant - worth;
  for (int v = 0; v < c->n_vars; v++) {
    total(d, v, d->row);
    double least = d->row[smallest(d->row, c->var[v].n)];
    sum += least;
    size += fabs(least);
  }
  return d->bound = sum - 1e-12 * size;
}

// After taking all that its tables can give, the differences between a variable's labels are lower
// bounds of their extra costs; the sum of all minima does not fall.
void dual_reduced(Dual *d, int var, double *out) {
  const CoreVar *v = &d->core->var[var];
  for (int k = 0; k < v->n_links; k++)
    take(d, var, k);
  total(d, var, out);
  double least = out[smallest(out, v->n)];
  for (int i = 0; i < v->n; i++)
    out[i] -= least;
}

const double *dual_message(const Dual *d, int var, int link) {
  return d->message[link_number(d, var, link)];
}

const double *dual_message_back(const Dual *d, int var, int link) {
  return d->message[d->reverse[link_number(d, var, link)]];
}

int dual_exclude(Dual *d, double target, bool *gone) {
  const Core *c = d->core;
  double *cost = arena_array(c->arena, double, c->most_labels);
  int n = 0;
  for (int v = 0; v < c->n_vars; v++) {
    dual_reduced(d, v, cost);
    for (int i = 0; i < c->var[v].n; i++)
      n += gone[d->first_label[v] + i] = d->bound + cost[i] > target;
    // Give the costs back to the tables, for the variables that follow.
    turn(d, v, true);
  }
  return n;
}
