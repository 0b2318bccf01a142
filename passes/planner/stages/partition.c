// The load of an assignment, and the search for a good one: see partition.h.

#include "partition.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

double flow_seconds(const Partition *p, const Flow *f, int from, int to) {
  if (from == to) return 0;
  int i = from * p->n_runs + to;
  return f->messages * p->start[i] + f->bytes * (f->whole ? p->by_whole[i] : p->by_batch[i]);
}

double flow_kept(const Partition *p, const Flow *f, int to) {
  return run_in_flight(p, to) * (f->whole ? f->kept : f->kept / p->run[to].n);
}

// -- Loads ---------------------------------------------------------------------------------------

Load partition_load(Arena *a, const Partition *p, const int *run_of) {
  Load x = {.fits = true};
  bool *used = arena_array(a, bool, p->n_runs);
  x.seconds = arena_array(a, double, p->n_runs);
  x.comm = arena_array(a, double, p->n_runs);
  x.bytes = arena_array(a, double, p->n_runs);
  double *passing = arena_array(a, double, p->n_runs);
  // Units on their runs first, then flows and shared tensors between runs.
  for (int u = 0; u < p->n_units; u++) {
    used[run_of[u]] = true;
    x.seconds[run_of[u]] += unit_seconds(p, u, run_of[u]);
    x.bytes[run_of[u]] += unit_bytes(p, u, run_of[u]);
    passing[run_of[u]] = fmax(passing[run_of[u]], unit_passing(p, u));
  }
  for (int i = 0; i < p->n_flows; i++) {
    // A value goes once to each run of its readers.
    const Flow *f = &p->flow[i];
    for (int k = 0; k < f->n_readers; k++) {
      int from = run_of[f->from], to = run_of[f->reader[k]];
      bool first = to != from;
      for (int j = 0; j < k; j++)
        first &= run_of[f->reader[j]] != to;
      if (!first) continue;
      double seconds = flow_seconds(p, f, from, to);
      x.comm[from] += seconds;
      x.comm[to] += seconds;
      x.bytes[to] += flow_kept(p, f, to);
    }
  }
  for (int i = 0; i < p->n_shared; i++) {
    // A shared tensor is once on each run of its units.
    const Shared *s = &p->shared[i];
    for (int k = 0; k < s->n_units; k++) {
      int run = run_of[s->unit[k]];
      bool first = true;
      for (int j = 0; j < k; j++)
        first &= run_of[s->unit[j]] != run;
      if (!first) continue;
      x.comm[run] += s->seconds[run];
      x.bytes[run] += s->bytes;
    }
  }
  for (int r = 0; r < p->n_runs; r++) {
    if (!used[r]) continue;
    x.seconds[r] += p->base_seconds[r] + x.comm[r];
    x.bytes[r] += p->base_bytes[r] + passing[r] / p->run[r].n;
    x.fits &= run_fits(p, r, x.bytes[r]);
    x.slowest = fmax(x.slowest, x.seconds[r]);
    x.sum += x.seconds[r];
  }
  return x;
}

bool load_less(const Load *a, const Load *b) {
  if (a->fits != b->fits) return a->fits;
  if (a->slowest != b->slowest) return a->slowest < b->slowest;
  return a->sum < b->sum;
}

bool partition_legal(const Partition *p, const int *run_of) {
  Arena *a = arena_new();
  int *covered = arena_array(a, int, p->n_ranks);
  bool *used = arena_array(a, bool, p->n_runs), legal = true;
  int n = 0;
  // No value goes back.
  for (int i = 0; i < p->n_flows; i++)
    for (int k = 0; k < p->flow[i].n_readers; k++)
      legal &= p->run[run_of[p->flow[i].reader[k]]].first >= p->run[run_of[p->flow[i].from]].first;
  // Every rank is in one run.
  for (int u = 0; u < p->n_units; u++)
    used[run_of[u]] = true;
  for (int r = 0; r < p->n_runs; r++)
    for (int k = 0; used[r] && k < p->run[r].n; k++) {
      covered[p->run[r].first + k]++;
      n += k == 0;
    }
  for (int k = 0; k < p->n_ranks; k++)
    legal &= covered[k] == 1;
  arena_free(a);
  return legal && (!p->n_stages || n == p->n_stages);
}

// -- A bound -------------------------------------------------------------------------------------

// Every unit runs somewhere, and all of them share the ranks.
double partition_bound(const Partition *p) {
  double most = 0, sum = 0;
  for (int u = 0; u < p->n_units; u++) {
    double least = INFINITY, work = INFINITY;
    for (int r = 0; r < p->n_runs; r++) {
      least = fmin(least, unit_seconds(p, u, r) + p->base_seconds[r]);
      work = fmin(work, unit_seconds(p, u, r) * p->run[r].n);
    }
    most = fmax(most, least);
    sum += work;
  }
  return fmax(most, sum / p->n_ranks);
}

// -- Improving -----------------------------------------------------------------------------------

// Moves units one by one to the run before or after their own, and from good assignments also to
// worse ones, less and less (Kirkpatrick, Gelatt and Vecchi, "Optimization by Simulated Annealing",
// 1983). The random numbers follow from a seed, so the same problem has the same result.

enum { TRIES = 20000 };

typedef struct Walk {
  const Partition *p;
  Arena *arena; // of one load
  int *run_of, *best;
  Load now, least;
  int *before, *behind; // by run: the adjacent runs in use; -1: none
  uint64_t dice;
} Walk;

static double roll(Walk *w) {
  w->dice = w->dice * 6364136223846793005u + 1442695040888963407u;
  return (double)(w->dice >> 11) * 0x1p-53;
}

static Load load_of(Walk *w, const int *run_of) {
  arena_free(w->arena);
  w->arena = arena_new();
  return partition_load(w->arena, w->p, run_of);
}

// The energy: it falls when any slow run becomes faster, not only the slowest one.
static double height(const Walk *w, const Load *x) {
  double sum = 0;
  for (int r = 0; r < w->p->n_runs; r++)
    sum += pow(x->seconds[r] / w->least.slowest, 12);
  return x->fits ? sum : sum + 1e6;
}

// Moves units to adjacent runs, TRIES times, and leaves the best assignment seen.
static void partition_improve(const Partition *p, int *run_of) {
  Arena *a = arena_new();
  Walk w = {.p = p, .arena = arena_new(), .best = run_of, .dice = 1};
  w.run_of = arena_copy(a, run_of, (size_t)p->n_units * sizeof *run_of);
  w.now = load_of(&w, run_of);
  w.least = w.now;
  // The adjacent runs of each run in use.
  w.before = arena_array(a, int, p->n_runs);
  w.behind = arena_array(a, int, p->n_runs);
  for (int r = 0; r < p->n_runs; r++)
    w.before[r] = w.behind[r] = -1;
  for (int u = 0; u < p->n_units; u++)
    for (int v = 0; v < p->n_units; v++) {
      int r = w.run_of[u], s = w.run_of[v];
      if (p->run[r].first + p->run[r].n != p->run[s].first) continue;
      w.behind[r] = s;
      w.before[s] = r;
    }
  double at = height(&w, &w.now);
  for (int i = 0; i < TRIES && w.least.slowest > 0; i++) {
    double heat = 2 * pow(1e-4, (double)i / TRIES), now = INFINITY;
    int unit = (int)(roll(&w) * p->n_units), before = w.run_of[unit];
    int to = roll(&w) < 0.5 ? w.before[before] : w.behind[before];
    if (to < 0) continue;
    w.run_of[unit] = to;
    bool legal = partition_legal(p, w.run_of);
    if (legal) {
      w.now = load_of(&w, w.run_of);
      now = height(&w, &w.now);
    }
    // The best so far is remembered.
    if (legal && load_less(&w.now, &w.least)) {
      w.least = (Load){w.now.fits, w.now.slowest, w.now.sum, NULL, NULL, NULL};
      memcpy(w.best, w.run_of, (size_t)p->n_units * sizeof *w.best);
    }
    // A worse assignment is taken with a probability that falls with the heat.
    if (legal && (now <= at || roll(&w) < exp((at - now) / heat)))
      at = now;
    else
      w.run_of[unit] = before;
  }
  arena_free(w.arena);
  arena_free(a);
}

// -- A start with the required stages ------------------------------------------------------------

enum { MOST_COVERS = 200000000 };

// Returns the first of `n` runs of about equal length that cover the ranks from `first` on; -1:
// there are none. `known` caches results by rank and number: 0: unknown, 1: none, 2 + a run.
static int first_run(const Partition *p, int first, int n, int *known) {
  int *at = &known[first * (p->n_stages + 1) + n], left = p->n_ranks - first, best = -1;
  if (*at) return *at - 2;
  for (int r = 0; r < p->n_runs && n > 0; r++) {
    int behind = left - p->run[r].n;
    bool may = p->run[r].first == first && behind >= n - 1 && (behind == 0) == (n == 1);
    if (!may || (n > 1 && first_run(p, p->n_ranks - behind, n - 1, known) < 0)) continue;
    if (best < 0 || abs(p->run[r].n * n - left) < abs(p->run[best].n * n - left)) best = r;
  }
  return (*at = best + 2) - 2;
}

// Assigns the units in order to the required number of stages, each with about its part of the
// seconds.
static bool partition_even(Arena *a, const Partition *p, int *run_of) {
  double work = (double)p->n_ranks * p->n_stages * p->n_runs;
  if (!p->n_stages || p->n_stages > p->n_units || work > MOST_COVERS) return false;
  int *known = arena_array(a, int, (p->n_ranks + 1) * (p->n_stages + 1));
  if (first_run(p, 0, p->n_stages, known) < 0) return false;
  int run = first_run(p, 0, p->n_stages, known), left = p->n_stages;
  // A stage ends when it has its part, or when the rest needs a unit each.
  double all = 0, done = 0;
  for (int u = 0; u < p->n_units; u++)
    all += unit_seconds(p, u, run) * p->run[run].n;
  for (int u = 0; u < p->n_units; u++) {
    int end = p->run[run].first + p->run[run].n;
    bool full = done * p->n_ranks >= all * end, last = p->n_units - u < left;
    if (u && left > 1 && run_of[u - 1] == run && (full || last))
      run = first_run(p, end, --left, known);
    run_of[u] = run;
    done += unit_seconds(p, u, run) * p->run[run].n;
  }
  return true;
}

// -- All together --------------------------------------------------------------------------------

enum { SLACK = 1000000 }; // 1 / SLACK is within CBC's tolerances

// Takes the new assignment if it is faster beyond CBC's tolerances, or as fast with a smaller sum.
static void offer(Arena *a, const Partition *p, const int *run_of, int *best, bool *has) {
  Load now = partition_load(a, p, run_of);
  if (!now.fits) return;
  if (*has) {
    Load known = partition_load(a, p, best);
    bool faster = now.slowest < known.slowest * (1 - 1.0 / SLACK);
    if (!faster && (now.slowest > known.slowest || now.sum >= known.sum)) return;
  }
  memcpy(best, run_of, (size_t)p->n_units * sizeof *best);
  *has = true;
}

static bool is_proved(Arena *a, const Partition *p, const int *run_of, double bound) {
  return partition_load(a, p, run_of).slowest <= bound * (1 + 1.0 / SLACK);
}

PartitionResult partition_solve(Arena *a, const Partition *p, const PartitionOptions *o) {
  PartitionResult out = {.status = PARTITION_unknown, .bound = partition_bound(p)};
  if (o->lp) out.lp_failed = !partition_write(p, o->lp);
  int *best = arena_array(a, int, p->n_units);
  bool has = false;
  double bound;
  // The table is exact for chains; otherwise it gives a start and a bound.
  const int *start = table_solve(a, p, &bound);
  out.bound = fmax(out.bound, bound);
  if (start) {
    int *moved = arena_copy(a, start, (size_t)p->n_units * sizeof *moved);
    if (!is_proved(a, p, start, out.bound)) partition_improve(p, moved);
    offer(a, p, moved, best, &has);
  } else if (!(isinf(bound) && bound > 0) && partition_even(a, p, best)) {
    partition_improve(p, best);
    has = partition_load(a, p, best).fits;
  }
  // An infinite bound proves that nothing fits.
  bool none = isinf(bound) && bound > 0, done = none || (has && is_proved(a, p, best, out.bound));
  // Labels are exact for messages between distant stages, too.
  if (!done) {
    has = labels_solve(p, best, has, &out.bound);
    none = isinf(out.bound);
    done = none || (has && is_proved(a, p, best, out.bound));
  }
  // CBC is the last resort: its answer is improved by annealing.
  if (!done) {
    int *found = arena_array(a, int, p->n_units);
    out.status = partition_ask(p, o->seconds, has ? best : NULL, found, &out);
    if (out.status == PARTITION_proved || out.status == PARTITION_found) {
      partition_improve(p, found);
      offer(a, p, found, best, &has);
    }
  }
  if (none) out.status = PARTITION_infeasible;
  if (!has) return out;
  out.run_of = best;
  if (is_proved(a, p, best, out.bound))
    out.status = PARTITION_proved;
  else if (out.status != PARTITION_proved)
    out.status = PARTITION_found;
  if (out.status == PARTITION_proved) out.bound = partition_load(a, p, best).slowest;
  return out;
}
