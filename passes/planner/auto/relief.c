// See relief.h.

#include "relief.h"

#include <math.h>
#include <string.h>

#include "evaluate.h"
#include "least_bytes.h"
#include "pipelines.h"
#include "planner/plan/plan.h"
#include "point.h"
#include "sharding/sharding.h"

// The most variants that are compiled, a few of a model with more than LARGE_OPS: each takes a
// fraction of a second there. Then none is if the best plan so far offloads no states.
enum { MOST_TRIED = 48, FEW_TRIED = 16, LARGE_OPS = 512 };

// Those that cannot fit, and are compiled because the nearest miss is reported.
enum { MOST_LACKING = 4 };

// A base with a saver, and its next trial.
typedef struct Variant {
  int base;  // a candidate
  int saver; // its number
  const char *plan;
  int64_t slices; // of the next trial; 0: none
  double seconds; // expected
  double bytes;   // expected
  double least;   // bytes that it is not below
  Candidate last; // its last trial, if that was made
} Variant;

typedef Vec(Variant) Variants;

// The effect of a saver: the least of all bases that were compiled with it and without.
typedef struct Effect {
  bool known;    // else no base says
  double left;   // part of the activations
  double slower; // seconds, by those of the base
} Effect;

typedef struct Relief {
  const Module *model;
  const ChooseOptions *o;
  const AutoSearch *search; // or NULL
  Arena *a;
  Candidates *all;
  int n_bases; // candidates that were there before
  int *first;  // of each: the first with the same plan
  Savers savers;
  Effect *effects[2]; // of each saver, without stages and with
  Variants variants;
  double weights_left; // part of all weights that stays on the device without the states
  double least_gain;   // times the best plan so far: the longest that is worth a try
  int n_tried, most_tried;
  bool gradients; // nothing fits unless sums of gradients are in host memory, too
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
    if (!c->made || r->first[i] != r->first[base]) continue;
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
  return r->o->batch % slices == 0 && has_whole_rows(r->o, base, slices);
}

// Returns the bound of the base's plan in so many micro-batches; none: it is no point.
static Bound bound_of(const Relief *r, const Candidate *base, int64_t slices) {
  Point p;
  Bound b = {0};
  if (r->search) auto_bound_plan(r->search, base->plan, base->ranks, slices, &p, &b);
  return b;
}

// Returns the bytes of the plan's activations, and of all that is neither weights nor states:
// gradients, too, of which it has so many in several micro-batches.
static double activations_of(const Candidate *c, double gradients, double *rest) {
  *rest = (double)(c->needs.peak_bytes - c->needs.weight_bytes - c->needs.state_bytes);
  return fmax(0, *rest - fmin(gradients, (double)c->needs.weight_bytes));
}

static Effect *effect_of(const Relief *r, int saver, const Candidate *c) {
  return &r->effects[candidate_stages(c) > 1][saver];
}

// Whether the variant is tried now, in so many micro-batches: sums of gradients are of several.
static bool suits(const Relief *r, const Variant *v, int64_t slices) {
  return !r->savers.at[v->saver].gradients || (r->gradients && slices > 1);
}

// The bytes of the sums of gradients of the base's plan at most: those of all ranks, or as many as
// weights, if nothing more is known.
static double sums_of(const Relief *r, const Candidate *base, int64_t slices) {
  if (!r->search) return (double)base->needs.weight_bytes;
  const StepWork *w = auto_work(r->search);
  LeastBytes with = least_bytes_of(w, r->a, base->plan, base->ranks, slices);
  LeastBytes without = least_bytes_of(w, r->a, base->plan, base->ranks, 1);
  return with.known ? with.own - without.own : w->gradients;
}

// Sets the expected seconds and bytes of a variant in its micro-batches, by its last trial, or else
// by its base and the saver's effect on others. A pipeline is filled and drained in a part of the
// time, which is the smaller the more micro-batches there are.
static void expect(const Relief *r, Variant *v) {
  bool own = v->last.made;
  const Saver *saver = &r->savers.at[v->saver];
  const Candidate *c = own ? &v->last : measured(r, v->base, v->slices);
  const Effect *effect = effect_of(r, v->saver, c);
  Bound bound = bound_of(r, &r->all->at[v->base], v->slices);
  double part = fmin(1, (double)c->micro_batches / (double)v->slices);
  double ends = (double)(candidate_stages(c) - 1) / (double)c->micro_batches;
  double seconds = c->seconds * (1 + ends * part) / (1 + ends) * (own ? 1 : effect->slower);
  v->seconds = fmax(seconds, bound.seconds);
  double rest, activations = activations_of(c, bound.gradients, &rest);
  double saved = activations * part;
  if (c->micro_batches != v->slices) rest -= activations * (1 - part);
  double lasting = (double)c->needs.weight_bytes;
  if (own || !saver->states)
    lasting += (double)c->needs.state_bytes;
  else
    lasting *= r->weights_left;
  if (own || !saver->activations) saved = 0;
  double sums = 0;
  if (!own && saver->gradients) sums = sums_of(r, &r->all->at[v->base], v->slices);
  v->least = lasting + fmax(0, rest - saved - sums);
  v->bytes = lasting + fmax(0, rest - saved * (1 - effect->left) - sums);
}

// Notes the effect of a saver, as one plan was compiled without and with it.
static void note_effect(Relief *r, int saver, const Candidate *without, const Candidate *with) {
  Effect *e = effect_of(r, saver, without);
  double gradients = bound_of(r, without, 2).gradients, rest;
  double before = activations_of(without, gradients, &rest);
  double after = activations_of(with, gradients, &rest);
  double left = before > 0 ? fmin(1, after / before) : 1;
  double slower = fmax(1, with->seconds / without->seconds);
  *e = (Effect){true, e->known ? fmin(e->left, left) : left,
                e->known ? fmin(e->slower, slower) : slower};
}

// Whether the plan is the other one with the saver.
static bool is_with(const char *plan, const char *base, const char *saver) {
  size_t n = strlen(base);
  return !strncmp(plan, base, n) && str_equal(plan + n, saver);
}

// Notes the effects of savers on the plans that were compiled.
static void find_effects(Relief *r) {
  for (int stages = 0; stages < 2; stages++) {
    r->effects[stages] = arena_array(r->a, Effect, r->savers.n);
    for (int k = 0; k < r->savers.n; k++)
      r->effects[stages][k] = (Effect){.slower = 1};
  }
  for (int i = 0; i < r->n_bases; i++) {
    const Candidate *with = &r->all->at[i];
    if (!with->made || !plan_has_saver(with->plan)) continue;
    for (int b = 0; b < r->n_bases; b++) {
      const Candidate *c = &r->all->at[b];
      if (!c->made || c->micro_batches != with->micro_batches) continue;
      for (int k = 0; k < r->savers.n; k++)
        if (is_with(with->plan, c->plan, r->savers.at[k].text)) note_effect(r, k, c, with);
    }
  }
}

// Moves a variant to the least number of micro-batches from `from` on in which it may fit.
static void advance(const Relief *r, Variant *v, int64_t from) {
  const Candidate *base = &r->all->at[v->base];
  int64_t only = r->o->micro_batches;
  for (int64_t n = from; n <= r->o->batch && n <= MAX_MICRO_BATCHES; n++) {
    v->slices = n;
    if ((only && n != only) || !suits(r, v, n) || !has_rows(r, base, n)) continue;
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
  v->slices = suits(r, v, n) ? n : 0;
  if (!v->slices) return;
  expect(r, v);
  if (v->least > memory_of(r, measured(r, v->base, n))) v->slices = 0;
}

// Finds the first candidate with the plan of each.
static void find_first(Relief *r) {
  r->first = arena_array(r->a, int, r->n_bases + 1);
  for (int i = 0; i < r->n_bases; i++) {
    int k = 0;
    while (k < i && !(r->all->at[k].made && is_same_plan(&r->all->at[k], &r->all->at[i])))
      k++;
    r->first[i] = k;
  }
}

// Whether two plans are the same in all numbers of micro-batches that both were compiled in.
// Gradients of one micro-batch are not summed up, so that plans which do this in other ways are the
// same in one.
static bool is_copy(const Relief *r, int i, int k) {
  bool any = false;
  for (int x = i; x < r->n_bases; x++) {
    const Candidate *c = &r->all->at[x];
    if (r->first[x] != i || !c->made) continue;
    for (int y = k; y < r->n_bases; y++) {
      const Candidate *d = &r->all->at[y];
      if (r->first[y] != k || !d->made || c->micro_batches != d->micro_batches) continue;
      if (c->seconds != d->seconds || c->needs.peak_bytes != d->needs.peak_bytes) return false;
      any |= c->micro_batches > 1 || r->o->micro_batches;
    }
  }
  return any;
}

// Whether the plan has no saver, or is dealt in its text: then no candidate is the same without.
static bool may_be_base(const char *plan) {
  return !plan_has_saver(plan) || strchr(plan, ':');
}

// Whether the candidate is the first of its plan, may be a base, and is no copy of an earlier one.
static bool is_base(const Relief *r, int i) {
  const Candidate *c = &r->all->at[i];
  if (!c->made || r->first[i] != i || !may_be_base(c->plan)) return false;
  for (int k = 0; k < i; k++) {
    const Candidate *d = &r->all->at[k];
    if (d->made && r->first[k] == k && may_be_base(d->plan) && is_copy(r, i, k)) return false;
  }
  return true;
}

// Whether the plan was compiled in as many micro-batches, or could not be.
static bool is_tried(const Relief *r, const char *plan, int64_t slices) {
  const Candidate same = {.plan = plan, .ranks = r->o->ranks};
  for (int i = 0; i < r->all->n; i++) {
    const Candidate *c = &r->all->at[i];
    if (c->micro_batches == slices && !c->excluded && is_same_plan(c, &same)) return true;
  }
  return false;
}

// Whether two programs at the start of these texts are the same, or the first recomputes parts of
// layers and the second whole ones.
static bool is_program(const char *p, const char *of) {
  static const char part[] = "recompute_attention", whole[] = "recompute";
  size_t n = strcspn(p, ":=,"), n_of = strcspn(of, ":=,");
  bool is_part = n == strlen(part) && !strncmp(p, part, n) && n_of == strlen(whole);
  return (n == n_of || is_part) && !strncmp(p, of, n_of);
}

// Whether the plan has a program of the saver, for some layers or parts of them.
static bool repeats(const char *plan, const char *saver) {
  for (const char *of = strchr(saver, ','); of; of = strchr(of, ',')) {
    of++;
    for (const char *p = plan; p; p = strchr(p, ',')) {
      p += *p == ',';
      if (is_program(p, of)) return true;
    }
  }
  return false;
}

static void list_variants(Relief *r) {
  for (int i = 0; i < r->n_bases; i++) {
    const char *base = r->all->at[i].plan;
    int programs = 1;
    if (!is_base(r, i)) continue;
    for (const char *p = base; (p = strchr(p, ',')); p++)
      programs++;
    for (int k = 0; k < r->savers.n; k++) {
      const Saver *saver = &r->savers.at[k];
      Variant v = {.base = i, .saver = k};
      if (programs + saver->programs > MAX_PLAN || repeats(base, saver->text)) continue;
      v.plan = str_format(r->a, "%s%s", base, saver->text);
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
  if (!c->made) return false;
  vec_push(r->a, r->all, *c);
  const Candidate *base = measured(r, v->base, v->slices);
  if (base->micro_batches == v->slices) note_effect(r, v->saver, base, c);
  return c->fits;
}

// Whether the variant cannot fit by its least bytes, in several micro-batches with sums of
// gradients.
static bool is_proved_unfit(const Relief *r, const Variant *v) {
  if (!r->search) return false;
  LeastBytes b = least_bytes_of(auto_work(r->search), r->a, v->plan, r->o->ranks, v->slices);
  return b.own > choose_memory(r->o);
}

// Compiles the variants that need least, until one fits: of those that cannot be made in so many
// micro-batches, in half as many.
static void find_any(Relief *r) {
  int n_lacking = 0;
  for (int i = 0; i < r->variants.n; i++) {
    Variant *v = &r->variants.at[i];
    v->slices = 0;
    if (r->savers.at[v->saver].gradients == r->gradients) move_to_most(r, v);
  }
  while (!any_fits(r->all) && r->n_tried < r->most_tried) {
    Variant *least = NULL;
    for (int i = 0; i < r->variants.n; i++) {
      Variant *v = &r->variants.at[i];
      if (v->slices && is_tried(r, v->plan, v->slices)) v->slices = 0;
      if (v->slices && (!least || v->bytes < least->bytes)) least = v;
    }
    if (!least) return;
    if (is_proved_unfit(r, least) && n_lacking++ >= MOST_LACKING) {
      least->slices = 0;
      continue;
    }
    compile(r, least);
    least->slices = least->last.made || r->o->micro_batches ? 0 : least->slices / 2;
    while (least->slices && !has_rows(r, &r->all->at[least->base], least->slices))
      least->slices--;
    if (!suits(r, least, least->slices)) least->slices = 0;
  }
}

// Compiles the variants that may be faster than the best plan so far.
static void find_faster(Relief *r) {
  for (int i = 0; i < r->variants.n; i++)
    advance(r, &r->variants.at[i], r->all->at[r->variants.at[i].base].micro_batches);
  while (r->n_tried < r->most_tried && !choice_ends(r->o, r->all)) {
    double worth = r->least_gain * least_fitting(r->all);
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

// Whether the best plan so far has its states in host memory, as none fits without that.
static bool best_offloads(Arena *a, const Candidates *all) {
  double least = least_fitting(all);
  bool offloads = false;
  for (int i = 0; i < all->n && !offloads; i++)
    if (all->at[i].fits && all->at[i].seconds <= least)
      plan_without_savers(a, all->at[i].plan, &offloads);
  return offloads;
}

void try_relief(const Module *model, const ChooseOptions *o, const AutoSearch *search, Arena *a,
                Candidates *all) {
  if (!o->limited || choice_ends(o, all)) return;
  bool large = model->graphs->n_ops > LARGE_OPS, fits = any_fits(all);
  if (large && fits && !best_offloads(a, all)) return;
  Relief r = {.model = model, .o = o, .search = search, .a = a, .all = all, .n_bases = all->n};
  r.most_tried = large && (fits || (search && auto_lacks(search) > 0)) ? FEW_TRIED : MOST_TRIED;
  r.least_gain = large ? LEAST_GAIN : 1;
  r.weights_left = search ? auto_weights_left(search) : 1;
  candidates_savers(a, &r.savers);
  find_first(&r);
  find_effects(&r);
  list_variants(&r);
  if (!any_fits(all)) find_any(&r);
  if (!any_fits(all)) {
    r.gradients = true;
    r.most_tried = r.n_tried + FEW_TRIED;
    find_any(&r);
  }
  if (any_fits(all)) find_faster(&r);
}
