// Units, memory, and the stages of a deal: see deal.h.

#include <math.h>

#include "dealing.h"
#include "memory/offload.h"
#include "schedule/names.h"

// -- Units -------------------------------------------------------------------------------------

// Bytes from backward to the gradients of weights: of recomputed values, too, as these read them.
// If these do not run later, they are the kept ones.
static double waiting_bytes(const UnitCost *x, RecomputeLevel level, bool apart) {
  return apart ? x->waiting : x->kept[level];
}

// The part of these that is kept.
static double both_bytes(const UnitCost *x, RecomputeLevel level, bool apart) {
  return apart ? fmin(x->both, x->kept[level]) : x->kept[level];
}

static void sum_units(Dealer *d) {
  Arena *a = d->arena;
  Sums *s = &d->sum;
  double **rows[] = {&s->forward, &s->backward, &s->weight_grad, &s->lasting,  &s->sums, &s->update,
                     &s->kept,    &s->waiting,  &s->both,        &s->updating, &s->away, &s->moves};
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
    s->waiting[u + 1] = s->waiting[u] + waiting_bytes(x, base, d->apart);
    s->both[u + 1] = s->both[u] + both_bytes(x, base, d->apart);
    s->away[u + 1] = s->away[u] + x->away;
    s->moves[u + 1] = s->moves[u] + x->moves;
  }
  for (int level = 0; level < N_RECOMPUTE_LEVELS; level++) {
    s->again[level] = arena_array(a, double, d->n + 1);
    s->saved[level] = arena_array(a, double, d->n + 1);
    s->saved_waiting[level] = arena_array(a, double, d->n + 1);
    s->saved_both[level] = arena_array(a, double, d->n + 1);
    for (int u = 0; u < d->n && level > (int)base; u++) {
      const UnitCost *x = unit_at(d, u);
      s->again[level][u + 1] = s->again[level][u] + x->again[level];
      s->saved[level][u + 1] =
          s->saved[level][u] + fmax(0, x->kept[RECOMPUTE_none] - x->kept[level]);
      s->saved_waiting[level][u + 1] =
          s->saved_waiting[level][u] +
          fmax(0, waiting_bytes(x, RECOMPUTE_none, d->apart) -
                      waiting_bytes(x, (RecomputeLevel)level, d->apart));
      s->saved_both[level][u + 1] =
          s->saved_both[level][u] + fmax(0, both_bytes(x, RECOMPUTE_none, d->apart) -
                                                both_bytes(x, (RecomputeLevel)level, d->apart));
    }
  }
}

Dealer dealer_new(const DealProblem *p, Arena *a) {
  Dealer d = {.p = p, .arena = a, .n = p->units->n, .split = staged_traits[p->kind].split};
  d.stages = staged_stages(p->kind, p->stages, p->chunks);
  d.apart = d.split && p->units->knows_waiting;
  sum_units(&d);
  d.swapped = arena_array(a, bool, d.n);
  d.beside = arena_array(a, Beside, d.n);
  d.again = arena_array(a, double, d.n);
  return d;
}

// -- Memory ------------------------------------------------------------------------------------

// Backward has the recomputed activations of one unit at least. `apart`: without those that
// gradients of weights read later.
double back_working(const UnitCost *x, RecomputeLevel level, bool apart) {
  double again = fmax(0, x->kept[RECOMPUTE_none] - x->kept[level]);
  if (!apart) return fmax(x->working[1] + again, x->again_working[level]);
  again -= both_bytes(x, RECOMPUTE_none, true) - both_bytes(x, level, true);
  return fmax(x->split_working[RECOMPUTE_none] + fmax(0, again), x->split_working[level]);
}

void add_working(const Dealer *d, Working *w, int unit) {
  const UnitCost *x = unit_at(d, unit);
  RecomputeLevel base = base_level(d->p);
  for (int level = (int)base; level < N_RECOMPUTE_LEVELS; level++) {
    double back = back_working(x, (RecomputeLevel)level, d->apart);
    w->of[level] = fmax(w->of[level], fmax(x->working[0], back));
  }
}

// Further bytes of weights that units first … last - 1 read as those before the stage do.
static double tied_before(const UnitCosts *u, int first, int last) {
  double bytes = 0;
  for (int k = first; k < last; k++)
    if (u->at[k].tied_lasting > 0 && u->at[k].tied_unit < first) bytes += u->at[k].tied_lasting;
  return bytes;
}

// The bytes that last of units first … last - 1.  A tied embedding is on the last stage too, unless
// its device has the first one.
double lasting_bytes(const Dealer *d, int first, int last) {
  const DealProblem *p = d->p;
  bool apart = staged_device(p->kind, p->stages, d->stages - 1) != 0;
  double tied = first > 0 && last == d->n && apart ? p->units->tied_lasting : 0;
  tied += tied_before(p->units, first, last);
  return d->sum.lasting[last] - d->sum.lasting[first] + tied;
}

StagedHeld stage_holds(const DealProblem *p, int stage) {
  int held = staged_held(p->kind, p->stages, (int)p->micro_batches, stage);
  int ahead = staged_ahead(p->kind, p->stages, 1, stage);
  if (!staged_traits[p->kind].split || ahead > held) ahead = held;
  // After a backward, those with weight gradients to come.
  return (StagedHeld){ahead, held, held - ahead + 1};
}

// Bytes of the micro-batches that are held of units first … last - 1, of which those before `end`
// are recomputed at a level.
static double held_bytes(const Dealer *d, StagedHeld h, int first, int last, int level, int end) {
  const Sums *s = &d->sum;
  StagedStage stage = {.kept = s->kept[last] - s->kept[first],
                       .waiting = s->waiting[last] - s->waiting[first],
                       .both = s->both[last] - s->both[first]};
  if (level > (int)base_level(d->p)) {
    stage.kept -= s->saved[level][end] - s->saved[level][first];
    stage.waiting -= s->saved_waiting[level][end] - s->saved_waiting[level][first];
    stage.both -= s->saved_both[level][end] - s->saved_both[level][first];
  }
  return staged_bytes(&stage, h) + h.kept * unit_at(d, first)->entry;
}

// The end of the layer of the unit before `end`, or of the stage.
static int layer_end(const Dealer *d, int end, int last) {
  int layer = unit_at(d, end - 1)->layer;
  while (layer && end < last && unit_at(d, end)->layer == layer)
    end++;
  return end;
}

// Whether stages may recompute units at this level.
bool may_recompute(const DealProblem *p, int level) {
  return p->recompute == RECOMPUTE_none || (int)p->recompute == level;
}

// The bytes of updates on the device, after the last micro-batch.
static double on_device(double largest, double away) {
  return fmin(OFFLOAD_AT_ONCE * largest, away);
}

Offloaded offloaded_units(const Dealer *d, int first, int end) {
  const Sums *s = &d->sum;
  double largest = 0, away = s->away[end] - s->away[first];
  for (int u = first; u < end; u++)
    largest = fmax(largest, unit_at(d, u)->piece);
  return (Offloaded){end - first, s->moves[end] - s->moves[first], away, on_device(largest, away)};
}

// The end of the layer of unit `end`, or of the stage: units without a layer are of the one before,
// and those before the first of that.
static int offloaded_end(const Dealer *d, int end, int last) {
  for (int layer = 0; end < last; end++) {
    int own = unit_at(d, end)->layer;
    if (own && layer && own != layer) break;
    if (own) layer = own;
  }
  return end;
}

bool find_recompute(const Dealer *d, int first, int last, StagedHeld held, const Working *w,
                    const Offloaded *o, Recompute *out) {
  const Sums *s = &d->sum;
  RecomputeLevel base = base_level(d->p);
  double lasting = lasting_bytes(d, first, last) - o->away, limit = d->p->memory * (1 + 1e-9);
  double looping = held_bytes(d, held, first, last, (int)base, first);
  double updating = s->updating[last] - s->updating[first] + o->here;
  if (lasting + updating > limit) return false;
  bool found = lasting + looping + w->of[base] <= limit;
  *out = (Recompute){base, base == RECOMPUTE_none ? 0 : last - first, 0, looping};
  if (found || !d->p->per_stage_recompute) return found;
  for (int level = RECOMPUTE_attention; level < N_RECOMPUTE_LEVELS; level++) {
    double room = limit - lasting - w->of[level];
    if (!may_recompute(d->p, level)) continue;
    // The fewest units that save so much.
    int lo = first + 1, hi = last;
    while (lo < hi) {
      int middle = (lo + hi) / 2;
      if (held_bytes(d, held, first, last, level, middle) <= room)
        hi = middle;
      else
        lo = middle + 1;
    }
    lo = layer_end(d, lo, last);
    double again = s->again[level][lo] - s->again[level][first];
    looping = held_bytes(d, held, first, last, level, lo);
    if (looping > room || (found && again >= out->again)) continue;
    found = true;
    *out = (Recompute){(RecomputeLevel)level, lo - first, again, looping};
  }
  return found;
}

// The least saving of activations beside a stage's offloaded states. False: none fits.
static bool find_saving(const Dealer *d, int first, int last, StagedHeld held, const Working *w,
                        Saving *x) {
  if (d->p->swap) return find_swapped(d, first, last, held, w, x);
  return find_recompute(d, first, last, held, w, &x->offloaded, &x->recompute);
}

static bool saves_none(const Dealer *d, const Saving *x) {
  return x->recompute.level == base_level(d->p) && !x->swapped.layers;
}

int find_savings(const Dealer *d, int first, int last, StagedHeld held, const Working *w,
                 Saving out[MOST_SAVINGS]) {
  Saving x = {0};
  int n = 0, layers = 0;
  if (d->p->offload == OFFLOAD_all) {
    out[0].offloaded = offloaded_units(d, first, last);
    return find_saving(d, first, last, held, w, &out[0]);
  }
  if (find_saving(d, first, last, held, w, &x)) out[n++] = x;
  if (d->p->offload == OFFLOAD_none || (n && saves_none(d, &x))) return n;
  for (int end = first; end < last; layers++)
    end = offloaded_end(d, end, last);
  int step = (layers + EIGHTHS - 1) / EIGHTHS, before = first;
  for (int end = first; end < last;) {
    before = end;
    for (int k = 0; k < step && end < last; k++)
      end = offloaded_end(d, end, last);
    x.offloaded = offloaded_units(d, first, end);
    if (!find_saving(d, first, last, held, w, &x)) continue;
    out[n++] = x;
    if (saves_none(d, &x)) break;
  }
  // The last one may have more layers than it needs.
  for (int end = before; n && saves_none(d, &out[n - 1]);) {
    end = offloaded_end(d, end, last);
    if (end >= first + out[n - 1].offloaded.units) break;
    x.offloaded = offloaded_units(d, first, end);
    if (!find_saving(d, first, last, held, w, &x) || !saves_none(d, &x)) continue;
    out[n - 1] = x;
    break;
  }
  return n;
}

// -- Stages of a deal --------------------------------------------------------------------------

// The seconds of a step that a stage takes longer.
static double saving_seconds(const DealProblem *p, const Saving *s) {
  double slice = s->recompute.again + s->swapped.forward + s->swapped.backward;
  return (double)p->micro_batches * slice + s->offloaded.seconds;
}

// The stage that is the only one of its device.
static bool fit_stage(const Dealer *d, Deal *deal, int stage) {
  const DealProblem *p = d->p;
  int first = deal->first[stage], last = deal->first[stage + 1];
  StagedHeld held = stage_holds(p, stage);
  Working w = {0};
  Saving saving[MOST_SAVINGS];
  for (int u = first; u < last; u++)
    add_working(d, &w, u);
  int n = find_savings(d, first, last, held, &w, saving), best = 0;
  if (!n) return false;
  for (int i = 1; i < n; i++)
    if (saving_seconds(p, &saving[i]) < saving_seconds(p, &saving[best])) best = i;
  const Recompute *r = &saving[best].recompute;
  const Offloaded *o = &saving[best].offloaded;
  deal->level[stage] = r->level;
  deal->recomputed[stage] = r->units;
  deal->offloaded[stage] = o->units;
  deal->swapped[stage] = saving[best].swapped.layers;
  double working = deal->swapped[stage] ? saving[best].swapped.working : w.of[r->level];
  double updating = d->sum.updating[last] - d->sum.updating[first] + o->here;
  deal->bytes[stage] =
      lasting_bytes(d, first, last) - o->away + fmax(r->looping + working, updating);
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
    Offloaded o = offloaded_units(d, first, p->offload == OFFLOAD_all ? last : first);
    deal->offloaded[k] = o.units;
    lasting += lasting_bytes(d, first, last) - o.away;
    updating += d->sum.updating[last] - d->sum.updating[first] + o.here;
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
  bool knows = staged_traits[p->kind].split && p->units->knows_waiting;
  StageCost *at = arena_array(a, StageCost, d->n);
  for (int i = 0; i < d->n; i++) {
    const UnitCost *first = &p->units->at[d->first[i]];
    double piece = 0, away = 0;
    at[i] = (StageCost){.forward = first->entry_forward,
                        .backward = first->entry_backward,
                        .weight_grad = first->entry_weight_grad,
                        .kept = first->entry,
                        .lasting = tied_before(p->units, d->first[i], d->first[i + 1])};
    int n = d->first[i + 1] - d->first[i];
    bool *swapped = arena_array(a, bool, n);
    Beside *beside = arena_array(a, Beside, n);
    double *again = arena_array(a, double, n);
    mark_swapped(p->units, d->first[i], d->first[i + 1], d->swapped[i], swapped);
    double out = d->swapped[i] ? swapped_bytes(p->units, p->stages, d->first[i], d->first[i + 1],
                                               swapped, beside)
                               : 0;
    for (int u = d->first[i]; u < d->first[i + 1]; u++) {
      const UnitCost *x = &p->units->at[u];
      int k = u - d->first[i];
      RecomputeLevel level = k < d->recomputed[i] && !swapped[k] ? d->level[i] : RECOMPUTE_none;
      again[k] = level == RECOMPUTE_none ? 0 : x->again[level];
      double back = back_working(x, level, knows) + (level ? beside[k].gap : 0);
      at[i].forward += x->forward;
      at[i].backward += x->backward + again[k];
      at[i].weight_grad += x->weight_grad;
      at[i].working =
          fmax(at[i].working, fmax(fmax(x->working[0], back) + beside[k].more, beside[k].working));
      at[i].kept += x->kept[level];
      at[i].waiting += waiting_bytes(x, level, knows);
      at[i].both += both_bytes(x, level, knows);
      at[i].lasting += x->lasting;
      at[i].updating += x->updating;
      at[i].sums += x->sums;
      at[i].update += x->update;
      if (u == d->first[i + 1] - 1 && i + 1 < d->n) at[i].hop = hop_seconds(p->units, u + 1);
      if (u - d->first[i] >= d->offloaded[i]) continue;
      at[i].update += x->moves;
      away += x->away;
      piece = fmax(piece, x->piece);
    }
    Swapped s = {.layers = d->swapped[i]};
    if (s.layers)
      swapped_seconds(p->units, p->stages, d->first[i], d->first[i + 1], swapped, again, &s);
    at[i].forward += s.forward;
    at[i].backward += s.backward;
    at[i].forward_waits = s.forward;
    at[i].backward_waits = s.backward;
    at[i].kept -= out;
    at[i].waiting -= out;
    at[i].both -= out;
    at[i].lasting -= away;
    at[i].updating += on_device(piece, away);
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
                .offloaded = arena_array(a, int, stages),
                .swapped = arena_array(a, int, stages),
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
