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
// the sum. The first time no stage may be much slower than the mean of all ranks, which leaves few
// stages; if there is no such answer, more is allowed.

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ideals.h"

enum { MAX_STATES = 4000000 };

// Seconds of a message, and of each byte.
typedef struct Price {
  double start, batch, whole;
} Price;

typedef struct Amount {
  double messages, batch, whole;
} Amount;

// The amounts of a stage's units, on any run.
typedef struct Stage {
  Amount from_last, from_any; // received from the stage before, and from any earlier one
  Amount to_next, to_any;
  double kept_rows, kept_whole; // bytes of its receives
  double passing;               // the most of its units
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

static void lower(Price *least, const Partition *p, int i) {
  *least = (Price){fmin(least->start, p->start[i]), fmin(least->batch, p->by_batch[i]),
                   fmin(least->whole, p->by_whole[i])};
}

// -- Stages --------------------------------------------------------------------------------------

static void add_amount(Amount *to, const Flow *f) {
  to->messages += f->messages;
  *(f->whole ? &to->whole : &to->batch) += f->bytes;
}

static double amount_seconds(const Amount *a, const Price *price) {
  double seconds = 0; // a price is infinite if there is no such run
  if (a->messages > 0) seconds += a->messages * price->start;
  if (a->batch > 0) seconds += a->batch * price->batch;
  if (a->whole > 0) seconds += a->whole * price->whole;
  return seconds;
}

static Price price_between(const Partition *p, int from, int to) {
  int i = from * p->n_runs + to;
  return (Price){p->start[i], p->by_batch[i], p->by_whole[i]};
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

static void add_steps(Table *t, const Step *x, const Stage *s) {
  const Partition *p = t->p;
  // The last stage has the last rank.
  bool all = x->to == t->ideals.list.n - 1;
  bool last = p->run[x->on].first + p->run[x->on].n == p->n_ranks;
  if (all != last) return;
  if (!all && t->n_counts > 1 && x->count + 1 >= p->n_stages) return;
  // Compute and memory are exact.
  int i = x->from * p->n_runs + x->on, k = x->to * p->n_runs + x->on;
  double seconds = p->base_seconds[x->on] + t->seconds[k] - t->seconds[i];
  double bytes = p->base_bytes[x->on] + t->bytes[k] - t->bytes[i];
  bytes += run_in_flight(p, x->on) * (s->kept_whole + s->kept_rows / p->run[x->on].n);
  bytes += s->passing / p->run[x->on].n;
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

// Whether a run can have the stage, by its compute and units alone: values that it receives and
// sends add to both.
static bool may_have(const Table *t, int from, int to) {
  const Partition *p = t->p;
  for (int on = 0; on < p->n_runs; on++) {
    int i = from * p->n_runs + on, k = to * p->n_runs + on;
    if (p->base_seconds[on] + t->seconds[k] - t->seconds[i] <= t->most &&
        run_fits(p, on, p->base_bytes[on] + t->bytes[k] - t->bytes[i]))
      return true;
  }
  return false;
}

// Adds the stage between two ideals after each state that it can follow.
static void add_stage(Table *t, Arena *scratch, int from, int to) {
  // The amounts that the stage receives and sends: its units are in `b` but not in `a`.
  const Ideal *a = &t->ideals.list.at[from], *b = &t->ideals.list.at[to];
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
  for (int u = 0; u < p->n_units && p->passing; u++)
    if (unit_in(b->has, u) && !unit_in(a->has, u)) s.passing = fmax(s.passing, unit_passing(p, u));
  bool *shares = arena_array(scratch, bool, p->n_shared);
  for (int i = 0; i < p->n_shared; i++)
    for (int k = 0; k < p->shared[i].n_units; k++)
      shares[i] |= unit_in(b->has, p->shared[i].unit[k]) && !unit_in(a->has, p->shared[i].unit[k]);
  s.shares = shares;
  // The first stage has the first rank.
  for (int on = 0; on < t->p->n_runs && from == 0; on++)
    if (t->p->run[on].first == 0) add_steps(t, &(Step){0, to, 0, -1, on, {0, 0, 0, -1}}, &s);
  if (from == 0) return;
  for (int count = 0; count < t->n_counts; count++)
    for (int before = 0; before < t->p->n_runs; before++)
      for (int k = 0; k < t->next.n[before]; k++) {
        const State *start = state_at(t, count, from, before, k);
        if (isinf(start->worst)) continue;
        add_steps(t, &(Step){from, to, count, before, next_run(t, before, k), *start}, &s);
      }
}

static void fill(Table *t) {
  for (int64_t i = 0; i < n_states(t); i++)
    t->at[i] = (State){INFINITY, INFINITY, 0, -1};
  for (int from = 0; from < t->ideals.list.n; from++) {
    // Only ideals that stages lead to are extended.
    bool reached = from == 0;
    for (int count = 0; count < t->n_counts && !reached; count++)
      for (int on = 0; on < t->p->n_runs && !reached; on++)
        for (int next = 0; next < t->next.most && !reached; next++)
          reached = !isinf(state_at(t, count, from, on, next)->worst);
    if (!reached) continue;
    Arena *scratch = arena_new();
    for (int to = from + 1; to < t->ideals.list.n; to++)
      if (may_have(t, from, to) &&
          ideal_within(&t->ideals, &t->ideals.list.at[from], &t->ideals.list.at[to]))
        add_stage(t, scratch, from, to);
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

static int *read_back(const Table *t, Arena *a) {
  int *run_of = arena_array(a, int, t->p->n_units);
  int to = t->ideals.list.n - 1, next = t->next.most, count = t->n_counts - 1;
  for (int on = best_end(t); on >= 0;) {
    State s = *state_at(t, count, to, on, next);
    for (int u = 0; u < t->p->n_units; u++)
      if (unit_in(t->ideals.list.at[to].has, u) && !unit_in(t->ideals.list.at[s.from].has, u))
        run_of[u] = on;
    // The index of this run among those after the one before.
    next = t->next.most;
    for (int k = 0; s.before >= 0 && k < t->next.n[s.before]; k++)
      if (next_run(t, s.before, k) == on) {
        next = k;
        break;
      }
    to = s.from;
    on = s.before;
    count -= t->n_counts > 1;
  }
  return run_of;
}

// Minimizes the slowest stage. Stages slower than the answer do not change it, so the first limit
// that has an answer has the same one as none.
static void fill_fastest(Table *t) {
  static const double by_bound[] = {1.1, 1.5, 3};
  double bound = partition_bound(t->p);
  for (size_t i = 0; i < sizeof by_bound / sizeof *by_bound; i++) {
    t->most = bound * by_bound[i];
    fill(t);
    if (best_end(t) >= 0) return;
  }
  t->most = INFINITY;
  fill(t);
}

// Minimizes the slowest stage, and then the sum.
static const int *solve(Table *t, Arena *a, double *bound) {
  fill_fastest(t);
  int on = best_end(t);
  *bound = on < 0 ? INFINITY : end_at(t, on)->worst;
  if (on < 0) return NULL;
  int *fastest = read_back(t, a);
  t->most = *bound;
  t->by_sum = true;
  fill(t);
  int *least = read_back(t, a);
  Load of_fastest = partition_load(a, t->p, fastest), of_least = partition_load(a, t->p, least);
  return load_less(&of_fastest, &of_least) ? fastest : least;
}

const int *table_solve(Arena *a, const Partition *p, double *bound) {
  Arena *scratch = arena_new();
  Table t = {.p = p, .arena = scratch};
  t.ideals = ideals_find(p, scratch);
  t.next = next_runs_find(p, scratch);
  // Stages are counted if a number is required, unless each run has a fixed position among them:
  // they cover the ranks in one order only.
  int n_first = 0;
  for (int g = 0; g < p->n_runs; g++)
    n_first += p->run[g].first == 0;
  bool is_row_of_runs = n_first == 1 && t.next.most <= 1 && p->n_stages == p->n_runs;
  t.n_counts = p->n_stages && !is_row_of_runs ? p->n_stages + 1 : 1;
  *bound = -INFINITY;
  if (n_states(&t) > MAX_STATES) {
    arena_free(scratch);
    return NULL;
  }
  // Seconds and bytes of all units of each ideal, on each run.
  int n = p->n_runs;
  t.seconds = arena_array(scratch, double, t.ideals.list.n *n);
  t.bytes = arena_array(scratch, double, t.ideals.list.n *n);
  for (int i = 0; i < t.ideals.list.n; i++)
    for (int u = 0; u < p->n_units; u++)
      for (int r = 0; r < n && unit_in(t.ideals.list.at[i].has, u); r++) {
        t.seconds[i * n + r] += unit_seconds(p, u, r);
        t.bytes[i * n + r] += unit_bytes(p, u, r);
      }
  // The least prices from a run to any later one, and to a run from any earlier one.
  t.from_any = arena_array(scratch, Price, n);
  t.to_any = arena_array(scratch, Price, n);
  for (int r = 0; r < n; r++)
    t.from_any[r] = t.to_any[r] = (Price){INFINITY, INFINITY, INFINITY};
  for (int r = 0; r < n; r++)
    for (int s = 0; s < n; s++)
      if (p->run[s].first >= p->run[r].first + p->run[r].n) {
        lower(&t.to_any[r], p, r * n + s);
        lower(&t.from_any[s], p, r * n + s);
      }
  t.at = arena_array(scratch, State, n_states(&t));
  const int *run_of = solve(&t, a, bound);
  if (!t.ideals.complete) *bound = -INFINITY;
  arena_free(scratch);
  return run_of;
}
