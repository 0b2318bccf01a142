// See makespan.h.

#include "makespan.h"

#include <math.h>

// -- Bounds ------------------------------------------------------------------------------------

StageOrders stage_orders(StagedKind kind, int stages, int64_t micro_batches, int stage) {
  StageOrders o = {.split = staged_traits[kind].split, .micro_batches = micro_batches};
  int64_t ahead = staged_ahead(kind, stages, 1, stage);
  o.all_first = staged_traits[kind].all_first;
  o.ahead = ahead < micro_batches ? ahead : micro_batches;
  o.due = staged_due(kind, stages);
  return o;
}

StageEnds stage_ends(const StageOrders *o, const StageTimes *t) {
  double m = (double)o->micro_batches, ahead = (double)o->ahead;
  // All work after `start`, at the earliest: the rest of it after the first backward's start.
  double first_back = t->first_back + (o->all_first ? (m - 1) * t->forward : 0);
  double start = fmax(t->lead, first_back - ahead * t->forward);
  double ends = start + m * (t->forward + t->backward);
  StageEnds e = {ends, ends + m * t->weight_grad};
  double due = o->split ? fmax(0, m - (double)o->due) * t->weight_grad : 0;
  e.back += due;
  // The last forward: after all others, and after the backwards that its order puts before it.
  double last = t->lead + (m - 1) * t->forward;
  if (m > ahead) last = start + (m - 1) * t->forward + (m - ahead) * t->backward + due;
  e.back = fmax(e.back, last + t->round_trip);
  // Whole round trips, and the backwards after the last of them.
  int64_t trips = (o->micro_batches - 1) / o->ahead;
  double rest = m - 1 - (double)trips * ahead;
  e.back = fmax(e.back, t->lead + (double)(trips + 1) * t->round_trip + rest * t->backward);
  e.back = fmax(e.back, t->next_back + t->backward);
  e.all = fmax(e.all, e.back + t->weight_grad);
  return e;
}

// The seconds of the step after the end of a device.
static double after_device(const PipelineCost *c, int device) {
  int n = staged_stages(c->kind, c->stages, c->chunks);
  int last = staged_device(c->kind, c->stages, n - 1);
  double after = last != 0 && (device == 0 || device == last) ? c->tied_sums : 0;
  for (int i = 0; i < n; i++)
    if (staged_device(c->kind, c->stages, i) == device) after += c->at[i].sums + c->at[i].update;
  return after;
}

static double bound_straight(const PipelineCost *c) {
  bool split = staged_traits[c->kind].split;
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
    bound = fmax(bound, e.all + after_device(c, i));
    behind += t.backward;
    next_back = e.back;
  }
  return bound;
}

// Sums of the stages before each, by stage.
typedef struct Paths {
  int n;
  double *forward, *backward; // with the hops between them; backward with W unless it is split
} Paths;

static Paths find_paths(const PipelineCost *c, Arena *a) {
  int n = staged_stages(c->kind, c->stages, c->chunks);
  Paths p = {n, arena_array(a, double, n + 1), arena_array(a, double, n + 1)};
  for (int i = 0; i < n; i++) {
    const StageCost *x = &c->at[i];
    double hop = i + 1 < n && c->stages > 1 ? x->hop : 0;
    p.forward[i + 1] = p.forward[i] + x->forward + hop;
    p.backward[i + 1] = p.backward[i] + x->backward + hop;
    if (!staged_traits[c->kind].split) p.backward[i + 1] += x->weight_grad;
  }
  return p;
}

static double bound_interleaved(const PipelineCost *c, Arena *a) {
  Paths path = find_paths(c, a);
  int p = c->stages, v = c->chunks;
  double m = (double)c->micro_batches, bound = 0;
  // Micro-batches of the first group, and of the last.
  double first_group = fmin(p, m), last_group = (double)((c->micro_batches - 1) % p + 1);
  // A micro-batch of each second group goes around before the next of them starts.
  double round_trip = path.forward[p * v] + path.backward[p * v];
  int64_t groups = (c->micro_batches + p - 1) / p, trips = (groups + 1) / 2;
  bound = (double)trips * round_trip + after_device(c, 0);
  for (int d = 0; d < p; d++) {
    double work = 0, start = 0, forwards = 0, backwards = 0;
    for (int chunk = 0; chunk < v; chunk++) {
      const StageCost *x = &c->at[chunk * p + d];
      start = fmax(start, path.forward[chunk * p + d] - first_group * forwards);
      forwards += x->forward;
      work += m * (x->forward + x->backward + x->weight_grad);
    }
    bound = fmax(bound, start + work + after_device(c, d));
    // The last backward of each chunk, and the stages from it to those of each device.
    for (int chunk = 0; chunk < v; chunk++) {
      int stage = chunk * p + d;
      double end = start + work - last_group * backwards;
      for (int e = 0; e < p && e <= stage; e++)
        bound = fmax(bound, end + path.backward[stage] - path.backward[e] + after_device(c, e));
      backwards += c->at[stage].backward + c->at[stage].weight_grad;
    }
  }
  return bound;
}

static double bound_zb_v(const PipelineCost *c, Arena *a) {
  Paths path = find_paths(c, a);
  int p = c->stages, n = path.n;
  double m = (double)c->micro_batches, bound = 0;
  for (int d = 0; d < p; d++) {
    const StageCost *x = &c->at[d], *y = &c->at[n - 1 - d], none = {0};
    if (d == n - 1 - d) y = &none;
    double weights = m * (x->weight_grad + y->weight_grad);
    double backs = path.forward[d] + m * (x->forward + x->backward + y->forward + y->backward);
    // By the last backward, those that the memory has no room for.
    double due = weights - (d == n - 1 - d ? 1 : 2) * p * fmax(x->weight_grad, y->weight_grad);
    double own = fmax(backs + weights, backs + fmax(0, due) + x->weight_grad);
    bound = fmax(bound, own + after_device(c, d));
    for (int e = 0; e < d; e++)
      bound = fmax(bound, backs + fmax(0, due) + path.backward[d] - path.backward[e] +
                              c->at[e].weight_grad + after_device(c, e));
    // A stage's activations take half of a micro-batch's room, or all of it at the turn.
    double trip =
        path.forward[n] - path.forward[d] + path.backward[n] - path.backward[d] + x->weight_grad;
    double back_trip = path.forward[n] - path.forward[n - 1 - d] + path.backward[n] -
                       path.backward[n - 1 - d] + y->weight_grad;
    double held = d == n - 1 - d ? trip : (trip + back_trip) / 2;
    bound = fmax(bound, path.forward[d] + m * held / p + after_device(c, d));
  }
  return bound;
}

// Transfers of a device follow each other: each way over all of its borders, of every micro-batch.
static double bound_transfers(const PipelineCost *c, Arena *a) {
  int last = staged_stages(c->kind, c->stages, c->chunks) - 1;
  double *busy = arena_array(a, double, c->stages), most = 0;
  for (int i = 0; i < last && c->stages > 1; i++)
    for (int end = 0; end < 2; end++) {
      double *own = &busy[staged_device(c->kind, c->stages, i + end)];
      *own += 2 * (double)c->micro_batches * c->at[i].hop;
      most = fmax(most, *own);
    }
  return most;
}

double makespan_bound(const PipelineCost *c) {
  Arena *scratch = arena_new();
  double bound = 0;
  switch (c->kind) {
  case STAGED_gpipe:
  case STAGED_1f1b:
  case STAGED_zb_h1:
  case STAGED_zb_h2: bound = bound_straight(c); break;
  case STAGED_interleaved: bound = bound_interleaved(c, scratch); break;
  case STAGED_zb_v: bound = bound_zb_v(c, scratch); break;
  case N_STAGED_KINDS: BUG("no kind of staged pipelines");
  }
  bound = fmax(bound, bound_transfers(c, scratch));
  arena_free(scratch);
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
    own.updating += x->updating;
    own.working = fmax(own.working, x->working);
  }
  return own;
}

// The seconds of the step, by the ends of devices in the loop.
static double end_step(const PipelineCost *c, const StageCost *own, double *end) {
  int p = c->stages, last = staged_device(c->kind, p, staged_stages(c->kind, p, c->chunks) - 1);
  double sums = 0, update = 0, all = 0;
  for (int d = 0; d < p; d++)
    end[d] += own[d].sums;
  // The devices of first and last stage add up the gradient of a tied table together.
  if (last != 0) end[0] = end[last] = fmax(end[0], end[last]) + c->tied_sums;
  for (int d = 0; d < p; d++) {
    sums = fmax(sums, end[d]);
    update = fmax(update, own[d].update);
    all = fmax(all, end[d] + own[d].update);
  }
  return c->joint_update ? sums + update : all;
}

bool makespan_run(const PipelineCost *c, double cutoff, double *seconds, double *peak) {
  int n = staged_stages(c->kind, c->stages, c->chunks);
  Arena *scratch = arena_new();
  StagedStage *stage = arena_array(scratch, StagedStage, n);
  StagedStage *waiting = arena_array(scratch, StagedStage, n);
  for (int i = 0; i < n; i++) {
    const StageCost *x = &c->at[i];
    waiting[i] = stage[i] = (StagedStage){x->forward, x->backward, x->weight_grad, x->hop,
                                          x->kept,    x->waiting,  x->both};
    stage[i].f -= x->forward_waits;
    stage[i].b -= x->backward_waits;
  }
  // The order is that of stages that wait for no copies: the pass `schedule` comes before these.
  Staged s = {c->kind, c->stages, c->chunks, (int)c->micro_batches, stage, cutoff};
  StagedTimeline t;
  bool ok = staged_run(scratch, &s, &t);
  s.stage = waiting;
  if (ok) {
    double *end = arena_array(scratch, double, c->stages);
    StageCost *own = arena_array(scratch, StageCost, c->stages);
    *peak = 0;
    for (int d = 0; d < c->stages; d++) {
      own[d] = device_cost(c, d);
      *peak = fmax(*peak, own[d].lasting + fmax(t.peak[d] + own[d].working, own[d].updating));
    }
    staged_transfers(scratch, &s, &t, end);
    *seconds = end_step(c, own, end);
    ok = *seconds < cutoff;
  }
  arena_free(scratch);
  return ok;
}
