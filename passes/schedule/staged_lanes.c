// Timelines of stages of which each device has one.
//
// Every lane of a device, its forwards, backwards or weight gradients, runs in order of
// micro-batches. So a state is three counts per device, and a block can start if the counts allow
// it:
//
//     1f1b, stage i       B(k) after F(k + p-1-i), which exists or all forwards have run
//                         F(k) after B(k - (p-1-i) - 1)
//     zb-h1               and F(k) after W(k - p)
//
// Among the blocks that can start first the rule chooses, as in list.c.

#include <assert.h>
#include <limits.h>
#include <math.h>

#include "staging.h"

enum { LANES = 3 }; // F, B, W

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
  int *done;        // [device][LANES] blocks that have begun
  double *free;     // per device: the end of its last block
  double *left;     // seconds of the blocks that have not begun
  double *sent[2];  // [device][micro-batch]: arrival of its F at the next stage, of its B before
  StagedHeld *most; // per device
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
  if (staged_traits[s->kind].all_first) return s->n_micro_batches - 1;
  return staged_ahead(s->kind, s->n_devices, 1, device) - 1;
}

static Offer find_offer(const Lanes *l, int i) {
  const Staged *s = l->s;
  int p = s->n_devices, m = s->n_micro_batches, between = forwards_between(l, i);
  const int *done = &l->done[i * LANES];
  int f = done[WORK_F], b = done[WORK_B], w = done[WORK_W];
  Offer best = {INFINITY, INT_MAX, INT_MAX, WORK_F};
  bool may = f < m && f <= b + between && (!l->split || f < w + staged_due(s->kind, s->n_devices));
  if (staged_traits[s->kind].all_first) may = f < m;
  if (may && (!i || done[WORK_F - LANES] > f))
    consider(l, &best, i, WORK_F, i ? l->sent[0][(int64_t)(i - 1) * m + f] : 0);
  may = b < f && (b + between >= m || f > b + between);
  if (staged_traits[s->kind].all_first) may = b < m && f == m;
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

// Notes the micro-batches that the device holds while the block runs that has just begun.
static void note_held(Lanes *l, int device, WorkKind kind) {
  const int *done = &l->done[device * LANES];
  StagedHeld *most = &l->most[device];
  int f = done[WORK_F], b = done[WORK_B], w = l->split ? done[WORK_W] : b;
  if (kind == WORK_F && f - b > most->kept) most->kept = f - b;
  if (kind == WORK_F && f - w > most->both) most->both = f - w;
  if (kind == WORK_B && b - w > most->waiting) most->waiting = b - w;
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
  note_held(l, device, o.kind);
  timeline_add(l->out, device, (StagedBlock){o.kind, device, o.micro_batch, l->free[device]});
  renew(l, device);
  if (neighbour >= 0 && neighbour < l->s->n_devices) renew(l, neighbour);
  return l->free[device] + l->left[device];
}

bool run_lanes(Arena *a, const Staged *s, const StagedStage *stage, const ListRule *rule,
               double cutoff, StagedTimeline *out) {
  int p = s->n_devices;
  int64_t n = (int64_t)p * s->n_micro_batches;
  Lanes l = {.s = s, .stage = stage, .rank = rule->rank, .split = staged_traits[s->kind].split};
  l.done = arena_array(a, int, p *LANES);
  l.free = arena_array(a, double, p);
  l.left = arena_array(a, double, p);
  l.most = arena_array(a, StagedHeld, p);
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
  timeline_end(out);
  for (int i = 0; i < p; i++) {
    assert(l.done[i * LANES + (int)WORK_B] == s->n_micro_batches);
    out->makespan = fmax(out->makespan, l.free[i]);
    out->peak[i] = staged_bytes(&stage[i], l.most[i]);
  }
  return true;
}
