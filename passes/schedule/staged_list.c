// Staged pipelines as a problem of schedule_list, with the orders of the kinds' files; and the
// timeline of zb-v, which has two stages per device and a memory limit.

#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "staging.h"

int work_at(const Staged *s, WorkKind kind, int stage) {
  int n = staged_stages(s->kind, s->n_devices, s->chunks);
  if (kind == WORK_F) return stage;
  return (kind == WORK_B ? 2 : 3) * n - 1 - stage;
}

Pipeline *staged_pipeline(Arena *a, const Staged *s) {
  int n = staged_stages(s->kind, s->n_devices, s->chunks),
      parts = staged_traits[s->kind].split ? 3 : 2;
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
    } else if (staged_traits[s->kind].all_first) {
      add_order(a, s, b, &o, (const int[3]){WORK_F, i, m - 1}, (const int[3]){WORK_B, i, 0});
    } else if (s->kind != STAGED_zb_v) {
      int ahead = staged_ahead(s->kind, p, 1, i);
      for (int k = 0; k < m; k++) {
        const int forward[3] = {WORK_F, i, k + ahead - 1}, next[3] = {WORK_F, i, k + ahead};
        const int back[3] = {WORK_B, i, k};
        add_order(a, s, b, &o, forward, back);
        add_order(a, s, b, &o, back, next);
        if (staged_traits[s->kind].split)
          add_order(a, s, b, &o, (const int[3]){WORK_W, i, k},
                    (const int[3]){WORK_F, i, k + staged_due(s->kind, p)});
      }
    }
  }
  return o;
}

bool run_listed(Arena *a, const Staged *s, StagedTimeline *out) {
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
      timeline_add(out, d, (StagedBlock){w->kind, w->stage, b->micro_batch[k], best.end[k]});
      const StagedStage *stage = &s->stage[w->stage];
      double waiting = stage->waiting > 0 ? stage->waiting : stage->kept;
      if (w->takes > 0) held += stage->kept;
      out->peak[d] = fmax(out->peak[d], held);
      if (w->kind == WORK_B) held -= stage->kept - (w->frees > 0 ? 0 : waiting);
      if (w->kind == WORK_W) held -= waiting;
      out->peak[d] = fmax(out->peak[d], held);
    }
  }
  timeline_end(out);
  return true;
}
