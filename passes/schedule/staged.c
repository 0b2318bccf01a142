// Timelines of staged pipelines: see staged.h.

#include <math.h>

#include "staging.h"

double staged_room(const Staged *s) {
  return s->kind == STAGED_zb_v ? s->n_devices : INFINITY;
}

StagedStage *timed_stages(Arena *a, const Staged *s) {
  int n = staged_stages(s->kind, s->n_devices, s->chunks);
  StagedStage *stage = arena_copy(a, s->stage, (size_t)n * sizeof *stage);
  double least = 0;
  for (int i = 0; i < n; i++)
    least = fmax(least, 1e-6 * fmax(stage[i].f, stage[i].b + stage[i].w));
  if (least <= 0) least = 1;
  for (int i = 0; i < n; i++) {
    StagedStage *x = &stage[i];
    if (!staged_traits[s->kind].split)
      *x = (StagedStage){x->f, x->b + x->w, 0, x->hop, x->kept, 0, 0};
    if (x->waiting <= 0) x->waiting = x->both = x->kept;
    x->f = fmax(x->f, least);
    x->b = fmax(x->b, least);
    x->w = fmax(x->w, least);
  }
  return stage;
}

StagedTimeline timeline_new(Arena *a, const Staged *s) {
  int p = s->n_devices, n = staged_stages(s->kind, p, s->chunks);
  int each = s->n_micro_batches * (staged_traits[s->kind].split ? 3 : 2);
  StagedTimeline t = {.peak = arena_array(a, double, p), .at = arena_array(a, int, p + 2)};
  t.block = arena_array(a, StagedBlock, (int64_t)n * each);
  for (int i = 0; i < n; i++)
    t.at[staged_device(s->kind, p, i) + 2] += each;
  for (int d = 0; d < p; d++)
    t.at[d + 2] += t.at[d + 1];
  t.at++;
  return t;
}

void timeline_add(StagedTimeline *t, int device, StagedBlock block) {
  t->block[t->at[device]++] = block;
}

void timeline_end(StagedTimeline *t) {
  t->at--;
}

// -- Timelines ---------------------------------------------------------------------------------

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
  bool complete = staged_traits[s->kind].all_first ||
                  (s->kind == STAGED_1f1b && s->n_devices <= s->n_micro_batches);
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
