// The Lagrangian bound (lagrange.h).
//
// At prices p >= 0 of the rows, memory is only a cost of labels, and for every choice x that fits
//
//     cost(x)  >=  cost(x) + sum p (used(x) - room)  >=  min over all y of the same  =  L(p)
//
// The minimum over y is that of a pairwise model.  It is bounded from below by moving costs between
// tables and labels, which changes no choice's cost, so that the sum of all single minima is large:
//
//     labels of v     cost(v, i) + pay(v, i) + sum over its tables of message(table -> v, i)
//     table of u, v   table(i, j) - message(table -> u, i) - message(table -> v, j)
//
// Messages are passed along the variables' order and back, as in Kolmogorov's SRMP (A new look at
// reweighted message passing): at its turn a variable takes from each table behind it all that the
// table can give, and shares what it has among those before it.  No pass lowers the sum.
//
// Prices follow the subgradient used - room of the labels that are best at each variable's turn,
// with Polyak's step: so far that the bound would reach the target if it were linear.

#include <math.h>
#include <string.h>

#include "solver/lagrange.h"

// Most of the time goes into one loop, which wider vectors make twice as fast where there are any.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_CLONES
#endif

// How much of the direction before is kept; steps without a better bound until they become shorter.
static const double keep = 0.98;
// How far above the bound the target is while none is known.
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

static void allocate_messages(Dual *d, Arena *a) {
  const Core *c = d->core;
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
  allocate_messages(d, a);
  return d;
}

// What labels cost at the prices; returns what the room of all rows is worth.
static double set_prices(Dual *d, const double *price) {
  const Core *c = d->core;
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

// Takes from a table all that it can give to `var`.
VECTOR_CLONES static void take(Dual *d, int var, int k) {
  const CoreVar *v = &d->core->var[var];
  const Link *link = &v->link[k];
  double *mine = d->message[link_number(d, var, k)];
  const double *theirs = d->message[d->reverse[link_number(d, var, k)]];
  int n = v->n, n_other = d->core->var[link->other].n;
  for (int i = 0; i < n; i++)
    mine[i] = INFINITY;
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

// One variable's turn.  `forward`: tables to larger numbers are before it.  Returns the minimum.
static double turn(Dual *d, int var, bool forward) {
  const CoreVar *v = &d->core->var[var];
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
  double share = 1.0 / (before > behind ? before : behind ? behind : 1);
  for (int k = 0; k < v->n_links; k++) {
    if ((v->link[k].other > var) != forward) continue;
    double *message = d->message[link_number(d, var, k)];
    for (int i = 0; i < v->n; i++)
      message[i] -= share * (have[i] - least);
  }
  return least;
}

// There or back over all variables; returns the bound without what the room is worth.
static double sweep(Dual *d, bool forward) {
  int n = d->core->n_vars;
  double sum = d->core->constant;
  for (int k = 0; k < n; k++)
    sum += turn(d, forward ? k : n - 1 - k, forward);
  return sum;
}

// Messages follow before prices move on: a bound that is low for want of them would make the steps
// long.
void dual_take_prices(Dual *d, const int64_t *time, const int64_t *other_time,
                      const double *other_price, int n_others) {
  enum { SWEEPS = 10 };
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

// By how much a row overflows, or is not full.  What overflows together with its neighbours shares
// most items with them, and counts where it overflows most: if all of a hundred such rows got a
// price, the step would be cut to a hundredth, and their prices would have to come down again.
static double excess(const Dual *d, int t) {
  const Core *c = d->core;
  int64_t more = d->used[t] - c->room[t];
  if (more <= 0) return (double)more;
  bool up = t + 1 < c->n_rows && d->used[t + 1] - c->room[t + 1] >= more;
  bool down = t > 0 && d->used[t - 1] - c->room[t - 1] > more;
  return up || down ? 0 : (double)more;
}

// The direction in which prices go: that of the subgradient at peaks, and most of where they went
// before, so that they do not swing (Camerini, Fratta, Maffioli: On improving relaxation methods by
// modified gradient techniques).  The bound of S, whose optimum is 1.5113e9, after 500
// steps: 1.36e9 with neither, 1.479e9 with all of the subgradient and 0.95 of the
// direction, 1.5096e9 with peaks and 0.98.  Returns the square of its length.
static double turn_direction(Dual *d) {
  double length = 0;
  for (int t = 0; t < d->core->n_rows; t++) {
    double more = excess(d, t) + keep * d->direction[t];
    if (more < 0 && d->trial[t] <= 0) more = 0;
    d->direction[t] = more;
    length += more * more;
  }
  return length;
}

static void move_prices(Dual *d, double step) {
  for (int t = 0; t < d->core->n_rows; t++)
    d->trial[t] = fmax(d->trial[t] + step * d->direction[t], 0);
}

bool dual_step(Dual *d, double target) {
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
  double length = turn_direction(d);
  if (length > 0 && target > bound) move_prices(d, d->factor * (target - bound) / length);
  return better;
}

double dual_settle(Dual *d) {
  const Core *c = d->core;
  double worth = set_prices(d, d->price), size = fabs(c->constant) + worth;
  for (int k = 0; k < 3; k++) {
    sweep(d, true);
    sweep(d, false);
  }
  double sum = c->constant - worth;
  for (int v = 0; v < c->n_vars; v++) {
    total(d, v, d->row);
    double least = d->row[smallest(d->row, c->var[v].n)];
    sum += least;
    size += fabs(least);
  }
  return d->bound = sum - 1e-12 * size;
}

// With all that its tables can give, a variable's labels differ by no more than what they cost; the
// sum of all minima is not lowered by that.
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
    turn(d, v, true);
  }
  return n;
}
