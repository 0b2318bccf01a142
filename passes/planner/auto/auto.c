// See auto.h.

#include "auto.h"

#include <math.h>

#include "bounds.h"
#include "builds.h"
#include "candidates.h"
#include "cost/cost.h"
#include "evaluate.h"
#include "exclusion.h"
#include "pipelines.h"
#include "point_heap.h"
#include "space.h"
#include "variants.h"

// By which plans are faster than their price, at least; without stages, by tables that were right
// for so many others; by those that were right for a plan that is alike (AlphaFold2: 0.000014).
#define ERR  0.02
#define NEAR 0.003
enum { SURE = 2 };
#define ALIKE 0.0005
// By how much plans of models without tables are faster than their estimate, at most: of the plans
// with stages of 39 random models and chains of 130 to 170 ops, none took less than 0.537 of it.
#define ESTIMATE_ERR 0.46

// How many plans the search builds. Large models take seconds each; small ones milliseconds, and
// their layers differ too much from each other, and from the ends, for tables to be right: all
// plans are built that may be the best by their bounds.
enum { MOST_BUILT = 8, MOST_SMALL = 32 };

// -- Tiers -------------------------------------------------------------------------------------

StepWork *auto_find_work(const Module *model, const ChooseOptions *o, Arena *a) {
  Candidate one = {.plan = "dp", .ranks = 1, .micro_batches = 1};
  PipelineOptions run = {.bisect_limit = -1, .unproved = true, .stop_after = "fuse"};
  Module *m = module_clone(model);
  StepWork *work = NULL;
  if (pipeline_run_quietly(m, o->pipeline(o->context, &one), &run) && m->phase >= PHASE_local)
    work = step_work_find(m, o->accumulate > 1 ? o->accumulate : 1, a);
  module_free(m);
  return work && work->units ? work : NULL;
}

// The experts' part of trained weights, at most: some of them may be frozen.
static double expert_share(const StepWork *w, const ModelFeatures *f) {
  double trained = w->gradients / dtype_bytes[DT_f32];
  return trained > f->expert_weights ? f->expert_weights / trained : 1;
}

AutoSearch *auto_new(const Module *model, const ChooseOptions *o, Arena *a) {
  const Cluster *c = o->cluster;
  if (c->n_kinds || !cost_known(c) || o->ranks > cluster_devices(c) || o->ranks < 2) return NULL;
  AutoSearch *s = arena_one(a, AutoSearch);
  StepWork *work = auto_find_work(model, o, a);
  if (!work) return NULL;
  *s = (AutoSearch){.model = model, .o = o, .a = a, .work = work};
  s->prices = prices_new(model, o, work, a);
  if (s->prices) s->has = model_features(prices_front(s->prices), a);
  if (s->has.experts) work->expert_share = expert_share(work, &s->has);
  SpaceOptions space = {.ranks = o->ranks,
                        .rows = o->batch,
                        .micro_batches = o->micro_batches,
                        .per_node = c->per_node,
                        .units = s->work->units,
                        .has = s->has,
                        .capacity = o->expert_capacity,
                        .few_slices = auto_is_small(s)};
  Points points = {0};
  space_list(&space, a, &points);
  for (int i = 0; i < points.n; i++) {
    Priced p = {.at = points.at[i], .bound = bound_find(s->work, c, &points.at[i]), .lender = -1};
    p.out = p.bound.lasting > choose_memory(s->o);
    s->n_impossible += p.out;
    vec_push(a, &s->points, p);
    if (!p.out) points_push(s, i);
  }
  for (int i = 0; i < points.n; i++)
    if (s->points.at[i].out) add_least(s, i);
  return s;
}

bool auto_goes_first(AutoSearch *s) {
  double with = INFINITY, without = INFINITY;
  for (int i = 0; i < s->points.n; i++) {
    const Priced *p = &s->points.at[i];
    PointPrice e = auto_estimate(s, &p->at);
    double *least = p->at.stages > 1 ? &with : &without;
    // Of points with saved activations in host memory there are none.
    if (!p->out && !p->at.swap && e.status == PRICE_known) *least = fmin(*least, e.seconds);
  }
  // Estimates of large models miss too much, and their candidates take long to compile.
  return s->goes_first = with < without || !auto_is_small(s);
}

// Whether the points differ in micro-batches alone.
static bool is_family(const Point *p, const Point *q) {
  Point same = *q;
  same.micro_batches = p->micro_batches;
  return point_equal(p, &same);
}

// Whether a point lacks memory because the same plan with more micro-batches does, by its table:
// each value has more rows here, and gradients are summed up in both. If it lacks memory with fewer
// of them, the most are asked for: then most plans that do not fit get two tables in all.
static bool lacks_memory(AutoSearch *s, int i) {
  const Point at = s->points.at[i].at;
  int most = i;
  bool fewer = false;
  if (at.micro_batches < 2 || !s->prices || auto_is_small(s)) return false;
  for (int k = 0; k < s->points.n; k++) {
    const Priced *q = &s->points.at[k];
    if (!is_family(&at, &q->at)) continue;
    if (q->unfit && q->at.micro_batches > at.micro_batches) return true;
    fewer |= q->unfit && q->at.micro_batches < at.micro_batches;
    if (q->at.micro_batches > s->points.at[most].at.micro_batches) most = k;
  }
  if (!fewer || most == i || s->points.at[most].tier > TIER_borrowed) return false;
  return s->points.at[most].unfit =
             auto_price(s, &s->points.at[most].at, true).status == PRICE_unfit;
}

// Gives a point a bound by its work, before a deal or a table of states in host memory is found,
// and puts it back. If it adds the point that recomputes fewer layers, which takes less, the bound
// is of that one. False: it has none.
static bool add_quick(AutoSearch *s, int i) {
  Priced *p = &s->points.at[i];
  Point at = p->at;
  p->quick = true;
  if (!s->prices || auto_is_small(s) || auto_is_hopeless(s, &p->at)) return false;
  at.fewest |= at.recompute > RECOMPUTE_none && at.stages > 1 && at.chunks == 1 &&
               prices_have_deals(s->prices);
  if (!prices_quick(s->prices, &at, &p->work)) return false;
  p->tabled = p->work;
  points_push(s, i);
  return true;
}

// Adds points that are like this one, which got a number of its tier: with less memory as it does
// not fit, or others that may be better as it does.
static void add_variants(AutoSearch *s, int i, const Priced *before, const PointPrice *price,
                         PriceStatus status) {
  if (status == PRICE_unfit || price->limited) add_recomputed(s, i);
  if (status == PRICE_unfit) add_least(s, i);
  if (before->tier == TIER_bound && status == PRICE_known) add_less_recomputed(s, i);
  bool closed = s->points.at[i].tier == TIER_closed && status == PRICE_known;
  bool refused = status == PRICE_refused && before->at.inner == POINT_sp && before->at.tensor > 1;
  if (refused || (closed && may_gain_by_tensor(s, before))) add_tensor(s, i);
  // Tables of small models are not right.
  if (before->tier == TIER_bound && status == PRICE_known && !auto_is_small(s)) add_fewest(s, i);
}

// Gives a point its number of the next tier, or a nearer one of borrowed costs, and puts it back;
// or drops it.
static void raise_tier(AutoSearch *s, int i, const Candidates *all) {
  Priced *p = &s->points.at[i];
  if (!p->quick && add_quick(s, i)) return;
  const Priced before = *p;
  PointPrice price = {.status = PRICE_unknown, .seconds = p->seconds, .plan = p->plan};
  Tier to = TIER_borrowed;
  // With states in host memory stages borrow from their own shape next, which gets a table.
  bool asks_own = p->tier == TIER_borrowed && p->at.offload && p->at.stages > 1;
  if (s->prices && !auto_is_small(s) && p->tier == TIER_bound && auto_is_hopeless(s, &p->at))
    price.status = PRICE_unfit;
  else if (asks_own && lacks_memory(s, i)) {
    p->unfit = true;
    price.status = PRICE_unfit;
  } else if (s->prices && p->tier <= TIER_borrowed)
    price.status = prices_borrow(s->prices, &p->at, &p->lender, &price.seconds);
  if (p->tier == TIER_borrowed) price.seconds = fmax(price.seconds, p->seconds);
  if (price.status == PRICE_known) price.tabled = price.seconds;
  if (price.status == PRICE_unfit) price.tabled = INFINITY;
  if (price.status == PRICE_unknown) {
    to = p->tier < TIER_closed ? TIER_closed : TIER_priced;
    if (to == TIER_closed && lacks_memory(s, i))
      price = (PointPrice){.status = PRICE_unfit, .seconds = p->seconds, .tabled = INFINITY};
    else
      price = auto_price(s, &p->at, to == TIER_closed);
    p->unfit = price.status == PRICE_unfit;
  }
  // The choice ended before its table was made.
  if (price.status == PRICE_refused && choice_ends(s->o, all)) {
    *p = before;
    points_push(s, i);
    return;
  }
  s->n_estimated += before.tier == TIER_bound;
  p->tier = to;
  p->seconds = price.seconds;
  p->bytes = to == TIER_priced ? price.bytes : 0;
  p->plan = price.plan;
  p->tabled = fmax(p->tabled, price.tabled);
  // Bytes of small models are estimated badly, and a compilation takes milliseconds.
  PriceStatus status = price.status;
  if (status == PRICE_unfit && auto_is_small(s) && !p->at.fewest) {
    p->seconds = auto_estimate(s, &p->at).seconds;
    status = PRICE_known;
  }
  p->dropped = status != PRICE_known;
  s->n_unlikely += status == PRICE_unfit;
  s->n_refused += status == PRICE_refused;
  if (!p->dropped) points_push(s, i);
  add_variants(s, i, &before, &price, status);
}

// Whether two points without stages differ in micro-batches and in the level of ZeRO alone. With
// one micro-batch sums run beside backward, which extends less exactly to all layers.
static bool are_alike(const Point *p, const Point *q) {
  Point same = *q;
  same.micro_batches = p->micro_batches;
  same.zero = p->zero;
  return point_equal(p, &same) && p->micro_batches > 1 && q->micro_batches > 1;
}

// Whether no point with stages has tables: the model has too few units.
static bool lacks_tables(const AutoSearch *s) {
  const Point least = {.stages = 2, .chunks = 1};
  return !s->prices || !prices_has_units(s->prices, &least);
}

// By how much the plan of a point may be faster than its key. An estimate may be wrong as long as
// no plan with the same ranks inside of layers was built. Without stages a table is of the model's
// whole step, so plans miss their prices alike.
static double error_of(const AutoSearch *s, const Point *p) {
  double err = fmax(auto_error(s, p), ERR), most = 0, alike = -1;
  if (auto_is_small(s)) return err;
  if (p->stages > 1)
    return auto_has_staged(s, p) || !lacks_tables(s) ? err : fmax(err, ESTIMATE_ERR);
  for (int i = 0; i < s->whole.n; i++) {
    const WholeError *x = &s->whole.at[i];
    most = fmax(most, x->err);
    if (are_alike(&x->at, p)) alike = fmax(alike, x->err);
  }
  if (alike >= 0) return fmin(err, fmax(4 * alike, ALIKE));
  return s->whole.n < SURE ? err : fmin(err, fmax(2 * most, NEAR));
}

// Whether a point with stages is no better than the best plan, however finely its units are dealt,
// and no other order of the stages gains enough for a try: its plan is not compiled, nor are those
// of other orders.
static bool is_worse_in_parts(const AutoSearch *s, const Point *p, double best) {
  double least, any_order;
  if (best <= 0 || auto_is_small(s) || !s->prices) return false;
  return prices_least(s->prices, p, &least, &any_order) && least * (1 - NEAR) >= best &&
         any_order >= LEAST_GAIN * best;
}

// Whether the point was compiled as another candidate, and lacks memory.
static bool lacks_when_tried(const AutoSearch *s, const Candidates *all, const Point *p) {
  const Candidate *c = find_tried(all, p);
  return s->o->limited && c && c->made && !c->fits;
}

// How many plans are built. Of a small model each point may be compiled with every recomputation,
// with states in host memory, and with tp.
static int most_built(const AutoSearch *s) {
  if (!auto_is_small(s)) return MOST_BUILT;
  return s->n_recomputed + s->n_offloaded + s->n_swapped ? MOST_SMALL * (2 * N_RECOMPUTE_LEVELS + 1)
                                                         : MOST_SMALL;
}

void auto_build(AutoSearch *s, Candidates *all) {
  bool small = auto_is_small(s);
  while (s->heap.n && (s->hurries || s->n_built + s->n_same < most_built(s)) &&
         !choice_ends(s->o, all)) {
    if (!s->hurries && choice_is_late(s->o, all)) points_hurry(s);
    double best = least_fitting(all), err = fmax(s->err, lacks_tables(s) ? ESTIMATE_ERR : ERR);
    bool ends = best > 0 && best <= auto_key(s, &s->points.at[s->heap.at[0]]) * (1 - err);
    if (ends && !small) break;
    int i = points_pop(s);
    Priced *p = &s->points.at[i];
    if (small && best > 0 && best <= p->bound.seconds) continue;
    p->skipped = best > 0 && best <= auto_key(s, p) * (1 - error_of(s, &p->at)) && !small;
    if (p->skipped) continue;
    if (p->tier < TIER_priced)
      raise_tier(s, i, all);
    else if (!is_worse_in_parts(s, &p->at, best) && (p->dealt_again || !is_tried(all, &p->at)))
      build_point(s, i, all);
    else if (lacks_when_tried(s, all, &p->at)) {
      add_recomputed(s, i);
      add_least(s, i);
    }
    if (s->o->progress) s->o->progress(s->o->context, NULL, s->o->bound);
  }
  if (small || choice_ends(s->o, all)) return;
  build_placed(s, all);
  build_swapped(s, all);
}

void auto_note(AutoSearch *s, const Candidate *c) {
  Point p;
  if (!c->made || !point_of_plan(c->plan, c->ranks, c->micro_batches, &p) || p.stages > 1) return;
  PointPrice price = auto_price(s, &p, false);
  if (price.status == PRICE_known) auto_note_built(s, &p, price.seconds, c);
  auto_note_one_stage(s, c->seconds);
}

const StepWork *auto_work(const AutoSearch *s) {
  return s->work;
}

double auto_lacks(const AutoSearch *s) {
  double least = least_bytes(s->work, s->o->ranks, 1, true);
  return least > choose_memory(s->o) ? least : 0;
}

double auto_weights_left(const AutoSearch *s) {
  const StepWork *w = s->work;
  return w->low_weights < w->trained ? 1 - w->trained / w->weights : 1;
}

Bound auto_bound_of(const AutoSearch *s, const Point *p) {
  return bound_find(s->work, s->o->cluster, p);
}

bool auto_bound_plan(const AutoSearch *s, const char *plan, int64_t ranks, int64_t micro_batches,
                     Point *p, Bound *b) {
  Point same;
  if (!plan_numbers(plan, ranks, micro_batches, p)) return false;
  *b = auto_bound_of(s, p);
  if (!point_of_plan(plan, ranks, micro_batches, &same)) b->seconds = b->compute;
  return true;
}

double auto_bound(const AutoSearch *s) {
  double least = INFINITY;
  for (int i = 0; i < s->points.n; i++)
    if (!s->points.at[i].out) least = fmin(least, s->points.at[i].bound.seconds);
  return isfinite(least) ? least : 0;
}

Certificate auto_certificate(const AutoSearch *s, const Candidates *all) {
  Certificate c = {.points = s->points.n - s->n_recomputed - s->n_offloaded - s->n_swapped,
                   .recomputed = s->n_recomputed,
                   .offloaded = s->n_offloaded,
                   .swapped = s->n_swapped,
                   .impossible = s->n_impossible,
                   .lacks = auto_lacks(s),
                   .unlikely = s->n_unlikely,
                   .refused = s->n_refused,
                   .estimated = s->n_estimated,
                   .built = s->n_built,
                   .failed = s->n_failed,
                   .excluded = s->n_excluded};
  double best = least_fitting(all);
  for (int i = 0; i < s->points.n; i++) {
    const Priced *p = &s->points.at[i];
    bool compiled = p->built || is_tried(all, &p->at);
    // One deal of layers to stages was compiled: others may be faster, down to the point's bounds.
    if (p->out || (compiled && p->at.stages == 1)) continue;
    double key = auto_key(s, p);
    bool priced = !compiled && !p->dropped && p->tier > TIER_bound;
    if (priced && (c.priced <= 0 || key < c.priced)) c.priced = key;
    // Tables of small models are not right.
    double tabled = auto_is_small(s) ? p->bound.seconds : fmax(p->tabled, p->bound.seconds);
    // That of sp is none of tp.
    if (!p->dropped && may_gain_by_tensor(s, p)) tabled = p->bound.seconds;
    if (c.tabled <= 0 || tabled < c.tabled) c.tabled = tabled;
    c.unpriced += !compiled && p->tier == TIER_bound && (best <= 0 || key < best);
    if (c.bound > 0 && p->bound.seconds >= c.bound) continue;
    c.bound = p->bound.seconds;
    c.binds = bound_binds(&p->bound);
  }
  // No plan of the space has stages and every one was built, or none that is left is better.
  if (best > 0 && (c.bound <= 0 || c.bound > best)) c.bound = best;
  if (best > 0 && (c.tabled <= 0 || c.tabled > best)) c.tabled = best;
  c.best = best;
  c.tables = s->prices ? prices_tables(s->prices) : 0;
  c.stopped = s->o->ended && *s->o->ended;
  return c;
}

Kept auto_kept(AutoSearch *s) {
  Kept kept = s->kept;
  s->kept = (Kept){0};
  return kept;
}

void auto_end(AutoSearch *s) {
  kept_free(&s->kept);
  if (s->prices) prices_free(s->prices);
}
