// Stages one behind the other, by dynamic programming.
//
//     units 0 ─ 1 ─ 2 ─┬─ 3 ─┬─ 5        done: 0 1 2     0 1 2 3    0 1 2 4    0 1 2 3 4  …
//                      └─ 4 ─┘           a stage is what one of these has more than another
//
// What is done after some stages is a set of units that has, with each, all that it reads: an
// ideal.  A state is (ideal, run g, run h): all that is done, on which run the last stage is, and
// on which the next will be, so that what they send one another is known.  Where there must be so
// many stages, the state also has how many there are.  Models are nearly chains, so there are few
// ideals; where there are too many, only those of one order are looked at.  (Tarnawski et al.,
// "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020, section 5, has
// ideals.)
//
// What a stage computes and keeps is exact.  What it gets from a stage that is not the one before
// it, or sends to one that is not the next, is charged at the least that this can cost, and a value
// that several later stages read is charged to who makes it once.  So what comes out is a bound,
// and where the stages found do cost that, they are the best there are: always so for chains.
//
// Twice: first the slowest stage is made as fast as it can be, then, with none slower than that,
// their sum.

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/vec.h"
#include "stages/partition.h"

typedef uint64_t Word;
enum { WORD = 64, MAX_IDEALS = 600, MAX_STATES = 4000000 };

typedef struct Ideal {
  const Word *has;
  int n;
  int top;  // of its units the one that all others lead to, or -1: it is in the last stage
  int next; // of the others the one that leads to all others, or -1: it is in the next stage
} Ideal;

// Seconds of a message, and of each byte.
typedef struct Price {
  double start, rows, whole;
} Price;

typedef struct Amount {
  double messages, rows, whole;
} Amount;

// What the units of a stage come to, on any run.
typedef struct Stage {
  Amount from_last, from_any; // what it gets from the stage before it, and from some before it
  Amount to_next, to_any;
  double kept_rows, kept_whole; // bytes of what it gets
  const bool *shares;           // by what is shared, whether it does
} Stage;

typedef struct Table {
  const Partition *p;
  Arena *arena;
  int words;
  Vec(Ideal) ideals;        // in order of how much is done; the last is all
  double *seconds, *bytes;  // [ideal * n_runs]: of all its units
  Price *from_any, *to_any; // by run: the least from one before it, to one behind it
  int most_next;            // runs that begin where one ends, at most
  int *next, *n_next;       // [n_runs * n_runs]: those that begin where run g ends
  int n_counts;             // of stages so far; 1 where any number will do
  struct State *at;
  double most; // no stage may be slower
  bool by_sum;
} Table;

// -- Ideals --------------------------------------------------------------------------------------

static bool has(const Word *set, int unit) {
  return set[unit / WORD] >> unit % WORD & 1;
}

static const Word *with(const Table *t, const Word *set, int unit) {
  Word *more = arena_copy(t->arena, set, (size_t)t->words * sizeof *set);
  more[unit / WORD] |= (Word)1 << unit % WORD;
  return more;
}

static bool reads(const Flow *f, int unit) {
  for (int k = 0; k < f->n_readers; k++)
    if (f->reader[k] == unit) return true;
  return false;
}

static bool may_follow(const Partition *p, const Word *done, int unit) {
  for (int i = 0; i < p->n_flows; i++)
    if (!has(done, p->flow[i].from) && reads(&p->flow[i], unit)) return false;
  return !has(done, unit);
}

static bool is_read_within(const Partition *p, const Word *set, int unit) {
  for (int i = 0; i < p->n_flows; i++)
    for (int k = 0; k < p->flow[i].n_readers && p->flow[i].from == unit; k++)
      if (has(set, p->flow[i].reader[k])) return true;
  return false;
}

static Ideal ideal_of(const Table *t, const Word *set, int n) {
  const Partition *p = t->p;
  Ideal x = {set, n, -1, -1};
  int n_top = 0, n_next = 0;
  for (int u = 0; u < p->n_units; u++) {
    if (has(set, u)) {
      if (is_read_within(p, set, u)) continue;
      x.top = u;
      n_top++;
    } else if (may_follow(p, set, u)) {
      x.next = u;
      n_next++;
    }
  }
  if (n_top > 1) x.top = -1;
  if (n_next > 1) x.next = -1;
  return x;
}

static bool is_known(const Table *t, const Word *set, int n) {
  for (int i = t->ideals.n - 1; i >= 0 && t->ideals.at[i].n == n; i--)
    if (!memcmp(t->ideals.at[i].has, set, (size_t)t->words * sizeof *set)) return true;
  return false;
}

static void add_ideal(Table *t, const Word *set, int n) {
  if (!is_known(t, set, n)) vec_push(t->arena, &t->ideals, ideal_of(t, set, n));
}

// Those with one unit more than number i has.
static void add_larger(Table *t, int i, bool only_next) {
  for (int u = 0; u < t->p->n_units; u++) {
    const Ideal x = t->ideals.at[i];
    if (!may_follow(t->p, x.has, u)) continue;
    add_ideal(t, with(t, x.has, u), x.n + 1);
    if (only_next) return;
  }
}

// Whether there are all of them.
static bool find_ideals(Table *t) {
  int n = t->p->n_units, most = n + 1 > MAX_IDEALS ? n + 1 : MAX_IDEALS;
  const Word *none = arena_array(t->arena, Word, t->words);
  add_ideal(t, none, 0);
  for (int i = 0; i < t->ideals.n && t->ideals.n <= most; i++)
    add_larger(t, i, false);
  if (t->ideals.n <= most) return true;
  t->ideals.n = 1;
  for (int i = 0; i < n; i++)
    add_larger(t, i, true);
  return false;
}

static void sum_ideals(Table *t) {
  const Partition *p = t->p;
  t->seconds = arena_array(t->arena, double, t->ideals.n * p->n_runs);
  t->bytes = arena_array(t->arena, double, t->ideals.n * p->n_runs);
  for (int i = 0; i < t->ideals.n; i++)
    for (int u = 0; u < p->n_units; u++)
      for (int r = 0; r < p->n_runs && has(t->ideals.at[i].has, u); r++) {
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

// Each run has its place among the stages: there is one way to cover the ranks.
static bool is_row_of_runs(const Table *t) {
  int n_first = 0;
  for (int g = 0; g < t->p->n_runs; g++)
    n_first += t->p->run[g].first == 0;
  return n_first == 1 && t->most_next <= 1 && t->p->n_stages == t->p->n_runs;
}

static void find_next(Table *t) {
  const Partition *p = t->p;
  t->next = arena_array(t->arena, int, p->n_runs * p->n_runs);
  t->n_next = arena_array(t->arena, int, p->n_runs);
  for (int g = 0; g < p->n_runs; g++) {
    for (int h = 0; h < p->n_runs; h++)
      if (p->run[h].first == p->run[g].first + p->run[g].n)
        t->next[g * p->n_runs + t->n_next[g]++] = h;
    if (t->n_next[g] > t->most_next) t->most_next = t->n_next[g];
  }
  t->n_counts = p->n_stages && !is_row_of_runs(t) ? p->n_stages + 1 : 1;
}

// -- Stages --------------------------------------------------------------------------------------

static void add_amount(Amount *to, const Flow *f) {
  to->messages += f->messages;
  *(f->whole ? &to->whole : &to->rows) += f->bytes;
}

static bool any_reader(const Flow *f, const Word *in, const Word *but) {
  for (int k = 0; k < f->n_readers; k++)
    if ((!in || has(in, f->reader[k])) && !has(but, f->reader[k])) return true;
  return false;
}

// The units of `b` that `a` has not.
static Stage stage_between(const Table *t, Arena *scratch, const Ideal *a, const Ideal *b) {
  const Partition *p = t->p;
  Stage s = {0};
  for (int i = 0; i < p->n_flows; i++) {
    const Flow *f = &p->flow[i];
    bool before = has(a->has, f->from), here = !before && has(b->has, f->from);
    if (before && any_reader(f, b->has, a->has)) {
      add_amount(f->from == a->top ? &s.from_last : &s.from_any, f);
      *(f->whole ? &s.kept_whole : &s.kept_rows) += f->kept;
    }
    if (here && any_reader(f, NULL, b->has))
      add_amount(reads(f, b->next) ? &s.to_next : &s.to_any, f);
  }
  bool *shares = arena_array(scratch, bool, p->n_shared);
  for (int i = 0; i < p->n_shared; i++)
    for (int k = 0; k < p->shared[i].n_units; k++)
      shares[i] |= has(b->has, p->shared[i].unit[k]) && !has(a->has, p->shared[i].unit[k]);
  s.shares = shares;
  return s;
}

static double amount_seconds(const Amount *a, const Price *price) {
  double seconds = 0; // nothing may be sent where there is no price
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

// The stages so far, of which the last ends here.
typedef struct State {
  double worst, sum; // INFINITY: there is no way here
  int from, before;  // of the last: the ideal before it, and the run before its own, or -1
} State;

// `next`: which of the runs behind `on` follows; most_next where none does.
static State *state_at(const Table *t, int count, int ideal, int on, int next) {
  int64_t i = ((int64_t)count * t->ideals.n + ideal) * t->p->n_runs + on;
  return &t->at[i * (t->most_next + 1) + next];
}

static int64_t n_states(const Table *t) {
  return (int64_t)t->n_counts * t->ideals.n * t->p->n_runs * (t->most_next + 1);
}

static int next_run(const Table *t, int on, int next) {
  return t->next[on * t->p->n_runs + next];
}

static bool is_better(const Table *t, double worst, double sum, const State *than) {
  if (t->by_sum && sum != than->sum) return sum < than->sum;
  return worst < than->worst || (worst == than->worst && sum < than->sum);
}

// A stage from one ideal to another, behind others.
typedef struct Step {
  int from, to, count, before, on; // before -1: it is the first
  State start;
} Step;

static void add_step(Table *t, const Step *x, const Stage *s, double seconds, int next) {
  const Partition *p = t->p;
  seconds += amount_seconds(&s->to_any, &t->to_any[x->on]);
  if (next < t->most_next) {
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
  bool all = x->to == t->ideals.n - 1;
  if (all != is_last(t, x->on)) return;
  if (!all && t->n_counts > 1 && x->count + 1 >= p->n_stages) return;
  int i = x->from * p->n_runs + x->on, k = x->to * p->n_runs + x->on;
  double seconds = p->base_seconds[x->on] + t->seconds[k] - t->seconds[i];
  double bytes = p->base_bytes[x->on] + t->bytes[k] - t->bytes[i];
  bytes += s->kept_whole + s->kept_rows / p->run[x->on].n;
  for (int n = 0; n < p->n_shared; n++) {
    seconds += s->shares[n] ? p->shared[n].seconds[x->on] : 0;
    bytes += s->shares[n] ? p->shared[n].bytes : 0;
  }
  if (!run_fits(p, x->on, bytes)) return;
  seconds += amount_seconds(&s->from_any, &t->from_any[x->on]);
  if (x->before >= 0) {
    Price price = price_between(p, x->before, x->on);
    seconds += amount_seconds(&s->from_last, &price);
  }
  for (int next = 0; next < t->n_next[x->on] && !all; next++)
    add_step(t, x, s, seconds, next);
  if (all) add_step(t, x, s, seconds, t->most_next);
}

static void add_first(Table *t, int to, const Stage *s) {
  for (int on = 0; on < t->p->n_runs; on++)
    if (t->p->run[on].first == 0) add_steps(t, &(Step){0, to, 0, -1, on, {0, 0, 0, -1}}, s);
}

static void add_behind(Table *t, int from, int to, const Stage *s) {
  for (int count = 0; count < t->n_counts; count++)
    for (int before = 0; before < t->p->n_runs; before++)
      for (int k = 0; k < t->n_next[before]; k++) {
        const State *start = state_at(t, count, from, before, k);
        if (isinf(start->worst)) continue;
        add_steps(t, &(Step){from, to, count, before, next_run(t, before, k), *start}, s);
      }
}

static bool is_within(const Table *t, const Ideal *a, const Ideal *b) {
  for (int w = 0; w < t->words; w++)
    if (a->has[w] & ~b->has[w]) return false;
  return a->n < b->n;
}

static bool is_reached(const Table *t, int ideal) {
  for (int count = 0; count < t->n_counts; count++)
    for (int on = 0; on < t->p->n_runs; on++)
      for (int next = 0; next < t->most_next; next++)
        if (!isinf(state_at(t, count, ideal, on, next)->worst)) return true;
  return ideal == 0;
}

static void fill(Table *t) {
  for (int64_t i = 0; i < n_states(t); i++)
    t->at[i] = (State){INFINITY, INFINITY, 0, -1};
  for (int from = 0; from < t->ideals.n; from++) {
    if (!is_reached(t, from)) continue;
    Arena *scratch = arena_new();
    for (int to = from + 1; to < t->ideals.n; to++) {
      if (!is_within(t, &t->ideals.at[from], &t->ideals.at[to])) continue;
      Stage s = stage_between(t, scratch, &t->ideals.at[from], &t->ideals.at[to]);
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
  return state_at(t, t->n_counts - 1, t->ideals.n - 1, on, t->most_next);
}

// The run that the last stage of the best way is on, or -1.
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
  for (int k = 0; k < t->n_next[before]; k++)
    if (next_run(t, before, k) == on) return k;
  return t->most_next;
}

static int *read_back(const Table *t, Arena *a) {
  int *run_of = arena_array(a, int, t->p->n_units);
  int to = t->ideals.n - 1, next = t->most_next, count = t->n_counts - 1;
  for (int on = best_end(t); on >= 0;) {
    State s = *state_at(t, count, to, on, next);
    for (int u = 0; u < t->p->n_units; u++)
      if (has(t->ideals.at[to].has, u) && !has(t->ideals.at[s.from].has, u)) run_of[u] = on;
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

// The least slowest stage, and then the least sum.
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
  Table t = {.p = p, .arena = scratch, .words = p->n_units / WORD + 1, .most = INFINITY};
  const int *run_of = NULL;
  bool all = find_ideals(&t);
  find_next(&t);
  *bound = -INFINITY;
  if (n_states(&t) <= MAX_STATES) {
    sum_ideals(&t);
    find_prices(&t);
    t.at = arena_array(scratch, State, n_states(&t));
    run_of = solve(&t, a, bound);
    if (!all) *bound = -INFINITY;
  }
  arena_free(scratch);
  return run_of;
}
