// A timeline with its transfers in queues: see staged.h.
//
// The blocks of all devices are taken in the order of their ends in the timeline, by a heap of
// devices: this is the order of all queues (passes/pipeline/schedule.c).

#include <math.h>

#include "staging.h"

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
