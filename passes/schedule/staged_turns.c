// Timelines of interleaved, whose order is complete: each device runs its own list.
//
// A stage has memory of its own for each of its micro-batches that are in flight together, which
// other stages of the device do not use meanwhile: it needs the most of each of them.

#include <math.h>

#include "schedule/names.h"
#include "staging.h"

typedef struct Turns {
  int at; // position in the device's list, of slots: two for each k, a forward and a backward
  double free;
} Turns;

bool slot_block(const Staged *s, int device, int slot, bool *back, int *stage, int *micro_batch) {
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

int slots_of(const Staged *s, int device) {
  int p = s->n_devices, n = (s->n_micro_batches + p - 1) / p * p * s->chunks;
  return 2 * (n + staged_ahead(s->kind, p, s->chunks, device) - 1);
}

void run_interleaved(Arena *a, const Staged *s, const StagedStage *stage, StagedTimeline *out) {
  int p = s->n_devices, v = s->chunks, m = s->n_micro_batches, last = p * v - 1;
  // Arrival of each block's result at its reader; negative: it has not run.
  double *sent[2] = {arena_array(a, double, (int64_t)(last + 1) * m),
                     arena_array(a, double, (int64_t)(last + 1) * m)};
  for (int64_t i = 0; i < (int64_t)(last + 1) * m; i++)
    sent[0][i] = sent[1][i] = -1;
  Turns *turns = arena_array(a, Turns, p);
  int *held = arena_array(a, int, last + 1), *most = arena_array(a, int, last + 1);
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
        timeline_add(out, d, (StagedBlock){back ? WORK_B : WORK_F, k, x, end});
        turns[d].free = end;
        out->makespan = fmax(out->makespan, end);
        held[k] += back ? -1 : 1;
        if (held[k] > most[k]) {
          most[k] = held[k];
          out->peak[d] += stage[k].kept;
        }
        moved = true;
      }
    }
  }
  timeline_end(out);
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
  int held[SCHEDULE_CHUNKS] = {0}, most[SCHEDULE_CHUNKS] = {0};
  double sum = 0;
  for (int slot = 0; slot < slots_of(&s, device); slot++) {
    bool back;
    int stage, micro_batch;
    if (!slot_block(&s, device, slot, &back, &stage, &micro_batch)) continue;
    int chunk = stage / n_devices;
    held[chunk] += back ? -1 : 1;
    if (held[chunk] <= most[chunk]) continue;
    most[chunk] = held[chunk];
    sum += kept[chunk];
  }
  return sum;
}
