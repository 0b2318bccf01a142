// The search of `--plan auto` compared with brute force: small models, of which every point of the
// space is compiled.

#include "unit.h"

#include "planner/auto/auto.h"
#include "planner/auto/bounds.h"
#include "planner/auto/evaluate.h"
#include "planner/auto/space.h"
#include "planner/plan/plan.h"

enum { RANKS = 4, ROWS = 16, SLICES = 2 };

// A chain of products and GELUs: x (rows, width), `layers` of them, and the sum of squares.
static Module *chain(Arena *a, const int *width, int layers, Diag *d) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "module \"chain\" phase=typed\ngraph @main entry (%%x: f32[%d,%d] input \"x\"",
              ROWS, width[0]);
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b, ",\n  %%w%d: f32[%d,%d] weight \"w%d\" train = normal(0,1)", i, width[i],
                width[i + 1], i);
  strbuf_add(&b, ") {\n");
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b, "  %%p%d = linear %%%s, %%w%d\n  %%h%d = gelu %%p%d\n", i,
                i ? str_format(a, "h%d", i - 1) : "x", i, i, i);
  strbuf_addf(&b, "  %%q = mul %%h%d, %%h%d\n  %%l = reduce_sum %%q axes=[0,1]\n", layers - 1,
              layers - 1);
  strbuf_add(&b, "  return output \"loss\" %l\n}\n");
  return module_parse("chain.nn", b.at, b.n, d);
}

typedef struct Common {
  Arena *a;
  const char *cluster;
} Common;

// The options of passes that a plan decides, as nnaot has them.
static const char *value_of(Arena *a, const char *pass, const char *option, const void *from) {
  const struct {
    const Plan *plan;
    int64_t slices;
    const char *cluster;
  } *s = from;
  StrBuf mesh = {.arena = a}, programs = {.arena = a};
  strbuf_addf(&mesh, "acc:%d:time", (int)s->slices);
  for (int i = 0; i < s->plan->n; i++) {
    strbuf_addf(&mesh, "+%s:%d", s->plan->at[i].axis, (int)s->plan->at[i].size);
    strbuf_addf(&programs, "%s%s", i ? "," : "", s->plan->at[i].program);
  }
  if (!strcmp(option, "mesh")) return mesh.at;
  if (!strcmp(option, "plan")) return programs.at;
  if (!strcmp(option, "cluster")) return s->cluster;
  if (!strcmp(option, "unlimited")) return "true";
  if (!strcmp(pass, "autodiff") && !strcmp(option, "apart")) return s->slices > 1 ? "true" : NULL;
  return NULL;
}

static const char *text_of(const Common *common, Arena *a, const char *first, const char *plan,
                           int64_t ranks, int64_t slices, Diag *d) {
  Plan axes = {0};
  if (!plan_parse(a, plan, ranks, &axes, d)) return NULL;
  const struct {
    const Plan *plan;
    int64_t slices;
    const char *cluster;
  } from = {&axes, slices, common->cluster};
  return pipeline_text(a, "train", first, 0, value_of, &from);
}

static const char *pipeline_of(void *context, const Candidate *c) {
  const Common *common = context;
  Diag *d = diag_new(stderr);
  const char *text = text_of(common, common->a, NULL, c->plan, c->ranks, c->micro_batches, d);
  diag_free(d);
  return text;
}

static const char *table_pipeline_of(void *context, Arena *a, const char *plan, int64_t ranks,
                                     int64_t slices, Diag *d) {
  return text_of(context, a, "loss", plan, ranks, slices, d);
}

static ChooseOptions options(Common *common, Diag *d) {
  return (ChooseOptions){.ranks = RANKS,
                         .micro_batches = SLICES,
                         .batch = ROWS,
                         .cluster = cluster_read(common->a, common->cluster, "--cluster", d),
                         .target = TARGET_cpu,
                         .pipeline = pipeline_of,
                         .tables = table_pipeline_of,
                         .context = common};
}

// Prints the terms of a bound that is above what was built.
static bool holds(const AutoSearch *s, const Point *p, const Candidate *c) {
  Bound b = auto_bound_of(s, p);
  bool ok = b.seconds <= c->seconds && b.lasting <= (double)c->needs.peak_bytes;
  if (!ok)
    print_message("%s: built %.9f s, %.0f bytes; bound %.9f: compute %.9f, fill %.9f, after %.9f; "
                  "lasting %.0f; %s binds\n",
                  c->plan, c->seconds, (double)c->needs.peak_bytes, b.seconds, b.compute, b.fill,
                  b.after, b.lasting, bound_binds(&b));
  return ok;
}

// A chain of mixtures: each row goes to one of `experts` products.
static Module *mixtures(Arena *a, int width, int experts, int layers, Diag *d) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "module \"mixtures\" phase=typed\ngraph @main entry (%%x: f32[%d,%d] input \"x\"",
              ROWS, width);
  for (int i = 0; i < layers; i++)
    strbuf_addf(&b,
                ",\n  %%r%d: f32[%d,%d] weight \"r%d\" train = normal(0,1), "
                "%%w%d: f32[%d,%d,%d] weight \"w%d\" train = normal(0,1)",
                i, width, experts, i, i, experts, width, width, i);
  strbuf_add(&b, ") {\n");
  for (int i = 0; i < layers; i++) {
    const char *x = i ? str_format(a, "h%d", i - 1) : "x";
    strbuf_addf(&b,
                "  %%s%d = linear %%%s, %%r%d\n  %%p%d = softmax %%s%d axis=1\n"
                "  %%k%d = top_k %%p%d k=1\n  %%e%d = reshape %%k%d shape=[%d]\n"
                "  %%y%d = grouped_linear %%w%d, %%%s, %%e%d\n  %%h%d = gelu %%y%d\n",
                i, x, i, i, i, i, i, i, i, ROWS, i, i, x, i, i, i);
  }
  strbuf_addf(&b, "  %%q = mul %%h%d, %%h%d\n  %%l = reduce_sum %%q axes=[0,1]\n", layers - 1,
              layers - 1);
  strbuf_add(&b, "  return output \"loss\" %l\n}\n");
  return module_parse("mixtures.nn", b.at, b.n, d);
}

// Compiles every point of the model's space, checks its bounds, and compares the choice with the
// best of them. Returns how many of those that can be made have expert ranks.
static int compare_with_all(Module *m, Common *common, int units, Diag *d) {
  ChooseOptions o = options(common, d);
  AutoSearch *s = auto_new(m, &o, common->a);
  assert_non_null(s);
  Points points = {0};
  SpaceOptions space = {
      RANKS, ROWS, SLICES, o.cluster->per_node, units, model_features(m, common->a), 0};
  space_list(&space, common->a, &points);
  double least = 0;
  const char *best = NULL;
  int made = 0, with_experts = 0;
  for (int k = 0; k < points.n; k++) {
    Candidate c = {.plan = point_plan(common->a, &points.at[k]), .ranks = RANKS};
    c.micro_batches = points.at[k].micro_batches;
    candidate_make(m, &o, common->a, &c, NULL);
    if (!c.made) continue;
    made++;
    with_experts += points.at[k].experts > 1;
    assert_true(holds(s, &points.at[k], &c));
    if (!best || c.seconds < least) {
      least = c.seconds;
      best = c.plan;
    }
  }
  auto_end(s);
  assert_true(made >= 8);
  // The choice is no worse, and its certificate holds.
  Candidates all = {0};
  Certificate certificate;
  Module *result;
  int chosen = choose_plan(m, &o, common->a, &all, &certificate, &result);
  assert_true(chosen >= 0);
  double taken = all.at[chosen].seconds;
  if (taken > 1.01 * least)
    print_message("%s, %d units: %s takes %.9f s, and %s %.9f\n", common->cluster, units,
                  all.at[chosen].plan, taken, best, least);
  assert_true(taken <= 1.01 * least); // of about equal ones, the one that shares the work
  assert_true(certificate.best <= least * (1 + 1e-9));
  assert_true(certificate.bound <= least * (1 + 1e-9));
  assert_int_equal(certificate.points, points.n);
  return with_experts;
}

static void the_best_of_all_points_is_found(void **state) {
  (void)state;
  static const struct {
    const char *cluster;
    int layers, width[7];
  } model[] = {{"h100:1x4", 6, {64, 64, 64, 64, 64, 64, 64}},
               {"h100:1x4", 6, {256, 2048, 256, 2048, 256, 2048, 256}},
               {"h100:2x2", 6, {2048, 2048, 2048, 2048, 2048, 2048, 2048}},
               {"cpu:1x4", 5, {32, 512, 16, 1024, 64, 8, 0}},
               {"cpu:2x2", 4, {4096, 128, 4096, 128, 512, 0, 0}}};
  for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
    Heard *h = heard_new();
    Common common = {arena_new(), model[i].cluster};
    Module *m = chain(common.a, model[i].width, model[i].layers, h->d);
    if (!m) heard(h, "no message");
    assert_non_null(m);
    assert_int_equal(compare_with_all(m, &common, model[i].layers, h->d), 0);
    module_free(m);
    arena_free(common.a);
    heard_free(h);
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
    Heard *h = heard_new();
    Common common = {arena_new(), model[i].cluster};
    Module *m = mixtures(common.a, model[i].width, 4, model[i].layers, h->d);
    if (!m) heard(h, "no message");
    assert_non_null(m);
    assert_true(compare_with_all(m, &common, 2 * model[i].layers, h->d) >= 4);
    module_free(m);
    arena_free(common.a);
    heard_free(h);
  }
}

// The text of every point is read back as that point; a model without a subject has no points of
// it.
static void texts_of_points_are_read_back(void **state) {
  (void)state;
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
    SpaceOptions space = {48, 96, 0, 8, 48, has[k], k % 2 ? 150 : 0};
    space_list(&space, a, &points);
    assert_true(points.n > 100);
    int experts = 0, ring = 0, all_to_all = 0, words = 0;
    for (int i = 0; i < points.n; i++) {
      const Point *p = &points.at[i];
      Point q;
      const char *plan = point_plan(a, p);
      if (!point_of_plan(plan, 48, p->micro_batches, &q) || !point_equal(p, &q))
        fail_msg("%s", plan);
      assert_int_equal(p->stages * point_inside(p), 48);
      assert_int_equal(96 % (p->replicas * p->experts * p->micro_batches), 0);
      experts += p->experts > 1;
      ring += p->context > 1 && p->along == POINT_cp;
      all_to_all += p->along == POINT_cp_a2a;
      words += p->inner == POINT_vp;
    }
    assert_int_equal(experts > 0, has[k].experts > 0);
    assert_int_equal(ring > 0, has[k].tokens == 8192 && !has[k].masked);
    assert_int_equal(all_to_all > 0, has[k].tokens == 8192);
    assert_int_equal(words > 0, has[k].words_share > 0);
    arena_free(a);
  }
  // Programs that a point has no number for, and sizes that do not divide the ranks.
  Point q;
  static const char *const none[] = {"search",    "dp,search=2", "dp=5",        "sp,dp",
                                     "pp=2,pp=2", "dp=2",        "dp=6,ep:x=8", "cp=2,cp_a2a=24"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    assert_false(point_of_plan(none[i], 48, 1, &q));
  assert_true(point_of_plan("zero1,sp=4", 48, 2, &q));
  assert_int_equal(q.replicas, 12);
  assert_int_equal(q.zero, 1);
  assert_true(point_of_plan("pp=2,zero1,ep=8", 48, 2, &q));
  assert_int_equal(q.replicas, 3);
  assert_int_equal(q.experts, 8);
}

TEST_GROUP(auto) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_best_of_all_points_is_found),
      cmocka_unit_test(the_best_with_experts_is_found),
      cmocka_unit_test(texts_of_points_are_read_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
