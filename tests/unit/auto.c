// The search of `--plan auto` compared with brute force: small models, of which every point of the
// space is compiled.

#include "auto_problem.h"

#include <limits.h>

#include "planner/auto/auto.h"
#include "planner/auto/bounds.h"
#include "planner/auto/candidates.h"
#include "planner/auto/evaluate.h"
#include "planner/auto/least_bytes.h"
#include "planner/auto/prices.h"
#include "planner/auto/space.h"
#include "random_models.h"

// Prints the terms of a bound that is above what was built.
static bool holds(const AutoSearch *s, const Point *p, const Candidate *c) {
  Bound b = auto_bound_of(s, p);
  bool ok = b.seconds <= c->seconds && b.lasting <= (double)c->needs.peak_bytes;
  if (!ok)
    print_message("%s in %d: built %.9f s, %.0f bytes; bound %.9f: compute %.9f, fill %.9f, after "
                  "%.9f, traffic %.9f; lasting %.0f; %s binds\n",
                  c->plan, (int)c->micro_batches, c->seconds, (double)c->needs.peak_bytes,
                  b.seconds, b.compute, b.fill, b.after, b.traffic, b.lasting, bound_binds(&b));
  return ok;
}

// All points of a problem, compiled.
typedef struct Brute {
  Candidates made;
  int points, broken; // broken: their bounds are above
  int with_experts;   // of those made
  int interlaced;     // likewise
  int recomputed;     // points that were added
  int tensor;         // of these with tp
  int swapped;        // with saved activations in host memory
  Vec(Bound) staged;  // of points with stages
} Brute;

static Brute brute_force(Problem *p, const Module *m, const ChooseOptions *o, int units) {
  Brute b = {0};
  AutoSearch *s = auto_new(m, o, p->a);
  if (!s) fail_msg("no search, on %s:\n%s", p->cluster, p->text);
  Points points = {0};
  SpaceOptions space = {
      RANKS, ROWS, p->micro_batches, o->cluster->per_node, units, model_features(m, p->a), 0, true};
  space_list(&space, p->a, &points);
  b.points = points.n;
  for (int k = 0; k < points.n; k++) {
    Candidate c = {.plan = point_plan(p->a, &points.at[k]), .ranks = RANKS};
    c.micro_batches = points.at[k].micro_batches;
    if (points.at[k].stages > 1) vec_push(p->a, &b.staged, auto_bound_of(s, &points.at[k]));
    candidate_make(m, o, p->a, &c, NULL);
    if (!c.made) continue;
    b.broken += !holds(s, &points.at[k], &c);
    b.with_experts += points.at[k].experts > 1;
    b.interlaced += points.at[k].kind == POINT_interlaced;
    vec_push(p->a, &b.made, c);
  }
  auto_end(s);
  return b;
}

// Compiles a point that was added. Returns whether it was made.
static bool make_added(const Problem *p, const Module *m, const ChooseOptions *o,
                       const AutoSearch *s, const Point *at, Brute *b) {
  Candidate c = {.plan = point_plan(p->a, at), .ranks = RANKS};
  c.micro_batches = at->micro_batches;
  candidate_make(m, o, p->a, &c, NULL);
  if (!c.made) return false;
  b->broken += !holds(s, at, &c);
  vec_push(p->a, &b->made, c);
  return true;
}

// Compiles the plans of a point with saved activations of all layers in host memory, and states or
// not. Tables of small models are not right for those of some layers.
static void make_swapped(const Problem *p, const Module *m, const ChooseOptions *o, Point at,
                         Brute *b) {
  static const char *const savers[] = {",swap=1", ",swap=1,offload=1"};
  at.recompute = RECOMPUTE_none;
  at.offload = false;
  for (size_t i = 0; i < sizeof savers / sizeof *savers; i++) {
    Candidate c = {.plan = point_plan_with(p->a, &at, savers[i]), .ranks = RANKS};
    c.micro_batches = at.micro_batches;
    candidate_make(m, o, p->a, &c, NULL);
    if (!c.made) continue;
    vec_push(p->a, &b->made, c);
    b->swapped++;
  }
}

// Compiles the points that do not fit again, with each level of recomputation, with states or saved
// activations in host memory, and with tp.
static void make_recomputed(const Problem *p, const Module *m, const ChooseOptions *o, Brute *b) {
  AutoSearch *s = auto_new(m, o, p->a);
  int n = b->made.n;
  for (int i = 0; i < n; i++) {
    const Candidate plain = b->made.at[i];
    Point at;
    if (needs_fit(&plain.needs, o->cluster) ||
        !point_of_plan(plain.plan, RANKS, plain.micro_batches, &at))
      continue;
    for (int k = 1; k < 2 * N_RECOMPUTE_LEVELS; k++) {
      at.recompute = (RecomputeLevel)(k % N_RECOMPUTE_LEVELS);
      at.offload = k / N_RECOMPUTE_LEVELS;
      b->recomputed += make_added(p, m, o, s, &at, b);
    }
    if (at.chunks == 1 && at.kind == POINT_1f1b) make_swapped(p, m, o, at, b);
    if (at.inner != POINT_sp || at.tensor == 1 || at.context > 1) continue;
    at.offload = false;
    at.inner = POINT_tp;
    b->tensor += make_added(p, m, o, s, &at, b);
  }
  auto_end(s);
}

// Of those that fit; NULL: none does.
static const Candidate *fastest(const Candidates *all, const ChooseOptions *o) {
  const Candidate *best = NULL;
  for (int i = 0; i < all->n; i++) {
    const Candidate *c = &all->at[i];
    bool fits = c->made && (!o->limited || needs_fit(&c->needs, o->cluster));
    if (fits && (!best || c->seconds < best->seconds)) best = c;
  }
  return best;
}

// Compiles the other candidates that the search did not: it excluded them.
static void make_excluded(const Problem *p, const Module *m, const ChooseOptions *o,
                          const Candidates *all, Candidates *out) {
  for (int i = 0; i < all->n; i++) {
    Candidate c = {.plan = all->at[i].plan, .ranks = RANKS};
    if (!all->at[i].excluded) continue;
    c.micro_batches = all->at[i].micro_batches;
    candidate_make(m, o, p->a, &c, NULL);
    if (c.made) vec_push(p->a, out, c);
  }
}

// The seconds that no deal of layers to the stages of any point is below, compiled or not.
static double least_deal(const Brute *b, double memory) {
  double least = INFINITY;
  for (int i = 0; i < b->staged.n; i++)
    if (b->staged.at[i].lasting <= memory) least = fmin(least, b->staged.at[i].seconds);
  return least;
}

// Whether the choice is the best of all points, and its certificate holds, also of their other
// deals. Prints it otherwise.
static bool is_best(Problem *p, const Module *m, const ChooseOptions *o, Brute *b) {
  Candidates all = {0};
  Certificate certificate;
  Module *result;
  int chosen = choose_plan(m, o, p->a, &all, &certificate, &result);
  make_excluded(p, m, o, &all, &b->made);
  const Candidate *best = fastest(&b->made, o);
  if (!best) return true;
  double least = best->seconds, deals = least_deal(b, choose_memory(o));
  // Of about equal ones, the one that shares the work.
  bool ok = chosen >= 0 && all.at[chosen].seconds <= 1.01 * least &&
            certificate.best <= least * (1 + 1e-9) && certificate.bound <= least * (1 + 1e-9) &&
            certificate.tabled <= least * (1 + 1e-9) && certificate.points == b->points &&
            certificate.bound <= deals * (1 + 1e-9) && certificate.bound <= certificate.tabled;
  if (ok) return true;
  const Candidate none = {.plan = "none"}, *taken = chosen >= 0 ? &all.at[chosen] : &none;
  print_message("%s, %s, %s, memory %.0f: %s in %d takes %.9f s, and %s in %d %.9f; certificate: "
                "best %.9f, bound %.9f, of deals %.9f, %d points\n",
                p->cluster, p->target == TARGET_cuda ? "cuda" : "cpu", p->dtype ? p->dtype : "f32",
                p->memory, taken->plan, (int)taken->micro_batches, taken->seconds, best->plan,
                (int)best->micro_batches, least, certificate.best, certificate.bound, deals,
                certificate.points);
  return false;
}

static Brute check_model(const char *cluster, const char *text, int units, Arena *a) {
  Heard *h = heard_new();
  Problem p = {.a = a, .text = text, .cluster = cluster, .micro_batches = SLICES};
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Brute b = brute_force(&p, m, &o, units);
  assert_true(b.made.n >= 8);
  assert_int_equal(b.broken, 0);
  assert_true(is_best(&p, m, &o, &b));
  module_free(m);
  heard_free(h);
  return b;
}

static void the_best_of_all_points_is_found(void **state) {
  (void)state;
  static const struct {
    const char *cluster;
    int layers, width[7];
  } model[] = {{"h100:1x4", 6, {64, 64, 64, 64, 64, 64, 64}},
               {"h100:1x4", 6, {256, 2048, 256, 2048, 256, 2048, 256}},
               {"h100:2x2", 6, {2048, 2048, 2048, 2048, 2048, 2048, 2048}},
               // Collectives cost NCCL's choice: in a node, less than a ring.
               {"h100-measured:1x4", 4, {4096, 4096, 4096, 4096, 4096, 0, 0}},
               {"h100-measured:2x2", 5, {256, 2048, 256, 2048, 256, 2048, 0}},
               {"cpu:1x4", 5, {32, 512, 16, 1024, 64, 8, 0}},
               {"cpu:2x2", 4, {4096, 128, 4096, 128, 512, 0, 0}}};
  for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
    Arena *a = arena_new();
    const char *text = chain_model(a, model[i].width, model[i].layers);
    Brute b = check_model(model[i].cluster, text, model[i].layers, a);
    assert_int_equal(b.with_experts + b.interlaced, 0);
    arena_free(a);
  }
}

// The same of mixtures. Their points have expert ranks: the bounds count each expert on one of
// them.
static void the_best_with_experts_is_found(void **state) {
  (void)state;
  static const struct {
    const char *cluster;
    int width, layers;
  } model[] = {{"h100:1x4", 64, 3}, {"h100:2x2", 1024, 2}, {"cpu:2x2", 256, 2}};
  for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
    Arena *a = arena_new();
    const char *text = mixture_model(a, model[i].width, 4, model[i].layers);
    assert_true(check_model(model[i].cluster, text, 2 * model[i].layers, a).with_experts >= 4);
    arena_free(a);
  }
}

// The same of models with many words. Their tables may be on all stages, which no series of
// products counts.
static void the_best_with_words_is_found(void **state) {
  (void)state;
  static const struct {
    const char *cluster;
    int words, width, layers;
  } model[] = {{"h100:1x4", 512, 64, 4}, {"h100:2x2", 32768, 512, 4}, {"cpu:1x4", 4096, 256, 5}};
  for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
    Arena *a = arena_new();
    const char *text = word_model(a, model[i].words, model[i].width, model[i].layers);
    assert_true(check_model(model[i].cluster, text, model[i].layers + 2, a).interlaced >= 3);
    arena_free(a);
  }
}

static int compare_bytes(const void *x, const void *y) {
  int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
  return (a > b) - (a < b);
}

// The bytes of a plan that `i` others need less than.
static double memory_of(Arena *a, const Candidates *all, int i) {
  int64_t *bytes = arena_array(a, int64_t, all->n);
  for (int k = 0; k < all->n; k++)
    bytes[k] = all->at[k].needs.peak_bytes;
  qsort(bytes, (size_t)all->n, sizeof *bytes, compare_bytes);
  return (double)bytes[i];
}

// A limit that some of the plans exceed.
static double some_memory(Arena *a, const Candidates *all, unsigned *state) {
  return memory_of(a, all, random_below(state, all->n));
}

// The same of models with sequences, in memory that some plans exceed: those with recomputation
// have tp besides sp.
static void the_best_with_sequences_is_found(void **state) {
  (void)state;
  static const struct {
    const char *cluster, *dtype;
    int tokens, width, layers, fit; // plans that fit without recomputation, but one
  } model[] = {{"h100:1x4", NULL, 64, 128, 2, 0},
               {"h100:1x4", "bf16", 256, 256, 3, 1},
               {"a100:2x2", NULL, 128, 64, 3, 4},
               {"cpu:1x4", NULL, 32, 256, 2, 2}};
  for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
    Heard *h = heard_new();
    Problem p = {.a = arena_new(), .cluster = model[i].cluster, .dtype = model[i].dtype};
    p.micro_batches = SLICES;
    p.text = sequence_model(p.a, model[i].tokens, model[i].width, model[i].layers);
    Module *m = problem_module(&p);
    ChooseOptions o = problem_options(&p, h->d);
    Brute b = brute_force(&p, m, &o, 2 * model[i].layers);
    Cluster less = *o.cluster;
    less.memory = p.memory = memory_of(p.a, &b.made, model[i].fit);
    o.cluster = &less;
    o.limited = true;
    make_recomputed(&p, m, &o, &b);
    assert_true(b.tensor > 0 && b.swapped > 0);
    assert_int_equal(b.broken, 0);
    assert_true(is_best(&p, m, &o, &b));
    problem_free(&p, m, h);
  }
}

static int count_units(const char *text) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, "= linear ")); at++)
    n++;
  return n;
}

static bool is_asked_enough(void *context) {
  Problem *p = context;
  return ++p->asked > p->most_asked;
}

// A model with a table of words on two nodes of two.
static Problem word_problem(void) {
  Problem p = {.a = arena_new(), .cluster = "h100:2x2", .micro_batches = SLICES};
  p.text = word_model(p.a, 1024, 256, 4);
  return p;
}

// A choice that ends early, anywhere in a compilation, has a plan, and its certificate holds: plans
// that were not compiled to their end still bound it.
static void choices_end_within_a_compilation(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = word_problem();
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Brute b = brute_force(&p, m, &o, 6);
  double least = fastest(&b.made, &o)->seconds;
  int n_stopped = 0, n_whole = 0;
  o.stop = is_asked_enough;
  for (p.most_asked = 0; !n_whole; p.most_asked = 2 * p.most_asked + 1) {
    Candidates all = {0};
    Certificate c;
    Module *result;
    p.asked = 0;
    int chosen = choose_plan(m, &o, p.a, &all, &c, &result);
    assert_true(chosen >= 0 && all.at[chosen].made);
    assert_true(c.bound <= least * (1 + 1e-9) && c.tabled <= least * (1 + 1e-9));
    assert_int_equal(c.stopped, p.asked > p.most_asked);
    n_whole += !c.stopped;
    int stopped = 0;
    for (int i = 0; i < all.n; i++) {
      stopped += all.at[i].stopped;
      assert_false(all.at[i].stopped && all.at[i].made);
    }
    // A candidate that was not compiled to its end is the last.
    assert_true(stopped <= 1);
    n_stopped += stopped;
  }
  assert_true(n_stopped >= 2);
  problem_free(&p, m, h);
}

static void count_shown(void *context, const Candidate *c, double bound) {
  Problem *p = context;
  (void)bound;
  p->shown += !c;
}

// Progress is shown within a compilation as well: a search takes long.
static void searches_show_progress(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = word_problem();
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  o.progress = count_shown;
  Candidate search = {.plan = "search", .ranks = RANKS, .micro_batches = SLICES};
  candidate_make(m, &o, p.a, &search, NULL);
  assert_true(search.made);
  assert_true(p.shown >= 10);
  problem_free(&p, m, h);
}

// No plan with savers needs fewer bytes than its bound, or than that of any plan: in f32, of which
// weights stay on the device, and in bf16, of which copies do.
static void least_bytes_hold_with_savers(void **state) {
  (void)state;
  static const char *const bases[] = {"dp",        "zero1",     "zero2",        "zero3",
                                      "sp",        "dp=2,sp=2", "zero3=2,sp=2", "pp",
                                      "pp=2,dp=2", "pp=2,sp=2", "zero1=2,pp=2", "tp2d"};
  static const char *const savers[] = {"",
                                       ",recompute=1",
                                       ",swap=1",
                                       ",offload=1",
                                       ",recompute=1,offload=1",
                                       ",swap=1,offload=1",
                                       ",offload_gradients=1",
                                       ",offload=1,offload_gradients=1"};
  static const int width[] = {256, 256, 256, 256, 256, 256, 256};
  enum { N_BASES = sizeof bases / sizeof *bases, N_SAVERS = sizeof savers / sizeof *savers };
  for (int narrow = 0; narrow < 2; narrow++) {
    Heard *h = heard_new();
    Problem p = {.a = arena_new(), .cluster = "h100:1x4", .target = TARGET_cuda};
    p.dtype = narrow ? "bf16" : NULL;
    p.optimizer = "adamw";
    p.text = chain_model(p.a, width, 6);
    Module *m = problem_module(&p);
    ChooseOptions o = problem_options(&p, h->d);
    const StepWork *w = auto_find_work(m, &o, p.a);
    int made = 0, offloaded = 0, lighter = 0, near = 0;
    for (int i = 0; i < N_BASES * N_SAVERS * 2; i++) {
      const char *base = bases[i % N_BASES];
      Candidate c = {.ranks = RANKS, .micro_batches = 1 + i / (N_BASES * N_SAVERS)};
      c.plan = str_format(p.a, "%s%s", base, savers[i / N_BASES % N_SAVERS]);
      bool offloads;
      Point at;
      assert_string_equal(plan_without_savers(p.a, c.plan, &offloads), base);
      assert_int_equal(offloads, strstr(c.plan, ",offload=") != NULL);
      candidate_make(m, &o, p.a, &c, NULL);
      if (!c.made) continue;
      // Sums of gradients in host memory are none on the device, as in one micro-batch.
      int64_t slices = plan_offloads_gradients(c.plan) ? 1 : c.micro_batches;
      double peak = (double)c.needs.peak_bytes,
             least = least_bytes(w, RANKS, (double)slices, offloads);
      if (least > peak) fail_msg("%s needs %.0f, less than %.0f", c.plan, peak, least);
      bool known = plan_numbers(base, RANKS, c.micro_batches, &at);
      assert_int_equal(known, strcmp(base, "tp2d") != 0);
      at.micro_batches = slices;
      if (known) least = least_point_bytes(w, &at, offloads);
      if (least > peak) fail_msg("%s needs %.0f, less than %.0f", c.plan, peak, least);
      LeastBytes text = least_bytes_of(w, p.a, c.plan, RANKS, c.micro_batches);
      assert_true(text.own <= peak && text.saved <= text.own && text.offloads == offloads);
      // Without the sums it needs less than it would with them.
      at.micro_batches = c.micro_batches;
      lighter += known && slices < c.micro_batches && least_point_bytes(w, &at, offloads) > peak;
      made++;
      near += 2 * least > peak;
      // Without the states a plan needs less than it would with them.
      offloaded += offloads && known && least_point_bytes(w, &at, false) > peak;
    }
    assert_true(made >= N_BASES * N_SAVERS);
    assert_true(near >= N_BASES);
    assert_true(offloaded >= N_BASES / 2);
    assert_true(lighter > 0);
    problem_free(&p, m, h);
  }
}

// Savers are those of plans that the choice tries, before or after the others.
static void plans_lose_their_savers(void **state) {
  (void)state;
  static const char *const plan[][2] = {
      {"recompute,sp=2", "dp,sp=2"},
      {"swap", "dp"},
      {"dp=2,recompute=1", "dp=2"},
      {"recompute=4,sp=2", "dp=4,sp=2"},
      {"pp_interleaved:3=4,recompute=1,zero1=2", "pp_interleaved:3=4,zero1=2"},
      {"search=2x4,swap=1", "search=2x4"},
      {"recompute_attention=1,sp", "recompute_attention=1,sp"},
      {"zero2=2,swap=1,offload_gradients=1", "zero2=2"},
      {"recompute=16,sp=2", "dp=16,sp=2"}};
  Arena *a = arena_new();
  bool offloads;
  for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
    assert_string_equal(plan_without_savers(a, plan[i][0], &offloads), plan[i][1]);
    assert_false(offloads);
  }
  plan_without_savers(a, "dp,recompute=1,offload=1", &offloads);
  assert_true(offloads);
  assert_true(plan_places("zero1,pp=2") && plan_places("search=2x4") && plan_places("pp_uneven"));
  assert_false(plan_places("zero1,sp=2") || plan_places("recompute,sp=2"));
  arena_free(a);
}

static const PipelineOptions *quiet_run(void *context) {
  static const PipelineOptions run = {.bisect_limit = -1};
  (void)context;
  return &run;
}

static void *no_findings(void *context) {
  return context;
}

// Sets the memory to one with which the search fits in another round than its first, which is
// watched, and so is compiled again to keep its module. False: there is none.
static bool fits_later(Problem *p, const Module *m, ChooseOptions *o, Cluster *c,
                       const Candidate *search) {
  Candidate open = *search;
  candidate_make(m, o, p->a, &open, NULL);
  o->limited = true;
  for (int percent = 99; percent >= 60; percent -= 3) {
    c->memory = p->memory = (double)open.needs.peak_bytes * percent / 100;
    Candidate now = *search;
    candidate_make(m, o, p->a, &now, NULL);
    if (now.fits && now.memory) return true;
  }
  return false;
}

// If the choice ends while a plan is compiled again for its module, there is no module, and the
// plan still fits.
static void a_plan_may_have_no_module(void **state) {
  (void)state;
  Heard *h = heard_new();
  Problem p = word_problem();
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Cluster cluster = *o.cluster;
  bool found = true;
  o.cluster = &cluster;
  o.found = &found;
  o.run = quiet_run;
  o.keep = no_findings;
  o.stop = is_asked_enough;
  p.most_asked = INT_MAX;
  Candidate search = {.plan = "search", .ranks = RANKS, .micro_batches = SLICES};
  assert_true(fits_later(&p, m, &o, &cluster, &search));
  int all = 0, n_without = 0;
  for (int before = 0; before < 12; before++) {
    Candidate c = search;
    Kept kept = {0};
    p.most_asked = before ? all - before : INT_MAX;
    p.asked = 0;
    candidate_make(m, &o, p.a, &c, &kept);
    if (!before) all = p.asked;
    if (!before) assert_true(c.fits && kept.m);
    if (c.fits) assert_true(c.made && !c.stopped);
    n_without += c.fits && !kept.m;
    kept_free(&kept);
  }
  assert_true(n_without > 0);
  problem_free(&p, m, h);
}

static const char *random_words(Arena *a, unsigned *state) {
  int words = 64 << random_below(state, 10), width = 16 << random_below(state, 7);
  return word_model(a, words, width, 1 + random_below(state, 5));
}

// The step of one rank, as the search of auto has it.
static const StepWork *work_of(Problem *p, const Module *m) {
  const Candidate one = {.plan = "dp", .ranks = 1, .micro_batches = 1};
  PipelineOptions run = {.bisect_limit = -1, .unproved = true, .stop_after = "fuse"};
  Module *copy = module_clone(m);
  assert_true(pipeline_run_quietly(copy, problem_pipeline(p, &one), &run));
  const StepWork *work = step_work_find(copy, 1, p->a);
  module_free(copy);
  return work;
}

// Compares bounds that points borrow with those of their own tables, in the order of the space or
// the opposite one, in which each has other lenders. Returns how many bounds are above.
static int count_wrong_loans(Problem *p, const Module *m, const ChooseOptions *o, bool reverse,
                             int *n_borrowed) {
  const StepWork *work = work_of(p, m);
  Prices *prices = prices_new(m, o, work, p->a);
  assert_non_null(prices);
  Points points = {0};
  SpaceOptions space = {RANKS, ROWS, 0, o->cluster->per_node, work->units, model_features(m, p->a),
                        0,     true};
  space_list(&space, p->a, &points);
  int wrong = 0;
  for (int i = 0; i < points.n; i++) {
    const Point *at = &points.at[reverse ? points.n - 1 - i : i];
    int from = -1;
    double first, bound, quick, least, any_order;
    Price own;
    // The first is by a table with another level of ZeRO, if there is one.
    if (!prices_quick(prices, at, &first)) first = 0;
    bool borrows = prices_borrow(prices, at, &from, &bound) == PRICE_known;
    if (prices_find(prices, at, false, &own) != PRICE_known || !borrows) continue;
    ++*n_borrowed;
    // The bounds of its work are below its own, too.
    if (!prices_quick(prices, at, &quick)) quick = 0;
    quick = fmax(quick, first);
    if (!prices_least(prices, at, &least, &any_order)) least = any_order = 0;
    least = fmax(least, any_order) * (1 - 1e-9);
    if (bound <= own.bound && quick <= own.bound && least <= own.bound) continue;
    wrong++;
    print_message("%s in %d: borrowed %.9f s, of its work %.9f and %.9f, its own %.9f\n",
                  point_plan(p->a, at), (int)at->micro_batches, bound, quick, least, own.bound);
  }
  prices_free(prices);
  return wrong;
}

// Compares the search with brute force for one random model, or one with words. Returns whether all
// is well.
static bool random_model_is_best(unsigned seed, bool words, int *n_made, int *n_recomputed) {
  static const char *const cluster[] = {"h100:1x4",      "h100:2x2", "cpu:1x4", "cpu:2x2",
                                        "v100-dgx1:1x4", "a100:2x2", "b200:1x4"};
  unsigned state = seed * 2246822519u + 7;
  Heard *h = heard_new();
  Problem p = {.a = arena_new(), .micro_batches = SLICES};
  p.cluster = cluster[random_below(&state, sizeof cluster / sizeof *cluster)];
  p.target = random_below(&state, 2) ? TARGET_cuda : TARGET_cpu;
  p.dtype = random_below(&state, 2) ? "bf16" : NULL;
  p.text = words ? random_words(p.a, &state) : random_model(seed, &(RandomModel){ROWS, 6}, p.a);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  Brute b = brute_force(&p, m, &o, count_units(p.text) + words);
  *n_made += b.made.n;
  bool ok = !b.broken && is_best(&p, m, &o, &b);
  // The same with less memory.
  Cluster less = *o.cluster;
  less.memory = p.memory = some_memory(p.a, &b.made, &state);
  o.cluster = &less;
  o.limited = true;
  make_recomputed(&p, m, &o, &b);
  *n_recomputed += b.recomputed;
  ok &= !b.broken && is_best(&p, m, &o, &b);
  if (!ok) print_message("seed %u:\n%s\n", seed, p.text);
  problem_free(&p, m, h);
  return ok;
}

static int wrong_loans_of(unsigned seed, bool words, int *n_borrowed) {
  static const char *const cluster[] = {"h100:1x4", "h100:2x2", "cpu:2x2", "a100:2x2"};
  unsigned state = seed * 2246822519u + 11;
  Heard *h = heard_new();
  Problem p = {.a = arena_new()};
  p.cluster = cluster[random_below(&state, sizeof cluster / sizeof *cluster)];
  p.target = random_below(&state, 2) ? TARGET_cuda : TARGET_cpu;
  p.dtype = random_below(&state, 2) ? "bf16" : NULL;
  p.text = words ? random_words(p.a, &state) : random_model(seed, &(RandomModel){ROWS, 6}, p.a);
  Module *m = problem_module(&p);
  ChooseOptions o = problem_options(&p, h->d);
  int wrong = count_wrong_loans(&p, m, &o, false, n_borrowed);
  wrong += count_wrong_loans(&p, m, &o, true, n_borrowed);
  if (wrong)
    print_message("seed %u on %s, %s:\n%s\n", seed, p.cluster, p.dtype ? p.dtype : "f32", p.text);
  problem_free(&p, m, h);
  return wrong;
}

// Models of the seeds of the group's option, or one.
static void loans_are_bounds(void **state) {
  (void)state;
  int from = 1, to = 1, wrong = 0, borrowed = 0;
  if (sscanf(group_option, "%d-%d", &from, &to) == 1) {
    to = from;
    from = 1;
  }
  for (int i = from; i <= to; i++) {
    wrong += wrong_loans_of((unsigned)i, false, &borrowed);
    wrong += wrong_loans_of((unsigned)i, true, &borrowed);
  }
  print_message("%d bounds borrowed\n", borrowed);
  assert_true(borrowed > 10 * (to - from + 1));
  assert_int_equal(wrong, 0);
}

// `test_unit auto 200` tries so many models, and `test_unit auto 7-9` those of these seeds. A few
// are a test of their own, unit_auto_models: searches with little memory take seconds.
static void the_best_of_random_models_is_found(void **state) {
  (void)state;
  // Gradients that are one value; a price too high by far; a route to partial sums; 16-bit weights.
  static const unsigned found[] = {92, 104, 140, 173};
  int from = 1, to = 0, n = 0, failed = 0, made = 0, recomputed = 0;
  int numbers = sscanf(group_option, "%d-%d", &from, &to);
  if (numbers == 1) {
    to = from;
    from = 1;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++, n++)
      failed += !random_model_is_best(found[i], false, &made, &recomputed);
  }
  for (int i = from; i <= to; i++, n += 2) {
    failed += !random_model_is_best((unsigned)i, false, &made, &recomputed);
    failed += !random_model_is_best((unsigned)i, true, &made, &recomputed);
  }
  print_message("%d models, %d plans compiled, %d with recomputation, %d models failed\n", n, made,
                recomputed, failed);
  assert_true(recomputed >= n);
  assert_true(made >= 8 * n);
  assert_int_equal(failed, 0);
}

// The text of every point is read back as that point.
static void texts_of_points_are_read_back(void **state) {
  (void)state;
  Point of;
  assert_true(point_of_plan("pp_interleaved:3=4,dp=2", 8, 4, &of) && of.chunks == 3);
  assert_false(point_of_plan("pp_interleaved:1=4,dp=2", 8, 4, &of));
  assert_false(point_of_plan("pp_interleaved:3:3:3:3=2,dp=4", 8, 4, &of));
  static const ModelFeatures has[] = {
      {0},
      {.experts = 8, .expert_weights = 1e6},
      {.tokens = 8192, .key_heads = 8},
      {.tokens = 8192, .key_heads = 8, .masked = true},
      {.tokens = 1024, .key_heads = 8, .words_share = 0.5},
  };
  for (size_t k = 0; k < sizeof has / sizeof *has; k++) {
    Arena *a = arena_new();
    Points points = {0};
    SpaceOptions space = {48, 96, 0, 8, 48, has[k], k % 2 ? 150 : 0, true};
    space_list(&space, a, &points);
    assert_true(points.n > 100);
    int experts = 0, ring = 0, all_to_all = 0, words = 0, interlaced = 0, chunks = 0;
    for (int i = 0; i < points.n; i++) {
      Point *p = &points.at[i], q;
      p->recompute = (RecomputeLevel)(i % N_RECOMPUTE_LEVELS);
      p->offload = i / N_RECOMPUTE_LEVELS % 2;
      const char *plan = point_plan(a, p);
      if (!point_of_plan(plan, 48, p->micro_batches, &q) || !point_equal(p, &q))
        fail_msg("%s", plan);
      assert_int_equal(p->stages * point_inside(p), 48);
      assert_int_equal(96 % (p->replicas * p->experts * p->micro_batches), 0);
      experts += p->experts > 1;
      ring += p->context > 1 && p->along == POINT_cp;
      all_to_all += p->along == POINT_cp_a2a;
      words += p->inner == POINT_vp;
      interlaced += p->kind == POINT_interlaced;
      chunks += p->chunks == 4;
    }
    assert_true(chunks > 0);
    assert_int_equal(experts > 0, has[k].experts > 0);
    assert_int_equal(ring > 0, has[k].tokens == 8192 && !has[k].masked);
    assert_int_equal(all_to_all > 0, has[k].tokens == 8192);
    assert_int_equal(words > 0, has[k].words_share > 0);
    assert_int_equal(interlaced > 0, has[k].words_share > 0);
    arena_free(a);
  }
  // Programs that a point has no number for, sizes that do not divide the ranks, and axes in
  // another order: ranks that other links connect.
  Point q;
  static const char *const none[] = {"search",        "dp,search=2",
                                     "dp=5",          "sp,dp",
                                     "pp=2,pp=2",     "dp=2",
                                     "dp=6,ep:x=8",   "cp=2,cp_a2a=24",
                                     "recompute",     "dp=24,recompute=2",
                                     "recompute:2=1", "dp,recompute=1,recompute_attention=1",
                                     "dp,pp=2",       "sp=4,dp=12",
                                     "zero1=24,pp",   "dp,offload=2",
                                     "dp,offload:2=1"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    assert_false(point_of_plan(none[i], 48, 1, &q));
  assert_true(plan_numbers("zero1,pp=2", 48, 4, &q));
  assert_int_equal(q.stages, 2);
  assert_int_equal(q.replicas, 24);
  assert_false(plan_numbers("zero1,pp=2,dp=2", 48, 4, &q));
  assert_true(point_of_plan("zero1,sp=4", 48, 2, &q));
  assert_int_equal(q.replicas, 12);
  assert_int_equal(q.zero, 1);
  assert_true(point_of_plan("pp=2,zero1,ep=8", 48, 2, &q));
  assert_int_equal(q.replicas, 3);
  assert_int_equal(q.experts, 8);
  assert_true(point_of_plan("pp=4,recompute_attention=1,sp", 48, 2, &q));
  assert_int_equal(q.recompute, RECOMPUTE_attention);
  assert_int_equal(q.tensor, 12);
  assert_true(point_of_plan("zero1=12,sp=4,offload=1", 48, 2, &q) && q.offload);
}

TEST_GROUP(auto) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_best_of_all_points_is_found),
      cmocka_unit_test(the_best_with_experts_is_found),
      cmocka_unit_test(the_best_with_words_is_found),
      cmocka_unit_test(the_best_with_sequences_is_found),
      cmocka_unit_test(choices_end_within_a_compilation),
      cmocka_unit_test(searches_show_progress),
      cmocka_unit_test(least_bytes_hold_with_savers),
      cmocka_unit_test(plans_lose_their_savers),
      cmocka_unit_test(a_plan_may_have_no_module),
      cmocka_unit_test(loans_are_bounds),
      cmocka_unit_test(the_best_of_random_models_is_found),
      cmocka_unit_test(texts_of_points_are_read_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
