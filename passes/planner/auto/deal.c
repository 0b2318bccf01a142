// Units, memory, and the stages of a deal: see deal.h.

#include <math.h>

#include "dealing.h"
#include "schedule/names.h"

// -- Units -------------------------------------------------------------------------------------

// Bytes from backward to the gradients of weights: of recomputed values, too, as these read them.
static double waiting_bytes(const UnitCost *x, RecomputeLevel level) {
  return x->waiting > 0 ? x->waiting : x->kept[level];
}

static void sum_units(Dealer *d) {
  Arena *a = d->arena;
  Sums *s = &d->sum;
  double **rows[] = {&s->forward, &s->backward, &s->weight_grad, &s->lasting, &s->sums,
                     &s->update,  &s->kept,     &s->waiting,     &s->updating};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    *rows[i] = arena_array(a, double, d->n + 1);
  RecomputeLevel base = base_level(d->p);
  for (int u = 0; u < d->n; u++) {
    const UnitCost *x = unit_at(d, u);
    s->forward[u + 1] = s->forward[u] + x->forward;
    s->backward[u + 1] = s->backward[u] + x->backward + (d->split ? 0 : x->weight_grad) +
                         (base == RECOMPUTE_none ? 0 : x->again[base]);
    s->weight_grad[u + 1] = s->weight_grad[u] + (d->split ? x->weight_grad : 0);
    s->lasting[u + 1] = s->lasting[u] + x->lasting;
    s->updating[u + 1] = s->updating[u] + x->updating;
    s->sums[u + 1] = s->sums[u] + x->sums;
    s->update[u + 1] = s->update[u] + x->update;
    s->kept[u + 1] = s->kept[u] + x->kept[base];
    s->waiting[u + 1] = s->waiting[u] + waiting_bytes(x, base);
  }
  for (int level = 0; level < N_RECOMPUTE_LEVELS; level++) {
    s->again[level] = arena_array(a, double, d->n + 1);
    s->saved[level] = arena_array(a, double, d->n + 1);
    s->saved_waiting[level] = arena_array(a, double, d->n + 1);
    for (int u = 0; u < d->n && level > (int)base; u++) {
      const UnitCost *x = unit_at(d, u);
      s->again[level][u + 1] = s->again[level][u] + x->again[level];
      s->saved[level][u + 1] =
          s->saved[level][u] + fmax(0, x->kept[RECOMPUTE_none] - x->kept[level]);
      s->saved_waiting[level][u + 1] =
          s->saved_waiting[level][u] +
          fmax(0, waiting_bytes(x, RECOMPUTE_none) - waiting_bytes(x, (RecomputeLevel)level));
    }
  }
}

Dealer dealer_new(const DealProblem *p, Arena *a) {
  Dealer d = {.p = p, .arena = a, .n = p->units->n, .split = staged_traits[p->kind].split};
  d.stages = staged_stages(p->kind, p->stages, p->chunks);
  sum_units(&d);
  return d;
}

// -- Memory ------------------------------------------------------------------------------------

// Backward has the recomputed activations of one unit at least.
static double back_working(const UnitCost *x, RecomputeLevel level) {
  double own = x->working[1] + fmax(0, x->kept[RECOMPUTE_none] - x->kept[level]);
  return fmax(own, x->again_working[level]);
}

void add_working(const Dealer *d, Working *w, int unit) {
  const UnitCost *x = unit_at(d, unit);
  RecomputeLevel base = base_level(d->p);
  for (int level = (int)base; level < N_RECOMPUTE_LEVELS; level++) {
    double back = back_working(x, (RecomputeLevel)level);
    w->of[level] = fmax(w->of[level], fmax(x->working[0], back));
  }
}

// The bytes that last of units first … last - 1.  A tied embedding is on the last stage too, unless
// its device has the first one.
static double lasting_bytes(const Dealer *d, int first, int last) {
  const DealProblem *p = d->p;
  bool apart = staged_device(p->kind, p->stages, d->stages - 1) != 0;
  double tied = first > 0 && last == d->n && apart ? p->units->tied_lasting : 0;
  return d->sum.lasting[last] - d->sum.lasting[first] + tied;
}

Held stage_holds(const DealProblem *p, int stage) {
  double held = staged_held(p->kind, p->stages, (int)p->micro_batches, stage);
  double ahead = staged_ahead(p->kind, p->stages, 1, stage);
  if (!staged_traits[p->kind].split || ahead > held) ahead = held;
  return (Held){ahead, held - ahead};
}

// Bytes of micro-batches that are held, by sums over units: of units first … last - 1.
static double held_bytes(Held h, const double *kept, const double *waiting, int first, int last) {
  return h.before * (kept[last] - kept[first]) + h.after * (waiting[last] - waiting[first]);
}

// The end of the layer of the unit before `end`, or of the stage.
static int layer_end(const Dealer *d, int end, int last) {
  int layer = unit_at(d, end - 1)->layer;
  while (layer && end < last && unit_at(d, end)->layer == layer)
    end++;
  return end;
}

// Whether stages may recompute units at this level.
static bool may_recompute(const DealProblem *p, int level) {
  return p->recompute == RECOMPUTE_none || (int)p->recompute == level;
}

bool find_recompute(const Dealer *d, int first, int last, Held held, const Working *w,
                    Recompute *out) {
  const Sums *s = &d->sum;
  RecomputeLevel base = base_level(d->p);
  double bytes = lasting_bytes(d, first, last) +
                 held_bytes(held, s->kept, s->waiting, first, last) +
                 held.before * unit_at(d, first)->entry;
  double limit = d->p->memory * (1 + 1e-9);
  double updating = s->updating[last] - s->updating[first];
  if (lasting_bytes(d, first, last) + updating > limit) return false;
  bool found = bytes + w->of[base] <= limit;
  *out = (Recompute){base, base == RECOMPUTE_none ? 0 : last - first, 0, 0};
  if (found || !d->p->per_stage_recompute) return found;
  for (int level = RECOMPUTE_attention; level < N_RECOMPUTE_LEVELS; level++) {
    double lacks = bytes + w->of[level] - limit;
    if (!may_recompute(d->p, level)) continue;
    const double *saved = s->saved[level], *later = s->saved_waiting[level];
    // The fewest units that save so much.
    int lo = first + 1, hi = last;
    while (lo < hi) {
      int middle = (lo + hi) / 2;
      if (held_bytes(held, saved, later, first, middle) >= lacks)
        hi = middle;
      else
        lo = middle + 1;
    }
    lo = layer_end(d, lo, last);
    double again = s->again[level][lo] - s->again[level][first];
    double saves = held_bytes(held, saved, later, first, lo);
    if (saves < lacks || (found && again >= out->again)) continue;
    found = true;
    *out = (Recompute){(RecomputeLevel)level, lo - first, again, saves};
  }
  return found;
}

// -- Stages of a deal --------------------------------------------------------------------------

// The stage that is the only one of its device.
static bool fit_stage(const Dealer *d, Deal *deal, int stage) {
  const DealProblem *p = d->p;
  int first = deal->first[stage], last = deal->first[stage + 1];
  Held held = stage_holds(p, stage);
  Working w = {0};
  Recompute r;
  for (int u = first; u < last; u++)
    add_working(d, &w, u);
  if (!find_recompute(d, first, last, held, &w, &r)) return false;
  deal->level[stage] = r.level;
  deal->recomputed[stage] = r.units;
  double looping = held_bytes(held, d->sum.kept, d->sum.waiting, first, last) - r.saved +
                   held.before * unit_at(d, first)->entry + w.of[r.level];
  deal->bytes[stage] =
      lasting_bytes(d, first, last) + fmax(looping, d->sum.updating[last] - d->sum.updating[first]);
  return true;
}

// Stages of a device, in order, and `n` of their units recomputed at a level: the first of each,
// then the second of each, and so on.
typedef struct Shared {
  int device, n_stages, stage[SCHEDULE_CHUNKS];
  RecomputeLevel level;
  double again;
} Shared;

// Writes the first `n` units as recomputed.  Returns the bytes.
static double share_bytes(const Dealer *d, Deal *deal, Shared *s, int n) {
  const DealProblem *p = d->p;
  double kept[SCHEDULE_CHUNKS] = {0}, lasting = 0, updating = 0, working = 0;
  for (int i = 0; i < s->n_stages; i++)
    deal->recomputed[s->stage[i]] = 0;
  for (int position = 0, left = n; left > 0; position++)
    for (int i = 0; i < s->n_stages && left > 0; i++) {
      int k = s->stage[i];
      if (deal->first[k] + position >= deal->first[k + 1]) continue;
      deal->recomputed[k]++;
      left--;
    }
  s->again = 0;
  for (int i = 0; i < s->n_stages; i++) {
    int k = s->stage[i], first = deal->first[k], last = deal->first[k + 1];
    int end = first + deal->recomputed[k];
    RecomputeLevel base = base_level(p), level = n ? s->level : base;
    Working w = {0};
    for (int u = first; u < last; u++)
      add_working(d, &w, u);
    deal->level[k] = level;
    kept[i] = d->sum.kept[last] - d->sum.kept[first] + unit_at(d, first)->entry;
    if (level != base) {
      kept[i] -= d->sum.saved[level][end] - d->sum.saved[level][first];
      s->again += d->sum.again[level][end] - d->sum.again[level][first];
    } else if (base != RECOMPUTE_none) {
      deal->recomputed[k] = last - first;
    }
    lasting += lasting_bytes(d, first, last);
    updating += d->sum.updating[last] - d->sum.updating[first];
    working = fmax(working, w.of[level]);
  }
  double held = staged_peak(p->kind, p->stages, p->chunks, (int)p->micro_batches, s->device, kept);
  double bytes = lasting + fmax(held + working, updating);
  for (int i = 0; i < s->n_stages; i++)
    deal->bytes[s->stage[i]] = bytes;
  return bytes;
}

bool fit_device(const Dealer *d, Deal *deal, int device) {
  const DealProblem *p = d->p;
  Shared s = {.device = device};
  int units = 0;
  for (int i = 0; i < d->stages; i++) {
    if (staged_device(p->kind, p->stages, i) != device) continue;
    s.stage[s.n_stages++] = i;
    units += deal->first[i + 1] - deal->first[i];
  }
  if (d->stages == p->stages) return fit_stage(d, deal, device);
  double limit = p->memory * (1 + 1e-9);
  if (share_bytes(d, deal, &s, 0) <= limit) return true;
  if (!p->per_stage_recompute) return false;
  // The fewest units of the level that costs less.
  Shared best = {0};
  int fewest = 0;
  for (int level = RECOMPUTE_attention; level < N_RECOMPUTE_LEVELS; level++) {
    int lo = 1, hi = units;
    s.level = (RecomputeLevel)level;
    if (!may_recompute(p, level)) continue;
    while (lo < hi) {
      int middle = (lo + hi) / 2;
      if (share_bytes(d, deal, &s, middle) <= limit)
        hi = middle;
      else
        lo = middle + 1;
    }
    if (share_bytes(d, deal, &s, lo) > limit || (fewest && s.again >= best.again)) continue;
    fewest = lo;
    best = s;
  }
  return fewest && share_bytes(d, deal, &best, fewest) <= limit;
}

bool fit_stages(const Dealer *d, Deal *deal, int low, int high) {
  for (int device = 0; device < d->p->stages; device++) {
    bool changed = false;
    for (int i = low; i <= high; i++)
      changed |= staged_device(d->p->kind, d->p->stages, i) == device;
    if (changed && !fit_device(d, deal, device)) return false;
  }
  return true;
}

PipelineCost deal_cost(const DealProblem *p, const Deal *d, Arena *a) {
  bool apart = staged_device(p->kind, p->stages, d->n - 1) != 0;
  StageCost *at = arena_array(a, StageCost, d->n);
  for (int i = 0; i < d->n; i++)
    for (int u = d->first[i]; u < d->first[i + 1]; u++) {
      const UnitCost *x = &p->units->at[u];
      RecomputeLevel level = u - d->first[i] < d->recomputed[i] ? d->level[i] : RECOMPUTE_none;
      double back = back_working(x, level);
      at[i].forward += x->forward;
      at[i].backward += x->backward + (level == RECOMPUTE_none ? 0 : x->again[level]);
      at[i].weight_grad += x->weight_grad;
      at[i].working = fmax(at[i].working, fmax(x->working[0], back));
      at[i].kept += x->kept[level] + (u == d->first[i] ? x->entry : 0);
      at[i].waiting += waiting_bytes(x, level);
      at[i].lasting += x->lasting;
      at[i].updating += x->updating;
      at[i].sums += x->sums;
      at[i].update += x->update;
      if (u == d->first[i + 1] - 1 && i + 1 < d->n) at[i].hop = hop_seconds(p->units, u + 1);
    }
  if (apart && d->first[d->n - 1] > 0) at[d->n - 1].lasting += p->units->tied_lasting;
  return (PipelineCost){p->kind,
                        p->stages,
                        p->chunks,
                        p->micro_batches,
                        at,
                        p->units->tied_sums,
                        p->units->joint_update};
}

bool makespan_find(const DealProblem *p, const Deal *d, double cutoff, double *seconds,
                   double *peak) {
  Arena *scratch = arena_new();
  PipelineCost c = deal_cost(p, d, scratch);
  bool ok = makespan_run(&c, cutoff, seconds, peak);
  arena_free(scratch);
  return ok;
}

// -- The deal ----------------------------------------------------------------------------------

Deal deal_new(Arena *a, int stages) {
  return (Deal){.n = stages,
                .first = arena_array(a, int, stages + 1),
                .level = arena_array(a, RecomputeLevel, stages),
                .recomputed = arena_array(a, int, stages),
                .bytes = arena_array(a, double, stages)};
}

bool deal_find(const DealProblem *p, Arena *a, Deal *out) {
  Arena *scratch = arena_new();
  Dealer d = dealer_new(p, scratch);
  *out = deal_new(a, d.stages);
  bool straight = d.stages == p->stages;
  bool found = d.stages <= d.n && (straight ? table_deal(&d, out) : chunks_deal(&d, out));
  found = found && fit_stages(&d, out, 0, d.stages - 1);
  arena_free(scratch);
  return found;
}
