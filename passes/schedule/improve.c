// Local search: swaps two neighbours on a device if the second could have started earlier.
//
//     F3 F4 W1 B1      B1 is ready when W1 starts: F3 F4 B1 W1, if the makespan falls, or if it is
//                      equal and the sum of the blocks' ends falls
//
// Schedules filled in by a rule, or unrolled from a steady state, have such places while the
// pipeline fills and drains.

#include <math.h>

#include "base/clock.h"
#include "schedule/schedule.h"

typedef struct Improve {
  const Blocks *b;
  Timeline t; // best so far
  double room, sum;
  int64_t work;
} Improve;

static double sum_of_ends(const Improve *x, const Timeline *t) {
  double sum = 0;
  for (int k = 0; k < x->b->n; k++)
    sum += t->end[k];
  return sum;
}

static void swap(Timeline *t, int i) {
  int block = t->block[i - 1];
  t->block[i - 1] = t->block[i];
  t->block[i] = block;
}

// Swaps the i-th block of the list with the one before it, and keeps that if it is better.
static bool try_swap(Improve *x, int i) {
  Arena *scratch = arena_new();
  Timeline t = x->t;
  swap(&t, i);
  // Each trial runs the whole timeline; it must be feasible in memory and no longer.
  x->work -= x->b->n;
  bool better = schedule_run(scratch, x->b, &t) &&
                timeline_peak(x->b, &t) <= x->room * (1 + 1e-9) &&
                t.makespan <= x->t.makespan * (1 + 1e-9);
  // At an equal makespan, earlier ends leave space for further swaps.
  double sum = better ? sum_of_ends(x, &t) : 0;
  better = better && (t.makespan < x->t.makespan * (1 - 1e-9) || sum < x->sum * (1 - 1e-9));
  if (better) {
    for (int k = 0; k < x->b->n; k++) {
      x->t.start[k] = t.start[k];
      x->t.end[k] = t.end[k];
    }
    x->t.makespan = t.makespan;
    x->sum = sum;
  } else {
    swap(&t, i);
  }
  arena_free(scratch);
  return better;
}

void schedule_improve(Arena *a, const Blocks *b, double room, SearchLimit limit, Timeline *t) {
  Improve x = {.b = b, .t = *t, .room = room, .work = limit.work};
  // Swaps change its own copy of the arrays.
  int n = b->pipeline->n_devices;
  x.t.start = arena_copy(a, t->start, (size_t)b->n * sizeof *t->start);
  x.t.end = arena_copy(a, t->end, (size_t)b->n * sizeof *t->end);
  x.t.block = arena_copy(a, t->block, (size_t)t->at[n] * sizeof *t->block);
  x.sum = sum_of_ends(&x, t);
  for (bool moved = true; moved && x.work > 0;) {
    moved = false;
    for (int d = 0; d < n; d++)
      for (int i = t->at[d] + 1; i < t->at[d + 1] && x.work > 0; i++) {
        // A block on several devices has its place in the order of each.
        int before = x.t.block[i - 1], k = x.t.block[i];
        if (b->work[k]->n_devices != 1 || b->work[before]->n_devices != 1) continue;
        // Its dependencies are ready before its device is.
        double ready = 0;
        for (int q = b->after_at[k]; q < b->after_at[k + 1]; q++)
          ready = fmax(ready, x.t.end[b->after[q]] + b->latency[q]);
        if (ready >= x.t.start[k] * (1 - 1e-9)) continue;
        if (clock_seconds() > limit.end) x.work = 0;
        moved |= try_swap(&x, i);
      }
  }
  *t = x.t;
  if (!schedule_run(a, b, t)) BUG("a cycle of works");
}
