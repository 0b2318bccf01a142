// Timelines of complete orders: every block starts as early as its device and dependencies allow.

#include <math.h>
#include <stdlib.h>

#include "base/vec.h"
#include "schedule/schedule.h"

// -- Measures ----------------------------------------------------------------------------------

static void measure(Arena *a, const Blocks *b, Timeline *t) {
  int n = b->pipeline->n_devices;
  double busy = 0;
  t->peak = arena_array(a, double, n);
  t->makespan = t->span = 0;
  for (int d = 0; d < n; d++) {
    // Blocks of a device are in order of their start.
    double used = 0, first = INFINITY, last = 0;
    for (int i = t->at[d]; i < t->at[d + 1]; i++) {
      int k = t->block[i];
      used += b->work[k]->takes;
      t->peak[d] = fmax(t->peak[d], used);
      used -= b->work[k]->frees;
      first = fmin(first, t->start[k]);
      last = fmax(last, t->end[k]);
    }
    t->makespan = fmax(t->makespan, last);
    if (last > first) t->span = fmax(t->span, last - first);
  }
  // The share of idle time of all devices.
  for (int k = 0; k < b->n; k++)
    busy += b->work[k]->time * b->work[k]->n_devices;
  t->bubble = t->makespan > 0 ? fmax(0, 1 - busy / (n * t->makespan)) : 0;
}

double timeline_peak(const Blocks *b, const Timeline *t) {
  double most = 0;
  for (int d = 0; d < b->pipeline->n_devices; d++)
    most = fmax(most, t->peak[d]);
  return most;
}

// -- Running -----------------------------------------------------------------------------------

typedef struct Run {
  int *left;    // per block: unfinished predecessors, including those on its devices
  int *next;    // per device: position of its next block
  double *free; // per device
  int *ready, n_ready;
} Run;

static void less(Run *r, int block) {
  if (--r->left[block] == 0) r->ready[r->n_ready++] = block;
}

bool schedule_run(Arena *a, const Blocks *b, Timeline *t) {
  int n = b->pipeline->n_devices, done = 0;
  Run r = {.left = arena_array(a, int, b->n), .next = arena_array(a, int, n)};
  r.free = arena_array(a, double, n);
  r.ready = arena_array(a, int, b->n);
  t->start = arena_array(a, double, b->n);
  t->end = arena_array(a, double, b->n);
  for (int k = 0; k < b->n; k++)
    r.left[k] = b->work[k]->n_after + b->work[k]->n_devices;
  for (int k = 0; k < b->n; k++)
    if (!r.left[k]) r.ready[r.n_ready++] = k;
  // The first block of each device has no predecessor there.
  for (int d = 0; d < n; d++) {
    r.next[d] = t->at[d];
    if (t->at[d] < t->at[d + 1]) less(&r, t->block[t->at[d]]);
  }
  for (; done < r.n_ready; done++) {
    int k = r.ready[done];
    const Work *w = b->work[k];
    // As early as its dependencies and devices allow.
    double start = 0;
    for (int i = b->after_at[k]; i < b->after_at[k + 1]; i++)
      start = fmax(start, t->end[b->after[i]] + b->latency[i]);
    for (int i = 0; i < w->n_devices; i++)
      start = fmax(start, r.free[w->device[i]]);
    t->start[k] = start;
    t->end[k] = start + w->time;
    // Then the next blocks of its devices have a predecessor less, as its successors do.
    for (int i = 0; i < w->n_devices; i++) {
      int d = w->device[i], at = ++r.next[d];
      r.free[d] = t->end[k];
      if (at < t->at[d + 1]) less(&r, t->block[at]);
    }
    for (int i = b->next_at[k]; i < b->next_at[k + 1]; i++)
      less(&r, b->next[i]);
  }
  if (done < b->n) return false;
  measure(a, b, t);
  return true;
}

// -- Orders by a key ---------------------------------------------------------------------------

typedef struct Keyed {
  double key;
  int block;
} Keyed;

static int by_key(const void *x, const void *y) {
  const Keyed *v = x, *w = y;
  if (v->key != w->key) return v->key < w->key ? -1 : 1;
  return v->block - w->block;
}

bool schedule_sorted(Arena *a, const Blocks *b, const double *key, Timeline *out) {
  Arena *scratch = arena_new();
  int n = b->pipeline->n_devices, *fill = arena_array(scratch, int, n);
  Keyed *keyed = arena_array(scratch, Keyed, b->n);
  *out = (Timeline){.at = arena_array(a, int, n + 1)};
  for (int k = 0; k < b->n; k++) {
    keyed[k] = (Keyed){key[k], k};
    for (int i = 0; i < b->work[k]->n_devices; i++)
      out->at[b->work[k]->device[i] + 1]++;
  }
  if (b->n) qsort(keyed, (size_t)b->n, sizeof *keyed, by_key);
  for (int d = 0; d < n; d++)
    out->at[d + 1] += out->at[d];
  // Distribute the sorted blocks over their devices.
  out->block = arena_array(a, int, out->at[n]);
  for (int k = 0; k < b->n; k++) {
    const Work *w = b->work[keyed[k].block];
    for (int i = 0; i < w->n_devices; i++)
      out->block[out->at[w->device[i]] + fill[w->device[i]]++] = keyed[k].block;
  }
  arena_free(scratch);
  return schedule_run(a, b, out);
}
