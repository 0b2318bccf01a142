// See priced_points.h.

#include "priced_points.h"

#include <math.h>

#include "estimate.h"

#define MEMORY_ERR      1.15 // bytes of a plan by those estimated, at first
#define HOPELESS        2    // times the memory: estimated bytes of a point that gets no table
#define HOPELESS_LOGITS 3    // likewise, with states in host memory: most of the estimate is logits

// Returns the correction of points like this one; NULL: none was built.
static Correction *find_correction(const AutoSearch *s, const Point *p) {
  for (int i = 0; i < s->seconds.n; i++) {
    Correction *c = &s->seconds.at[i];
    bool interlaced = p->kind == POINT_interlaced;
    if (c->parts == p->stages * p->chunks && c->zero == p->zero && c->interlaced == interlaced &&
        c->recompute == p->recompute && c->offload == p->offload && c->swap == p->swap)
      return c;
  }
  return NULL;
}

static bool is_tabled(const AutoSearch *s, const Point *p) {
  return s->prices && prices_has_units(s->prices, p);
}

bool auto_same_inside(const Point *p, const Point *q) {
  return p->tensor == q->tensor && p->inner == q->inner && p->context == q->context &&
         p->along == q->along && p->experts == q->experts;
}

// Whether one of the plans has the point's ranks inside of layers.
static bool has_inside(const Correction *c, const Point *p) {
  for (int i = 0; i < c->of.n; i++)
    if (auto_same_inside(&c->of.at[i], p)) return true;
  return false;
}

bool auto_has_staged(const AutoSearch *s, const Point *p) {
  for (int i = 0; i < s->seconds.n; i++)
    if (s->seconds.at[i].of.at[0].stages > 1 && has_inside(&s->seconds.at[i], p)) return true;
  return false;
}

// The price of other ranks inside of layers has another table, or other terms of an estimate: that
// plans take longer than theirs says nothing about it. A 130-op chain of products takes 1.54 times
// its estimate with `pp=4` and 0.66 times with `pp_interleaved:4=2,sp=2`.
//
// Points that are like none that was built are expected to miss their price as the plans of two
// kinds with as much recomputation do, at least: then the tables lack something that all of them
// have. Estimates miss by other causes, and so do sums inside of layers beside recomputed ones: T5
// on 16 V100 takes 1.29 times its price with `pp_interlaced=8,sp=2`, 1.10 with
// `pp_interlaced=16,recompute=1`.
double auto_corrected(const AutoSearch *s, const Point *p, double seconds) {
  const Correction *c = find_correction(s, p);
  if (c && (c->least <= 1 || has_inside(c, p))) return seconds * c->least;
  bool tabled = is_tabled(s, p);
  double least = INFINITY;
  int n = 0;
  for (int i = 0; i < s->seconds.n; i++) {
    const Correction *other = &s->seconds.at[i];
    if (other->tabled != tabled || other->recompute != p->recompute) continue;
    if (!tabled && !has_inside(other, p)) continue;
    least = fmin(least, other->least);
    n++;
  }
  return n > 1 ? seconds * fmax(least, 1) : seconds;
}

double auto_error(const AutoSearch *s, const Point *p) {
  const Correction *c = find_correction(s, p);
  return c ? c->err : s->err;
}

bool auto_is_small(const AutoSearch *s) {
  return s->model->graphs->n_ops <= SMALL_OPS;
}

// Bounds by tables are corrected as prices are; those of small models are not right.
double auto_key(const AutoSearch *s, const Priced *p) {
  bool corrects = p->tier == TIER_priced || (p->tier > TIER_bound && !auto_is_small(s));
  double seconds = corrects ? auto_corrected(s, &p->at, p->seconds) : p->seconds;
  return fmax(fmax(seconds, p->work), p->bound.seconds);
}

PointPrice auto_estimate(const AutoSearch *s, const Point *p) {
  Estimate e = estimate_find(s->work, s->o->cluster, p);
  bool fits = e.bytes * fmax(s->bytes[p->kind], MEMORY_ERR) <= choose_memory(s->o);
  return (PointPrice){.status = fits ? PRICE_known : PRICE_unfit, .seconds = e.seconds};
}

PointPrice auto_price(AutoSearch *s, const Point *p, bool closed) {
  Price price = {0};
  PriceStatus status = s->prices ? prices_find(s->prices, p, !closed, &price) : PRICE_unknown;
  if (status != PRICE_unknown)
    return (PointPrice){.status = status,
                        .seconds = closed ? price.bound : price.seconds,
                        .bytes = status == PRICE_known ? price.bytes : 0,
                        .tabled = status == PRICE_known ? price.bound : INFINITY,
                        .plan = price.plan,
                        .limited = price.limited};
  return auto_estimate(s, p);
}

bool auto_is_hopeless(const AutoSearch *s, const Point *p) {
  Estimate e = estimate_find(s->work, s->o->cluster, p);
  double part = 1;
  if (p->swap)
    part = 0;
  else if (p->recompute > RECOMPUTE_none)
    part = prices_level_part(s->prices, p->recompute);
  // Without states most of the estimate is of logits, which are too large in it.
  double hopeless = p->offload ? HOPELESS_LOGITS : HOPELESS;
  return e.bytes - e.saved * (1 - part) > hopeless * choose_memory(s->o);
}

void auto_note_built(AutoSearch *s, const Point *p, double expected, const Candidate *c) {
  double bytes = (double)c->needs.peak_bytes / estimate_find(s->work, s->o->cluster, p).bytes;
  double seconds = c->seconds / expected;
  s->err = fmax(s->err, 1 - seconds);
  if (p->stages == 1 && is_tabled(s, p))
    vec_push(s->a, &s->whole, ((WholeError){*p, fabs(seconds - 1)}));
  Correction *known = find_correction(s, p);
  if (known && !has_inside(known, p)) vec_push(s->a, &known->of, *p);
  if (known) {
    known->err = fmax(known->err, 1 - seconds / known->least);
    known->least = fmin(known->least, seconds);
  } else {
    vec_push(s->a, &s->seconds,
             (Correction){.parts = p->stages * p->chunks,
                          .zero = p->zero,
                          .interlaced = p->kind == POINT_interlaced,
                          .tabled = is_tabled(s, p),
                          .recompute = p->recompute,
                          .offload = p->offload,
                          .swap = p->swap,
                          .least = seconds});
    vec_push(s->a, &s->seconds.at[s->seconds.n - 1].of, *p);
  }
  // Estimates of bytes are of plans without recomputation, and all states on devices.
  if (p->stages > 1 && p->recompute == RECOMPUTE_none && !p->offload && !p->swap)
    s->bytes[p->kind] = fmax(s->bytes[p->kind], bytes);
}

void auto_note_one_stage(AutoSearch *s, double seconds) {
  if (s->one_stage <= 0 || seconds < s->one_stage) s->one_stage = seconds;
}
