// Stages one after the other, with the exact cost of all messages between them.
//
//     done 0 1 2 3 4 of 0 … 9, the last stage on run [2-3]
//       unit 1 is on [0], which has had 12 ms to do, and has readers ahead
//       unit 4 is on [2-3], which has had 9 ms
//
// A label is a sequence of stages that leads to a place: an ideal (ideals.h) and the run of the
// last stage. It records the work so far of each stage that may still have to send. The cost of a
// value is added at both ends once the stage that reads it is known, so labels have exact costs;
// table.c has lower bounds for distant stages. Two labels in one place differ only in their open
// values, and a label that is better in nothing is dropped. A label is also dropped if the
// remaining stages take, at least, longer than the best known assignment; a table of these lower
// bounds, computed from the end, is made first.
//
// A place keeps a limited number of labels and forgets the least promising; the best promise among
// these is a lower bound of any assignment, if nothing better was found. So the limit grows until
// no forgotten label could be better, or the budget of work is spent. Work is counted in labels,
// not in seconds: the same problem has the same answer on any machine. (Labels are those of
// shortest paths with resources: Desrochers and Soumis, "A Generalized Permanent Labelling
// Algorithm for the Shortest Path Problem with Time Windows", 1988.)

#include <math.h>
#include <string.h>

#include "ideals.h"

enum {
  MOST_RUNS = 300,
  MOST_PLACES = 2000000,
  MOST_WORK = 5000000,
  MORE_KEPT = 8,
  MOST_KEPT = 512
};

static const double slack = 0.5e-6; // smaller relative improvements are not searched for

// The work so far of a stage that has to send, for one of its units.
typedef struct Debt {
  int run;
  double seconds;
} Debt;

typedef struct Label {
  double worst, sum;          // so far
  double least;               // lower bound of the slowest stage
  int ideal, on, count;       // on -1: no stage yet
  const struct Label *before; // without the last stage
  Debt *debt;                 // [n_open of the ideal]
} Label;

typedef Vec(Label *) Labels;

// The units of an ideal with readers outside of it.
typedef struct Open {
  int n, *unit;
  double *send; // [n * n_runs] lower bound of their sends
} Open;

// A stage, the difference of two ideals, on any run: common to all labels.
typedef struct Stage {
  int from, to;
  int n_in, *in, *maker; // received flows, and the open unit of `from` that makes each
  int *was;              // by open unit of `to`: its index in `from`, or -1: it is in the stage
  double *own, *send;    // by run: its work without receives; lower bound of its sends
  bool *may;             // by run: it fits, and may be better
} Stage;

typedef struct Search {
  const Partition *p;
  Arena *arena, *labels; // `labels`: of one round
  Ideals ideals;
  NextRuns next;
  int *first, n_first;       // runs that begin at rank 0
  Open *open;                // by ideal
  double *seconds, *bytes;   // [ideal * n_runs]
  double *to_any, *from_any; // [flow * n_runs] the least to any later run, from any earlier run
  double *ahead;             // [ideal * n_runs] lower bound of the slowest later stage
  int *dearer;               // [n_runs * n_runs] to runs from here on the one is as cheap
  Labels *place;             // [count][ideal][n_runs + 1], the last for the empty label
  int n_counts, kept;
  int64_t work;
  double floor, limit; // seconds: a lower bound; only faster assignments are searched for
  double forgotten;    // the best promise among forgotten labels
  const Label *best;
} Search;

// -- Tables common to all labels -----------------------------------------------------------------

static bool is_before(const Partition *p, int r, int s) {
  return p->run[s].first >= p->run[r].first + p->run[r].n;
}

// Finds the rank from which on run r is never more expensive to send from than run k.
static void find_dearer(Search *s) {
  const Partition *p = s->p;
  int n = p->n_runs;
  s->dearer = arena_array(s->arena, int, n *n);
  for (int r = 0; r < n; r++)
    for (int k = 0; k < n; k++)
      for (int to = 0; to < n && r != k; to++) {
        int x = r * n + to, y = k * n + to;
        bool dearer = p->start[x] > p->start[y] || p->by_batch[x] > p->by_batch[y] ||
                      p->by_whole[x] > p->by_whole[y];
        if (dearer && is_before(p, r, to) && is_before(p, k, to) &&
            p->run[to].first >= s->dearer[r * n + k])
          s->dearer[r * n + k] = p->run[to].first + 1;
      }
}

static void find_open(Search *s) {
  const Partition *p = s->p;
  int n = s->ideals.list.n;
  s->open = arena_array(s->arena, Open, n);
  s->seconds = arena_array(s->arena, double, n * p->n_runs);
  s->bytes = arena_array(s->arena, double, n * p->n_runs);
  for (int i = 0; i < n; i++) {
    const Ideal *x = &s->ideals.list.at[i];
    // The units with readers outside of the ideal, and the least seconds of their sends.
    Open *open = &s->open[i];
    open->unit = arena_array(s->arena, int, p->n_units);
    int *which = arena_array(s->arena, int, p->n_units);
    for (int f = 0; f < p->n_flows; f++) {
      int from = p->flow[f].from;
      if (which[from] || !unit_in(x->has, from)) continue;
      if (!flow_has_reader(&p->flow[f], NULL, x->has)) continue;
      open->unit[open->n++] = from;
      which[from] = open->n;
    }
    open->send = arena_array(s->arena, double, open->n * p->n_runs);
    for (int f = 0; f < p->n_flows; f++) {
      int from = p->flow[f].from;
      if (!unit_in(x->has, from) || !flow_has_reader(&p->flow[f], NULL, x->has)) continue;
      for (int r = 0; r < p->n_runs; r++)
        open->send[(which[from] - 1) * p->n_runs + r] += s->to_any[f * p->n_runs + r];
    }
    // Compute and memory of all its units.
    for (int u = 0; u < p->n_units; u++)
      for (int r = 0; r < p->n_runs && unit_in(x->has, u); r++) {
        s->seconds[i * p->n_runs + r] += unit_seconds(p, u, r);
        s->bytes[i * p->n_runs + r] += unit_bytes(p, u, r);
      }
  }
}

// -- Stages --------------------------------------------------------------------------------------

static int open_index(const Open *o, int unit) {
  for (int i = 0; i < o->n; i++)
    if (o->unit[i] == unit) return i;
  return -1;
}

// Whether a run may have a stage, by its compute and units alone.
static bool may_have(const Search *s, int from, int to) {
  const Partition *p = s->p;
  for (int r = 0; r < p->n_runs; r++) {
    int i = from * p->n_runs + r, k = to * p->n_runs + r;
    if (p->base_seconds[r] + s->seconds[k] - s->seconds[i] < s->limit &&
        run_fits(p, r, p->base_bytes[r] + s->bytes[k] - s->bytes[i]))
      return true;
  }
  return false;
}

static Stage stage_between(const Search *s, Arena *a, int from, int to) {
  const Partition *p = s->p;
  Stage x = {.from = from, .to = to};
  // The values that the stage receives, and the open units that it leaves.
  const Ideal *old = &s->ideals.list.at[from], *new = &s->ideals.list.at[to];
  x.in = arena_array(a, int, p->n_flows);
  x.maker = arena_array(a, int, p->n_flows);
  for (int f = 0; f < p->n_flows; f++) {
    if (!unit_in(old->has, p->flow[f].from)) continue;
    if (!flow_has_reader(&p->flow[f], new->has, old->has)) continue;
    x.maker[x.n_in] = open_index(&s->open[from], p->flow[f].from);
    x.in[x.n_in++] = f;
  }
  const Open *left = &s->open[to];
  x.was = arena_array(a, int, left->n);
  for (int i = 0; i < left->n; i++)
    x.was[i] = open_index(&s->open[from], left->unit[i]);
  x.own = arena_array(a, double, p->n_runs);
  x.send = arena_array(a, double, p->n_runs);
  x.may = arena_array(a, bool, p->n_runs);
  bool *shares = arena_array(a, bool, p->n_shared), all = to == s->ideals.list.n - 1;
  for (int i = 0; i < p->n_shared; i++)
    for (int k = 0; k < p->shared[i].n_units; k++) {
      int unit = p->shared[i].unit[k];
      shares[i] |= unit_in(new->has, unit) && !unit_in(old->has, unit);
    }
  double passing = 0;
  for (int u = 0; u < p->n_units && p->passing; u++)
    if (unit_in(new->has, u) && !unit_in(old->has, u)) passing = fmax(passing, unit_passing(p, u));
  // Its work and memory on each run; the last stage has the last rank.
  for (int r = 0; r < p->n_runs; r++) {
    bool last = p->run[r].first + p->run[r].n == p->n_ranks;
    if (all != last) continue;
    int i = from * p->n_runs + r, k = to * p->n_runs + r;
    double bytes = p->base_bytes[r] + s->bytes[k] - s->bytes[i] + passing / p->run[r].n;
    x.own[r] = p->base_seconds[r] + s->seconds[k] - s->seconds[i];
    for (int n = 0; n < p->n_shared; n++) {
      x.own[r] += shares[n] ? p->shared[n].seconds[r] : 0;
      bytes += shares[n] ? p->shared[n].bytes : 0;
    }
    for (int n = 0; n < x.n_in; n++)
      bytes += flow_kept(p, &p->flow[x.in[n]], r);
    for (int n = 0; n < left->n; n++)
      if (x.was[n] < 0) x.send[r] += left->send[n * p->n_runs + r];
    x.may[r] = run_fits(p, r, bytes) && x.own[r] + x.send[r] < s->limit;
  }
  return x;
}

// -- Lower bounds of later stages ----------------------------------------------------------------

static double least_of_stage(const Search *s, const Stage *x, int before, int on) {
  const Partition *p = s->p;
  double seconds = x->own[on] + x->send[on];
  for (int i = 0; i < x->n_in; i++) {
    const Flow *f = &p->flow[x->in[i]];
    bool near = f->from == s->ideals.list.at[x->from].top;
    seconds += near ? flow_seconds(p, f, before, on) : s->from_any[x->in[i] * p->n_runs + on];
  }
  return seconds;
}

static void find_ahead(Search *s) {
  int n = s->ideals.list.n, n_runs = s->p->n_runs;
  s->ahead = arena_array(s->arena, double, n *n_runs);
  for (int i = 0; i < n * n_runs; i++)
    s->ahead[i] = i < (n - 1) * n_runs ? INFINITY : 0;
  // From the last ideal on: the slowest of one stage and those after it.
  for (int from = n - 2; from > 0; from--) {
    Arena *scratch = arena_new();
    for (int to = from + 1; to < n; to++) {
      if (!may_have(s, from, to) ||
          !ideal_within(&s->ideals, &s->ideals.list.at[from], &s->ideals.list.at[to]))
        continue;
      Stage x = stage_between(s, scratch, from, to);
      for (int before = 0; before < n_runs; before++)
        for (int k = 0; k < s->next.n[before]; k++) {
          int on = s->next.at[before * n_runs + k];
          double *least = &s->ahead[from * n_runs + before], behind = s->ahead[to * n_runs + on];
          if (!x.may[on] || behind >= *least || x.own[on] >= *least) continue;
          *least = fmin(*least, fmax(behind, least_of_stage(s, &x, before, on)));
        }
    }
    arena_free(scratch);
  }
}

// -- Labels --------------------------------------------------------------------------------------

static Labels *place_at(const Search *s, int count, int ideal, int on) {
  int64_t i = (int64_t)(s->n_counts > 1 ? count : 0) * s->ideals.list.n + ideal;
  return &s->place[i * (s->p->n_runs + 1) + on];
}

// Whether `a` is in nothing worse than `b`, a label in the same place.
static bool is_no_worse(const Search *s, const Label *a, const Label *b) {
  const Open *open = &s->open[a->ideal];
  const Run *on = &s->p->run[a->on];
  if (a->worst > fmax(b->worst, s->floor)) return false;
  for (int i = 0; i < open->n; i++) {
    const Debt *x = &a->debt[i], *y = &b->debt[i];
    if (x->seconds > y->seconds) return false;
    if (s->dearer[x->run * s->p->n_runs + y->run] > on->first + on->n) return false;
    // A run with several open units sends for all of them.
    for (int k = 0; k < i; k++)
      if (a->debt[k].run == x->run && b->debt[k].run != y->run) return false;
  }
  return true;
}

static bool promises_less(const Label *a, const Label *b) {
  return a->least != b->least ? a->least < b->least : a->sum < b->sum;
}

// `x` is a scratch label with space for its debts; the place keeps a copy.
static void keep(Search *s, const Label *x) {
  Labels *at = place_at(s, x->count, x->ideal, x->on);
  int n = 0, worst = -1;
  // Only labels that no other dominates are kept.
  for (int i = 0; i < at->n; i++)
    if (is_no_worse(s, at->at[i], x)) return;
  for (int i = 0; i < at->n; i++)
    if (!is_no_worse(s, x, at->at[i])) at->at[n++] = at->at[i];
  at->n = n;
  for (int i = 0; i < n; i++)
    if (worst < 0 || promises_less(at->at[worst], at->at[i])) worst = i;
  // A full place forgets the least promising label.
  if (n == s->kept) {
    const Label *lost = promises_less(x, at->at[worst]) ? at->at[worst] : x;
    s->forgotten = fmin(s->forgotten, lost->least);
    if (!promises_less(x, at->at[worst])) return;
  }
  Label *copy = arena_copy(s->labels, x, sizeof *x);
  int n_open = s->open[x->ideal].n;
  copy->debt = arena_array(s->labels, Debt, n_open);
  memcpy(copy->debt, x->debt, (size_t)n_open * sizeof *x->debt);
  if (n == s->kept)
    at->at[worst] = copy;
  else
    vec_push(s->labels, at, copy);
}

// Extends the label by the stage on this run. `old` and `new` have space for all debts.
static void extend(Search *s, const Label *l, const Stage *x, int on, Debt *old, Debt *new) {
  s->work++;
  int n_open = s->open[x->from].n;
  if (n_open) memcpy(old, l->debt, (size_t)n_open * sizeof *old);
  // Receives are added at both ends.
  double got = 0;
  for (int i = 0; i < x->n_in; i++) {
    int run = old[x->maker[i]].run;
    double once = flow_seconds(s->p, &s->p->flow[x->in[i]], run, on);
    got += once;
    for (int k = 0; k < n_open; k++)
      if (old[k].run == run) old[k].seconds += once;
  }
  double seconds = x->own[on] + got;
  Label y = {fmax(l->worst, seconds), l->sum + seconds + got, 0, x->to, on, l->count + 1, l, new};
  for (int i = 0; i < n_open; i++)
    y.worst = fmax(y.worst, old[i].seconds);
  // The stage has to send for its own open units.
  const Open *open = &s->open[x->to];
  for (int i = 0; i < open->n; i++)
    new[i] = x->was[i] < 0 ? (Debt){on, seconds} : old[x->was[i]];
  // A lower bound, with the sends of the stages that have open units.
  int n_runs = s->p->n_runs;
  double least = fmax(y.worst, s->ahead[x->to * n_runs + on]);
  for (int i = 0; i < open->n; i++) {
    double all = new[i].seconds;
    for (int k = 0; k < open->n; k++)
      if (new[k].run == new[i].run) all += open->send[k * n_runs + new[k].run];
    least = fmax(least, all);
  }
  y.least = fmax(l->least, least);
  if (y.least >= s->limit) return;
  if (x->to < s->ideals.list.n - 1) {
    keep(s, &y);
    return;
  }
  // All units have a stage: the best assignment so far, and later ones must be faster.
  if (s->p->n_stages && y.count != s->p->n_stages) return;
  s->best = arena_copy(s->labels, &y, sizeof y);
  s->limit = y.worst * (1 - slack);
}

// All labels of a place have the same run, so the same runs may follow.
static void extend_place(Search *s, const Labels *at, const Stage *x, Debt *old, Debt *new) {
  const Partition *p = s->p;
  const Label *any = at->at[0];
  bool all = x->to == s->ideals.list.n - 1, begins = any->on < 0;
  if (p->n_stages && !all && any->count + 1 >= p->n_stages) return;
  const int *next = begins ? s->first : s->next.at + any->on * p->n_runs;
  int n = begins ? s->n_first : s->next.n[any->on];
  for (int k = 0; k < n; k++)
    for (int i = 0; i < at->n; i++) {
      bool may = x->may[next[k]] && s->ahead[x->to * p->n_runs + next[k]] < s->limit;
      if (may && at->at[i]->least < s->limit) extend(s, at->at[i], x, next[k], old, new);
    }
}

// -- Rounds --------------------------------------------------------------------------------------

// Runs one round; false: the budget was spent.
static bool go_round(Search *s, int *run_of) {
  int64_t n = (int64_t)s->n_counts * s->ideals.list.n * (s->p->n_runs + 1);
  Label nothing = {.on = -1};
  s->labels = arena_new();
  s->place = arena_array(s->labels, Labels, n);
  s->forgotten = INFINITY;
  s->best = NULL;
  Debt *old = arena_array(s->labels, Debt, 2 * s->p->n_units), *new = old + s->p->n_units;
  vec_push(s->labels, place_at(s, 0, 0, s->p->n_runs), &nothing);
  // The labels of each ideal, in order of size, are extended by all stages after it.
  for (int from = 0; from < s->ideals.list.n; from++) {
    Arena *scratch = arena_new();
    Vec(Labels *) places = {0};
    for (int count = 0; count < s->n_counts; count++)
      for (int on = 0; on <= s->p->n_runs; on++)
        if (place_at(s, count, from, on)->n)
          vec_push(scratch, &places, place_at(s, count, from, on));
    for (int to = from + 1; to < s->ideals.list.n && places.n; to++) {
      if (!may_have(s, from, to) ||
          !ideal_within(&s->ideals, &s->ideals.list.at[from], &s->ideals.list.at[to]))
        continue;
      Stage x = stage_between(s, scratch, from, to);
      for (int i = 0; i < places.n && s->work < MOST_WORK; i++)
        extend_place(s, places.at[i], &x, old, new);
    }
    arena_free(scratch);
  }
  // The best label and those before it are the stages.
  for (const Label *l = s->best; l && l->before; l = l->before) {
    const UnitWord *to = s->ideals.list.at[l->ideal].has;
    const UnitWord *from = s->ideals.list.at[l->before->ideal].has;
    for (int u = 0; u < s->p->n_units; u++)
      if (unit_in(to, u) && !unit_in(from, u)) run_of[u] = l->on;
  }
  arena_free(s->labels);
  return s->work < MOST_WORK;
}

bool labels_solve(const Partition *p, int *run_of, bool has, double *bound) {
  if (p->n_runs > MOST_RUNS) return has;
  Arena *scratch = arena_new();
  Search s = {.p = p, .arena = scratch, .limit = INFINITY};
  // Only faster assignments than the known one are searched for.
  if (has) s.limit = partition_load(scratch, p, run_of).slowest * (1 - slack);
  s.ideals = ideals_find(p, scratch);
  s.next = next_runs_find(p, scratch);
  s.n_counts = p->n_stages ? p->n_stages + 1 : 1;
  int64_t n_places = (int64_t)s.n_counts * s.ideals.list.n * (p->n_runs + 1);
  if (n_places > MOST_PLACES) {
    arena_free(scratch);
    return has;
  }
  // The least seconds of each flow from a run to any later one, and to a run from any earlier one.
  int n = p->n_runs;
  s.to_any = arena_array(scratch, double, p->n_flows *n);
  s.from_any = arena_array(scratch, double, p->n_flows *n);
  for (int i = 0; i < p->n_flows * n; i++)
    s.to_any[i] = s.from_any[i] = INFINITY;
  for (int f = 0; f < p->n_flows; f++)
    for (int r = 0; r < n; r++)
      for (int k = 0; k < n; k++) {
        if (!is_before(p, r, k)) continue;
        double seconds = flow_seconds(p, &p->flow[f], r, k);
        s.to_any[f * n + r] = fmin(s.to_any[f * n + r], seconds);
        s.from_any[f * n + k] = fmin(s.from_any[f * n + k], seconds);
      }
  s.first = arena_array(scratch, int, n);
  for (int r = 0; r < n; r++)
    if (p->run[r].first == 0) s.first[s.n_first++] = r;
  find_dearer(&s);
  find_open(&s);
  find_ahead(&s);
  bool more = true;
  // Each round keeps more labels per place.
  for (s.kept = 1; more && s.kept <= MOST_KEPT; s.kept *= MORE_KEPT) {
    int64_t before = s.work;
    s.floor = *bound;
    more = go_round(&s, run_of);
    if (more && s.ideals.complete) *bound = fmax(*bound, fmin(s.limit, s.forgotten));
    has |= isfinite(s.limit);
    more &= s.forgotten < s.limit && s.work + MORE_KEPT * (s.work - before) <= MOST_WORK;
  }
  arena_free(scratch);
  return has;
}
