// Beam search in order of time: expands all partial schedules ("beginnings"), block by block, and
// keeps the best successors.
//
//     F0           the first device may run F1 or, once it is ready, B0: two beginnings, each with
//     ├─ F0 F1     a lower bound of the makespan.  One is dropped if another has run the same
//     └─ F0 B0     blocks, is nowhere later, and may continue with all that this one may.
//
// Successors follow Giffler and Thompson: among all blocks that can start, take the one that would
// end first; the next block on its device is that one, or one that can start before that end.  All
// other choices waste time, except for memory: a forward that takes some may be better delayed
// until the device has run another block; that is a further successor.
//
// Micro-batches of a route are interchangeable.  So each work may run for them in order: at the
// n-th run of a work, for whichever micro-batch, each of its predecessors has run at least n times.
// The state is then a count per work.  Orders that require another sequence are not for this
// search; under orders that leave it open, it may miss a shorter schedule.
//
// If all dropped beginnings had bounds no better than the best makespan, the result is optimal.
// The beam width follows from the limit of work.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "schedule/schedule.h"

enum {
  WORDS = 8,
  MOST_WORKS = 64 * WORDS,
  MOST_WIDTH = 1 << 14,
  MOST_SAME = 8, // comparisons per hash: near-equal times rarely dominate
  TABLE = 1 << 16,
};

typedef struct Beginning {
  int *count;             // per work: number of runs
  double *free;           // per device: end of its last block
  double *used;           // memory per device
  double *load;           // per device: remaining work
  double *end;            // per finished block
  uint64_t barred[WORDS]; // works delayed until their device has run another block
  uint64_t hash;          // of the counts
  double bound, waste;    // lower bound of the makespan; idle time of all devices
  int step;               // the last block, as a Step
  int same;               // the previous one with a hash in the same slot, or -1
} Beginning;

typedef struct Step {
  int block, before; // `before`: the previous Step, or -1
} Step;

typedef struct Successor {
  int from, block; // a Beginning, and its next block
  double start, bound, waste;
  uint64_t barred[WORDS];
} Successor;

typedef struct Beam {
  const Blocks *b;
  Arena *arena;
  int n, n_devices; // works, of all routes
  const Work **work;
  int *route_at;                // per route: its first work
  int *total;                   // per work: total number of runs
  int **block_of;               // [work][n]: the block of its n-th run
  int *work_of;                 // per block
  int *wait_at, *wait;          // per block: first blocks of its orders
  int *device_at, *device_work; // works of each device
  double *tail;                 // per work: least time after its end
  uint64_t *random;             // per work, for the hash
  double room, best;
  Vec(Step) steps;
  Beginning *now, *next;
  int n_now, n_next, width, *slot; // slot: by hash, the last in `next`
  Vec(Successor) successors;
  bool dropped, bars; // a possibly better beginning was dropped; bars are used
} Beam;

// -- Works, devices, dependencies --------------------------------------------------------------

static void list_works(Beam *x) {
  const Pipeline *p = x->b->pipeline;
  int *count = arena_array(x->arena, int, p->n_routes);
  x->route_at = arena_array(x->arena, int, p->n_routes);
  for (int r = 0; r < p->n_routes; r++) {
    x->route_at[r] = x->n;
    x->n += p->route[r].n;
  }
  x->work = arena_array(x->arena, const Work *, x->n);
  x->total = arena_array(x->arena, int, x->n);
  x->block_of = arena_array(x->arena, int *, x->n);
  x->work_of = arena_array(x->arena, int, x->b->n);
  for (int m = 0; m < p->n_micro_batches; m++)
    count[p->route_of[m]]++;
  for (int r = 0; r < p->n_routes; r++)
    for (int i = 0; i < p->route[r].n; i++) {
      x->work[x->route_at[r] + i] = &p->route[r].work[i];
      x->block_of[x->route_at[r] + i] = arena_array(x->arena, int, count[r]);
    }
  // Blocks are in order of micro-batches, so the n-th run of a work is for the n-th one of its
  // route.
  for (int k = 0; k < x->b->n; k++) {
    int m = x->b->micro_batch[k], j = x->route_at[p->route_of[m]] + k - x->b->first[m];
    x->work_of[k] = j;
    x->block_of[j][x->total[j]++] = k;
  }
}

static bool is_barred(const uint64_t *barred, int j) {
  return barred[j / 64] >> (j % 64) & 1;
}

// -- Successors --------------------------------------------------------------------------------

typedef struct Ready {
  int work, block;
  double start, end;
} Ready;

// Whether the work can run next, and its times.
static bool is_ready(const Beam *x, const Beginning *s, const uint64_t *barred, int j, Ready *out) {
  const Work *w = x->work[j];
  if (s->count[j] == x->total[j] || is_barred(barred, j)) return false;
  int k = x->block_of[j][s->count[j]];
  double start = 0, slack = x->room < INFINITY ? 1e-9 * (1 + x->room) : 0;
  // Data dependencies, then orders, then devices and their memory.
  for (int i = x->b->after_at[k]; i < x->b->after_at[k + 1]; i++) {
    int from = x->b->after[i];
    if (s->count[x->work_of[from]] <= s->count[j]) return false;
    start = fmax(start, s->end[from] + x->b->latency[i]);
  }
  for (int i = x->wait_at[k]; i < x->wait_at[k + 1]; i++) {
    int from = x->work_of[x->wait[i]];
    if (!s->count[from] || x->block_of[from][s->count[from] - 1] < x->wait[i]) return false;
  }
  for (int i = 0; i < w->n_devices; i++) {
    start = fmax(start, s->free[w->device[i]]);
    if (w->takes > 0 && s->used[w->device[i]] + w->takes > x->room + slack) return false;
  }
  *out = (Ready){j, k, start, start + w->time};
  return true;
}

// Adds a successor, unless its bound is no better than the best makespan.
static void add_way(Beam *x, int from, const Ready *r, const uint64_t *barred) {
  const Beginning *s = &x->now[from];
  const Work *w = x->work[r->work];
  Successor then = {.from = from, .block = r->block, .start = r->start, .waste = s->waste};
  then.bound = fmax(s->bound, r->end + (x->total[r->work] - s->count[r->work] - 1) * w->time +
                                  x->tail[r->work]);
  for (int i = 0; i < w->n_devices; i++) {
    int d = w->device[i];
    then.waste += r->start - s->free[d];
    // A lower bound from the device: the time when it is free, plus its remaining work, plus the
    // least time after the last of that.
    double tail = INFINITY;
    for (int k = x->device_at[d]; k < x->device_at[d + 1]; k++) {
      int j = x->device_work[k];
      if (s->count[j] + (j == r->work) < x->total[j] && x->tail[j] < tail) tail = x->tail[j];
    }
    double load = s->load[d] - w->time;
    then.bound = fmax(then.bound, r->end + load + (tail < INFINITY ? tail : 0));
  }
  if (then.bound >= x->best) return;
  // Its devices have run another block now.
  memcpy(then.barred, barred, sizeof then.barred);
  for (int j = 0; x->bars && j < x->n; j++)
    if (is_barred(barred, j) && work_shares_device(w, x->work[j]))
      then.barred[j / 64] &= ~(UINT64_C(1) << (j % 64));
  vec_push(x->arena, &x->successors, then);
}

// Lists the successors of one beginning: a round for each block that would end first, and further
// rounds with the blocks of the last one barred, as long as the first takes memory.
static void list_ways(Beam *x, int from, Ready *ready) {
  const Beginning *s = &x->now[from];
  uint64_t barred[WORDS];
  memcpy(barred, s->barred, sizeof barred);
  for (;;) {
    int n = 0, first = -1;
    for (int j = 0; j < x->n; j++) {
      if (!is_ready(x, s, barred, j, &ready[n])) continue;
      if (first < 0 || ready[n].end < ready[first].end) first = n;
      n++;
    }
    if (first < 0) return;
    const Work *w = x->work[ready[first].work];
    // Giffler and Thompson's conflict set: blocks on its device that can start before its end.
    for (int i = 0; i < n; i++)
      if (i == first ||
          (ready[i].start < ready[first].end && work_shares_device(x->work[ready[i].work], w)))
        add_way(x, from, &ready[i], barred);
    if (!x->bars || w->takes <= 0) return;
    for (int i = 0; i < n; i++)
      if (i == first ||
          (ready[i].start < ready[first].end && work_shares_device(x->work[ready[i].work], w)))
        barred[ready[i].work / 64] |= UINT64_C(1) << (ready[i].work % 64);
  }
}

// -- Selection ---------------------------------------------------------------------------------

// For equal counts: whether `s` is nowhere later than `t`, and may continue with all that `t` may.
static bool dominates(const Beam *x, const Beginning *s, const Beginning *t) {
  for (int d = 0; d < x->n_devices; d++)
    if (s->free[d] > t->free[d]) return false;
  for (int i = 0; i < WORDS; i++)
    if (s->barred[i] & ~t->barred[i]) return false;
  if (memcmp(s->count, t->count, (size_t)x->n * sizeof *s->count) != 0) return false;
  // The ends of blocks that have run, and whose successors have not.
  const Pipeline *p = x->b->pipeline;
  for (int r = 0; r < p->n_routes; r++)
    for (int i = 0; i < p->route[r].n; i++) {
      int j = x->route_at[r] + i;
      for (int k = 0; k < p->route[r].work[i].n_after; k++) {
        int from = x->route_at[r] + p->route[r].work[i].after[k].work;
        for (int m = s->count[j]; m < s->count[from]; m++)
          if (s->end[x->block_of[from][m]] > t->end[x->block_of[from][m]]) return false;
      }
    }
  return true;
}

static int by_bound(const void *x, const void *y) {
  const Successor *v = x, *w = y;
  if (v->bound != w->bound) return v->bound < w->bound ? -1 : 1;
  if (v->waste != w->waste) return v->waste < w->waste ? -1 : 1;
  if (v->from != w->from) return v->from - w->from;
  return v->block - w->block;
}

// Makes the best successors the present beginnings, without those that another one dominates.
static void keep_best(Beam *x) {
  if (x->successors.n)
    qsort(x->successors.at, (size_t)x->successors.n, sizeof *x->successors.at, by_bound);
  for (int i = 0; i < TABLE; i++)
    x->slot[i] = -1;
  x->n_next = 0;
  int i = 0;
  for (; i < x->successors.n && x->n_next < x->width; i++) {
    const Successor *then = &x->successors.at[i];
    const Beginning *from = &x->now[then->from];
    Beginning *s = &x->next[x->n_next];
    int j = x->work_of[then->block];
    const Work *w = x->work[j];
    // Copy the beginning, then run the block.
    size_t devices = (size_t)x->n_devices * sizeof(double);
    memcpy(s->count, from->count, (size_t)x->n * sizeof *s->count);
    memcpy(s->free, from->free, devices);
    memcpy(s->used, from->used, devices);
    memcpy(s->load, from->load, devices);
    memcpy(s->end, from->end, (size_t)x->b->n * sizeof *s->end);
    memcpy(s->barred, then->barred, sizeof s->barred);
    s->count[j]++;
    s->end[then->block] = then->start + w->time;
    for (int k = 0; k < w->n_devices; k++) {
      s->free[w->device[k]] = s->end[then->block];
      s->used[w->device[k]] += w->takes - w->frees;
      s->load[w->device[k]] -= w->time;
    }
    s->hash = from->hash + x->random[j];
    s->bound = then->bound;
    s->waste = then->waste;
    // Equal counts have equal hashes.
    int *slot = &x->slot[s->hash % TABLE];
    bool dominated = false;
    for (int k = *slot, n = 0; k >= 0 && n < MOST_SAME && !dominated; k = x->next[k].same, n++)
      dominated = x->next[k].hash == s->hash && dominates(x, &x->next[k], s);
    if (dominated) continue;
    s->same = *slot;
    *slot = x->n_next++;
    Step step = {then->block, from->step};
    s->step = x->steps.n;
    vec_push(x->arena, &x->steps, step);
  }
  x->dropped |= i < x->successors.n;
  x->successors.n = 0;
  Beginning *t = x->now;
  x->now = x->next;
  x->next = t;
  x->n_now = x->n_next;
}

// -- The search --------------------------------------------------------------------------------

static Beginning *new_beginnings(const Beam *x) {
  Beginning *s = arena_array(x->arena, Beginning, x->width);
  for (int i = 0; i < x->width; i++) {
    s[i].count = arena_array(x->arena, int, x->n);
    s[i].free = arena_array(x->arena, double, x->n_devices);
    s[i].used = arena_array(x->arena, double, x->n_devices);
    s[i].load = arena_array(x->arena, double, x->n_devices);
    s[i].end = arena_array(x->arena, double, x->b->n);
  }
  return s;
}

static void set_up(Beam *x, const Orders *o, int64_t work) {
  // The works of each device.
  x->device_at = arena_array(x->arena, int, x->n_devices + 2);
  for (int j = 0; j < x->n; j++)
    for (int i = 0; i < x->work[j]->n_devices; i++)
      x->device_at[x->work[j]->device[i] + 2]++;
  for (int d = 0; d < x->n_devices; d++)
    x->device_at[d + 2] += x->device_at[d + 1];
  x->device_work = arena_array(x->arena, int, x->device_at[x->n_devices + 1]);
  for (int j = 0; j < x->n; j++)
    for (int i = 0; i < x->work[j]->n_devices; i++)
      x->device_work[x->device_at[x->work[j]->device[i] + 1]++] = j;
  // The least time after the end of each work: successors come first, in reverse order.
  const Pipeline *p = x->b->pipeline;
  x->tail = arena_array(x->arena, double, x->n);
  for (int r = 0; r < p->n_routes; r++)
    for (int i = p->route[r].n - 1; i >= 0; i--)
      for (int k = 0; k < p->route[r].work[i].n_after; k++) {
        const WorkAfter *after = &p->route[r].work[i].after[k];
        double *tail = &x->tail[x->route_at[r] + after->work];
        *tail =
            fmax(*tail, x->tail[x->route_at[r] + i] + p->route[r].work[i].time + after->latency);
      }
  // The first blocks of the orders of each block.
  x->wait_at = arena_array(x->arena, int, x->b->n + 2);
  x->wait = arena_array(x->arena, int, o->n);
  for (int i = 0; i < o->n; i++)
    x->wait_at[o->at[i].then + 2]++;
  for (int k = 0; k < x->b->n; k++)
    x->wait_at[k + 2] += x->wait_at[k + 1];
  for (int i = 0; i < o->n; i++)
    x->wait[x->wait_at[o->at[i].then + 1]++] = o->at[i].first;
  // Splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
  uint64_t state = 1;
  x->random = arena_array(x->arena, uint64_t, x->n);
  for (int j = 0; j < x->n; j++) {
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    x->random[j] = z ^ (z >> 31);
  }
  // The cost of a beginning: a check of each work, and a copy.
  double cost = (double)x->b->n * (4.0 * x->n + x->b->n / 4.0);
  x->width = (int)fmax(1, fmin(MOST_WIDTH, (double)work / cost));
  x->bars = x->room < INFINITY && x->n <= MOST_WORKS; // only if memory may bind
  // One beginning, without blocks: each device has all its work to do.
  x->slot = arena_array(x->arena, int, TABLE);
  x->now = new_beginnings(x);
  x->next = new_beginnings(x);
  x->n_now = 1;
  x->now->step = -1;
  for (int j = 0; j < x->n; j++)
    for (int i = 0; i < x->work[j]->n_devices; i++)
      x->now->load[x->work[j]->device[i]] += x->total[j] * x->work[j]->time;
}

SearchResult schedule_beam(Arena *a, const Blocks *b, const Orders *o, double room, double cutoff,
                           SearchLimit limit) {
  Beam x = {.b = b, .arena = arena_new(), .n_devices = b->pipeline->n_devices, .room = room};
  SearchResult result = {0};
  // An improvement must exceed rounding.
  x.best = cutoff * (1 - 1e-9);
  list_works(&x);
  // Do the orders allow each work to run in order of micro-batches?
  Orders all = {.at = arena_array(x.arena, Order, o->n + b->n)};
  for (int i = 0; i < o->n; i++)
    all.at[all.n++] = o->at[i];
  for (int j = 0; j < x.n; j++)
    for (int i = 0; i + 1 < x.total[j]; i++)
      all.at[all.n++] = (Order){x.block_of[j][i], x.block_of[j][i + 1], NULL};
  if (orders_agree(b, &all)) {
    set_up(&x, o, limit.work);
    Ready *ready = arena_array(x.arena, Ready, x.n);
    bool late = false;
    for (int k = 0; k < b->n && x.n_now; k++) {
      // Beginnings without the rest are no schedule.
      late = clock_seconds() > limit.end;
      if (late) break;
      for (int i = 0; i < x.n_now; i++)
        list_ways(&x, i, ready);
      keep_best(&x);
    }
    result.has = x.n_now > 0 && !late;
    if (result.has) {
      // The order of each device: the blocks of the complete schedule, from the last one back.
      Timeline *t = &result.best;
      int *sequence = arena_array(x.arena, int, b->n),
          *fill = arena_array(x.arena, int, x.n_devices);
      for (int i = x.now[0].step, k = b->n; i >= 0; i = x.steps.at[i].before)
        sequence[--k] = x.steps.at[i].block;
      t->at = arena_array(a, int, x.n_devices + 1);
      for (int i = 0; i < b->n; i++)
        for (int j = 0; j < b->work[i]->n_devices; j++)
          t->at[b->work[i]->device[j] + 1]++;
      for (int d = 0; d < x.n_devices; d++)
        t->at[d + 1] += t->at[d];
      t->block = arena_array(a, int, t->at[x.n_devices]);
      for (int i = 0; i < b->n; i++) {
        const Work *w = b->work[sequence[i]];
        for (int j = 0; j < w->n_devices; j++)
          t->block[t->at[w->device[j]] + fill[w->device[j]]++] = sequence[i];
      }
    }
    // Optimal, if the orders require that order or there are none, so that no shorter schedule is
    // missed; and if bars are exact: works that take memory have one device each.
    bool exact = !late && !x.dropped && (x.bars || room == INFINITY);
    bool *followed = arena_array(x.arena, bool, b->n);
    for (int i = 0; i < o->n; i++)
      if (x.work_of[o->at[i].first] == x.work_of[o->at[i].then]) followed[o->at[i].first] = true;
    for (int j = 0; j < x.n; j++) {
      for (int i = 0; o->n && i + 1 < x.total[j]; i++)
        exact &= followed[x.block_of[j][i]];
      if (x.bars && x.work[j]->takes > 0) exact &= x.work[j]->n_devices <= 1;
    }
    result.optimal = exact;
  }
  arena_free(x.arena);
  if (result.has && !schedule_run(a, b, &result.best)) BUG("a cycle of works");
  return result;
}
