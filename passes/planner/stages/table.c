// Stages one after the other, by dynamic programming.
//
// A state is (ideal, run g, run h): the finished units (ideals.h), the run of the last stage, and
// the run of the next one, so that the messages between these two are known. If the number of
// stages is required, a state also counts them.
//
// Compute and memory of a stage are exact. A receive from a stage other than the one before, or a
// send to one other than the next, is charged at a lower bound; a value that several later stages
// read is charged to its producer once. So the result is a lower bound, and stages that cost as
// much are optimal: for chains they always do.
//
// The table is filled twice: first to minimize the slowest stage, then, with none slower than that,
// the sum.

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ideals.h"

enum { MAX_STATES = 4000000 };

// Seconds of a message, and of each byte.
typedef struct Price {
  double start, rows, whole;
} Price;

typedef struct Amount {
  double messages, rows, whole;
} Amount;

// The amounts of a stage's units, on any run.
typedef struct Stage {
  Amount from_last, from_any; // received from the stage before, and from any earlier one
  Amount to_next, to_any;
  double kept_rows, kept_whole; // bytes of its receives
  const bool *shares;           // by shared tensor: whether a unit of the stage uses it
} Stage;

typedef struct Table {
  const Partition *p;
  Arena *arena;
  Ideals ideals;
  double *seconds, *bytes;  // [ideal * n_runs]: of all its units
  Price *from_any, *to_any; // by run: the least from any earlier one, to any later one
  NextRuns next;
  int n_counts; // numbers of stages so far; 1: any number is allowed
  struct State *at;
  double most; // seconds: no stage may be slower
  bool by_sum;
} Table;

// -- Sums ----------------------------------------------------------------------------------------

static void sum_ideals(Table *t) {
  const Partition *p = t->p;
  t->seconds = arena_array(t->arena, double, t->ideals.list.n * p->n_runs);
  t->bytes = arena_array(t->arena, double, t->ideals.list.n * p->n_runs);
  for (int i = 0; i < t->ideals.list.n; i++)
    for (int u = 0; u < p->n_units; u++)
      for (int r = 0; r < p->n_runs && unit_in(t->ideals.list.at[i].has, u); r++) {
        t->seconds[i * p->n_runs + r] += unit_seconds(p, u, r);
        t->bytes[i * p->n_runs + r] += unit_bytes(p, u, r);
      }
}

// -- Runs ----------------------------------------------------------------------------------------

static void lower(Price *least, const Partition *p, int i) {
  *least = (Price){fmin(least->start, p->start[i]), fmin(least->rows, p->by_rows[i]),
                   fmin(least->whole, p->by_whole[i])};
}

static void find_prices(Table *t) {
  const Partition *p = t->p;
  t->from_any = arena_array(t->arena, Price, p->n_runs);
  t->to_any = arena_array(t->arena, Price, p->n_runs);
  for (int r = 0; r < p->n_runs; r++)
    t->from_any[r] = t->to_any[r] = (Price){INFINITY, INFINITY, INFINITY};
  for (int r = 0; r < p->n_runs; r++)
    for (int s = 0; s < p->n_runs; s++)
      if (p->run[s].first >= p->run[r].first + p->run[r].n) {
        lower(&t->to_any[r], p, r * p->n_runs + s);
        lower(&t->from_any[s], p, r * p->n_runs + s);
      }
}

// Whether each run has a fixed position among the stages: they cover the ranks in one order only.
static bool is_row_of_runs(const Table *t) {
  int n_first = 0;
  for (int g = 0; g < t->p->n_runs; g++)
    n_first += t->p->run[g].first == 0;
  return n_first == 1 && t->next.most <= 1 && t->p->n_stages == t->p->n_runs;
}

static void find_counts(Table *t) {
  const Partition *p = t->p;
  t->n_counts = p->n_stages && !is_row_of_runs(t) ? p->n_stages + 1 : 1;
}

// -- Stages --------------------------------------------------------------------------------------

static void add_amount(Amount *to, const Flow *f) {
  to->messages += f->messages;
  *(f->whole ? &to->whole : &to->rows) += f->bytes;
}

// Returns the stage of the units in `b` but not in `a`.
static Stage stage_between(const Table *t, Arena *scratch, const Ideal *a, const Ideal *b) {
  const Partition *p = t->p;
  Stage s = {0};
  for (int i = 0; i < p->n_flows; i++) {
    const Flow *f = &p->flow[i];
    bool before = unit_in(a->has, f->from), here = !before && unit_in(b->has, f->from);
    if (before && flow_has_reader(f, b->has, a->has)) {
      add_amount(f->from == a->top ? &s.from_last : &s.from_any, f);
      *(f->whole ? &s.kept_whole : &s.kept_rows) += f->kept;
    }
    if (here && flow_has_reader(f, NULL, b->has))
      add_amount(flow_reads(f, b->next) ? &s.to_next : &s.to_any, f);
  }
  bool *shares = arena_array(scratch, bool, p->n_shared);
  for (int i = 0; i < p->n_shared; i++)
    for (int k = 0; k < p->shared[i].n_units; k++)
      shares[i] |= unit_in(b->has, p->shared[i].unit[k]) && !unit_in(a->has, p->shared[i].unit[k]);
  s.shares = shares;
  return s;
}

static double amount_seconds(const Amount *a, const Price *price) {
  double seconds = 0; // a price is infinite if there is no such run
  if (a->messages > 0) seconds += a->messages * price->start;
  if (a->rows > 0) seconds += a->rows * price->rows;
  if (a->whole > 0) seconds += a->whole * price->whole;
  return seconds;
}

static Price price_between(const Partition *p, int from, int to) {
  int i = from * p->n_runs + to;
  return (Price){p->start[i], p->by_rows[i], p->by_whole[i]};
}

// -- States --------------------------------------------------------------------------------------

// A sequence of stages; the last one ends here.
typedef struct State {
  double worst, sum; // INFINITY: unreachable
  int from, before;  // of the last stage: the ideal before it, and the run before its own, or -1
} State;

// `next`: index of the run that follows `on`; next.most: none follows.
static State *state_at(const Table *t, int count, int ideal, int on, int next) {
  int64_t i = ((int64_t)count * t->ideals.list.n + ideal) * t->p->n_runs + on;
  return &t->at[i * (t->next.most + 1) + next];
}

static int64_t n_states(const Table *t) {
  return (int64_t)t->n_counts * t->ideals.list.n * t->p->n_runs * (t->next.most + 1);
}

static int next_run(const Table *t, int on, int next) {
  return t->next.at[on * t->p->n_runs + next];
}

static bool is_better(const Table *t, double worst, double sum, const State *than) {
  if (t->by_sum && sum != than->sum) return sum < than->sum;
  return worst < than->worst || (worst == than->worst && sum < than->sum);
}

// A stage from one ideal to another, after other stages.
typedef struct Step {
  int from, to, count, before, on; // before -1: it is the first
  State start;
} Step;

static void add_step(Table *t, const Step *x, const Stage *s, double seconds, int next) {
  const Partition *p = t->p;
  seconds += amount_seconds(&s->to_any, &t->to_any[x->on]);
  if (next < t->next.most) {
    Price price = price_between(p, x->on, next_run(t, x->on, next));
    seconds += amount_seconds(&s->to_next, &price);
  }
  if (seconds > t->most) return;
  double worst = fmax(x->start.worst, seconds), sum = x->start.sum + seconds;
  State *end = state_at(t, t->n_counts > 1 ? x->count + 1 : 0, x->to, x->on, next);
  if (is_better(t, worst, sum, end)) *end = (State){worst, sum, x->from, x->before};
}

static bool is_last(const Table *t, int on) {
  return t->p->run[on].first + t->p->run[on].n == t->p->n_ranks;
}

static void add_steps(Table *t, const Step *x, const Stage *s) {
  const Partition *p = t->p;
  bool all = x->to == t->ideals.list.n - 1;
  if (all != is_last(t, x->on)) return;
  if (!all && t->n_counts > 1 && x->count + 1 >= p->n_stages) return;
  // Compute and memory are exact.
  int i = x->from * p->n_runs + x->on, k = x->to * p->n_runs + x->on;
  double seconds = p->base_seconds[x->on] + t->seconds[k] - t->seconds[i];
  double bytes = p->base_bytes[x->on] + t->bytes[k] - t->bytes[i];
  bytes += s->kept_whole + s->kept_rows / p->run[x->on].n;
  for (int n = 0; n < p->n_shared; n++) {
    seconds += s->shares[n] ? p->shared[n].seconds[x->on] : 0;
    bytes += s->shares[n] ? p->shared[n].bytes : 0;
  }
  if (!run_fits(p, x->on, bytes)) return;
  // Receives: a bound for earlier stages, exact for the one before.
  seconds += amount_seconds(&s->from_any, &t->from_any[x->on]);
  if (x->before >= 0) {
    Price price = price_between(p, x->before, x->on);
    seconds += amount_seconds(&s->from_last, &price);
  }
  for (int next = 0; next < t->next.n[x->on] && !all; next++)
    add_step(t, x, s, seconds, next);
  if (all) add_step(t, x, s, seconds, t->next.most);
}

static void add_first(Table *t, int to, const Stage *s) {
  for (int on = 0; on < t->p->n_runs; on++)
    if (t->p->run[on].first == 0) add_steps(t, &(Step){0, to, 0, -1, on, {0, 0, 0, -1}}, s);
}

static void add_behind(Table *t, int from, int to, const Stage *s) {
  for (int count = 0; count < t->n_counts; count++)
    for (int before = 0; before < t->p->n_runs; before++)
      for (int k = 0; k < t->next.n[before]; k++) {
        const State *start = state_at(t, count, from, before, k);
        if (isinf(start->worst)) continue;
        add_steps(t, &(Step){from, to, count, before, next_run(t, before, k), *start}, s);
      }
}

static bool is_reached(const Table *t, int ideal) {
  for (int count = 0; count < t->n_counts; count++)
    for (int on = 0; on < t->p->n_runs; on++)
      for (int next = 0; next < t->next.most; next++)
        if (!isinf(state_at(t, count, ideal, on, next)->worst)) return true;
  return ideal == 0;
}

static void fill(Table *t) {
  for (int64_t i = 0; i < n_states(t); i++)
    t->at[i] = (State){INFINITY, INFINITY, 0, -1};
  for (int from = 0; from < t->ideals.list.n; from++) {
    if (!is_reached(t, from)) continue;
    Arena *scratch = arena_new();
    for (int to = from + 1; to < t->ideals.list.n; to++) {
      if (!ideal_within(&t->ideals, &t->ideals.list.at[from], &t->ideals.list.at[to])) continue;
      Stage s = stage_between(t, scratch, &t->ideals.list.at[from], &t->ideals.list.at[to]);
      if (from == 0)
        add_first(t, to, &s);
      else
        add_behind(t, from, to, &s);
    }
    arena_free(scratch);
  }
}

// -- The answer ----------------------------------------------------------------------------------

static const State *end_at(const Table *t, int on) {
  return state_at(t, t->n_counts - 1, t->ideals.list.n - 1, on, t->next.most);
}

// Returns the run of the last of the best stages, or -1.
static int best_end(const Table *t) {
  int best = -1;
  for (int on = 0; on < t->p->n_runs; on++) {
    const State *s = end_at(t, on);
    if (isinf(s->worst)) continue;
    if (best < 0 || is_better(t, s->worst, s->sum, end_at(t, best))) best = on;
  }
  return best;
}

static int which_next(const Table *t, int before, int on) {
  for (int k = 0; k < t->next.n[before]; k++)
    if (next_run(t, before, k) == on) return k;
  return t->next.most;
}

static int *read_back(const Table *t, Arena *a) {
  int *run_of = arena_array(a, int, t->p->n_units);
  int to = t->ideals.list.n - 1, next = t->next.most, count = t->n_counts - 1;
  for (int on = best_end(t); on >= 0;) {
    State s = *state_at(t, count, to, on, next);
    for (int u = 0; u < t->p->n_units; u++)
      if (unit_in(t->ideals.list.at[to].has, u) && !unit_in(t->ideals.list.at[s.from].has, u))
        run_of[u] = on;
    if (s.before >= 0) next = which_next(t, s.before, on);
    to = s.from;
    on = s.before;
    count -= t->n_counts > 1;
  }
  return run_of;
}

static bool is_less(Arena *a, const Partition *p, const int *x, const int *y) {
  Load of_x = partition_load(a, p, x), of_y = partition_load(a, p, y);
  return load_less(&of_x, &of_y);
}

// Minimizes the slowest stage, and then the sum.
static const int *solve(Table *t, Arena *a, double *bound) {
  fill(t);
  int on = best_end(t);
  *bound = on < 0 ? INFINITY : end_at(t, on)->worst;
  if (on < 0) return NULL;
  int *fastest = read_back(t, a);
  t->most = *bound;
  t->by_sum = true;
  fill(t);
  int *least = read_back(t, a);
  return is_less(a, t->p, fastest, least) ? fastest : least;
}

const int *table_solve(Arena *a, const Partition *p, double *bound) {
  Arena *scratch = arena_new();
  Table t = {.p = p, .arena = scratch, .most = INFINITY};
  const int *run_of = NULL;
  t.ideals = ideals_find(p, scratch);
  t.next = next_runs_find(p, scratch);
  find_counts(&t);
  *bound = -INFINITY;
  if (n_states(&t) <= MAX_STATES) {
    sum_ideals(&t);
    find_prices(&t);
    t.at = arena_array(scratch, State, n_states(&t));
    run_of = solve(&t, a, bound);
    if (!t.ideals.complete) *bound = -INFINITY;
  }
  arena_free(scratch);
  return run_of;
}
