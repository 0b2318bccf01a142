// The steady state: the periodic part of a schedule, once the pipeline is full (Tessel, Lin et al.
// 2024).
//
//     device 0   … F5 B2 W2  F6 B3 W3 …     In a period of T each work runs once, for the next
//     device 3   … F2 B2 W1  F3 B3 W2 …     micro-batch each time.  Work j of micro-batch m starts
//                                           at at[j] + m T.
//
// T is the lower bound from the busiest device and the memory, or longer if no solution is found.
// Two searches find at[]: repeat_try.c places works one after the other, many times at random, and
// repeat_cbc.c uses CBC, for few works.  Unrolled, each gives an order for every device, with fill
// and drain phases: then each block runs as early as possible.

#include <math.h>
#include <stdlib.h>

#include "schedule/repeat.h"

enum { FEW_WORKS = 24, PATTERNS = 24 };

static const double periods[] = {1, 1.03125, 1.0625, 1.125, 1.25, 1.5, 2};
enum { N_PERIODS = sizeof periods / sizeof *periods };

// -- Rounds and periods ------------------------------------------------------------------------

int round_work(const Round *r, int block) {
  int m = r->b->micro_batch[block];
  return r->route_at[r->b->pipeline->route_of[m]] + block - r->b->first[m];
}

// The work that frees the memory of j: of the same stage, on the same device.
static int giver_of(const Round *r, int j) {
  for (int k = j; k < r->n && r->first[k] == r->first[j]; k++)
    if (r->work[k]->frees > 0 && r->work[k]->stage == r->work[j]->stage &&
        work_shares_device(r->work[k], r->work[j]))
      return k;
  return j;
}

// Lists the works of a round.  False: routes have different numbers of micro-batches.
static bool list_works(Round *r) {
  const Pipeline *p = r->b->pipeline;
  int *count = arena_array(r->arena, int, p->n_routes);
  r->route_at = arena_array(r->arena, int, p->n_routes);
  r->turn = arena_array(r->arena, int, p->n_micro_batches);
  for (int m = 0; m < p->n_micro_batches; m++)
    r->turn[m] = count[p->route_of[m]]++;
  for (int k = 0; k < p->n_routes; k++) {
    r->route_at[k] = r->n;
    r->n += p->route[k].n;
    // Rounds need the same number of micro-batches on each route, up to an incomplete last round.
    if (abs(count[k] - count[0]) > 1) return false;
  }
  r->n_rounds = count[0];
  r->work = arena_array(r->arena, const Work *, r->n);
  r->first = arena_array(r->arena, int, r->n);
  r->giver = arena_array(r->arena, int, r->n);
  for (int k = 0, n = 0; k < p->n_routes; k++)
    for (int i = 0, first = n; i < p->route[k].n; i++, n++) {
      r->work[n] = &p->route[k].work[i];
      r->first[n] = first;
    }
  for (int j = 0; j < r->n; j++)
    r->giver[j] = r->work[j]->takes > 0 ? giver_of(r, j) : j;
  return true;
}

// The least time from the start of work i to that of j of the same route; longest[] is indexed by
// work.
static double distance(const Round *r, int i, int j, double *longest) {
  int first = r->first[i];
  for (int k = first; k <= j; k++) {
    longest[k] = k == i ? 0 : -INFINITY;
    for (int q = 0; q < r->work[k]->n_after; q++) {
      const WorkAfter *after = &r->work[k]->after[q];
      int from = first + after->work;
      longest[k] = fmax(longest[k], longest[from] + r->work[from]->time + after->latency);
    }
  }
  return longest[j];
}

// A lower bound of the period: the work of a device in it, and the memory times duration that it
// has capacity for.
static double least_period(const Round *r) {
  int n = r->b->pipeline->n_devices;
  double *load = arena_array(r->arena, double, n), *taken = arena_array(r->arena, double, n);
  double *longest = arena_array(r->arena, double, r->n), least = 0;
  for (int j = 0; j < r->n; j++) {
    const Work *w = r->work[j];
    int giver = r->giver[j];
    double held = giver > j ? distance(r, j, giver, longest) + r->work[giver]->time : 0;
    for (int i = 0; i < w->n_devices; i++) {
      load[w->device[i]] += w->time;
      taken[w->device[i]] += w->takes * held;
    }
  }
  for (int d = 0; d < n; d++)
    least = fmax(least, fmax(load[d], taken[d] / r->room));
  return least;
}

// -- Unrolling ---------------------------------------------------------------------------------

// Orders the blocks of every device by their start in an endless steady state.  Orders, if any,
// have precedence over these times.
static bool unroll(Arena *a, const Round *r, const Orders *o, const double *at, Timeline *out) {
  double *key = arena_array(r->arena, double, r->b->n);
  for (int k = 0; k < r->b->n; k++)
    key[k] = r->turn[r->b->micro_batch[k]] * r->period + at[round_work(r, k)];
  ListRule rule = {.key = key, .room = r->room};
  if (o->n) return schedule_list(a, r->b, o, &rule, out);
  return schedule_sorted(a, r->b, key, out) && timeline_peak(r->b, out) <= r->room * (1 + 1e-9);
}

static void offer(Arena *a, const Round *r, const Orders *o, const double *at, double cutoff,
                  Timeline *best) {
  Timeline t;
  if (!at || !unroll(a, r, o, at, &t)) return;
  if (t.makespan < (best->at ? best->makespan : cutoff) * (1 - 1e-9)) *best = t;
}

bool schedule_repeat(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                     Timeline *out) {
  Round r = {.b = b, .arena = arena_new(), .room = room};
  *out = (Timeline){0};
  bool alike = list_works(&r);
  double least = alike ? least_period(&r) : 0;
  double longest = pipeline_longest(r.arena, b->pipeline);
  for (int i = 0; i < N_PERIODS && least > 0; i++) {
    r.period = least * periods[i];
    double best = out->at ? out->makespan : cutoff;
    if ((r.n_rounds - 1) * r.period + longest >= best) break;
    uint64_t seed = 1;
    for (int k = 0; k < PATTERNS && !o->n; k++)
      offer(a, &r, o, repeat_by_try(&r, &seed), cutoff, out);
    if (r.n <= FEW_WORKS && !out->at) offer(a, &r, o, repeat_by_cbc(&r, o), cutoff, out);
  }
  arena_free(r.arena);
  return out->at != NULL;
}
