// See auto.h.

#include "auto.h"

#include <math.h>

#include "bounds.h"
#include "candidates.h"
#include "cost/cost.h"
#include "estimate.h"
#include "evaluate.h"
#include "prices.h"
#include "space.h"

#define MEMORY_ERR 1.15 // bytes of a plan by those estimated, at first
#define HOPELESS   2    // times the memory: estimated bytes of a point that gets no table
#define ERR        0.02 // by which plans are faster than their price, at least
#define FAR        1.1  // times the best: a price, by which no plan like it was too high
#define EXACT      0.05 // by which plans differ from their price, if tables are right
#define SEARCHED   2 // times the best: the most that a search improves on named plans (Swin: 1.93)

// How many plans the search builds. Large models take seconds each; small ones milliseconds, and
// their layers differ too much from each other, and from the ends, for tables to be right: all
// plans are built that may be the best by their bounds.
enum { MOST_BUILT = 8, MOST_SMALL = 32 };

// Errors of estimates, as factors: the seconds of those with as many parts
// of the model, stages or chunks, and the same ZeRO and recomputation; the bytes of those of a
// schedule. It corrects the estimates of points like them.
typedef struct Correction {
  int parts, zero;
  bool interlaced, tabled; // by tables, or an estimate
  RecomputeLevel recompute;
  double least;
} Correction;

// The number by which a point is in the heap.
typedef enum Tier { TIER_bound, TIER_borrowed, TIER_closed, TIER_priced } Tier;

// A point, and its numbers so far.
typedef struct Priced {
  Point at;
  Bound bound;
  Tier tier;
  double seconds;   // of that tier, but the first
  const char *plan; // of its price; NULL: the point's own
  double tabled;    // seconds that no plan of it is below, by tables; 0: none says
  int lender;       // the table that it borrowed from; -1: none
  bool out;         // the bound proves that it lacks memory
  bool dropped;     // it lacks memory, or is refused, by tables or an estimate
  bool lacks;       // it lacks memory, if it was asked for beside the heap
  bool built;
} Priced;

struct AutoSearch {
  const Module *model;
  const ChooseOptions *o;
  Arena *a;
  const StepWork *work;
  Prices *prices; // or NULL
  Vec(Priced) points;
  int *heap, n_heap; // of points: a binary heap by key
  Vec(Correction) seconds;
  double bytes[N_POINT_KINDS];
  double err;       // by how much plans were faster than their price
  bool goes_first;  // before candidates without stages
  double one_stage; // seconds of the fastest of these so far, built or priced; 0: none was
  int n_recomputed; // points that were added
  int n_impossible, n_unlikely, n_refused, n_estimated, n_built, n_failed, n_excluded;
};

// Returns the correction of points like this one; NULL: none was built.
static Correction *find_correction(const AutoSearch *s, const Point *p) {
  for (int i = 0; i < s->seconds.n; i++) {
    Correction *c = &s->seconds.at[i];
    bool interlaced = p->kind == POINT_interlaced;
    if (c->parts == p->stages * p->chunks && c->zero == p->zero && c->interlaced == interlaced &&
        c->recompute == p->recompute)
      return c;
  }
  return NULL;
}

static bool is_tabled(const AutoSearch *s, const Point *p) {
  return s->prices && prices_has_units(s->prices, p);
}

// Points that are like none that was built are expected to miss their price as the plans of two
// kinds do, at least: then the tables lack something that all of them have. Estimates miss by other
// causes.
static double corrected(const AutoSearch *s, const Point *p, double seconds) {
  const Correction *c = find_correction(s, p);
  if (c) return seconds * c->least;
  double least = INFINITY;
  int n = 0;
  for (int i = 0; i < s->seconds.n; i++) {
    if (s->seconds.at[i].tabled != is_tabled(s, p)) continue;
    least = fmin(least, s->seconds.at[i].least);
    n++;
  }
  return n > 1 ? seconds * fmax(least, 1) : seconds;
}

// Whether candidates are compiled in milliseconds: then more are, and searches in any case.
static bool is_small(const AutoSearch *s) {
  return s->model->graphs->n_ops <= SMALL_OPS;
}

// Bounds by tables are corrected as prices are; those of small models are not right.
static double key_of(const AutoSearch *s, const Priced *p) {
  bool corrects = p->tier == TIER_priced || (p->tier > TIER_bound && !is_small(s));
  double seconds = corrects ? corrected(s, &p->at, p->seconds) : p->seconds;
  return fmax(seconds, p->bound.seconds);
}

// -- The heap ----------------------------------------------------------------------------------

// Of equal keys the point that is first in the space comes first.
static bool is_before(const AutoSearch *s, int x, int y) {
  double a = key_of(s, &s->points.at[x]), b = key_of(s, &s->points.at[y]);
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

// -- Tiers -------------------------------------------------------------------------------------

// Compiles the step of one rank up to its fused kernels. NULL: it cannot be made.
static StepWork *find_work(const Module *model, const ChooseOptions *o, Arena *a) {
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
  StepWork *work = find_work(model, o, a);
  if (!work) return NULL;
  *s = (AutoSearch){.model = model, .o = o, .a = a, .work = work};
  s->prices = prices_new(model, o, work, a);
  ModelFeatures has = {0};
  if (s->prices) has = model_features(prices_front(s->prices), a);
  if (has.experts) work->expert_share = expert_share(work, &has);
  SpaceOptions space = {.ranks = o->ranks,
                        .rows = o->batch,
                        .micro_batches = o->micro_batches,
                        .per_node = c->per_node,
                        .units = s->work->units,
                        .has = has,
                        .capacity = o->expert_capacity};
  Points points = {0};
  space_list(&space, a, &points);
  s->heap = arena_array(a, int, (2 * N_RECOMPUTE_LEVELS - 1) * (int64_t)points.n);
  for (int i = 0; i < points.n; i++) {
    Priced p = {.at = points.at[i], .bound = bound_find(s->work, c, &points.at[i]), .lender = -1};
    p.out = p.bound.lasting > choose_memory(s->o);
    s->n_impossible += p.out;
    vec_push(a, &s->points, p);
    if (!p.out) heap_push(s, i);
  }
  return s;
}

// Finds the closed form of a point, or its price: by tables of the model's units, or else an
// estimate for both. *plan: of the price; NULL: the point's own. *tabled: the closed form by
// tables; INFINITY: they refuse it; 0: there are none.
static PriceStatus price_point(AutoSearch *s, const Point *p, bool closed, double *seconds,
                               double *tabled, const char **plan) {
  Price price = {0};
  PriceStatus status = s->prices ? prices_find(s->prices, p, !closed, &price) : PRICE_unknown;
  *plan = price.plan;
  *tabled = status == PRICE_unknown ? 0 : status == PRICE_known ? price.bound : INFINITY;
  if (status != PRICE_unknown) {
    *seconds = closed ? price.bound : price.seconds;
    return status;
  }
  Estimate e = estimate_find(s->work, s->o->cluster, p);
  double factor = fmax(s->bytes[p->kind], MEMORY_ERR);
  *seconds = e.seconds;
  return e.bytes * factor <= choose_memory(s->o) ? PRICE_known : PRICE_unfit;
}

bool auto_goes_first(AutoSearch *s) {
  double with = INFINITY, without = INFINITY;
  for (int i = 0; i < s->points.n; i++) {
    const Priced *p = &s->points.at[i];
    Estimate e = estimate_find(s->work, s->o->cluster, &p->at);
    double *least = p->at.stages > 1 ? &with : &without;
    if (!p->out && e.bytes * MEMORY_ERR <= choose_memory(s->o)) *least = fmin(*least, e.seconds);
  }
  // Estimates of large models miss too much, and their candidates take long to compile.
  return s->goes_first = with < without || !is_small(s);
}

// Whether a candidate has the point's plan already, and was compiled.
static bool is_tried(const Candidates *all, const Point *p) {
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    Point q;
    if (c->excluded || c->stopped || !point_of_plan(c->plan, c->ranks, c->micro_batches, &q))
      continue;
    if (point_equal(p, &q)) return true;
  }
  return false;
}

// Notes the error of the price `expected` of a point's plan.
static void note_built(AutoSearch *s, const Point *p, double expected, const Candidate *c) {
  double bytes = (double)c->needs.peak_bytes / estimate_find(s->work, s->o->cluster, p).bytes;
  double seconds = c->seconds / expected;
  s->err = fmax(s->err, 1 - seconds);
  Correction *known = find_correction(s, p);
  if (known)
    known->least = fmin(known->least, seconds);
  else
    vec_push(s->a, &s->seconds,
             (Correction){.parts = p->stages * p->chunks,
                          .zero = p->zero,
                          .interlaced = p->kind == POINT_interlaced,
                          .tabled = is_tabled(s, p),
                          .recompute = p->recompute,
                          .least = seconds});
  // Estimates of bytes are of plans without recomputation.
  if (p->stages > 1 && p->recompute == RECOMPUTE_none)
    s->bytes[p->kind] = fmax(s->bytes[p->kind], bytes);
}

// Notes the seconds of a named plan without stages.
static void note_one_stage(AutoSearch *s, double seconds) {
  if (s->one_stage <= 0 || seconds < s->one_stage) s->one_stage = seconds;
}

// Adds the points of the same plan with recomputation, as it does not fit. They take no less, as
// they compute the same and more.
static void add_recomputed(AutoSearch *s, int i) {
  const Priced plain = s->points.at[i];
  if (!s->prices || plain.at.recompute > RECOMPUTE_none) return;
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
  if (p.at.recompute == RECOMPUTE_none || p.at.fewest || p.at.stages == 1 || p.at.chunks > 1)
    return;
  p.at.fewest = true;
  vec_push(s->a, &s->points, p);
  heap_push(s, s->points.n - 1);
  s->n_recomputed++;
}

// Builds the point's plan.
static void build_point(AutoSearch *s, int i, Candidates *all) {
  Priced *p = &s->points.at[i];
  Candidate c = {.plan = p->plan ? p->plan : point_plan(s->a, &p->at), .ranks = s->o->ranks};
  c.micro_batches = p->at.micro_batches;
  c.worth = least_fitting(all);
  c.priced = p->seconds;
  Price price;
  if (s->prices && prices_find(s->prices, &p->at, true, &price) == PRICE_known)
    c.priced_bytes = price.bytes;
  p->built = true;
  s->n_built++;
  candidate_make(s->model, s->o, s->a, &c, NULL);
  if (c.stopped) {
    p->built = false;
    s->n_built--;
  } else {
    s->n_failed += !c.made;
  }
  vec_push(s->a, all, c);
  if (!c.made) return;
  note_built(s, &p->at, p->seconds, &c);
  if (p->at.stages == 1) note_one_stage(s, c.seconds);
  // The keys of points like it changed.
  int n = s->n_heap;
  s->n_heap = 0;
  for (int k = 0; k < n; k++)
    heap_push(s, s->heap[k]);
  if (!c.fits) add_recomputed(s, i);
}

// Whether a point is estimated to need so much that no table is made for it.
static bool is_hopeless(const AutoSearch *s, const Point *p) {
  Estimate e = estimate_find(s->work, s->o->cluster, p);
  double part = 1;
  if (p->recompute > RECOMPUTE_none) part = prices_level_part(s->prices, p->recompute);
  return e.bytes - e.saved * (1 - part) > HOPELESS * choose_memory(s->o);
}

// Gives a point its number of the next tier, or a nearer one of borrowed costs, and puts it back;
// or drops it.
static void raise_tier(AutoSearch *s, int i, const Candidates *all) {
  Priced *p = &s->points.at[i];
  const Priced before = *p;
  PriceStatus status = PRICE_unknown;
  Tier to = TIER_borrowed;
  double tabled = 0;
  if (s->prices && !is_small(s) && p->tier == TIER_bound && is_hopeless(s, &p->at))
    status = PRICE_unfit;
  else if (s->prices && p->tier <= TIER_borrowed)
    status = prices_borrow(s->prices, &p->at, &p->lender, &p->seconds);
  if (status == PRICE_known) tabled = p->seconds;
  if (status == PRICE_unfit) tabled = INFINITY;
  if (status == PRICE_unknown) {
    to = p->tier < TIER_closed ? TIER_closed : TIER_priced;
    status = price_point(s, &p->at, to == TIER_closed, &p->seconds, &tabled, &p->plan);
  }
  // The choice ended before its table was made.
  if (status == PRICE_refused && choice_ends(s->o, all)) {
    *p = before;
    heap_push(s, i);
    return;
  }
  s->n_estimated += before.tier == TIER_bound;
  p->tier = to;
  p->tabled = fmax(p->tabled, tabled);
  // Bytes of small models are estimated badly, and a compilation takes milliseconds.
  if (status == PRICE_unfit && is_small(s) && !p->at.fewest) {
    p->seconds = estimate_find(s->work, s->o->cluster, &p->at).seconds;
    status = PRICE_known;
  }
  p->dropped = status != PRICE_known;
  s->n_unlikely += status == PRICE_unfit;
  s->n_refused += status == PRICE_refused;
  if (!p->dropped) heap_push(s, i);
  if (status == PRICE_unfit) add_recomputed(s, i);
  // Tables of small models are not right.
  if (before.tier == TIER_bound && status == PRICE_known && !is_small(s)) add_fewest(s, i);
}

void auto_build(AutoSearch *s, Candidates *all) {
  bool small = is_small(s);
  // Of a small model each point may be compiled with every recomputation.
  int most = small ? MOST_SMALL * (s->n_recomputed ? N_RECOMPUTE_LEVELS : 1) : MOST_BUILT;
  while (s->n_heap && s->n_built < most && !choice_ends(s->o, all)) {
    double best = least_fitting(all), err = fmax(s->err, ERR);
    bool ends = best > 0 && best <= key_of(s, &s->points.at[s->heap[0]]) * (1 - err);
    if (ends && !small) break;
    int i = heap_pop(s);
    Priced *p = &s->points.at[i];
    if (small && best > 0 && best <= p->bound.seconds) continue;
    if (p->tier < TIER_priced)
      raise_tier(s, i, all);
    else if (!is_tried(all, &p->at))
      build_point(s, i, all);
  }
}

// -- Answers of the search ----------------------------------------------------------------------

static const char *exclude(AutoSearch *s, const char *why) {
  s->n_excluded++;
  return why;
}

// Whether a plan of the space without stages and without recomputation may fit and take less.
static bool may_fit_below(AutoSearch *s, double seconds) {
  for (int i = 0; i < s->points.n; i++) {
    Priced *p = &s->points.at[i];
    int lender = -1;
    double least, tabled;
    const char *plan;
    if (p->at.stages > 1 || p->at.recompute > RECOMPUTE_none || p->out || p->dropped || p->lacks ||
        key_of(s, p) >= seconds)
      continue;
    // A bound by a table that is there first.
    PriceStatus status = PRICE_unfit;
    if (p->tier > TIER_bound || !is_hopeless(s, &p->at))
      status = prices_borrow(s->prices, &p->at, &lender, &least);
    if (status == PRICE_known && least >= seconds) continue;
    if (status != PRICE_unfit) status = price_point(s, &p->at, false, &least, &tabled, &plan);
    if (status == PRICE_unknown || (status == PRICE_known && corrected(s, &p->at, least) < seconds))
      return true;
    p->lacks = status == PRICE_unfit;
  }
  return false;
}

// Whether a search without stages finds no plan as good, as all named ones are slow, or those that
// fit.
static bool has_slow_ones(AutoSearch *s, double worth) {
  if (!s->goes_first || is_small(s)) return false;
  return s->one_stage > SEARCHED * worth || (s->prices && !may_fit_below(s, SEARCHED * worth));
}

static const char *exclude_slow(AutoSearch *s, double worth) {
  double least = fmax(s->one_stage, SEARCHED * worth);
  return exclude(s, str_format(s->a, "plans without stages take %.3f ms and more", 1e3 * least));
}

// Whether the space has the point, in any number of micro-batches.
static bool has_point(const AutoSearch *s, const Point *p) {
  Point q = *p;
  for (int i = 0; i < s->points.n; i++) {
    q.micro_batches = s->points.at[i].at.micro_batches;
    if (point_equal(&q, &s->points.at[i].at)) return true;
  }
  return false;
}

static const char *exclude_bound(AutoSearch *s, const Bound *b) {
  return exclude(s, str_format(s->a, "a step takes %.3f ms at least", 1e3 * b->seconds));
}

const char *auto_excludes(AutoSearch *s, const Candidate *c, double worth) {
  Point p;
  Bound b;
  if (worth <= 0) return NULL;
  if (auto_bound_plan(s, c->plan, c->ranks, c->micro_batches, &p, &b)) {
    double seconds = 0, tabled;
    const char *plan;
    PriceStatus status = PRICE_unknown;
    if (b.lasting > choose_memory(s->o))
      return exclude(s, str_format(s->a, "weights and states of a rank take %.1f GB at least",
                                   b.lasting / 1e9));
    // Prices of those without stages say whether searches can be good.
    bool judges = s->goes_first && p.stages == 1;
    if (b.seconds > worth && !judges) return exclude_bound(s, &b);
    // Such plans differ from named ones in a few layers.
    if (p.stages == 1 && !has_point(s, &p) && has_slow_ones(s, worth))
      return exclude_slow(s, worth);
    if (s->goes_first) status = price_point(s, &p, false, &seconds, &tabled, &plan);
    // Searches are judged by seconds of named plans, also by one that is only priced, or does not
    // fit.
    if (s->prices && status >= PRICE_unfit && p.stages == 1) note_one_stage(s, seconds);
    if (b.seconds > worth) return exclude_bound(s, &b);
    // The space has it with other numbers of micro-batches, which need less.
    if (status == PRICE_unfit && has_point(s, &p))
      return exclude(s, str_format(s->a, "it is expected to exceed the memory of %.1f GB",
                                   choose_memory(s->o) / 1e9));
    // A plan that does not fit fits in more micro-batches, if at all, which take no less.
    seconds = corrected(s, &p, seconds);
    if (status == PRICE_known && seconds > FAR * worth)
      return exclude(s, str_format(s->a, "a step is expected to take %.3f ms", 1e3 * seconds));
    if (status == PRICE_unfit && seconds > FAR * worth)
      return exclude(s, str_format(s->a, "it is expected to exceed the memory, and to take %.3f ms",
                                   1e3 * seconds));
  } else if (!plan_has_saver(c->plan) && has_slow_ones(s, worth)) {
    return exclude_slow(s, worth);
  }
  return NULL;
}

// Returns the best plan so far, if it has stages and is of a point of a large model; or NULL.
static const Candidate *best_of_space(const AutoSearch *s, const Candidates *all) {
  const Candidate *best = NULL;
  double least = least_fitting(all);
  for (int i = 0; i < all->n && !best; i++)
    if (all->at[i].fits && all->at[i].seconds <= least) best = &all->at[i];
  if (!best || best->priced <= 0 || is_small(s)) return NULL;
  // Of a point with a deal of its own, or another one.
  for (int i = 0; i < s->points.n; i++)
    if (s->points.at[i].built && str_equal(s->points.at[i].plan, best->plan)) return best;
  Point p;
  bool is_point = point_of_plan(best->plan, best->ranks, best->micro_batches, &p);
  return is_point && p.stages > 1 ? best : NULL;
}

bool auto_covers(const AutoSearch *s, const Candidates *all) {
  const Candidate *best = best_of_space(s, all);
  return best && fabs(best->seconds / best->priced - 1) <= EXACT;
}

bool auto_has_best(const AutoSearch *s, const Candidates *all) {
  return s->prices && best_of_space(s, all);
}

void auto_note(AutoSearch *s, const Candidate *c) {
  Point p;
  double seconds, tabled;
  const char *plan;
  if (!c->made || !point_of_plan(c->plan, c->ranks, c->micro_batches, &p) || p.stages > 1) return;
  if (price_point(s, &p, false, &seconds, &tabled, &plan) == PRICE_known)
    note_built(s, &p, seconds, c);
  note_one_stage(s, c->seconds);
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
  Certificate c = {.points = s->points.n - s->n_recomputed,
                   .recomputed = s->n_recomputed,
                   .impossible = s->n_impossible,
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
    double key = key_of(s, p);
    bool priced = !p->dropped && p->tier > TIER_bound;
    if (priced && (c.priced <= 0 || key < c.priced)) c.priced = key;
    // Tables of small models are not right.
    double tabled = is_small(s) ? p->bound.seconds : fmax(p->tabled, p->bound.seconds);
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

void auto_end(AutoSearch *s) {
  if (s->prices) prices_free(s->prices);
}
