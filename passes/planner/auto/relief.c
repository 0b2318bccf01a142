// See relief.h.

#include "relief.h"

#include <math.h>
#include <string.h>

#include "evaluate.h"
#include "planner/plan/plan.h"
#include "point.h"
#include "sharding/sharding.h"

#define LEAST_GAIN 0.99 // times the best so far: longer expectations are not worth a try

// The most variants that are compiled; and the most ops of a model that gets variants although
// something fits: each takes a fraction of a second.
enum { MOST_TRIED = 48, MOST_OPS = 512 };

// A base with a saver, and its next trial.
typedef struct Variant {
  int base; // a candidate
  const Saver *saver;
  const char *plan;
  int64_t slices; // of the next trial; 0: none
  double seconds; // at least, expected
  double bytes;   // at least, expected
  Candidate last; // its last trial, if that was made
} Variant;

typedef Vec(Variant) Variants;

typedef struct Relief {
  const Module *model;
  const ChooseOptions *o;
  Arena *a;
  Candidates *all;
  int n_bases; // candidates that were there before
  Variants variants;
  int n_tried;
} Relief;

// Whether two candidates have the same plan, in any number of micro-batches.
static bool is_same_plan(const Candidate *x, const Candidate *y) {
  Point p, q;
  if (str_equal(x->plan, y->plan)) return true;
  return point_of_plan(x->plan, x->ranks, 1, &p) && point_of_plan(y->plan, y->ranks, 1, &q) &&
         point_equal(&p, &q);
}

// Returns the candidate of the base's plan in the most micro-batches up to `slices`, or else in the
// fewest.
static const Candidate *measured(const Relief *r, int base, int64_t slices) {
  const Candidate *below = NULL, *above = NULL;
  for (int i = base; i < r->n_bases; i++) {
    const Candidate *c = &r->all->at[i];
    if (!c->made || !is_same_plan(c, &r->all->at[base])) continue;
    if (c->micro_batches <= slices && (!below || c->micro_batches > below->micro_batches))
      below = c;
    if (c->micro_batches > slices && (!above || c->micro_batches < above->micro_batches)) above = c;
  }
  return below ? below : above;
}

static double memory_of(const Relief *r, const Candidate *c) {
  return cluster_device(r->o->cluster, c->needs.rank).memory;
}

// Whether replicas of the base have whole rows in so many micro-batches.
static bool has_rows(const Relief *r, const Candidate *base, int64_t slices) {
  Point p;
  if (r->o->batch % slices != 0) return false;
  return !plan_numbers(base->plan, base->ranks, slices, &p) ||
         r->o->batch % (p.replicas * slices) == 0;
}

// Sets the least seconds and bytes of a variant in its micro-batches, by its last trial or else by
// its base. A pipeline is filled and drained in a part of the time, which is the smaller the more
// micro-batches there are.
static void expect(const Relief *r, Variant *v) {
  bool own = v->last.made;
  const Candidate *c = own ? &v->last : measured(r, v->base, v->slices);
  double part = fmin(1, (double)c->micro_batches / (double)v->slices);
  double ends = (double)(candidate_stages(c) - 1) / (double)c->micro_batches;
  double weights = (double)c->needs.weight_bytes, states = (double)c->needs.state_bytes;
  double rest = (double)c->needs.peak_bytes - weights - states;
  if (!own && v->saver->states) states = 0;
  if (!own && v->saver->activations) rest = 0;
  v->seconds = c->seconds * (1 + ends * part) / (1 + ends);
  v->bytes = weights + states + rest * part;
}

// Moves a variant to the least number of micro-batches from `from` on in which it may fit.
static void advance(const Relief *r, Variant *v, int64_t from) {
  const Candidate *base = &r->all->at[v->base];
  int64_t only = r->o->micro_batches;
  for (int64_t n = from; n <= r->o->batch && n <= MAX_MICRO_BATCHES; n++) {
    v->slices = n;
    if ((only && n != only) || !has_rows(r, base, n)) continue;
    // In as many the base fits by itself, which takes no more.
    const Candidate *c = measured(r, v->base, n);
    if (c->fits && c->micro_batches <= n) break;
    expect(r, v);
    if (v->bytes <= memory_of(r, c)) return;
  }
  v->slices = 0;
}

// Moves a variant to the most micro-batches.
static void move_to_most(const Relief *r, Variant *v) {
  const Candidate *base = &r->all->at[v->base];
  int64_t n = r->o->batch < MAX_MICRO_BATCHES ? r->o->batch : MAX_MICRO_BATCHES;
  if (r->o->micro_batches) n = r->o->micro_batches;
  while (n > base->micro_batches && !r->o->micro_batches && !has_rows(r, base, n))
    n--;
  v->slices = n;
  expect(r, v);
  if (v->bytes > memory_of(r, measured(r, v->base, n))) v->slices = 0;
}

// Whether the candidate is the first of its plan, and has no saver.
static bool is_base(const Relief *r, int i) {
  const Candidate *c = &r->all->at[i];
  if (!c->made || plan_has_saver(c->plan)) return false;
  for (int k = 0; k < i; k++)
    if (r->all->at[k].made && is_same_plan(&r->all->at[k], c)) return false;
  return true;
}

// Whether the plan was compiled in as many micro-batches, or could not be.
static bool is_tried(const Relief *r, const char *plan, int64_t slices) {
  for (int i = 0; i < r->all->n; i++) {
    const Candidate *c = &r->all->at[i];
    if (c->micro_batches == slices && !c->excluded && str_equal(c->plan, plan)) return true;
  }
  return false;
}

static void list_variants(Relief *r) {
  Savers savers = {0};
  candidates_savers(r->a, &savers);
  for (int i = 0; i < r->n_bases; i++) {
    const char *base = r->all->at[i].plan;
    int programs = 1;
    for (const char *p = base; (p = strchr(p, ',')); p++)
      programs++;
    for (int k = 0; k < savers.n && is_base(r, i); k++) {
      Variant v = {.base = i, .saver = &savers.at[k]};
      if (programs + v.saver->programs > MAX_PLAN) continue;
      v.plan = str_format(r->a, "%s%s", base, v.saver->text);
      vec_push(r->a, &r->variants, v);
    }
  }
}

// Compiles a variant. Returns whether it fits.
static bool compile(Relief *r, Variant *v) {
  Candidate *c = &v->last;
  *c = (Candidate){.plan = v->plan, .ranks = r->o->ranks, .micro_batches = v->slices};
  c->worth = least_fitting(r->all);
  r->n_tried++;
  candidate_make(r->model, r->o, r->a, c, NULL);
  if (c->made) vec_push(r->a, r->all, *c);
  return c->fits;
}

// Compiles the variants that need least, until one fits: of those that cannot be made in so many
// micro-batches, in half as many.
static void find_any(Relief *r) {
  for (int i = 0; i < r->variants.n; i++)
    move_to_most(r, &r->variants.at[i]);
  while (!any_fits(r->all) && r->n_tried < MOST_TRIED) {
    Variant *least = NULL;
    for (int i = 0; i < r->variants.n; i++) {
      Variant *v = &r->variants.at[i];
      if (v->slices && is_tried(r, v->plan, v->slices)) v->slices = 0;
      if (v->slices && (!least || v->bytes < least->bytes)) least = v;
    }
    if (!least) return;
    compile(r, least);
    least->slices = least->last.made || r->o->micro_batches ? 0 : least->slices / 2;
    while (least->slices && !has_rows(r, &r->all->at[least->base], least->slices))
      least->slices--;
  }
}

// Compiles the variants that may be faster than the best plan so far.
static void find_faster(Relief *r) {
  for (int i = 0; i < r->variants.n; i++)
    advance(r, &r->variants.at[i], r->all->at[r->variants.at[i].base].micro_batches);
  while (r->n_tried < MOST_TRIED && !choice_ends(r->o, r->all)) {
    double worth = LEAST_GAIN * least_fitting(r->all);
    Variant *first = NULL;
    for (int i = 0; i < r->variants.n; i++) {
      Variant *v = &r->variants.at[i];
      while (v->slices && is_tried(r, v->plan, v->slices))
        advance(r, v, v->slices + 1);
      if (v->slices && v->seconds < worth && (!first || v->seconds < first->seconds)) first = v;
    }
    if (!first) return;
    if (compile(r, first) || r->o->micro_batches)
      first->slices = 0;
    else
      advance(r, first, first->slices + 1);
  }
}

void try_relief(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all) {
  if (!o->limited || choice_ends(o, all)) return;
  Relief r = {.model = model, .o = o, .a = a, .all = all, .n_bases = all->n};
  if (any_fits(all) && model->graphs->n_ops > MOST_OPS) return;
  list_variants(&r);
  if (!any_fits(all)) find_any(&r);
  if (any_fits(all)) find_faster(&r);
}
