// The part that repeats: what every device does over and over once the pipeline is full
// (Tessel, Lin et al. 2024).
//
//     device 0   … F5 B2 W2  F6 B3 W3 …     In a period of T each work is done once, for a later
//     device 3   … F2 B2 W1  F3 B3 W2 …     micro-batch each time.  Work j of micro-batch m begins
//                                           at at[j] + m T.
//
// T is the least that the device with most to do and the memory allow, or longer where nothing is
// found.  Two searches look for at[]: repeat_try.c places works one after the other, many times at
// random, and repeat_cbc.c asks CBC, where there are few works.  Unrolled, each is an order for
// every device, filling and emptying included: then each block runs as early as it can.

#include <math.h>
#include <stdlib.h>

#include "schedule/repeat.h"

enum { FEW_WORKS = 24, PATTERNS = 24 };

static const double periods[] = {1, 1.03125, 1.0625, 1.125, 1.25, 1.5, 2};
enum { N_PERIODS = sizeof periods / sizeof *periods };

// -- What repeats ------------------------------------------------------------------------------

int round_work(const Round *r, int block) {
  int m = r->b->micro_batch[block];
  return r->route_at[r->b->pipeline->route_of[m]] + block - r->b->first[m];
}

// What gives back what j takes: a work of its stage, on its device.
static int giver_of(const Round *r, int j) {
  for (int k = j; k < r->n && r->first[k] == r->first[j]; k++)
    if (r->work[k]->frees > 0 && r->work[k]->stage == r->work[j]->stage &&
        work_shares_device(r->work[k], r->work[j]))
      return k;
  return j;
}

// False: routes are not used alike.
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

// From the begin of work i to that of j of the same route, at least; longest[] is of works.
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

// No period is shorter: what a device has to do in it, and how long the memory that it has room for
// is taken.
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

// -- Unrolled ----------------------------------------------------------------------------------

// Every device in the order of when its blocks would begin if the pipeline had always been full.
// Where there are orders, they say what is first, and these times the rest.
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
