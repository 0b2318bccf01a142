// See choose.h.

#include "choose.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "collectives.h"
#include "cost_step.h"
#include "pass.h"

enum { MAX_MICRO_BATCHES = 256, MORE_RANKS = 8, N_AGAIN = 3 };

// -- Which there are ---------------------------------------------------------------------------

static const char *const outer[] = {"dp", "zero1", "zero3"}; // each rank has its rows
static const char *const inner[] = {"sp", "vp"};             // and its columns

enum { N_OUTER = sizeof outer / sizeof *outer, N_INNER = sizeof inner / sizeof *inner };

static void add(const ChooseOptions *o, Arena *a, Candidates *out, const char *plan) {
  int64_t slices = o->micro_batches ? o->micro_batches : 1;
  Candidate c = {.plan = plan, .ranks = o->ranks, .micro_batches = slices, .by_axes = o->by_axes};
  vec_push(a, out, c);
}

// Tensor parallelism stays within a node.
static void list(const ChooseOptions *o, Arena *a, Candidates *out) {
  int64_t n = o->ranks;
  for (int i = 0; i < N_OUTER; i++)
    add(o, a, out, outer[i]);
  for (int64_t k = 2; k <= n && k <= o->cluster->per_node; k++)
    for (int j = 0; n % k == 0 && j < N_INNER; j++) {
      if (k == n) add(o, a, out, inner[j]);
      for (int i = 0; k < n && i < N_OUTER; i++)
        add(o, a, out, str_format(a, "%s,%s=%" PRId64, outer[i], inner[j], k));
    }
  if (n >= 4 && n <= o->cluster->per_node) add(o, a, out, "tp2d");
  add(o, a, out, "search");
  add(o, a, out, "search_qkv");
}

// -- What each is worth --------------------------------------------------------------------------

static void measure(const Module *m, const ChooseOptions *o, Candidate *c) {
  Arena *a = arena_new();
  StepCost cost;
  c->seconds = step_cost(m, o->cluster, o->target, a, &cost) ? cost.seconds : INFINITY;
  c->needs = needs_most(m);
  c->fits = !o->limited || needs_fit(&c->needs, o->cluster);
  arena_free(a);
}

// Ranks that never send anything all do the same.
static bool shares_work(const Module *m) {
  Arena *a = arena_new();
  Collectives list = {0};
  collectives_find(a, m, &list);
  arena_free(a);
  return list.n > 0;
}

static void make(const Module *model, const ChooseOptions *o, Candidate *c) {
  Diag *quiet = diag_new(stderr);
  PipelineOptions run = {.bisect_limit = -1, .unproved = true};
  Module *m = module_clone(model);
  diag_quiet(quiet, true);
  c->made = pipeline_run(m, o->pipeline(o->context, c), &run, quiet) && m->phase >= PHASE_planned &&
            shares_work(m);
  if (c->made) measure(m, o, c);
  module_free(m);
  diag_free(quiet);
}

// More of them need less memory, up to where a micro-batch is one row for each rank.
static bool may_cut_more(const ChooseOptions *o, const Candidate *c) {
  int64_t twice = 2 * c->micro_batches;
  bool open = !o->micro_batches && o->batch > 0 && o->batch % twice == 0;
  bool helps = (double)(c->needs.weight_bytes + c->needs.state_bytes) <= o->cluster->memory;
  return open && helps && twice <= MAX_MICRO_BATCHES;
}

static void try_candidate(const Module *model, const ChooseOptions *o, Arena *a, Candidates *all,
                          Candidate c) {
  make(model, o, &c);
  vec_push(a, all, c);
  while (c.made && !c.fits && may_cut_more(o, &c)) {
    c = (Candidate){c.plan, c.ranks, 2 * c.micro_batches, .by_axes = c.by_axes};
    make(model, o, &c);
    vec_push(a, all, c);
  }
}

// -- The choice ----------------------------------------------------------------------------------

// The cheapest of those that fit, but those that were taken.
static int cheapest(const Candidates *all, const bool *taken) {
  int best = -1;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (c->fits && !taken[i] && (best < 0 || c->seconds < all->at[best].seconds)) best = i;
  }
  return best;
}

// Prices the best few again, with the ways that their collectives really take.
static void price_best(const Module *model, const ChooseOptions *o, Candidates *all, bool *taken) {
  int best[N_AGAIN], n = 0;
  for (int i; n < N_AGAIN && (i = cheapest(all, taken)) >= 0; n++) {
    best[n] = i;
    taken[i] = true;
  }
  memset(taken, true, (size_t)all->n);
  for (int i = 0; i < n; i++) {
    Candidate *c = &all->at[best[i]];
    *c = (Candidate){c->plan, c->ranks, c->micro_batches, .by_axes = false};
    make(model, o, c);
    taken[best[i]] = false;
  }
}

int choose_plan(const Module *model, const ChooseOptions *o, Arena *a, Candidates *out) {
  Candidates plans = {0};
  list(o, a, &plans);
  for (int i = 0; i < plans.n; i++)
    try_candidate(model, o, a, out, plans.at[i]);
  bool *taken = arena_array(a, bool, out->n);
  if (o->by_axes) price_best(model, o, out, taken);
  return cheapest(out, taken);
}

static const Candidate *smallest(const Candidates *all) {
  const Candidate *best = NULL;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    if (c->made && (!best || c->needs.peak_bytes < best->needs.peak_bytes)) best = c;
  }
  return best;
}

bool choose_failed(const Module *model, const ChooseOptions *o, Arena *a, const Candidates *all,
                   Diag *d) {
  const Candidate *c = smallest(all);
  if (!c)
    return diag_error(d, NULL, "no plan can be made of this model for %" PRId64 " ranks", o->ranks);
  diag_error(
      d, NULL,
      "the model fits under no plan: with the one that needs least, %s, rank %d needs %" PRId64
      " bytes, and a device of '%s' has %.0f",
      c->plan, c->needs.rank, c->needs.peak_bytes, o->cluster->name, o->cluster->memory);
  diag_note(d, NULL, "%s, in %" PRId64 " micro-batch%s", needs_text(a, &c->needs), c->micro_batches,
            c->micro_batches == 1 ? "" : "es");
  ChooseOptions more = *o;
  for (int64_t times = 2; times <= MORE_RANKS; times *= 2) {
    Candidates wider = {0};
    more.ranks = times * o->ranks;
    if (more.ranks > cluster_devices(o->cluster)) break;
    int best = choose_plan(model, &more, a, &wider);
    if (best < 0) continue;
    diag_hint(d, "it fits on %" PRId64 " ranks: -g %" PRId64 " --plan %s", more.ranks, more.ranks,
              wider.at[best].plan);
    return false;
  }
  diag_hint(d, "a device would need %" PRId64 " bytes more",
            c->needs.peak_bytes - (int64_t)o->cluster->memory);
  return false;
}
