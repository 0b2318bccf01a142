// See auto.h.

#include "auto.h"

#include <math.h>

#include "bounds.h"
#include "cost/cost.h"
#include "estimate.h"
#include "evaluate.h"
#include "space.h"

#define MOST_BUILT 8    // plans that the search builds: a few seconds each for the largest models
#define MEMORY_ERR 1.15 // bytes of a plan by those estimated, at first
#define ERR        0.02 // of a corrected estimate
#define FAR        1.1  // times the best: an estimate, by which no plan like it was too high
#define SEARCHED   1.5  // times the best: what a search improves on named plans, at most

// What plans were off by, as a factor of their estimates: the seconds of those with as many parts
// of the model, stages or chunks, and the same ZeRO; the bytes of those of a schedule. It corrects
// the estimates of points like them.
typedef struct Correction {
  int parts, zero;
  double least;
} Correction;

// A point, and its numbers of both tiers.
typedef struct Priced {
  Point at;
  Bound bound;
  Estimate estimate;
  bool estimated, out, built;
} Priced;

struct AutoSearch {
  const Module *model;
  const ChooseOptions *o;
  Arena *a;
  const StepWork *work;
  Vec(Priced) points;
  int *heap, n_heap; // of points: a binary heap by key
  Vec(Correction) seconds;
  double bytes[N_POINT_KINDS];
  bool goes_first;  // before candidates without stages
  double one_stage; // seconds of the fastest of these so far; 0: none was made
  int n_impossible, n_unlikely, n_built, n_failed, n_excluded;
};

// Returns the correction of points like this one; NULL: none was built.
static Correction *find_correction(const AutoSearch *s, const Point *p) {
  for (int i = 0; i < s->seconds.n; i++) {
    Correction *c = &s->seconds.at[i];
    if (c->parts == p->stages * p->chunks && c->zero == p->zero) return c;
  }
  return NULL;
}

static double corrected(const AutoSearch *s, const Point *p, const Estimate *e) {
  const Correction *c = find_correction(s, p);
  return e->seconds * (c ? c->least : 1);
}

static double key_of(const AutoSearch *s, const Priced *p) {
  double seconds = p->estimated ? corrected(s, &p->at, &p->estimate) : 0;
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
static const StepWork *find_work(const Module *model, const ChooseOptions *o, Arena *a) {
  Candidate one = {.plan = "dp", .ranks = 1, .micro_batches = 1};
  FILE *nowhere = fopen("/dev/null", "w");
  if (!nowhere) return NULL;
  Diag *d = diag_new(nowhere);
  PipelineOptions run = {
      .bisect_limit = -1, .unproved = true, .stop_after = "fuse", .out = nowhere};
  Module *m = module_clone(model);
  const StepWork *work = NULL;
  if (pipeline_run(m, o->pipeline(o->context, &one), &run, d) && m->phase >= PHASE_local)
    work = step_work_find(m, a);
  module_free(m);
  diag_free(d);
  fclose(nowhere);
  return work && work->products ? work : NULL;
}

static double memory_of(const AutoSearch *s) {
  return s->o->limited && s->o->cluster->memory > 0 ? s->o->cluster->memory : INFINITY;
}

AutoSearch *auto_new(const Module *model, const ChooseOptions *o, Arena *a) {
  const Cluster *c = o->cluster;
  if (c->n_kinds || !cost_known(c) || o->ranks > cluster_devices(c) || o->ranks < 2) return NULL;
  AutoSearch *s = arena_one(a, AutoSearch);
  *s = (AutoSearch){.model = model, .o = o, .a = a, .work = find_work(model, o, a)};
  if (!s->work) return NULL;
  SpaceOptions space = {.ranks = o->ranks,
                        .rows = o->batch,
                        .micro_batches = o->micro_batches,
                        .per_node = c->per_node,
                        .units = s->work->products};
  Points points = {0};
  space_list(&space, a, &points);
  s->heap = arena_array(a, int, points.n);
  for (int i = 0; i < points.n; i++) {
    Priced p = {.at = points.at[i], .bound = bound_find(s->work, c, &points.at[i])};
    p.out = p.bound.lasting > memory_of(s);
    s->n_impossible += p.out;
    vec_push(a, &s->points, p);
    if (!p.out) heap_push(s, i);
  }
  return s;
}

// Gives the point its estimate. Returns whether it may have the memory.
static bool estimate_point(AutoSearch *s, Priced *p) {
  if (!p->estimated) {
    p->estimate = estimate_find(s->work, s->o->cluster, &p->at);
    p->estimated = true;
  }
  double factor = fmax(s->bytes[p->at.kind], MEMORY_ERR);
  return p->estimate.bytes * factor <= memory_of(s);
}

bool auto_prefers_stages(AutoSearch *s) {
  double with = INFINITY, without = INFINITY;
  for (int i = 0; i < s->points.n; i++) {
    Priced p = s->points.at[i];
    double *least = p.at.stages > 1 ? &with : &without;
    if (!p.out && p.bound.seconds < *least && estimate_point(s, &p))
      *least = fmin(*least, key_of(s, &p));
  }
  return s->goes_first = with < without;
}

// Whether a candidate has the point's plan already, and was compiled.
static bool is_tried(const Candidates *all, const Point *p) {
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    Point q;
    if (c->excluded || !point_of_plan(c->plan, c->ranks, c->micro_batches, &q)) continue;
    if (point_equal(p, &q)) return true;
  }
  return false;
}

// Notes what the plan of a point was off by.
static void note_built(AutoSearch *s, const Point *p, const Candidate *c) {
  Estimate e = estimate_find(s->work, s->o->cluster, p);
  double bytes = (double)c->needs.peak_bytes / e.bytes;
  double seconds = c->seconds / e.seconds;
  Correction *known = find_correction(s, p);
  if (known)
    known->least = fmin(known->least, seconds);
  else
    vec_push(s->a, &s->seconds, (Correction){p->stages * p->chunks, p->zero, seconds});
  if (p->stages > 1) s->bytes[p->kind] = fmax(s->bytes[p->kind], bytes);
}

// Builds the point's plan.
static void build_point(AutoSearch *s, Priced *p, Candidates *all) {
  Candidate c = {.plan = point_plan(s->a, &p->at), .ranks = s->o->ranks};
  c.micro_batches = p->at.micro_batches;
  c.worth = least_fitting(all);
  c.priced = key_of(s, p);
  p->built = true;
  s->n_built++;
  candidate_make(s->model, s->o, s->a, &c, NULL);
  s->n_failed += !c.made;
  vec_push(s->a, all, c);
  if (!c.made) return;
  note_built(s, &p->at, &c);
  // The keys of points like it changed.
  int n = s->n_heap;
  s->n_heap = 0;
  for (int i = 0; i < n; i++)
    heap_push(s, s->heap[i]);
}

void auto_build(AutoSearch *s, Candidates *all) {
  while (s->n_heap && s->n_built < MOST_BUILT && !choice_ends(s->o, all)) {
    double best = least_fitting(all);
    if (best > 0 && best <= key_of(s, &s->points.at[s->heap[0]]) * (1 - ERR)) break;
    int i = heap_pop(s);
    Priced *p = &s->points.at[i];
    // From tier 1 to tier 2; or built.
    bool was_estimated = p->estimated;
    if (!estimate_point(s, p)) {
      s->n_unlikely++;
    } else if (!was_estimated) {
      heap_push(s, i);
    } else if (p->at.stages > 1 && !is_tried(all, &p->at)) {
      build_point(s, p, all);
    }
  }
}
// -- What the search says ----------------------------------------------------------------------

const char *auto_excludes(AutoSearch *s, const Candidate *c, double worth) {
  Point p;
  const char *why = NULL;
  if (worth <= 0) return NULL;
  if (point_of_plan(c->plan, c->ranks, c->micro_batches, &p)) {
    Bound b = bound_find(s->work, s->o->cluster, &p);
    Estimate e = estimate_find(s->work, s->o->cluster, &p);
    double expected = corrected(s, &p, &e);
    if (b.lasting > memory_of(s))
      why = str_format(s->a, "weights and states of a rank take %.1f GB at least", b.lasting / 1e9);
    else if (b.seconds > worth)
      why =
          str_format(s->a, "a step takes %.3f ms at least (%s)", 1e3 * b.seconds, bound_binds(&b));
    else if (s->goes_first && expected > FAR * worth)
      why = str_format(s->a, "a step is expected to take %.3f ms", 1e3 * expected);
  } else if (s->goes_first && s->one_stage > SEARCHED * worth) {
    why = str_format(s->a, "plans without stages take %.3f ms and more", 1e3 * s->one_stage);
  }
  s->n_excluded += why != NULL;
  return why;
}

void auto_note(AutoSearch *s, const Candidate *c) {
  Point p;
  if (!c->made || !point_of_plan(c->plan, c->ranks, c->micro_batches, &p) || p.stages > 1) return;
  note_built(s, &p, c);
  if (s->one_stage <= 0 || c->seconds < s->one_stage) s->one_stage = c->seconds;
}

double auto_bound(const AutoSearch *s) {
  double least = INFINITY;
  for (int i = 0; i < s->points.n; i++)
    if (!s->points.at[i].out) least = fmin(least, s->points.at[i].bound.seconds);
  return isfinite(least) ? least : 0;
}

Certificate auto_certificate(const AutoSearch *s, const Candidates *all) {
  Certificate c = {.points = s->points.n,
                   .impossible = s->n_impossible,
                   .unlikely = s->n_unlikely,
                   .built = s->n_built,
                   .failed = s->n_failed,
                   .excluded = s->n_excluded};
  double best = least_fitting(all);
  for (int i = 0; i < s->points.n; i++) {
    const Priced *p = &s->points.at[i];
    c.estimated += p->estimated;
    if (p->out || p->built || is_tried(all, &p->at)) continue;
    if (c.bound > 0 && p->bound.seconds >= c.bound) continue;
    c.bound = p->bound.seconds;
    c.binds = bound_binds(&p->bound);
  }
  // Every plan of the space was built, or none that is left is better.
  if (best > 0 && (c.bound <= 0 || c.bound > best)) c.bound = best;
  c.best = best;
  c.stopped = choice_ends(s->o, all);
  return c;
}
