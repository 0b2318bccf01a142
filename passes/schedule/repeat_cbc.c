// The steady state (repeat.c) as a 0/1 program.  Work j of micro-batch m starts at at[j] + m, with
// times in periods: at[j] = k_j + o_j, where the integer k_j is the period, 0 for the first work of
// the micro-batch, and o_j the offset in it, from 0 to 1; t_i is the time of work i plus the
// latency of its result.
//
//     minimise   start of the last B of a micro-batch                the time to fill the pipeline
//     waits      k_j + o_j >= k_i + o_i + t_i                        j depends on i
//     devices    o_b - o_a >= t_a - (1 - y_ab)                       a and b share a device; y_ab:
//                o_a - o_b >= t_b - y_ab                             a comes first in the period
//     memory     sum over b of k_w - k_b + y_aw - y_ab <= room       at the start of each taker a;
//                                                                    w frees the memory of b
//
// k_j is k of the first dependency of j, plus a binary number of j's own.  Orders that hold for
// most micro-batches become waits.

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/vec.h"
#include "schedule/repeat.h"
#include "solver/zero_one.h"

enum { MOST_BITS = 4, MOST_NODES = 20 };
#define MOST_SECONDS 4.0 // the node limit comes first, unless the machine is very busy

typedef struct Columns {
  const Round *r;
  ProgramBuilder program;
  int *base;           // per work: the one that its k is relative to, or -1
  int *bits, *n_bits;  // columns of its own binary number
  int *place;          // column of o
  int *before;         // [n * n]: column of y, or -1
  double *coefficient; // per column, of the row under construction
} Columns;

// Adds all binary columns.
static void add_columns(Columns *c) {
  for (int j = 0; j < c->r->n; j++) {
    const Work *w = c->r->work[j];
    c->base[j] = w->n_after ? c->r->first[j] + w->after[0].work : -1;
    // Enough bits for a delay by the number of periods that start during its base; weight
    // gradients, which delay no other work, up to three periods.
    int bits = c->base[j] < 0 ? 0 : w->kind == WORK_W ? 2 : 1;
    if (bits == 1) {
      double time = (c->r->work[c->base[j]]->time + w->after[0].latency) / c->r->period;
      while (bits < MOST_BITS && (1 << bits) <= time)
        bits++;
    }
    c->n_bits[j] = bits;
    c->bits[j] = c->program.costs.n;
    for (int i = 0; i < c->n_bits[j]; i++)
      program_column(&c->program, 0, NULL);
  }
  // One y for each two works of a device.
  for (int a = 0; a < c->r->n; a++)
    for (int b = 0; b < c->r->n; b++)
      c->before[a * c->r->n + b] = a < b && work_shares_device(c->r->work[a], c->r->work[b])
                                       ? program_column(&c->program, 0, NULL)
                                       : -1;
}

// Adds factor * k_j to the row under construction.
static void add_k(Columns *c, int j, double factor) {
  for (; j >= 0; j = c->base[j])
    for (int i = 0; i < c->n_bits[j]; i++)
      c->coefficient[c->bits[j] + i] += factor * (1 << i);
}

// Adds factor * (a is before b in the period); returns its constant part.
static double add_before(Columns *c, int a, int b, double factor) {
  if (a == b) return 0;
  bool turned = a > b;
  c->coefficient[c->before[turned ? b * c->r->n + a : a * c->r->n + b]] +=
      turned ? -factor : factor;
  return turned ? factor : 0;
}

static void end_row(Columns *c, double lo, double hi) {
  program_row(&c->program, NULL, lo, hi);
  for (int k = 0; k < c->program.costs.n; k++) {
    if (c->coefficient[k] != 0) program_entry(&c->program, k, c->coefficient[k]);
    c->coefficient[k] = 0;
  }
}

// Work j starts at least `time` after work i of the micro-batch `shift` before its own.
static void add_wait(Columns *c, int i, int j, int shift, double time) {
  add_k(c, j, 1);
  add_k(c, i, -1);
  c->coefficient[c->place[j]] += 1;
  c->coefficient[c->place[i]] -= 1;
  end_row(c, time / c->r->period - shift, INFINITY);
}

// One of two works on a device comes first in the period.
static void add_devices(Columns *c) {
  for (int a = 0; a < c->r->n; a++)
    for (int b = a + 1; b < c->r->n; b++) {
      int y = c->before[a * c->r->n + b];
      if (y < 0) continue;
      // o_b - o_a >= t_a - (1 - y), then o_a - o_b >= t_b - y.
      c->coefficient[c->place[b]] = 1;
      c->coefficient[c->place[a]] = -1;
      c->coefficient[y] = -1;
      end_row(c, c->r->work[a]->time / c->r->period - 1, INFINITY);
      c->coefficient[c->place[a]] = 1;
      c->coefficient[c->place[b]] = -1;
      c->coefficient[y] = 1;
      end_row(c, c->r->work[b]->time / c->r->period, INFINITY);
    }
}

// Adds the memory in use at the start of each taker.
static void add_memory(Columns *c) {
  if (c->r->room == INFINITY) return;
  for (int a = 0; a < c->r->n; a++) {
    if (c->r->work[a]->takes <= 0) continue;
    // Of each taker b, the micro-batches that have started it, less those whose memory is freed.
    double constant = 0;
    for (int b = 0; b < c->r->n; b++) {
      double takes = c->r->work[b]->takes;
      if (takes <= 0 || !work_shares_device(c->r->work[a], c->r->work[b])) continue;
      int w = c->r->giver[b];
      add_k(c, w, takes);
      add_k(c, b, -takes);
      constant += add_before(c, a, w, takes) + add_before(c, a, b, -takes);
    }
    end_row(c, -INFINITY, c->r->room - constant + 1e-6);
  }
}

typedef struct Habit {
  int first, then, shift; // works, and the distance of their micro-batches
} Habit;

static int by_habit(const void *x, const void *y) {
  const Habit *a = x, *b = y;
  if (a->first != b->first) return a->first - b->first;
  if (a->then != b->then) return a->then - b->then;
  return a->shift - b->shift;
}

// Adds orders between the same works at the same distance that hold for most rounds.
static void add_orders(Columns *c, const Orders *o) {
  if (!o->n) return;
  Habit *habit = arena_array(c->r->arena, Habit, o->n);
  for (int i = 0; i < o->n; i++) {
    int first = o->at[i].first, then = o->at[i].then;
    const int *m = c->r->b->micro_batch;
    habit[i] = (Habit){round_work(c->r, first), round_work(c->r, then),
                       c->r->turn[m[then]] - c->r->turn[m[first]]};
  }
  // Equal ones are neighbours then.
  qsort(habit, (size_t)o->n, sizeof *habit, by_habit);
  for (int i = 0, n; i < o->n; i += n) {
    n = 1;
    while (i + n < o->n && !by_habit(&habit[i], &habit[i + n]))
      n++;
    if (2 * n > c->r->n_rounds)
      add_wait(c, habit[i].first, habit[i].then, habit[i].shift, c->r->work[habit[i].first]->time);
  }
}

double *repeat_by_cbc(const Round *r, const Orders *o) {
  Arena *arena = r->arena;
  Columns c = {.r = r, .program = {.arena = arena}};
  c.base = arena_array(arena, int, r->n);
  c.bits = arena_array(arena, int, r->n);
  c.n_bits = arena_array(arena, int, r->n);
  c.place = arena_array(arena, int, r->n);
  c.before = arena_array(arena, int, (size_t)r->n *(size_t)r->n);
  add_columns(&c);
  int n_binary = c.program.costs.n;
  for (int j = 0; j < r->n; j++)
    c.place[j] = program_column(&c.program, 0, NULL);
  c.coefficient = arena_array(arena, double, c.program.costs.n);
  // The objective: the start of a route's last B, plus a little for every other work.
  for (int j = 0; j < r->n; j++) {
    double weight = r->work[j]->kind == WORK_B && r->work[j]->stage == 0 ? 1 : 0.01;
    c.program.costs.at[c.place[j]] += weight;
    for (int i = j; i >= 0; i = c.base[i])
      for (int k = 0; k < c.n_bits[i]; k++)
        c.program.costs.at[c.bits[i] + k] += weight * (1 << k);
  }
  c.coefficient[c.place[0]] = 1; // fixes the phase: work 0 starts the period
  end_row(&c, 0, 0);
  // Waits: dependencies within a micro-batch.
  for (int j = 0; j < r->n; j++)
    for (int i = 0; i < r->work[j]->n_after; i++) {
      const WorkAfter *after = &r->work[j]->after[i];
      int from = r->first[j] + after->work;
      add_wait(&c, from, j, 0, r->work[from]->time + after->latency);
    }
  add_devices(&c);
  add_memory(&c);
  add_orders(&c, o);
  const ZeroOne *p = program_end(&c.program, n_binary, 0, "k: later periods; y: first; o: places");
  double *value = arena_array(r->arena, double, p->n_columns);
  double *at = arena_array(r->arena, double, r->n);
  ZeroOneAsk ask = {
      .cutoff = INFINITY, .end = clock_seconds() + MOST_SECONDS, .most_nodes = MOST_NODES};
  if (!zero_one_ask(p, &ask, value).has) return NULL;
  // Times from the columns, in seconds: k is rounded, as CBC's numbers are not exact.
  for (int j = 0; j < r->n; j++) {
    at[j] = value[c.place[j]];
    for (int i = j; i >= 0; i = c.base[i])
      for (int k = 0; k < c.n_bits[i]; k++)
        at[j] += round(value[c.bits[i] + k]) * (1 << k);
    at[j] *= r->period;
  }
  return at;
}
