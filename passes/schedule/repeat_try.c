// The steady state, by random tries: places works one after the other, each as early as its
// dependencies and the free slots of its devices in the period allow.
//
//     T = 3     device 1   F . B      a W that is ready at 8 starts at 10: 8 mod 3 is 2, the slot
//                                     of B, and the next one is F's
//
// The quality of a try is the end of its last work, if the memory fits at every time.  Tries differ
// in the slots: now and then they skip the first free one.  A try is quick, so there are thousands.

#include <math.h>

#include "schedule/repeat.h"

enum { TRIES = 400, SKIPS = 8 }; // one in this many skips a free slot

typedef struct Taken {
  double from, to; // in the period; `to` may be after its end
} Taken;

typedef struct Try {
  const Round *r;
  Taken **taken; // per device
  int *n_taken;
  double *at; // per work
  uint64_t *seed;
} Try;

// x modulo the period; the end, up to rounding, is 0.
static double place_of(const Round *r, double x) {
  double place = x - floor(x / r->period) * r->period;
  return place > r->period * (1 - 1e-9) ? 0 : place;
}

// The next possible start, after a conflict on this device; `start` if there is none.
static double after_taken(const Try *t, int d, double start, double time) {
  // The slots of the periods before and after overlap with this one.
  double place = place_of(t->r, start), slack = 1e-9 * t->r->period;
  for (int i = 0; i < t->n_taken[d]; i++) {
    const Taken *x = &t->taken[d][i];
    for (int turn = -1; turn <= 1; turn++) {
      double from = x->from + turn * t->r->period, to = x->to + turn * t->r->period;
      if (place + time > from + slack && place < to - slack) return start + to - place;
    }
  }
  return start;
}

// The first free slot from `start` on; with `skips`, a later one.  INFINITY: there is none.
static double free_place(const Try *t, const Work *w, double start, int skips) {
  // After one period, all slots have been seen.
  double end = start + (1 + skips) * t->r->period;
  while (start < end) {
    double later = start;
    for (int i = 0; i < w->n_devices; i++)
      later = fmax(later, after_taken(t, w->device[i], start, w->time));
    if (later > start) {
      start = later;
    } else if (skips-- > 0) {
      start += w->time > 0 ? w->time : t->r->period;
    } else {
      return start;
    }
  }
  return INFINITY;
}

// Places weight gradients last: no other work waits for them, and a late start of others delays
// all.
static bool place_all(Try *t) {
  const Round *r = t->r;
  for (int d = 0; d < r->b->pipeline->n_devices; d++)
    t->n_taken[d] = 0;
  for (int weights = 0; weights < 2; weights++)
    for (int j = 0; j < r->n; j++) {
      const Work *w = r->work[j];
      if ((w->kind == WORK_W) != weights) continue;
      if (w->time > r->period * (1 + 1e-9)) return false;
      // As early as its dependencies allow.
      double start = 0;
      for (int i = 0; i < w->n_after; i++) {
        int from = r->first[j] + w->after[i].work;
        start = fmax(start, t->at[from] + r->work[from]->time + w->after[i].latency);
      }
      // Splitmix64: one in SKIPS skips a free slot.
      uint64_t z = (*t->seed += UINT64_C(0x9e3779b97f4a7c15));
      z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
      z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
      t->at[j] = free_place(t, w, start, (z ^ (z >> 31)) % SKIPS == 0);
      if (t->at[j] == INFINITY) return false;
      // Take the slot on all its devices.
      double place = place_of(r, t->at[j]);
      for (int i = 0; i < w->n_devices; i++) {
        int d = w->device[i];
        t->taken[d][t->n_taken[d]++] = (Taken){place, place + w->time};
      }
    }
  return true;
}

// Whether the memory fits at the start of each work that takes some.
static bool fits(const Try *t) {
  const Round *r = t->r;
  for (int a = 0; a < r->n && r->room < INFINITY; a++) {
    if (r->work[a]->takes <= 0) continue;
    // Of each taker on its devices, the micro-batches that have started and have not been freed.
    double held = 0, slack = 1e-9;
    for (int b = 0; b < r->n; b++) {
      const Work *w = r->work[b];
      if (w->takes <= 0 || !work_shares_device(w, r->work[a])) continue;
      int giver = r->giver[b];
      double end = t->at[giver] + r->work[giver]->time;
      double begun = floor((t->at[a] - t->at[b]) / r->period + slack);
      double ended = floor((t->at[a] - end) / r->period + slack);
      held += w->takes * (begun - ended);
    }
    if (held > r->room * (1 + 1e-9)) return false;
  }
  return true;
}

double *repeat_by_try(const Round *r, uint64_t *seed) {
  int n = r->b->pipeline->n_devices;
  Try t = {.r = r, .seed = seed, .at = arena_array(r->arena, double, r->n)};
  double *best = NULL, best_end = INFINITY;
  t.taken = arena_array(r->arena, Taken *, n);
  t.n_taken = arena_array(r->arena, int, n);
  for (int d = 0; d < n; d++)
    t.taken[d] = arena_array(r->arena, Taken, r->n);
  for (int k = 0; k < TRIES; k++) {
    if (!place_all(&t)) continue;
    // Check the memory only for tries that would be the best.
    double end = 0;
    for (int j = 0; j < r->n; j++)
      end = fmax(end, t.at[j] + r->work[j]->time);
    if (end >= best_end || !fits(&t)) continue;
    best_end = end;
    if (!best) best = arena_array(r->arena, double, r->n);
    for (int j = 0; j < r->n; j++)
      best[j] = t.at[j];
  }
  return best;
}
