// See makespan.h.

#include "makespan.h"

#include <math.h>

// -- Bounds ------------------------------------------------------------------------------------

StageOrders stage_orders(StagedKind kind, int stages, int64_t micro_batches, int stage) {
  StageOrders o = {.split = staged_splits(kind), .micro_batches = micro_batches};
  int64_t ahead = staged_ahead(kind, stages, 1, stage);
  o.all_first = kind == STAGED_gpipe;
  o.ahead = ahead < micro_batches ? ahead : micro_batches;
  o.due = kind == STAGED_zb_h2 ? 2 * stages - 1 : stages;
  return o;
}

StageEnds stage_ends(const StageOrders *o, const StageTimes *t) {
  double m = (double)o->micro_batches, ahead = (double)o->ahead;
  // All work after `start`, at the earliest: the rest of it after the first backward's start.
  double first_back = t->first_back + (o->all_first ? (m - 1) * t->forward : 0);
  double start = fmax(t->lead, first_back - ahead * t->forward);
  double ends = start + m * (t->forward + t->backward);
  StageEnds e = {ends, ends + m * t->weight_grad};
  if (o->split) e.back += fmax(0, m - (double)o->due) * t->weight_grad;
  // Whole round trips, and the backwards after the last of them.
  int64_t trips = (o->micro_batches - 1) / o->ahead;
  double rest = m - 1 - (double)trips * ahead;
  e.back = fmax(e.back, t->lead + (double)(trips + 1) * t->round_trip + rest * t->backward);
  e.back = fmax(e.back, t->next_back + t->backward);
  e.all = fmax(e.all, e.back + t->weight_grad);
  return e;
}

// The seconds of the step after a stage's end.
static double after_stage(const PipelineCost *c, int stage) {
  bool tied = c->stages > 1 && (stage == 0 || stage == c->stages - 1);
  return c->at[stage].sums + c->at[stage].update + (tied ? c->tied_sums : 0);
}

double makespan_bound(const PipelineCost *c) {
  bool split = staged_splits(c->kind);
  double forwards = 0, lead = 0, hops = 0, behind = 0, next_back = -INFINITY, bound = 0;
  for (int i = 0; i < c->stages; i++) {
    forwards += c->at[i].forward;
    hops += i + 1 < c->stages ? c->at[i].hop : 0;
  }
  lead = forwards + hops;
  // From the last stage to the first; `behind`: backwards and hops of the later ones.
  for (int i = c->stages - 1; i >= 0; i--) {
    const StageCost *x = &c->at[i];
    if (i + 1 < c->stages) {
      lead -= x->hop;
      behind += x->hop;
      next_back += x->hop;
    }
    lead -= x->forward;
    StageTimes t = {.forward = x->forward, .backward = x->backward, .lead = lead};
    if (split)
      t.weight_grad = x->weight_grad;
    else
      t.backward += x->weight_grad;
    t.first_back = forwards + hops + behind;
    t.round_trip = t.first_back - lead + t.backward;
    t.next_back = next_back;
    StageOrders o = stage_orders(c->kind, c->stages, c->micro_batches, i);
    StageEnds e = stage_ends(&o, &t);
    bound = fmax(bound, e.all + after_stage(c, i));
    behind += t.backward;
    next_back = e.back;
  }
  return bound;
}

// -- Timeline ----------------------------------------------------------------------------------

// The costs of a device: of all its stages.
static StageCost device_cost(const PipelineCost *c, int device) {
  StageCost own = {0};
  for (int i = 0; i < staged_stages(c->kind, c->stages, c->chunks); i++) {
    const StageCost *x = &c->at[i];
    if (staged_device(c->kind, c->stages, i) != device) continue;
    own.sums += x->sums;
    own.update += x->update;
    own.lasting += x->lasting;
    own.working = fmax(own.working, x->working);
  }
  return own;
}

bool makespan_run(const PipelineCost *c, double *seconds, double *peak) {
  int n = staged_stages(c->kind, c->stages, c->chunks);
  Arena *scratch = arena_new();
  StagedStage *stage = arena_array(scratch, StagedStage, n);
  for (int i = 0; i < n; i++) {
    const StageCost *x = &c->at[i];
    stage[i] = (StagedStage){x->forward, x->backward, x->weight_grad, x->hop, x->kept};
  }
  Staged s = {c->kind, c->stages, c->chunks, (int)c->micro_batches, stage};
  StagedTimeline t;
  bool ok = staged_run(scratch, &s, &t);
  double update = 0, sums = 0;
  *seconds = *peak = 0;
  // The devices of first and last stage add up the gradient of a tied table together.
  int last = staged_device(c->kind, c->stages, n - 1);
  double tied = 0;
  for (int d = 0; ok && d < c->stages; d++) {
    StageCost own = device_cost(c, d);
    t.end[d] += own.sums;
    update = fmax(update, own.update);
    *peak = fmax(*peak, t.peak[d] + own.lasting + own.working);
  }
  if (ok && last != 0) tied = fmax(t.end[0], t.end[last]) + c->tied_sums;
  for (int d = 0; ok && d < c->stages; d++) {
    if (d == 0 || d == last) t.end[d] = fmax(t.end[d], tied);
    sums = fmax(sums, t.end[d]);
    *seconds = fmax(*seconds, t.end[d] + device_cost(c, d).update);
  }
  if (c->joint_update) *seconds = sums + update;
  arena_free(scratch);
  return ok;
}
