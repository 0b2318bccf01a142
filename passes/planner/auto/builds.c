// See builds.h.

#include "builds.h"

#include <math.h>

#include "candidates.h"
#include "exclusion.h"
#include "planner/plan/plan.h"
#include "point_heap.h"
#include "variants.h"

#define LESS 0.999 // of the memory: for a deal that is made again

const Candidate *find_tried(const Candidates *all, const Point *p) {
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    Point q;
    if (c->excluded || c->stopped || !point_of_plan(c->plan, c->ranks, c->micro_batches, &q))
      continue;
    if (point_equal(p, &q)) return c;
  }
  return NULL;
}

bool is_tried(const Candidates *all, const Point *p) {
  return find_tried(all, p) != NULL;
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
// one that is in the plan's text. With swapped layers once more: the stage that does not fit need
// not be the one with the most bytes by its price, which the first of these deals changes.
static void deal_again(AutoSearch *s, int i, const Candidate *c) {
  Priced *p = &s->points.at[i];
  double memory = choose_memory(s->o);
  Price price;
  if (!s->prices || p->dealt_again >= (p->at.swap ? 2 : 1) || c->priced_bytes <= 0) return;
  p->dealt_again++;
  if (p->plan) memory *= LESS * c->priced_bytes / (double)c->needs.peak_bytes;
  if (prices_deal(s->prices, &p->at, memory, &price) != PRICE_known ||
      str_equal(price.plan, p->plan))
    return;
  p->seconds = price.seconds;
  p->bytes = price.bytes;
  p->plan = price.plan;
  p->built = false;
  points_push(s, i);
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

// Compiles the point's plan, unless another point has the same: a deal in which no layer is
// recomputed. False: the choice ended meanwhile.
static bool make_plan(AutoSearch *s, Candidate *c, Candidates *all) {
  const Candidate *same = find_compiled(all, c->plan, c->micro_batches);
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
    points_push(s, i);
  }
}

void build_point(AutoSearch *s, int i, Candidates *all) {
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
    points_push(s, i);
  }
  if (!c.made) return;
  auto_note_built(s, &p->at, p->seconds, &c);
  if (p->at.stages == 1) auto_note_one_stage(s, c.seconds);
  push_skipped(s);
  points_order(s);
  if (c.fits) return;
  if (!s->points.at[i].dealt_again) {
    add_recomputed(s, i);
    add_least(s, i);
  }
  deal_again(s, i, &c);
}

// Whether the point lacks no memory by its tables.
static bool fits_by_tables(const AutoSearch *s, const Point *at) {
  for (int i = 0; i < s->points.n; i++)
    if (point_equal(&s->points.at[i].at, at))
      return !s->points.at[i].out && !s->points.at[i].dropped;
  return false;
}

void build_placed(AutoSearch *s, Candidates *all) {
  const Candidate *best = auto_best_of_space(s, all);
  for (int i = 0; best && i < s->points.n; i++) {
    const Priced *p = &s->points.at[i];
    Point at = p->at;
    at.fewest = false;
    if (p->at.fewest) at.recompute = RECOMPUTE_none;
    if (!p->built || !p->plan || !str_equal(p->plan, best->plan) ||
        p->at.micro_batches != best->micro_batches || is_tried(all, &at))
      continue;
    if (p->at.fewest && !fits_by_tables(s, &at)) continue;
    Candidate c = {.plan = point_plan(s->a, &at), .ranks = s->o->ranks};
    c.micro_batches = at.micro_batches;
    c.worth = least_fitting(all);
    c.priced = p->seconds;
    make_plan(s, &c, all);
    return;
  }
}

// Whether some plan with stages fits that has sums of gradients, and states of some layers, on the
// device.
static bool any_staged_fits(const Candidates *all) {
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    bool away = plan_offloads_gradients(c->plan) || plan_offloads_all_states(c->plan);
    if (c->fits && candidate_stages(c) > 1 && !away) return true;
  }
  return false;
}

// Whether the point is before the other in the order of their bounds.
static bool is_before(const AutoSearch *s, int i, int k) {
  double bound = s->points.at[i].bound.seconds, other = s->points.at[k].bound.seconds;
  return bound < other || (bound == other && i < k);
}

// The point with stages and all savers that has the least bound, after the last one; -1: there is
// none with a bound below `worth`, or 0 for all. Sums of gradients are one more program.
static int next_saving(const AutoSearch *s, double worth, int last) {
  int least = -1;
  for (int i = 0; i < s->points.n; i++) {
    const Priced *p = &s->points.at[i];
    bool saves = p->at.stages > 1 && p->at.swap && p->at.offload && !p->out;
    bool sums = step_slices(s->work, p->at.micro_batches) > 1;
    if (!saves || !sums || point_programs(&p->at) >= MAX_PLAN) continue;
    if ((worth > 0 && p->bound.seconds >= worth) || (last >= 0 && !is_before(s, last, i))) continue;
    if (least < 0 || is_before(s, i, least)) least = i;
  }
  return least;
}

// Compiles the point's deal into the memory and that of the sums, with these in host memory: at
// first with the mean of the stages' sums, then with half as much or less if the plan lacks memory:
// the stages that lack it have less than the mean. Returns the number of compiled plans.
static int build_without_sums(AutoSearch *s, const Point *at, const char *saver, Candidates *all) {
  enum { MOST_DEALS = 3 };
  double memory = choose_memory(s->o);
  double more = s->work->gradients / ((double)at->stages * at->tensor);
  for (int n = 0; n < MOST_DEALS; n++) {
    double worth = least_fitting(all);
    Price price;
    if (more <= 0 || prices_deal(s->prices, at, memory + more, &price) != PRICE_known) return n;
    if (worth > 0 && price.seconds >= worth) return n;
    Candidate c = {.plan = str_format(s->a, "%s%s", price.plan, saver), .ranks = s->o->ranks};
    c.micro_batches = at->micro_batches;
    c.worth = worth;
    if (find_compiled(all, c.plan, c.micro_batches)) return n;
    make_plan(s, &c, all);
    if (!c.made || c.fits) return n + 1;
    more = fmin(more / 2, more - ((double)c.needs.peak_bytes - LESS * memory));
  }
  return MOST_DEALS;
}

void auto_build_without_sums(AutoSearch *s, Candidates *all) {
  enum { MOST_PRICED = 8, MOST_MADE = 6 };
  Savers savers = {0};
  const char *saver = NULL;
  if (!s->prices || auto_is_small(s) || !s->o->limited || any_staged_fits(all)) return;
  candidates_savers(s->a, &savers);
  for (int i = 0; i < savers.n && !saver; i++)
    if (savers.at[i].gradients && savers.at[i].programs == 1) saver = savers.at[i].text;
  for (int n = 0, made = 0, i = -1; n < MOST_PRICED && made < MOST_MADE; n++) {
    i = next_saving(s, least_fitting(all), i);
    if (i < 0 || choice_ends(s->o, all)) return;
    const Point at = s->points.at[i].at;
    made += build_without_sums(s, &at, saver, all);
  }
}

void build_swapped(AutoSearch *s, Candidates *all) {
  for (int i = 0; i < s->points.n && !choice_ends(s->o, all); i++) {
    Point at = s->points.at[i].at;
    if (!s->points.at[i].built || at.stages > 1 || !at.offload || at.recompute != RECOMPUTE_layer)
      continue;
    const Candidate *c = find_compiled(all, point_plan(s->a, &at), at.micro_batches);
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
      if (programs + beside <= MAX_PLAN && !find_compiled(all, x.plan, x.micro_batches))
        make_plan(s, &x, all);
    }
  }
}
