// Timelines of unequal stages: see staged.h.
//
// With one stage per device every lane of a device, its forwards, backwards or weight gradients,
// runs in order of micro-batches.  So a state is three counts per device, and a block can start if
// the counts allow it:
//
//     1f1b, stage i       B(k) after F(k + p-1-i), which exists or all forwards have run
//                         F(k) after B(k - (p-1-i) - 1)
//     zb-h1               and F(k) after W(k - p)
//
// Among the blocks that can start first the rule chooses, as in list.c, from which zb-v has its
// timeline: two stages per device, and a memory limit.  The order of interleaved is complete, so
// each device runs its own list.

#include "schedule/staged.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/vec.h"

enum { LANES = 3 }; // F, B, W

const char *const staged_name[N_STAGED_KINDS] = {"gpipe", "1f1b",  "interleaved",
                                                 "zb-h1", "zb-h2", "zb-v"};

// -- Kinds -------------------------------------------------------------------------------------

int staged_stages(StagedKind kind, int n_devices, int chunks) {
  if (kind == STAGED_zb_v) return 2 * n_devices - 1;
  return kind == STAGED_interleaved ? n_devices * chunks : n_devices;
}

int staged_device(StagedKind kind, int n_devices, int stage) {
  if (kind == STAGED_zb_v) return stage < n_devices ? stage : 2 * n_devices - 2 - stage;
  return stage % n_devices;
}

bool staged_splits(StagedKind kind) {
  return kind == STAGED_zb_h1 || kind == STAGED_zb_h2 || kind == STAGED_zb_v;
}

int staged_ahead(StagedKind kind, int n_devices, int chunks, int device) {
  int after = n_devices - 1 - device;
  switch (kind) {
  case STAGED_gpipe: return INT_MAX;
  case STAGED_1f1b:
  case STAGED_zb_h1: return after + 1;
  case STAGED_interleaved: return chunks > 1 ? 2 * after + (chunks - 1) * n_devices + 1 : after + 1;
  case STAGED_zb_h2: return 2 * after + 1;
  case STAGED_zb_v: return 2 * n_devices;
  case N_STAGED_KINDS: break;
  }
  BUG("no kind of staged pipelines");
}

// The micro-batches after which a weight gradient is due, of a kind that splits them: before the
// forward of so many micro-batches later.
static int weights_due(const Staged *s) {
  return s->kind == STAGED_zb_h2 ? 2 * s->n_devices - 1 : s->n_devices;
}

int staged_held(StagedKind kind, int n_devices, int n_micro_batches, int stage) {
  int held = staged_ahead(kind, n_devices, 1, stage);
  // Weight gradients free the activations, and they are as late as the orders allow.
  if (kind == STAGED_zb_h1 || kind == STAGED_zb_v) held = n_devices;
  if (kind == STAGED_zb_h2) held = 2 * n_devices - 1;
  return held < n_micro_batches ? held : n_micro_batches;
}

double staged_room(const Staged *s) {
  return s->kind == STAGED_zb_v ? s->n_devices : INFINITY;
}

// Stages with the least time that the pass gives a segment: a block of no time would end together
// with its predecessors.
static StagedStage *timed_stages(Arena *a, const Staged *s) {
  int n = staged_stages(s->kind, s->n_devices, s->chunks);
  StagedStage *stage = arena_copy(a, s->stage, (size_t)n * sizeof *stage);
  double least = 0;
  for (int i = 0; i < n; i++)
    least = fmax(least, 1e-6 * fmax(stage[i].f, stage[i].b + stage[i].w));
  if (least <= 0) least = 1;
  for (int i = 0; i < n; i++) {
    StagedStage *x = &stage[i];
    if (!staged_splits(s->kind)) *x = (StagedStage){x->f, x->b + x->w, 0, x->hop, x->kept};
    x->f = fmax(x->f, least);
    x->b = fmax(x->b, least);
    x->w = fmax(x->w, least);
  }
  return stage;
}

// A timeline with place for the blocks of all devices; `at` has the next place of each.
static StagedTimeline timeline_new(Arena *a, const Staged *s) {
  int p = s->n_devices, n = staged_stages(s->kind, p, s->chunks);
  int each = s->n_micro_batches * (staged_splits(s->kind) ? 3 : 2);
  StagedTimeline t = {.peak = arena_array(a, double, p), .at = arena_array(a, int, p + 2)};
  t.block = arena_array(a, StagedBlock, (int64_t)n * each);
  for (int i = 0; i < n; i++)
    t.at[staged_device(s->kind, p, i) + 2] += each;
  for (int d = 0; d < p; d++)
    t.at[d + 2] += t.at[d + 1];
  t.at++;
  return t;
}

static void add_block(StagedTimeline *t, int device, StagedBlock block) {
  t->block[t->at[device]++] = block;
}

// With all blocks of all devices.
static void end_timeline(StagedTimeline *t) {
  t->at--;
}

// -- One stage per device ----------------------------------------------------------------------

typedef struct Offer {
  double start;
  int rank, micro_batch; // rank INT_MAX: nothing can start yet
  WorkKind kind;
} Offer;

typedef struct Lanes {
  const Staged *s;
  const StagedStage *stage;
  const int *rank; // of the rule, by kind of work
  bool split;
  int *done;       // [device][LANES] blocks that have begun
  double *free;    // per device: the end of its last block
  double *left;    // seconds of the blocks that have not begun
  double *sent[2]; // [device][micro-batch]: arrival of its F at the next stage, of its B before
  double *held;    // per device, and the most
  StagedTimeline *out;
  Offer *offer;   // per device: the block that it would start next
  int *heap, *at; // devices by their offers; position of each
} Lanes;

static bool offer_less(const Offer *x, const Offer *y) {
  if (x->start != y->start) return x->start < y->start;
  if (x->rank != y->rank) return x->rank < y->rank;
  return x->micro_batch < y->micro_batch;
}

static void consider(const Lanes *l, Offer *best, int device, WorkKind kind, double ready) {
  int k = l->done[device * LANES + (int)kind];
  Offer x = {fmax(ready, l->free[device]), l->rank[kind], k, kind};
  if (offer_less(&x, best)) *best = x;
}

// The micro-batches between a forward and the backward that follows it, by the kind's orders.
static int forwards_between(const Lanes *l, int device) {
  const Staged *s = l->s;
  if (s->kind == STAGED_gpipe) return s->n_micro_batches - 1;
  return staged_ahead(s->kind, s->n_devices, 1, device) - 1;
}

static Offer find_offer(const Lanes *l, int i) {
  const Staged *s = l->s;
  int p = s->n_devices, m = s->n_micro_batches, between = forwards_between(l, i);
  const int *done = &l->done[i * LANES];
  int f = done[WORK_F], b = done[WORK_B], w = done[WORK_W];
  Offer best = {INFINITY, INT_MAX, INT_MAX, WORK_F};
  bool may = f < m && f <= b + between && (!l->split || f < w + weights_due(s));
  if (s->kind == STAGED_gpipe) may = f < m;
  if (may && (!i || done[WORK_F - LANES] > f))
    consider(l, &best, i, WORK_F, i ? l->sent[0][(int64_t)(i - 1) * m + f] : 0);
  may = b < f && (b + between >= m || f > b + between);
  if (s->kind == STAGED_gpipe) may = b < m && f == m;
  if (may && (i == p - 1 || done[WORK_B + LANES] > b))
    consider(l, &best, i, WORK_B, i < p - 1 ? l->sent[1][(int64_t)(i + 1) * m + b] : 0);
  if (l->split && w < b) consider(l, &best, i, WORK_W, 0);
  return best;
}

static void put(Lanes *l, int position, int device) {
  l->heap[position] = device;
  l->at[device] = position;
}

// Finds the offer of a device again, after blocks of it or of its neighbours.
static void renew(Lanes *l, int device) {
  l->offer[device] = find_offer(l, device);
  const Offer *own = &l->offer[device];
  int k = l->at[device], n = l->s->n_devices;
  for (; k > 0 && offer_less(own, &l->offer[l->heap[(k - 1) / 2]]); k = (k - 1) / 2)
    put(l, k, l->heap[(k - 1) / 2]);
  for (int next; (next = 2 * k + 1) < n; k = next) {
    if (next + 1 < n && offer_less(&l->offer[l->heap[next + 1]], &l->offer[l->heap[next]])) next++;
    if (!offer_less(&l->offer[l->heap[next]], own)) break;
    put(l, k, l->heap[next]);
  }
  put(l, k, device);
}

// Returns when the device can end at the earliest.
static double begin(Lanes *l, int device) {
  const StagedStage *stage = &l->stage[device];
  const Offer o = l->offer[device];
  int m = l->s->n_micro_batches, neighbour = -1;
  int64_t at = (int64_t)device * m + o.micro_batch;
  l->done[device * LANES + (int)o.kind]++;
  l->left[device] -= o.kind == WORK_F ? stage->f : o.kind == WORK_B ? stage->b : stage->w;
  switch (o.kind) {
  case WORK_F:
    l->free[device] = o.start + stage->f;
    l->sent[0][at] = l->free[device] + stage->hop;
    l->held[device] += stage->kept;
    l->out->peak[device] = fmax(l->out->peak[device], l->held[device]);
    neighbour = device + 1;
    break;
  case WORK_B:
    l->free[device] = o.start + stage->b;
    l->sent[1][at] = l->free[device] + (device ? stage[-1].hop : 0);
    neighbour = device - 1;
    break;
  case WORK_W: l->free[device] = o.start + stage->w; break;
  case WORK_E:
  case N_WORK_KINDS: BUG("no work of a stage");
  }
  if (o.kind == (l->split ? WORK_W : WORK_B)) l->held[device] -= stage->kept;
  add_block(l->out, device, (StagedBlock){o.kind, device, o.micro_batch, l->free[device]});
  renew(l, device);
  if (neighbour >= 0 && neighbour < l->s->n_devices) renew(l, neighbour);
  return l->free[device] + l->left[device];
}

// False: it ends no earlier than the cutoff.
static bool run_lanes(Arena *a, const Staged *s, const StagedStage *stage, const ListRule *rule,
                      double cutoff, StagedTimeline *out) {
  int p = s->n_devices;
  int64_t n = (int64_t)p * s->n_micro_batches;
  Lanes l = {.s = s, .stage = stage, .rank = rule->rank, .split = staged_splits(s->kind)};
  l.done = arena_array(a, int, p *LANES);
  l.free = arena_array(a, double, p);
  l.left = arena_array(a, double, p);
  l.held = arena_array(a, double, p);
  *out = timeline_new(a, s);
  l.out = out;
  l.sent[0] = arena_array(a, double, n);
  l.sent[1] = arena_array(a, double, n);
  l.offer = arena_array(a, Offer, p);
  l.heap = arena_array(a, int, p);
  l.at = arena_array(a, int, p);
  for (int i = 0; i < p; i++) {
    l.offer[i] = (Offer){INFINITY, INT_MAX, INT_MAX, WORK_F};
    put(&l, i, i);
    l.left[i] = s->n_micro_batches * (stage[i].f + stage[i].b + (l.split ? stage[i].w : 0));
  }
  // Sums of seconds differ by their rounding.
  cutoff *= 1 + 1e-12;
  for (int i = 0; i < p; i++)
    renew(&l, i);
  while (l.offer[l.heap[0]].rank != INT_MAX)
    if (begin(&l, l.heap[0]) > cutoff) return false;
  end_timeline(out);
  for (int i = 0; i < p; i++) {
    assert(l.done[i * LANES + (int)WORK_B] == s->n_micro_batches);
    out->makespan = fmax(out->makespan, l.free[i]);
  }
  return true;
}

// -- Interleaved -------------------------------------------------------------------------------

typedef struct Turns {
  int at; // position in the device's list, of slots: two for each k, a forward and a backward
  double free, held;
} Turns;

// The block of a slot of a device, in the order of kinds/interleaved.lua: false if it has none.
static bool slot_block(const Staged *s, int device, int slot, bool *back, int *stage,
                       int *micro_batch) {
  int p = s->n_devices, v = s->chunks;
  int n = (s->n_micro_batches + p - 1) / p * p * v;
  int ahead = staged_ahead(s->kind, p, v, device) - 1;
  *back = slot % 2;
  int i = slot / 2 - (*back ? ahead : 0);
  if (i < 0 || i >= n) return false;
  int chunk = i % (p * v) / p;
  if (*back) chunk = v - 1 - chunk;
  *stage = chunk * p + device;
  *micro_batch = i / (p * v) * p + i % p;
  return *micro_batch < s->n_micro_batches;
}

// The slots of a device: a forward and a backward each time.
static int slots_of(const Staged *s, int device) {
  int p = s->n_devices, n = (s->n_micro_batches + p - 1) / p * p * s->chunks;
  return 2 * (n + staged_ahead(s->kind, p, s->chunks, device) - 1);
}

static void run_interleaved(Arena *a, const Staged *s, const StagedStage *stage,
                            StagedTimeline *out) {
  int p = s->n_devices, v = s->chunks, m = s->n_micro_batches, last = p * v - 1;
  // Arrival of each block's result at its reader; negative: it has not run.
  double *sent[2] = {arena_array(a, double, (int64_t)(last + 1) * m),
                     arena_array(a, double, (int64_t)(last + 1) * m)};
  for (int64_t i = 0; i < (int64_t)(last + 1) * m; i++)
    sent[0][i] = sent[1][i] = -1;
  Turns *turns = arena_array(a, Turns, p);
  *out = timeline_new(a, s);
  for (bool moved = true; moved;) {
    moved = false;
    for (int d = 0; d < p; d++) {
      for (int slots = slots_of(s, d); turns[d].at < slots; turns[d].at++) {
        bool back;
        int k, x;
        if (!slot_block(s, d, turns[d].at, &back, &k, &x)) continue;
        // The last stage's backward reads its own forward, which precedes it in the list.
        double ready = 0;
        if (!back && k) ready = sent[0][(int64_t)(k - 1) * m + x];
        if (back && k < last) ready = sent[1][(int64_t)(k + 1) * m + x];
        if (ready < 0) break;
        double end = fmax(ready, turns[d].free) + (back ? stage[k].b : stage[k].f);
        double hop = !back ? stage[k].hop : k ? stage[k - 1].hop : 0;
        sent[back][(int64_t)k * m + x] = end + (p > 1 ? hop : 0);
        add_block(out, d, (StagedBlock){back ? WORK_B : WORK_F, k, x, end});
        turns[d].free = end;
        out->makespan = fmax(out->makespan, end);
        turns[d].held += back ? -stage[k].kept : stage[k].kept;
        out->peak[d] = fmax(out->peak[d], turns[d].held);
        moved = true;
      }
    }
  }
  end_timeline(out);
}

double staged_peak(StagedKind kind, int n_devices, int chunks, int n_micro_batches, int device,
                   const double *kept) {
  if (kind == STAGED_zb_v) {
    double sum = device < n_devices - 1 ? kept[0] + kept[1] : kept[0];
    return fmin(n_devices, n_micro_batches) * sum;
  }
  if (kind != STAGED_interleaved)
    return staged_held(kind, n_devices, n_micro_batches, device) * kept[0];
  // The device's list: after the first forwards the same slots come again with every group.
  Staged s = {.kind = kind, .n_devices = n_devices, .chunks = chunks};
  s.n_micro_batches = n_micro_batches;
  int groups = (n_micro_batches + n_devices - 1) / n_devices;
  if (groups > 4) s.n_micro_batches = 4 * n_devices;
  double held = 0, most = 0;
  for (int slot = 0; slot < slots_of(&s, device); slot++) {
    bool back;
    int stage, micro_batch;
    if (!slot_block(&s, device, slot, &back, &stage, &micro_batch)) continue;
    held += (back ? -1 : 1) * kept[stage / n_devices];
    most = fmax(most, held);
  }
  return most;
}

// -- As a problem of schedule_list -------------------------------------------------------------

// The work of a stage in the route: forwards, backwards in reverse, weight gradients in reverse, as
// segments are numbered.
static int work_at(const Staged *s, WorkKind kind, int stage) {
  int n = staged_stages(s->kind, s->n_devices, s->chunks);
  if (kind == WORK_F) return stage;
  return (kind == WORK_B ? 2 : 3) * n - 1 - stage;
}

Pipeline *staged_pipeline(Arena *a, const Staged *s) {
  int n = staged_stages(s->kind, s->n_devices, s->chunks), parts = staged_splits(s->kind) ? 3 : 2;
  const StagedStage *stage = timed_stages(a, s);
  Work *work = arena_array(a, Work, n * parts);
  int *device = arena_array(a, int, n), *shares = arena_array(a, int, s->n_devices);
  for (int i = 0; i < n; i++) {
    device[i] = staged_device(s->kind, s->n_devices, i);
    shares[device[i]]++;
  }
  for (int i = 0; i < n * parts; i++) {
    WorkKind kind = (WorkKind)(i / n);
    int k = kind == WORK_F ? i : n - 1 - i % n;
    WorkAfter *after = arena_array(a, WorkAfter, 2);
    Work *w = &work[i];
    *w = (Work){.kind = kind, .stage = k, .pass = 1, .device = &device[k], .n_devices = 1};
    w->time = kind == WORK_F ? stage[k].f : kind == WORK_B ? stage[k].b : stage[k].w;
    if (kind == WORK_F) w->takes = 1.0 / shares[device[k]];
    if ((int)kind == parts - 1) w->frees = 1.0 / shares[device[k]];
    w->after = after;
    // Of the stage before or after, and of its own earlier part.
    int other = kind == WORK_F ? k - 1 : kind == WORK_B ? k + 1 : n;
    if (other >= 0 && other < n)
      after[w->n_after++] =
          (WorkAfter){work_at(s, kind, other),
                      device[other] == device[k] ? 0 : stage[kind == WORK_F ? other : k].hop};
    if (kind != WORK_F)
      after[w->n_after++] = (WorkAfter){work_at(s, kind == WORK_B ? WORK_F : WORK_B, k), 0};
  }
  Route *route = arena_one(a, Route);
  *route = (Route){work, n * parts};
  Pipeline *p = arena_one(a, Pipeline);
  *p = (Pipeline){
      s->n_devices, s->n_micro_batches, route, 1, arena_array(a, int, s->n_micro_batches), 1};
  return p;
}

static void add_order(Arena *a, const Staged *s, const Blocks *b, Orders *o, const int first[3],
                      const int then[3]) {
  // A block is a kind of work, a stage and a micro-batch.
  if (first[2] < 0 || first[2] >= s->n_micro_batches) return;
  if (then[2] < 0 || then[2] >= s->n_micro_batches) return;
  Order order = {b->first[first[2]] + work_at(s, (WorkKind)first[0], first[1]),
                 b->first[then[2]] + work_at(s, (WorkKind)then[0], then[1]), NULL};
  vec_push(a, o, order);
}

Orders staged_orders(Arena *a, const Staged *s, const Blocks *b) {
  Orders o = {0};
  int n = b->pipeline->route->n, p = s->n_devices, m = s->n_micro_batches;
  // Every stage runs its micro-batches in order.
  for (int k = 0; k + n < b->n; k++) {
    Order order = {k, k + n, NULL};
    vec_push(a, &o, order);
  }
  for (int i = 0; i < p; i++) {
    if (s->kind == STAGED_interleaved) {
      bool back;
      int last[3] = {0, 0, -1}, now[3];
      for (int slot = 0; slot < slots_of(s, i); slot++) {
        if (!slot_block(s, i, slot, &back, &now[1], &now[2])) continue;
        now[0] = back ? WORK_B : WORK_F;
        add_order(a, s, b, &o, last, now);
        memcpy(last, now, sizeof last);
      }
    } else if (s->kind == STAGED_gpipe) {
      add_order(a, s, b, &o, (const int[3]){WORK_F, i, m - 1}, (const int[3]){WORK_B, i, 0});
    } else if (s->kind != STAGED_zb_v) {
      int ahead = staged_ahead(s->kind, p, 1, i);
      for (int k = 0; k < m; k++) {
        const int forward[3] = {WORK_F, i, k + ahead - 1}, next[3] = {WORK_F, i, k + ahead};
        const int back[3] = {WORK_B, i, k};
        add_order(a, s, b, &o, forward, back);
        add_order(a, s, b, &o, back, next);
        if (staged_splits(s->kind))
          add_order(a, s, b, &o, (const int[3]){WORK_W, i, k},
                    (const int[3]){WORK_F, i, k + weights_due(s)});
      }
    }
  }
  return o;
}

static bool run_listed(Arena *a, const Staged *s, StagedTimeline *out) {
  Pipeline *p = staged_pipeline(a, s);
  Blocks *b = blocks_new(a, p);
  Orders o = staged_orders(a, s, b);
  bool found = false;
  Timeline best = {0};
  for (int i = 0; i < N_LIST_RULES; i++) {
    ListRule rule = list_rules[i];
    Timeline t;
    rule.room = staged_room(s);
    if (!schedule_list(a, b, &o, &rule, &t) || (found && t.makespan >= best.makespan)) continue;
    found = true;
    best = t;
  }
  if (!found) return false;
  *out = timeline_new(a, s);
  out->makespan = best.makespan;
  for (int d = 0; d < s->n_devices; d++) {
    double held = 0;
    for (int i = best.at[d]; i < best.at[d + 1]; i++) {
      int k = best.block[i];
      const Work *w = b->work[k];
      add_block(out, d, (StagedBlock){w->kind, w->stage, b->micro_batch[k], best.end[k]});
      if (w->takes > 0) held += s->stage[w->stage].kept;
      out->peak[d] = fmax(out->peak[d], held);
      if (w->frees > 0) held -= s->stage[w->stage].kept;
    }
  }
  end_timeline(out);
  return true;
}

// -- Transfers ---------------------------------------------------------------------------------

// Devices by their next blocks: a heap.
typedef struct Merge {
  const Staged *s;
  const StagedTimeline *t;
  int *next, *heap, n;
} Merge;

// Of blocks that end together the one of the earlier micro-batch and work is first, as in the pass.
static bool block_less(const Merge *m, int x, int y) {
  const StagedBlock *a = &m->t->block[m->next[x]], *b = &m->t->block[m->next[y]];
  if (a->end != b->end) return a->end < b->end;
  if (a->micro_batch != b->micro_batch) return a->micro_batch < b->micro_batch;
  return work_at(m->s, a->kind, a->stage) < work_at(m->s, b->kind, b->stage);
}

static void sink(Merge *m, int k) {
  for (int next; (next = 2 * k + 1) < m->n; k = next) {
    if (next + 1 < m->n && block_less(m, m->heap[next + 1], m->heap[next])) next++;
    if (!block_less(m, m->heap[next], m->heap[k])) break;
    int device = m->heap[k];
    m->heap[k] = m->heap[next];
    m->heap[next] = device;
  }
}

void staged_transfers(Arena *a, const Staged *s, const StagedTimeline *t, double *end) {
  int p = s->n_devices, last = staged_stages(s->kind, p, s->chunks) - 1, m = s->n_micro_batches;
  const StagedStage *stage = timed_stages(a, s);
  Merge all = {s, t, arena_array(a, int, p), arena_array(a, int, p), p};
  double *queue = arena_array(a, double, p);
  // Arrival of forwards at the next stage, of backwards at the one before.
  double *sent[2] = {arena_array(a, double, (int64_t)(last + 1) * m),
                     arena_array(a, double, (int64_t)(last + 1) * m)};
  for (int d = 0; d < p; d++) {
    end[d] = 0;
    all.next[d] = t->at[d];
    all.heap[d] = d;
  }
  for (int k = p / 2; k >= 0; k--)
    sink(&all, k);
  while (all.n) {
    int d = all.heap[0];
    const StagedBlock *b = &t->block[all.next[d]++];
    if (all.next[d] == t->at[d + 1]) all.heap[0] = all.heap[--all.n];
    sink(&all, 0);
    int k = b->stage, to = b->kind == WORK_F ? k + 1 : k - 1;
    const StagedStage *x = &stage[k];
    double start = end[d];
    if (b->kind == WORK_F && k) start = fmax(start, sent[0][(int64_t)(k - 1) * m + b->micro_batch]);
    if (b->kind == WORK_B && k < last)
      start = fmax(start, sent[1][(int64_t)(k + 1) * m + b->micro_batch]);
    end[d] = start + (b->kind == WORK_F ? x->f : b->kind == WORK_B ? x->b : x->w);
    if (b->kind == WORK_W || to < 0 || to > last) continue;
    double *arrives = &sent[b->kind == WORK_B][(int64_t)k * m + b->micro_batch];
    int e = staged_device(s->kind, p, to);
    *arrives = end[d];
    if (e == d) continue;
    double begins = fmax(fmax(end[d], end[e]), fmax(queue[d], queue[e]));
    *arrives = begins + (b->kind == WORK_F ? x->hop : stage[to].hop);
    queue[d] = queue[e] = *arrives;
  }
}

// -- All kinds ---------------------------------------------------------------------------------

static bool is_wanted(const Staged *s, const StagedTimeline *t) {
  return s->cutoff <= 0 || t->makespan < s->cutoff;
}

bool staged_run(Arena *a, const Staged *s, StagedTimeline *out) {
  if (s->kind == STAGED_zb_v) return run_listed(a, s, out) && is_wanted(s, out);
  const StagedStage *stage = timed_stages(a, s);
  if (s->kind == STAGED_interleaved) {
    run_interleaved(a, s, stage, out);
    return is_wanted(s, out);
  }
  // A complete order leaves rules no choice; and without a limit the first two are the same.
  bool complete =
      s->kind == STAGED_gpipe || (s->kind == STAGED_1f1b && s->n_devices <= s->n_micro_batches);
  bool found = false;
  double cutoff = s->cutoff > 0 ? s->cutoff : INFINITY;
  for (int i = 1; i < (complete ? 2 : N_LIST_RULES); i++) {
    StagedTimeline t;
    if (!run_lanes(a, s, stage, &list_rules[i], cutoff, &t) || t.makespan >= cutoff) continue;
    found = true;
    cutoff = t.makespan;
    *out = t;
  }
  return found;
}
