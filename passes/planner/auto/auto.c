// See auto.h.

#include "auto.h"

#include <math.h>

#include "bounds.h"
#include "candidates.h"
#include "cost/cost.h"
#include "evaluate.h"
#include "exclusion.h"
#include "pipelines.h"
#include "planner/plan/plan.h"
#include "priced_points.h"
#include "space.h"

#define ERR  0.02    // by which plans are faster than their price, at least
#define NEAR 0.003   // likewise, without stages, by tables that were right for others
enum { SURE = 2 };   // of these
#define ALIKE 0.0005 // likewise, by tables that were right for a plan that is alike
#define LESS  0.999  // of the memory: for a deal that is made again

// How many plans the search builds. Large models take seconds each; small ones milliseconds, and
// their layers differ too much from each other, and from the ends, for tables to be right: all
// plans are built that may be the best by their bounds.
enum { MOST_BUILT = 8, MOST_SMALL = 32 };

// -- The heap ----------------------------------------------------------------------------------

// Of equal keys the point that is first in the space comes first. In a hurry the order is that of
// estimates, which a point keeps while it gets its price.
static bool is_before(const AutoSearch *s, int x, int y) {
  const Priced *p = &s->points.at[x], *q = &s->points.at[y];
  double a = s->hurries ? p->estimate : auto_key(s, p);
  double b = s->hurries ? q->estimate : auto_key(s, q);
  return a < b || (a == b && x < y);
}

static void heap_swap(AutoSearch *s, int i, int k) {
  int x = s->heap[i];
  s->heap[i] = s->heap[k];
  s->heap[k] = x;
}

static void heap_push(AutoSearch *s, int point) {
  int i = s->n_heap++;
  s->heap[i] = point;
  for (; i && is_before(s, s->heap[i], s->heap[(i - 1) / 2]); i = (i - 1) / 2)
    heap_swap(s, i, (i - 1) / 2);
}

static int heap_pop(AutoSearch *s) {
  int top = s->heap[0], i = 0;
  s->heap[0] = s->heap[--s->n_heap];
  for (;;) {
    int least = i;
    for (int k = 2 * i + 1; k <= 2 * i + 2 && k < s->n_heap; k++)
      if (is_before(s, s->heap[k], s->heap[least])) least = k;
    if (least == i) return top;
    heap_swap(s, i, least);
    i = least;
  }
}

// Orders the heap again, as keys changed.
static void heap_order(AutoSearch *s) {
  int n = s->n_heap;
  s->n_heap = 0;
  for (int k = 0; k < n; k++)
    heap_push(s, s->heap[k]);
}

// The place of a point in a hurry: those that fit by estimates are first, then others, and those
// with states in host memory.
static double hurried(const AutoSearch *s, const Point *at) {
  enum { UNFIT = 1000 }; // times
  PointPrice e = auto_estimate(s, at);
  bool likely = e.status == PRICE_known && !at->offload;
  return likely ? e.seconds : UNFIT * e.seconds;
}

// The time is over, and no plan fits yet: the points are compiled in the order of their estimates.
// Points with recomputation that are added follow theirs.
static void hurry(AutoSearch *s) {
  s->hurries = true;
  for (int i = 0; i < s->n_heap; i++) {
    Priced *p = &s->points.at[s->heap[i]];
    p->estimate = hurried(s, &p->at);
  }
  heap_order(s);
}

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

// Whether the point may have states in host memory. With stages and one micro-batch it has none, as
// tables of a stage have updates in backward; nor with chunks, which have no deals in plans' texts.
// Replicas divide states first: those of ZeRO-1, and of ZeRO-3, which leaves the least.
static bool may_offload(const AutoSearch *s, const Point *p) {
  bool states = s->work->states > 0 || s->work->narrow;
  if (!s->prices || !states || p->offload || p->chunks > 1 || p->kind == POINT_interlaced ||
      (p->replicas > 1 && p->zero != 1 && p->zero != 3))
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
  if (s->hurries) p.estimate = hurried(s, &at);
  vec_push(s->a, &s->points, p);
  heap_push(s, s->points.n - 1);
  s->n_offloaded++;
}

// Adds the point of the same plan with states in host memory and all layers recomputed, as it does
// not fit; with stages, a deal chooses the layers of both.
static void add_least(AutoSearch *s, int i) {
  const Point plain = s->points.at[i].at;
  if (plain.recompute == RECOMPUTE_none && may_offload(s, &plain))
    add_offloaded(s, &plain, RECOMPUTE_layer);
}

// Adds those with less recomputation, as this one may fit: they need more memory. Deals without
// any are among those of each level.
static void add_less_recomputed(AutoSearch *s, int i) {
  const Point at = s->points.at[i].at;
  if (!at.offload || at.recompute != RECOMPUTE_layer) return;
  if (at.stages == 1) add_offloaded(s, &at, RECOMPUTE_none);
  add_offloaded(s, &at, RECOMPUTE_attention);
}

AutoSearch *auto_new(const Module *model, const ChooseOptions *o, Arena *a) {
  const Cluster *c = o->cluster;
  if (c->n_kinds || !cost_known(c) || o->ranks > cluster_devices(c) || o->ranks < 2) return NULL;
  AutoSearch *s = arena_one(a, AutoSearch);
  StepWork *work = auto_find_work(model, o, a);
  if (!work) return NULL;
  *s = (AutoSearch){.model = model, .o = o, .a = a, .work = work};
  s->prices = prices_new(model, o, work, a);
  ModelFeatures has = {0};
  if (s->prices) has = model_features(prices_front(s->prices), a);
  if (has.experts) work->expert_share = expert_share(work, &has);
  s->sequences = has.sequences;
  SpaceOptions space = {.ranks = o->ranks,
                        .rows = o->batch,
                        .micro_batches = o->micro_batches,
                        .per_node = c->per_node,
                        .units = s->work->units,
                        .has = has,
                        .capacity = o->expert_capacity,
                        .few_slices = auto_is_small(s)};
  Points points = {0};
  space_list(&space, a, &points);
  // Each with recomputation of all layers or of few, with states in host memory, and all of these
  // by sp or by tp.
  s->heap = arena_array(a, int, 6 * N_RECOMPUTE_LEVELS * (int64_t)points.n);
  for (int i = 0; i < points.n; i++) {
    Priced p = {.at = points.at[i], .bound = bound_find(s->work, c, &points.at[i]), .lender = -1};
    p.out = p.bound.lasting > choose_memory(s->o);
    s->n_impossible += p.out;
    vec_push(a, &s->points, p);
    if (!p.out) heap_push(s, i);
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
    if (!p->out && e.status == PRICE_known) *least = fmin(*least, e.seconds);
  }
  // Estimates of large models miss too much, and their candidates take long to compile.
  return s->goes_first = with < without || !auto_is_small(s);
}

// The candidate that has the point's plan already, and was compiled; or NULL.
static const Candidate *find_tried(const Candidates *all, const Point *p) {
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    Point q;
    if (c->excluded || c->stopped || !point_of_plan(c->plan, c->ranks, c->micro_batches, &q))
      continue;
    if (point_equal(p, &q)) return c;
  }
  return NULL;
}

static bool is_tried(const Candidates *all, const Point *p) {
  return find_tried(all, p) != NULL;
}

// Adds the points of the same plan with recomputation, as it does not fit, or only with stages that
// take longer. They take no less than the bound, as they compute the same and more.
static void add_recomputed(AutoSearch *s, int i) {
  const Priced plain = s->points.at[i];
  if (!s->prices || plain.at.recompute > RECOMPUTE_none || plain.at.offload || plain.recomputed)
    return;
  s->points.at[i].recomputed = true;
  for (RecomputeLevel k = RECOMPUTE_none + 1; k < N_RECOMPUTE_LEVELS; k++) {
    Priced p = {.at = plain.at, .bound = plain.bound, .lender = -1};
    p.at.recompute = k;
    vec_push(s->a, &s->points, p);
    heap_push(s, s->points.n - 1);
    s->n_recomputed++;
  }
}

// Adds the point that recomputes as few layers of each stage as fit, as all of them fit.
static void add_fewest(AutoSearch *s, int i) {
  Priced p = {.at = s->points.at[i].at, .bound = s->points.at[i].bound, .lender = -1};
  if (p.at.recompute == RECOMPUTE_none || p.at.offload || p.at.fewest || p.at.stages == 1 ||
      p.at.chunks > 1)
    return;
  if (s->prices && !prices_have_deals(s->prices)) return;
  p.at.fewest = true;
  vec_push(s->a, &s->points, p);
  heap_push(s, s->points.n - 1);
  s->n_recomputed++;
}

// Whether tp may be better than sp inside of the point's layers. Without recomputation it repeats
// the norms of sp on each rank, and saves as many bytes or more. Recomputed layers save their
// inputs alone, and those of tp run beside its sums: of 8 stages of GPT-3 on 4 H200s each, in 512
// micro-batches, sp takes 55.9 s and tp 55.1 s.
static bool may_gain_by_tensor(const AutoSearch *s, const Priced *p) {
  return s->sequences && p->at.inner == POINT_sp && p->at.tensor > 1 && p->at.context == 1 &&
         !p->at.fewest && !p->has_tensor && p->at.recompute == RECOMPUTE_layer;
}

// Adds the point with tp inside of layers, as that with sp is refused, or fits by its own table.
static void add_tensor(AutoSearch *s, int i) {
  Priced *with = &s->points.at[i];
  Priced p = {.at = with->at, .bound = with->bound, .lender = -1};
  with->has_tensor = true;
  p.at.inner = POINT_tp;
  vec_push(s->a, &s->points, p);
  heap_push(s, s->points.n - 1);
  s->n_recomputed += p.at.recompute > RECOMPUTE_none;
}

// Keeps the module of a candidate if it is the best so far.
static void keep_best(AutoSearch *s, Kept *made, int candidate) {
  made->candidate = candidate;
  if (made->m && (!s->kept.m || made->seconds < s->kept.seconds)) {
    Kept before = s->kept;
    s->kept = *made;
    *made = before;
  }
  kept_free(made);
}

// Prices another deal of a point, as its plan did not fit when it was built: into less memory, or
// one that is in the plan's text.
static void deal_again(AutoSearch *s, int i, const Candidate *c) {
  Priced *p = &s->points.at[i];
  double memory = choose_memory(s->o);
  Price price;
  if (!s->prices || p->dealt_again || c->priced_bytes <= 0) return;
  p->dealt_again = true;
  if (p->plan) memory *= LESS * c->priced_bytes / (double)c->needs.peak_bytes;
  if (prices_deal(s->prices, &p->at, memory, &price) != PRICE_known ||
      str_equal(price.plan, p->plan))
    return;
  p->seconds = price.seconds;
  p->bytes = price.bytes;
  p->plan = price.plan;
  p->built = false;
  heap_push(s, i);
}

// Improves the deal in the text of a point's plan.
static void improve_deal(AutoSearch *s, Priced *p) {
  Price price;
  if (!p->plan || p->dealt_again) return;
  if (prices_deal(s->prices, &p->at, choose_memory(s->o), &price) != PRICE_known ||
      price.seconds >= p->seconds)
    return;
  p->seconds = price.seconds;
  p->bytes = price.bytes;
  p->plan = price.plan;
}

// The candidate with that plan; NULL: it was not compiled.
static const Candidate *find_same(const Candidates *all, const char *plan, int64_t micro_batches) {
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    bool compiled = !c->excluded && !c->stopped;
    if (compiled && c->micro_batches == micro_batches && str_equal(c->plan, plan)) return c;
  }
  return NULL;
}

// Compiles the point's plan, unless another point has the same: a deal in which no layer is
// recomputed. False: the choice ended meanwhile.
static bool make_plan(AutoSearch *s, Candidate *c, Candidates *all) {
  const Candidate *same = find_same(all, c->plan, c->micro_batches);
  if (same) {
    *c = *same;
    s->n_same++;
    return true;
  }
  Kept made = {0};
  bool keeps = s->o->run && !auto_is_small(s);
  candidate_make(s->model, s->o, s->a, c, keeps ? &made : NULL);
  s->n_built += !c->stopped;
  s->n_failed += !c->made && !c->stopped;
  vec_push(s->a, all, *c);
  keep_best(s, &made, all->n - 1);
  return !c->stopped;
}

// Keys are lower, or plans may be faster than them.
static void push_skipped(AutoSearch *s) {
  for (int i = 0; i < s->points.n; i++) {
    if (!s->points.at[i].skipped) continue;
    s->points.at[i].skipped = false;
    heap_push(s, i);
  }
}

// Builds the point's plan.
static void build_point(AutoSearch *s, int i, Candidates *all) {
  Priced *p = &s->points.at[i];
  improve_deal(s, p);
  Candidate c = {.plan = p->plan ? p->plan : point_plan(s->a, &p->at), .ranks = s->o->ranks};
  c.micro_batches = p->at.micro_batches;
  c.worth = least_fitting(all);
  c.priced = p->seconds;
  c.priced_bytes = p->bytes;
  p->built = make_plan(s, &c, all);
  // A plan with a deal in its text may be one without it, which `place` deals.
  if (!c.made && !c.stopped && !c.needs_less && p->plan) {
    prices_refuse_deals(s->prices);
    p->built = false;
    p->tier = TIER_closed;
    heap_push(s, i);
  }
  if (!c.made) return;
  auto_note_built(s, &p->at, p->seconds, &c);
  if (p->at.stages == 1) auto_note_one_stage(s, c.seconds);
  push_skipped(s);
  heap_order(s);
  if (c.fits) return;
  if (!s->points.at[i].dealt_again) {
    add_recomputed(s, i);
    add_least(s, i);
  }
  deal_again(s, i, &c);
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

// Gives a point with stages a bound by its work, before a deal is found, and puts it back. False:
// it has none, or adds a point that recomputes fewer layers, which takes less.
static bool add_quick(AutoSearch *s, int i) {
  Priced *p = &s->points.at[i];
  p->quick = true;
  bool adds_fewest = p->at.recompute > RECOMPUTE_none && !p->at.fewest && p->at.chunks == 1;
  if (!s->prices || (adds_fewest && prices_have_deals(s->prices))) return false;
  if (auto_is_small(s) || auto_is_hopeless(s, &p->at) || !prices_quick(s->prices, &p->at, &p->work))
    return false;
  p->tabled = p->work;
  heap_push(s, i);
  return true;
}

// Gives a point its number of the next tier, or a nearer one of borrowed costs, and puts it back;
// or drops it.
static void raise_tier(AutoSearch *s, int i, const Candidates *all) {
  Priced *p = &s->points.at[i];
  if (!p->quick && add_quick(s, i)) return;
  const Priced before = *p;
  PointPrice price = {.status = PRICE_unknown, .seconds = p->seconds, .plan = p->plan};
  Tier to = TIER_borrowed;
  if (s->prices && !auto_is_small(s) && p->tier == TIER_bound && auto_is_hopeless(s, &p->at))
    price.status = PRICE_unfit;
  else if (s->prices && p->tier <= TIER_borrowed)
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
    heap_push(s, i);
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
  if (!p->dropped) heap_push(s, i);
  if (status == PRICE_unfit || price.limited) add_recomputed(s, i);
  if (status == PRICE_unfit) add_least(s, i);
  if (before.tier == TIER_bound && status == PRICE_known) add_less_recomputed(s, i);
  bool closed = to == TIER_closed && status == PRICE_known;
  bool refused = status == PRICE_refused && before.at.inner == POINT_sp && before.at.tensor > 1;
  if (refused || (closed && may_gain_by_tensor(s, &before))) add_tensor(s, i);
  // Tables of small models are not right.
  if (before.tier == TIER_bound && status == PRICE_known && !auto_is_small(s)) add_fewest(s, i);
}

// Whether the point lacks no memory by its tables.
static bool may_fit(const AutoSearch *s, const Point *at) {
  for (int i = 0; i < s->points.n; i++)
    if (point_equal(&s->points.at[i].at, at))
      return !s->points.at[i].out && !s->points.at[i].dropped;
  return false;
}

// Compiles the best plan with the stages of `place`, too, if its text has stages of auto: units of
// `place` are single products, so they may be more even, or fit without recomputation.
static void build_placed(AutoSearch *s, Candidates *all) {
  const Candidate *best = auto_best_of_space(s, all);
  for (int i = 0; best && i < s->points.n; i++) {
    const Priced *p = &s->points.at[i];
    Point at = p->at;
    at.fewest = false;
    if (p->at.fewest) at.recompute = RECOMPUTE_none;
    if (!p->built || !p->plan || !str_equal(p->plan, best->plan) ||
        p->at.micro_batches != best->micro_batches || is_tried(all, &at))
      continue;
    if (p->at.fewest && !may_fit(s, &at)) continue;
    Candidate c = {.plan = point_plan(s->a, &at), .ranks = s->o->ranks};
    c.micro_batches = at.micro_batches;
    c.worth = least_fitting(all);
    c.priced = p->seconds;
    make_plan(s, &c, all);
    return;
  }
}

// Compiles plans without stages, with states in host memory and recomputation, with saved
// activations there as well, instead of recomputation or beside it: those that take no longer than
// the best plan that fits, or would if they did.
static void build_swapped(AutoSearch *s, Candidates *all) {
  for (int i = 0; i < s->points.n && !choice_ends(s->o, all); i++) {
    Point at = s->points.at[i].at;
    if (!s->points.at[i].built || at.stages > 1 || !at.offload || at.recompute != RECOMPUTE_layer)
      continue;
    const Candidate *c = find_same(all, point_plan(s->a, &at), at.micro_batches);
    if (!c || !c->made || c->seconds > least_fitting(all)) continue;
    int programs = point_programs(&at);
    at.recompute = RECOMPUTE_none;
    at.offload = false;
    const char *inside = point_plan(s->a, &at), *recompute = recompute_program[RECOMPUTE_layer];
    for (int beside = 0; beside < 2; beside++) {
      const char *saver = beside ? str_format(s->a, "%s=1,swap=1", recompute) : "swap=1";
      Candidate x = {.ranks = s->o->ranks, .micro_batches = at.micro_batches};
      x.plan = str_format(s->a, "%s,%s,%s=1", inside, saver, offload_program);
      x.worth = least_fitting(all);
      if (programs + beside <= MAX_PLAN && !find_same(all, x.plan, x.micro_batches))
        make_plan(s, &x, all);
    }
  }
}

// Whether two points without stages differ in micro-batches and in the level of ZeRO alone. With
// one micro-batch sums run beside backward, which extends less exactly to all layers.
static bool are_alike(const Point *p, const Point *q) {
  Point same = *q;
  same.micro_batches = p->micro_batches;
  same.zero = p->zero;
  return point_equal(p, &same) && p->micro_batches > 1 && q->micro_batches > 1;
}

// By how much the plan of a point may be faster than its key. Without stages a table is of the
// model's whole step, so plans miss their prices alike.
static double error_of(const AutoSearch *s, const Point *p) {
  double err = fmax(auto_error(s, p), ERR), most = 0, alike = -1;
  if (p->stages > 1 || auto_is_small(s)) return err;
  for (int i = 0; i < s->whole.n; i++) {
    const WholeError *x = &s->whole.at[i];
    most = fmax(most, x->err);
    if (are_alike(&x->at, p)) alike = fmax(alike, x->err);
  }
  if (alike >= 0) return fmin(err, fmax(4 * alike, ALIKE));
  return s->whole.n < SURE ? err : fmin(err, fmax(2 * most, NEAR));
}

// Whether a point with stages is no better than the best plan, however finely its units are dealt,
// and no other order of the stages gains what is worth a try: its plan is not compiled, nor are
// those of other orders.
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
  return s->n_recomputed + s->n_offloaded ? MOST_SMALL * (2 * N_RECOMPUTE_LEVELS + 1) : MOST_SMALL;
}

void auto_build(AutoSearch *s, Candidates *all) {
  bool small = auto_is_small(s);
  while (s->n_heap && (s->hurries || s->n_built + s->n_same < most_built(s)) &&
         !choice_ends(s->o, all)) {
    if (!s->hurries && choice_is_late(s->o, all)) hurry(s);
    double best = least_fitting(all), err = fmax(s->err, ERR);
    bool ends = best > 0 && best <= auto_key(s, &s->points.at[s->heap[0]]) * (1 - err);
    if (ends && !small) break;
    int i = heap_pop(s);
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
  Certificate c = {.points = s->points.n - s->n_recomputed - s->n_offloaded,
                   .recomputed = s->n_recomputed,
                   .offloaded = s->n_offloaded,
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
    if (p->out || p->built || is_tried(all, &p->at)) continue;
    double key = auto_key(s, p);
    bool priced = !p->dropped && p->tier > TIER_bound;
    if (priced && (c.priced <= 0 || key < c.priced)) c.priced = key;
    // Tables of small models are not right.
    double tabled = auto_is_small(s) ? p->bound.seconds : fmax(p->tabled, p->bound.seconds);
    // That of sp is none of tp.
    if (!p->dropped && may_gain_by_tensor(s, p)) tabled = p->bound.seconds;
    if (c.tabled <= 0 || tabled < c.tabled) c.tabled = tabled;
    c.unpriced += p->tier == TIER_bound && (best <= 0 || key < best);
    if (c.bound > 0 && p->bound.seconds >= c.bound) continue;
    c.bound = p->bound.seconds;
    c.binds = bound_binds(&p->bound);
  }
  // Every plan of the space was built, or none that is left is better.
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
