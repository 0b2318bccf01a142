// Kinds of staged pipelines, and their timelines: see staged.h.

#include <limits.h>
#include <math.h>

#include "staging.h"

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

int weights_due(const Staged *s) {
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

StagedStage *timed_stages(Arena *a, const Staged *s) {
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

StagedTimeline timeline_new(Arena *a, const Staged *s) {
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
