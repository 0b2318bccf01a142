// List scheduling: among the blocks that can start first, takes the one that the rule prefers.
//
//     device 1   …  F3 ends at 7          can start: B0 at 7, F4 at 7, W0 since 5
//                   B0 starts at 7        backwards are first with the rule {F 1, B 0, W 2}
//
// A device is idle only if no block can start or for lack of memory: a block that takes memory
// starts only if all micro-batches can still finish one after the other within the limit (the
// banker's algorithm, in order of micro-batches; all pieces of one count together).  So there is no
// deadlock, unless orders contradict that.  If a forward waits for memory, weight gradients that
// free it come before backwards: otherwise they are not urgent, but a late forward delays
// everything after it.

#include <math.h>

#include "base/vec.h"
#include "schedule/schedule.h"

#define RANKS(f, b, w)                                                                             \
  { [WORK_E] = 0, [WORK_F] = (f), [WORK_B] = (b), [WORK_W] = (w) }

const ListRule list_rules[N_LIST_RULES] = {
    {.rank = RANKS(1, 2, 3), .makes_room = true, .room = INFINITY},
    {.rank = RANKS(1, 2, 3), .room = INFINITY},
    {.rank = RANKS(2, 1, 3), .room = INFINITY},
    {.rank = RANKS(3, 1, 2), .room = INFINITY},
};

typedef struct Waiting {
  double start, key; // earliest start when it was pushed; priority by the rule
  int micro_batch, block;
} Waiting;

typedef struct Device {
  double free, used;
  int n;         // number of blocks so far
  int oldest;    // earlier micro-batches neither take nor hold memory any more
  double *holds; // memory held and still wanted, per whole micro-batch; only with a limit
  double *wants;
  // Blocks in the list: those that take memory, the ones among them that wait for it, and weight
  // gradients, which free it.
  Vec(int) takers;
  Vec(int) parked;
  Vec(int) makers;
} Device;

typedef struct List {
  Arena *arena;
  const Blocks *b;
  const ListRule *rule;
  Timeline *t;
  Device *device;
  int *left;           // per block: unfinished predecessors
  int *then_at, *then; // orders, by their first block
  double *ready;       // per block
  Vec(Waiting) heap;
  bool *begun;           // per block
  int *sequence, n_done; // blocks in order of their start
} List;

// -- A heap ------------------------------------------------------------------------------------

static bool sooner(const Waiting *x, const Waiting *y) {
  if (x->start != y->start) return x->start < y->start;
  if (x->key != y->key) return x->key < y->key;
  if (x->micro_batch != y->micro_batch) return x->micro_batch < y->micro_batch;
  return x->block < y->block;
}

static void swap(Waiting *x, Waiting *y) {
  Waiting t = *x;
  *x = *y;
  *y = t;
}

static void push(List *l, Waiting w) {
  vec_push(l->arena, &l->heap, w);
  Waiting *h = l->heap.at;
  for (int i = l->heap.n - 1; i > 0 && sooner(&h[i], &h[(i - 1) / 2]); i = (i - 1) / 2)
    swap(&h[i], &h[(i - 1) / 2]);
}

static Waiting pop(List *l) {
  Waiting *h = l->heap.at, top = h[0];
  h[0] = h[--l->heap.n];
  for (int i = 0, k; (k = 2 * i + 1) < l->heap.n; i = k) {
    if (k + 1 < l->heap.n && sooner(&h[k + 1], &h[k])) k++;
    if (!sooner(&h[k], &h[i])) break;
    swap(&h[k], &h[i]);
  }
  return top;
}

// -- Memory ------------------------------------------------------------------------------------

static bool limited(const List *l) {
  return l->rule->room < INFINITY;
}

// The whole micro-batch of a block, of which its own may be a piece.
static int whole_of(const List *l, int k) {
  return l->b->micro_batch[k] / l->b->pipeline->pieces;
}

static int count_whole(const List *l) {
  return l->b->pipeline->n_micro_batches / l->b->pipeline->pieces;
}

// Whether all micro-batches can finish, one after the other, if `m` takes this much more now.
static bool is_safe(List *l, Device *x, int m, double takes) {
  double slack = 1e-9 * (1 + l->rule->room), room = l->rule->room - x->used - takes + slack;
  if (room < 0) return false;
  // Micro-batches one after the other: each takes what it wants, then frees all that it holds.
  int n = count_whole(l);
  while (x->oldest < n && x->wants[x->oldest] <= slack && x->holds[x->oldest] <= slack)
    x->oldest++;
  double held = x->used + takes;
  for (int i = x->oldest; i < n && held > slack; i++) {
    double holds = x->holds[i] + (i == m ? takes : 0), wants = x->wants[i] - (i == m ? takes : 0);
    if (wants > room) return false;
    room += holds;
    held -= holds;
  }
  return true;
}

static bool has_room(List *l, int k) {
  const Work *w = l->b->work[k];
  if (!limited(l) || w->takes <= 0) return true;
  for (int i = 0; i < w->n_devices; i++)
    if (!is_safe(l, &l->device[w->device[i]], whole_of(l, k), w->takes)) return false;
  return true;
}

static double key_of(const List *l, int k) {
  return l->rule->key ? l->rule->key[k] : l->rule->rank[l->b->work[k]->kind];
}

static double earliest(const List *l, int k) {
  const Work *w = l->b->work[k];
  double start = l->ready[k];
  for (int i = 0; i < w->n_devices; i++)
    start = fmax(start, l->device[w->device[i]].free);
  return start;
}

// Removes started blocks from a list.  The lists are short: ready blocks of one device.
static void tidy(const List *l, int *at, int *n) {
  int kept = 0;
  for (int i = 0; i < *n; i++)
    if (!l->begun[at[i]]) at[kept++] = at[i];
  *n = kept;
}

// If a forward waits for memory, a weight gradient that can start by then, to run before a block
// that frees none; or -1.
static int makes_room(List *l, int k, double by) {
  const Work *w = l->b->work[k];
  Device *x = &l->device[*w->device];
  if (!limited(l) || !l->rule->makes_room || w->takes > 0 || w->kind == WORK_W) return -1;
  tidy(l, x->makers.at, &x->makers.n);
  tidy(l, x->takers.at, &x->takers.n);
  // Some ready forward does not fit.
  bool waits = false;
  for (int i = 0; i < x->takers.n && !waits; i++)
    waits = !has_room(l, x->takers.at[i]);
  for (int i = 0; i < x->makers.n && waits; i++)
    if (earliest(l, x->makers.at[i]) <= by) return x->makers.at[i];
  return -1;
}

// -- The list ----------------------------------------------------------------------------------

static void offer(List *l, int k) {
  const Work *w = l->b->work[k];
  push(l, (Waiting){earliest(l, k), key_of(l, k), l->b->micro_batch[k], k});
  // The lists of makes_room are those of the block's first device.
  if (!limited(l)) return;
  Device *x = &l->device[*w->device];
  if (w->takes > 0) vec_push(l->arena, &x->takers, k);
  if (w->kind == WORK_W && w->frees > 0) vec_push(l->arena, &x->makers, k);
}

static void less(List *l, int k) {
  if (--l->left[k]) return;
  for (int i = l->b->after_at[k]; i < l->b->after_at[k + 1]; i++)
    l->ready[k] = fmax(l->ready[k], l->t->end[l->b->after[i]] + l->b->latency[i]);
  offer(l, k);
}

static void begin(List *l, int k, double start) {
  const Work *w = l->b->work[k];
  l->t->start[k] = start;
  l->t->end[k] = start + w->time;
  l->sequence[l->n_done++] = k;
  l->begun[k] = true;
  for (int i = 0; i < w->n_devices; i++) {
    Device *x = &l->device[w->device[i]];
    x->free = l->t->end[k];
    x->n++;
    if (!limited(l)) continue;
    int m = whole_of(l, k);
    x->used += w->takes - w->frees;
    x->holds[m] += w->takes - w->frees;
    x->wants[m] -= w->takes;
    // Memory that it frees may suffice for parked blocks.
    for (int j = 0; j < x->parked.n && w->frees > 0; j++) {
      int p = x->parked.at[j];
      push(l, (Waiting){l->ready[p], key_of(l, p), l->b->micro_batch[p], p});
    }
    if (w->frees > 0) x->parked.n = 0;
  }
  // Successors, by dependencies and by orders.
  for (int i = l->b->next_at[k]; i < l->b->next_at[k + 1]; i++)
    less(l, l->b->next[i]);
  for (int i = l->then_at[k]; i < l->then_at[k + 1]; i++)
    less(l, l->then[i]);
}

static bool list_all(List *l, const Orders *o) {
  const Blocks *b = l->b;
  l->t->start = arena_array(l->arena, double, b->n);
  l->t->end = arena_array(l->arena, double, b->n);
  l->device = arena_array(l->arena, Device, b->pipeline->n_devices);
  l->left = arena_array(l->arena, int, b->n);
  l->ready = arena_array(l->arena, double, b->n);
  l->sequence = arena_array(l->arena, int, b->n);
  l->begun = arena_array(l->arena, bool, b->n);
  for (int k = 0; k < b->n; k++)
    l->left[k] = b->work[k]->n_after;
  // An order makes its second block wait for the first.
  l->then_at = arena_array(l->arena, int, b->n + 2);
  l->then = arena_array(l->arena, int, o->n);
  for (int i = 0; i < o->n; i++) {
    l->then_at[o->at[i].first + 2]++;
    l->left[o->at[i].then]++;
  }
  for (int k = 0; k < b->n; k++)
    l->then_at[k + 2] += l->then_at[k + 1];
  for (int i = 0; i < o->n; i++)
    l->then[l->then_at[o->at[i].first + 1]++] = o->at[i].then;
  if (limited(l)) {
    // The banker's claims: memory that each whole micro-batch will take.
    int wholes = count_whole(l);
    for (int d = 0; d < b->pipeline->n_devices; d++) {
      l->device[d].holds = arena_array(l->arena, double, wholes);
      l->device[d].wants = arena_array(l->arena, double, wholes);
    }
    for (int k = 0; k < b->n; k++)
      for (int i = 0; i < b->work[k]->n_devices; i++)
        l->device[b->work[k]->device[i]].wants[whole_of(l, k)] += b->work[k]->takes;
  }
  for (int k = 0; k < b->n; k++)
    if (!l->left[k]) offer(l, k);
  // Entries may be outdated: started, or with a device that is busy by now.
  while (l->heap.n) {
    Waiting w = pop(l);
    if (l->begun[w.block]) continue;
    double start = earliest(l, w.block);
    if (start > w.start) { // another block was started meanwhile
      w.start = start;
      push(l, w);
      continue;
    }
    // A weight gradient that frees memory for a waiting forward comes first.
    int first = makes_room(l, w.block, start);
    if (first >= 0) {
      push(l, w);
      begin(l, first, earliest(l, first));
    } else if (has_room(l, w.block)) {
      begin(l, w.block, start);
    } else {
      // Park it until a device with too little memory for it frees some.
      const Work *work = b->work[w.block];
      int i = 0;
      while (i + 1 < work->n_devices &&
             is_safe(l, &l->device[work->device[i]], whole_of(l, w.block), work->takes))
        i++;
      vec_push(l->arena, &l->device[work->device[i]].parked, w.block);
    }
  }
  return l->n_done == b->n;
}

bool schedule_list(Arena *a, const Blocks *b, const Orders *o, const ListRule *rule,
                   Timeline *out) {
  Arena *scratch = arena_new();
  *out = (Timeline){0};
  List l = {.arena = scratch, .b = b, .rule = rule, .t = out};
  bool ok = list_all(&l, o);
  if (ok) {
    // The blocks of each device in order of their start.
    int n = b->pipeline->n_devices, *fill = arena_array(scratch, int, n);
    out->at = arena_array(a, int, n + 1);
    for (int d = 0; d < n; d++)
      out->at[d + 1] = out->at[d] + l.device[d].n;
    out->block = arena_array(a, int, out->at[n]);
    for (int i = 0; i < l.n_done; i++) {
      const Work *w = b->work[l.sequence[i]];
      for (int j = 0; j < w->n_devices; j++)
        out->block[out->at[w->device[j]] + fill[w->device[j]]++] = l.sequence[i];
    }
  }
  arena_free(scratch);
  return ok && schedule_run(a, b, out);
}
