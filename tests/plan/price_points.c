// Prices points of auto's space by tables, without compiling their plans:
//
//     price_points MODEL [options of a step] -g 64 --cluster h100:8x8 POINT …
//     a point: PLAN@MICRO-BATCHES, or PLAN@MICRO-BATCHES@GB, with as few layers recomputed as fit, or
//     PLAN@MICRO-BATCHES@GB@swap, with saved activations of layers in host memory beside these
//
// Prints a line for each: the plan's text as it is to be compiled, seconds, and bytes of the rank
// with the most; or the reason that it has no price.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "cluster/cluster.h"
#include "driver.h"
#include "paths/path_store.h"
#include "planner/auto/point.h"
#include "planner/auto/prices.h"
#include "planner/plan/factoring.h"

static const Option options[] = {
    GROUP("The step"),
    NEEDED_INTEGER("ranks", 'g', &settings.ranks, "N", "of all stages"),
    NEEDED_STRING("cluster", 0, &settings.cluster, "NAME[:NxM]|FILE.lua", "the devices"),
    STRING("target", 0, &settings.target_text, "cpu|cuda", "as of nnaot"),
#include "option_rows.h"

#include "step.def"
};
static const Program program = {"price_points",
                                "price_points MODEL -g N --cluster NAME POINT …",
                                "Prices points of auto's space by tables.",
                                options,
                                sizeof options / sizeof *options,
                                NULL,
                                NULL};

static const char *pipeline_of(void *context, Arena *a, const char *plan, int64_t ranks,
                               int64_t micro_batches, Diag *d) {
  (void)context;
  Choice c = {.name = plan, .micro_batches = micro_batches, .factoring = FACTORING_OPEN};
  if (!plan_parse(a, plan, ranks, &c.plan, d)) return NULL;
  return train_pipeline_from(a, &settings, &c, "loss");
}

// Reads "PLAN@MICRO-BATCHES[@GB[@swap]]".
static bool read_point(Arena *a, const char *text, Point *out, double *memory) {
  const char *at = strchr(text, '@');
  if (!at) return false;
  char *end;
  long micro_batches = strtol(at + 1, &end, 10);
  const char *plan = str_format(a, "%.*s", (int)(at - text), text);
  if (micro_batches < 1 || !point_of_plan(plan, settings.ranks, micro_batches, out)) return false;
  out->fewest = *end == '@';
  if (out->fewest) *memory = 1e9 * strtod(end + 1, &end);
  out->swap = out->fewest && !strcmp(end, "@swap");
  return !*end || out->swap;
}

static void print_price(Prices *prices, const Point *at, Arena *a) {
  static const char *const why[] = {
      [PRICE_unknown] = "too few units", [PRICE_refused] = "refused", [PRICE_unfit] = "unfit"};
  Price p;
  PriceStatus status = prices_find(prices, at, true, &p);
  if (status == PRICE_known)
    printf("%s %.9g %.9g\n", p.plan ? p.plan : point_plan(a, at), p.seconds, p.bytes);
  else
    printf("%s\n", why[status]);
}

static bool run(const Strings *words, Arena *a, Diag *d) {
  Settings *s = &settings;
  Compiled c = {.found = {.arena = a}};
  bool annotated = false;
  const Cluster *named = cluster_read(a, s->cluster, "--cluster", d);
  if (!named || !driver_import(s, &c, &annotated, d)) return false;
  c.m->annotations = NULL;
  Cluster cluster = *named;
  StepWork work = {.batches = s->accumulate};
  ChooseOptions o = {.ranks = s->ranks,
                     .batch = s->batch,
                     .accumulate = s->accumulate,
                     .cluster = &cluster,
                     .limited = true,
                     .target = s->backend.target.target,
                     .paths = path_store_new(a),
                     .tables = pipeline_of};
  Prices *prices = prices_new(c.m, &o, &work, a);
  for (int i = 1; prices && i < words->n; i++) {
    Point at;
    cluster.memory = 0;
    if (!read_point(a, words->at[i], &at, &cluster.memory))
      return diag_error(d, NULL, "'%s' is no point", words->at[i]);
    print_price(prices, &at, a);
  }
  if (prices) prices_free(prices);
  module_free(c.m);
  return prices || diag_error(d, NULL, "the model has no tables");
}

int main(int argc, char **argv) {
  static Strings words;
  int status = options_parse(&program, argc, argv, &words);
  if (status >= 0) return status;
  if (words.n < 2) return usage_error(&program, "no model, or no point");
  status = options_check_needed(&program);
  if (status) return status;
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  settings.model = words.at[0];
  settings.emit = EMIT_plan;
  settings.output = "-";
  settings.plan = "auto";
  status = check_settings(&settings, a, d);
  if (status == EXIT_SUCCESS && !run(&words, a, d)) status = EXIT_FAILURE;
  diag_free(d);
  arena_free(a);
  return status;
}
