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

#include "base/clock.h"
#include "schedule/repeat.h"

enum { FEW_WORKS = 24, PATTERNS = 24 };

static const double periods[] = {1, 1.03125, 1.0625, 1.125, 1.25, 1.5, 2};
enum { N_PERIODS = sizeof periods / sizeof *periods };

// -- Rounds and periods ------------------------------------------------------------------------

int round_work(const Round *r, int block) {
  int m = r->b->micro_batch[block];
  return r->route_at[r->b->pipeline->route_of[m]] + block - r->b->first[m];
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
  // The work that frees the memory of j: of the same stage, on the same device.
  for (int j = 0; j < r->n; j++) {
    const Work *w = r->work[j];
    bool found = w->takes <= 0;
    r->giver[j] = j;
    for (int k = j; !found && k < r->n && r->first[k] == r->first[j]; k++) {
      found = r->work[k]->frees > 0 && r->work[k]->stage == w->stage &&
              work_shares_device(r->work[k], w);
      if (found) r->giver[j] = k;
    }
  }
  return true;
}

// -- Unrolling ---------------------------------------------------------------------------------

// Unrolls a steady state, and keeps the timeline if it is the shortest.
static void offer(Arena *a, const Round *r, const Orders *o, const double *at, double cutoff,
                  Timeline *best) {
  if (!at) return;
  // Blocks of every device in the order of their start in an endless steady state.
  double *key = arena_array(r->arena, double, r->b->n);
  for (int k = 0; k < r->b->n; k++)
    key[k] = r->turn[r->b->micro_batch[k]] * r->period + at[round_work(r, k)];
  // Orders, if any, have precedence over these times.
  ListRule rule = {.key = key, .room = r->room};
  Timeline t;
  bool ok =
      o->n ? schedule_list(a, r->b, o, &rule, &t)
           : schedule_sorted(a, r->b, key, &t) && timeline_peak(r->b, &t) <= r->room * (1 + 1e-9);
  if (!ok) return;
  if (t.makespan < (best->at ? best->makespan : cutoff) * (1 - 1e-9)) *best = t;
}

bool schedule_repeat(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                     double end, Timeline *out) {
  Round r = {.b = b, .arena = arena_new(), .room = room};
  *out = (Timeline){0};
  bool alike = list_works(&r);
  // A lower bound of the period: the work of a device in it, and the memory times duration that it
  // has capacity for.
  int n = b->pipeline->n_devices;
  double *load = arena_array(r.arena, double, n), *taken = arena_array(r.arena, double, n);
  double *since = arena_array(r.arena, double, r.n), least = 0;
  for (int j = 0; j < r.n && alike; j++) {
    const Work *w = r.work[j];
    int giver = r.giver[j];
    // The least time from its start to that of each later work, up to the one that frees its
    // memory.
    for (int k = r.first[j]; k <= giver && giver > j; k++) {
      since[k] = k == j ? 0 : -INFINITY;
      for (int q = 0; q < r.work[k]->n_after; q++) {
        const WorkAfter *after = &r.work[k]->after[q];
        int from = r.first[j] + after->work;
        since[k] = fmax(since[k], since[from] + r.work[from]->time + after->latency);
      }
    }
    double held = giver > j ? since[giver] + r.work[giver]->time : 0;
    for (int i = 0; i < w->n_devices; i++) {
      load[w->device[i]] += w->time;
      taken[w->device[i]] += w->takes * held;
    }
  }
  for (int d = 0; d < n && alike; d++)
    least = fmax(least, fmax(load[d], taken[d] / room));
  // From that bound on, longer periods until a steady state is found that unrolls to a short
  // timeline; no period is tried whose rounds alone take longer than the best.
  double longest = pipeline_longest(r.arena, b->pipeline);
  for (int i = 0; i < N_PERIODS && least > 0; i++) {
    r.period = least * periods[i];
    double best = out->at ? out->makespan : cutoff;
    if ((r.n_rounds - 1) * r.period + longest >= best) break;
    uint64_t seed = 1;
    for (int k = 0; k < PATTERNS && !o->n && clock_seconds() < end; k++)
      offer(a, &r, o, repeat_by_try(&r, &seed), cutoff, out);
    if (r.n <= FEW_WORKS && !out->at && clock_seconds() < end)
      offer(a, &r, o, repeat_by_cbc(&r, o), cutoff, out);
  }
  arena_free(r.arena);
  return out->at != NULL;
}
