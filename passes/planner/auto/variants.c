// See variants.h.

#include "variants.h"

#include "planner/plan/plan.h"
#include "point_heap.h"

// Whether the point may have states in host memory. With stages and one micro-batch it has none, as
// tables of a stage have updates in backward; nor with chunks, which have no deals in plans' texts.
// Replicas divide states first: those of ZeRO-1, and of ZeRO-3, which leaves the least. On clusters
// that keep weights in host memory, too, each micro-batch copies these, which no table has.
static bool may_offload(const AutoSearch *s, const Point *p) {
  bool states = s->work->states > 0 || s->work->narrow;
  if (!s->prices || !states || s->o->cluster->host_weights || p->offload || p->chunks > 1 ||
      p->kind == POINT_interlaced || (p->replicas > 1 && p->zero != 1 && p->zero != 3))
    return false;
  if (p->stages == 1) return true;
  return prices_have_deals(s->prices) && step_slices(s->work, p->micro_batches) > 1;
}

static void add_offloaded(AutoSearch *s, const Point *plain, RecomputeLevel level) {
  Point at = *plain;
  at.recompute = level;
  at.offload = true;
  at.fewest = at.stages > 1;
  Priced p = {.at = at, .bound = bound_find(s->work, s->o->cluster, &at), .lender = -1};
  if (p.bound.lasting > choose_memory(s->o) || point_programs(&at) > MAX_PLAN) return;
  if (s->hurries) p.estimate = points_hurried(s, &at);
  vec_push(s->a, &s->points, p);
  points_push(s, s->points.n - 1);
  s->n_offloaded++;
}

// Whether the point may have saved activations in host memory. Not with chunks, nor with tables of
// words on all stages, which have no deals in plans' texts; nor if gradients of weights run later,
// as these read activations once more. Nor on clusters that keep weights in host memory, too: no
// table has copies of both.
static bool may_swap(const AutoSearch *s, const Point *p) {
  return s->prices && prices_have_deals(s->prices) && !s->o->cluster->host_weights &&
         p->chunks == 1 && p->kind == POINT_1f1b;
}

// Adds the point of the same plan with saved activations in host memory: of as few layers of each
// stage as fit, beside recomputed ones and states in host memory.
static void add_swapped(AutoSearch *s, int i) {
  Priced p = {.at = s->points.at[i].at, .lender = -1};
  if (p.at.recompute > RECOMPUTE_none || p.at.offload || p.at.swap || s->points.at[i].swapped ||
      !may_swap(s, &p.at))
    return;
  s->points.at[i].swapped = true;
  p.at.offload = may_offload(s, &p.at);
  p.at.recompute = RECOMPUTE_layer;
  p.at.swap = p.at.fewest = true;
  p.bound = bound_find(s->work, s->o->cluster, &p.at);
  if (p.bound.lasting > choose_memory(s->o) || point_programs(&p.at) > MAX_PLAN) return;
  if (s->hurries) p.estimate = points_hurried(s, &p.at);
  vec_push(s->a, &s->points, p);
  points_push(s, s->points.n - 1);
  s->n_swapped++;
}

void add_least(AutoSearch *s, int i) {
  add_swapped(s, i);
  const Point plain = s->points.at[i].at;
  if (plain.recompute > RECOMPUTE_none || plain.swap || s->points.at[i].offloaded ||
      !may_offload(s, &plain))
    return;
  s->points.at[i].offloaded = true;
  add_offloaded(s, &plain, RECOMPUTE_layer);
}

void add_less_recomputed(AutoSearch *s, int i) {
  const Point at = s->points.at[i].at;
  if (!at.offload || at.swap || at.recompute != RECOMPUTE_layer) return;
  if (at.stages == 1) add_offloaded(s, &at, RECOMPUTE_none);
  if (s->has.attends) add_offloaded(s, &at, RECOMPUTE_attention);
}

void add_recomputed(AutoSearch *s, int i) {
  const Priced plain = s->points.at[i];
  if (!s->prices || plain.at.recompute > RECOMPUTE_none || plain.at.offload || plain.at.swap ||
      plain.recomputed)
    return;
  s->points.at[i].recomputed = true;
  for (RecomputeLevel k = RECOMPUTE_none + 1; k < N_RECOMPUTE_LEVELS; k++) {
    if (k == RECOMPUTE_attention && !s->has.attends) continue;
    Priced p = {.at = plain.at, .bound = plain.bound, .lender = -1};
    p.at.recompute = k;
    vec_push(s->a, &s->points, p);
    points_push(s, s->points.n - 1);
    s->n_recomputed++;
  }
}

void add_fewest(AutoSearch *s, int i) {
  Priced p = {.at = s->points.at[i].at, .bound = s->points.at[i].bound, .lender = -1};
  if (p.at.recompute == RECOMPUTE_none || p.at.offload || p.at.fewest || p.at.stages == 1 ||
      p.at.chunks > 1)
    return;
  if (s->prices && !prices_have_deals(s->prices)) return;
  p.at.fewest = true;
  vec_push(s->a, &s->points, p);
  points_push(s, s->points.n - 1);
  s->n_recomputed++;
}

bool may_gain_by_tensor(const AutoSearch *s, const Priced *p) {
  return s->has.sequences && p->at.inner == POINT_sp && p->at.tensor > 1 && p->at.context == 1 &&
         !p->at.fewest && !p->has_tensor && p->at.recompute == RECOMPUTE_layer;
}

void add_tensor(AutoSearch *s, int i) {
  Priced *with = &s->points.at[i];
  Priced p = {.at = with->at, .bound = with->bound, .lender = -1};
  with->has_tensor = true;
  p.at.inner = POINT_tp;
  vec_push(s->a, &s->points, p);
  points_push(s, s->points.n - 1);
  s->n_recomputed += p.at.recompute > RECOMPUTE_none;
}
