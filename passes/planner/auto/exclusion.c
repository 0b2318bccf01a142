// See exclusion.h.

#include "exclusion.h"

#include <math.h>

#include "candidates.h"
#include "evaluate.h"
#include "least_bytes.h"
#include "priced_points.h"

#define NEAREST  1.01 // times the least bytes of any plan: a plan that needs about as few
#define FAR      1.1  // times the best: a price, by which no plan like it was too high
#define EXACT    0.05 // by which plans differ from their price, if tables are right
#define SEARCHED 2.5  // times the best: the most that a search gains on named plans (GPT: 2.40)

static const char *exclude(AutoSearch *s, const char *why) {
  s->n_excluded++;
  return why;
}

// Whether a plan of the space without stages, without recomputation and with states on devices may
// fit and take less.
static bool may_fit_below(AutoSearch *s, double seconds) {
  for (int i = 0; i < s->points.n; i++) {
    Priced *p = &s->points.at[i];
    int lender = -1;
    double least;
    if (p->at.stages > 1 || p->at.recompute > RECOMPUTE_none || p->at.offload || p->out ||
        p->dropped || p->lacks || auto_key(s, p) >= seconds)
      continue;
    // A bound by a table that is there first.
    PriceStatus status = PRICE_unfit;
    if (p->tier > TIER_bound || !auto_is_hopeless(s, &p->at))
      status = prices_borrow(s->prices, &p->at, &lender, &least);
    if (status == PRICE_known && least >= seconds) continue;
    if (status != PRICE_unfit) {
      PointPrice price = auto_price(s, &p->at, false);
      status = price.status;
      least = auto_corrected(s, &p->at, price.seconds);
    }
    if (status == PRICE_unknown || (status == PRICE_known && least < seconds)) return true;
    p->lacks = status == PRICE_unfit;
  }
  return false;
}

// Whether a search without stages finds no plan as good, as all named ones are slow, or those that
// fit.
static bool has_slow_ones(AutoSearch *s, double worth) {
  if (!s->goes_first || auto_is_small(s)) return false;
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

// Returns the bound of a plan without stages by the table of another point; PRICE_unknown: there is
// no such table.
static PointPrice borrow_price(AutoSearch *s, const Point *p) {
  PointPrice price = {.status = PRICE_unknown};
  int lender = -1;
  if (s->goes_first && s->prices && !auto_is_small(s) && p->stages == 1)
    price.status = prices_borrow(s->prices, p, &lender, &price.seconds);
  return price;
}

// Returns the reason for which the plan lacks memory, by its bound of bytes; or NULL. While nothing
// fits, it is compiled nevertheless if it may fit with savers (relief.h): it has none yet, and can
// be compiled at all. If no plan of any kind can fit, those that need least are, for the message.
static const char *exclude_large(AutoSearch *s, const Candidate *c, bool any_fits) {
  LeastBytes b = least_bytes_of(s->work, s->a, c->plan, c->ranks, c->micro_batches);
  double memory = choose_memory(s->o);
  bool is_base = !plan_has_saver(c->plan), places = plan_places(c->plan);
  if (b.own <= memory) return NULL;
  // Other kinds of plans may be bases, too.
  if (any_fits && is_base && !places && !b.known) return NULL;
  double most = memory;
  if (auto_lacks(s) > 0) {
    double slices = step_slices(s->work, c->micro_batches);
    most = b.known ? NEAREST * least_bytes(s->work, c->ranks, slices, true) : 0;
  }
  if (!any_fits && !places && (is_base ? b.saved : b.own) <= most) return NULL;
  bool of_saved = b.offloads || (!any_fits && b.saved > memory);
  return exclude(s, str_format(s->a, "weights%s of a rank take %.0f bytes at least%s",
                               of_saved ? "" : " and states", of_saved ? b.saved : b.own,
                               of_saved ? ", with states offloaded" : ""));
}

const char *auto_excludes(AutoSearch *s, Candidate *c, double worth) {
  Point p;
  Bound b;
  const char *large = exclude_large(s, c, worth > 0);
  c->lacks = large != NULL;
  if (large || worth <= 0) return large;
  if (auto_bound_plan(s, c->plan, c->ranks, c->micro_batches, &p, &b)) {
    // Prices of those without stages say whether searches can be good.
    bool judges = s->goes_first && p.stages == 1;
    if (b.seconds > worth && !judges) return exclude_bound(s, &b);
    // Such plans differ from named ones in a few layers.
    if (p.stages == 1 && !has_point(s, &p) && has_slow_ones(s, worth))
      return exclude_slow(s, worth);
    // No search that improves so slow a plan is as good.
    PointPrice price = borrow_price(s, &p);
    if (price.status == PRICE_known && price.seconds > SEARCHED * worth) {
      auto_note_one_stage(s, price.seconds);
      return exclude(s, str_format(s->a, "a step takes %.3f ms at least", 1e3 * price.seconds));
    }
    // A plan that lacks memory by such a bound needs no table of its own.
    bool lacks = price.status == PRICE_unfit && has_point(s, &p);
    if (s->goes_first && !lacks) price = auto_price(s, &p, false);
    // Searches are judged by seconds of named plans, also by one that is only priced, or does not
    // fit.
    if (s->prices && price.status >= PRICE_unfit && p.stages == 1)
      auto_note_one_stage(s, price.seconds);
    if (b.seconds > worth) return exclude_bound(s, &b);
    // The space has it with other numbers of micro-batches, which need less.
    if (price.status == PRICE_unfit && has_point(s, &p))
      return exclude(s, str_format(s->a, "it is expected to exceed the memory of %.1f GB",
                                   choose_memory(s->o) / 1e9));
    // A plan that does not fit fits in more micro-batches, if at all, which take no less.
    double seconds = auto_corrected(s, &p, price.seconds);
    if (price.status == PRICE_known && seconds > FAR * worth)
      return exclude(s, str_format(s->a, "a step is expected to take %.3f ms", 1e3 * seconds));
    if (price.status == PRICE_unfit && seconds > FAR * worth)
      return exclude(s, str_format(s->a, "it is expected to exceed the memory, and to take %.3f ms",
                                   1e3 * seconds));
  } else if (!plan_has_saver(c->plan) && has_slow_ones(s, worth)) {
    return exclude_slow(s, worth);
  }
  return NULL;
}

// Returns the best plan so far, if it is of a point of a large model; or NULL.
static const Candidate *best_built(const AutoSearch *s, const Candidates *all) {
  const Candidate *best = NULL;
  double least = least_fitting(all);
  for (int i = 0; i < all->n && !best; i++)
    if (all->at[i].fits && all->at[i].seconds <= least) best = &all->at[i];
  return best && best->priced > 0 && !auto_is_small(s) ? best : NULL;
}

const Candidate *auto_best_of_space(const AutoSearch *s, const Candidates *all) {
  const Candidate *best = best_built(s, all);
  if (!best) return NULL;
  // Of a point with a deal of its own, or another one.
  for (int i = 0; i < s->points.n; i++)
    if (s->points.at[i].built && str_equal(s->points.at[i].plan, best->plan)) return best;
  Point p;
  bool is_point = point_of_plan(best->plan, best->ranks, best->micro_batches, &p);
  return is_point && p.stages > 1 ? best : NULL;
}

bool auto_covers(const AutoSearch *s, const Candidates *all) {
  const Candidate *best = auto_best_of_space(s, all);
  return best && fabs(best->seconds / best->priced - 1) <= EXACT;
}

bool auto_has_best(const AutoSearch *s, const Candidates *all) {
  return s->prices && best_built(s, all);
}
