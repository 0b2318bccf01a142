// nnaot-plan blocks: what the units of a model cost inside of a pipeline stage, read from the
// passes on cut-outs of the model (passes/planner/auto/tables.h).
//
//     unit  block  forward  backward  gradients    kept  …
//     0         -    22 us      9 us      31 us    1 MB      embed
//     1         0   101 us     98 us      99 us    9 MB      h.0/attn
//     2         1   …

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/cluster.h"
#include "cost/cost.h"
#include "driver.h"
#include "output.h"
#include "plan_deal.h"
#include "planner/auto/tables.h"
#include "planner/plan/factoring.h"
#include "questions.h"

// -- Options -----------------------------------------------------------------------------------

static const char *recompute = "none";
static int64_t stages;
static const char *schedule = "1f1b";
static bool json, timed;

static const Option options[] = {
    GROUP("The stage"),
    NEEDED_INTEGER("ranks", 'g', &settings.ranks, "N", "ranks of a stage"),
    NEEDED_STRING("plan", 0, &settings.plan, "NAME[=N],…", "how they share its work"),
    STRING("cluster", 0, &settings.cluster, "NAME[:NxM]|FILE.lua",
           "the devices; by default those of the target"),
    STRING("target", 0, &settings.target_text, "cpu|cuda", "as of nnaot"),
    STRING("recompute", 0, &recompute, "none|attention|layer",
           "also price recomputation, up to this level"),
    INTEGER("stages", 0, &stages, "P",
            "also deal the units to so many stages, so that a step is shortest"),
    STRING("schedule", 0, &schedule, "NAME", "of these: gpipe, 1f1b, zb-h1 or zb-h2"),
#include "option_rows.h"

#include "step.def"
    GROUP("Output"),
    FLAG("json", 0, &json, "print one object: units, and the whole step without stages"),
    FLAG("time", 0, &timed,
         "print the processor's seconds for the units and for the table on stderr"),
};

// Checks the options of this question; the others are checked as those of nnaot.  Returns an exit
// status, or 0.
static int check(const Program *program, RecomputeLevel *level, Arena *a, Diag *d) {
  Settings *s = &settings;
  s->emit = EMIT_plan;
  s->output = "-";
  int status = check_settings(s, a, d);
  if (status != EXIT_SUCCESS) return status;
  if (is_auto(s) || follows_annotations(s))
    status = usage_error(
        program, "--plan must be one within a stage, such as zero1=2,sp=2, not '%s'", s->plan);
  // Backward is that of a loop: a step of one micro-batch has none, and its units no segments.
  int64_t slices = s->micro_batches * s->accumulate;
  if (slices < 2)
    status = usage_error(program, "a step needs at least 2 micro-batches to tell forward from "
                                  "backward: give --micro-batches or --accumulate");
  int k = 0;
  while (k < N_RECOMPUTE_LEVELS && strcmp(recompute, level_name[k]) != 0)
    k++;
  if (k == N_RECOMPUTE_LEVELS)
    status = usage_error(program, "--recompute is none, attention or layer, not '%s'", recompute);
  *level = (RecomputeLevel)k;
  if (!deal_knows(schedule))
    status = usage_error(program, "--schedule is gpipe, 1f1b, zb-h1 or zb-h2, not '%s'", schedule);
  int64_t most = DEAL_PLACES / slices;
  if (option_given("stages") && most < 2)
    status = usage_error(program, "--stages takes at most %d micro-batches in a step, not %" PRId64,
                         DEAL_PLACES / 2, slices);
  else if (option_given("stages") && (stages < 2 || stages > most))
    status = usage_error(program, "--stages must be from 2 to %" PRId64, most);
  if (option_given("stages") && json)
    status = usage_error(program, "--stages has no effect with --json");
  if (option_given("schedule") && !option_given("stages"))
    status = usage_error(program, "--schedule has no effect without --stages");
  return status;
}

// -- The model and the pipeline ----------------------------------------------------------------

// Returns the model before the first pass that depends on the plan; NULL after an error.
static Module *read_front(Arena *a, Diag *d) {
  Compiled c = {.found = {.arena = a}};
  bool annotated = false;
  if (!driver_import(&settings, &c, &annotated, d)) return NULL;
  Module *m = c.m;
  m->annotations = NULL;
  PipelineOptions run = {.bisect_limit = -1, .verify_each = true};
  if (m->phase == PHASE_typed && pipeline_run(m, "simplify,raise,simplify", &run, d)) return m;
  if (m->phase != PHASE_typed) {
    diag_error(d, loc_node(a, settings.model, NULL), "is planned already, for its own ranks");
    diag_hint(d, "give the model, or a module from before shard");
  }
  module_free(m);
  return NULL;
}

static const char *pipeline_of(void *context, Arena *a, const char *plan, int64_t ranks,
                               int64_t micro_batches, Diag *d) {
  (void)context;
  Choice c = {.name = plan, .micro_batches = micro_batches, .factoring = FACTORING_OPEN};
  if (!plan_parse(a, plan, ranks, &c.plan, d)) return NULL;
  if (!factoring_number(a, &c.plan, &c.factoring, d)) return NULL;
  return train_pipeline_from(a, &settings, &c, "loss");
}

// -- Output ------------------------------------------------------------------------------------

static const char *seconds_text(Arena *a, double seconds) {
  return str_format(a, "%.4g ms", 1e3 * seconds);
}

static const char *bytes_text(Arena *a, double bytes) {
  return str_format(a, "%.4g MB", bytes / 1e6);
}

static bool same_costs(const UnitCost *x, const UnitCost *y) {
  return x->block >= 0 && x->block == y->block;
}

// The units that an earlier one does not stand for; the last column says how often each occurs.
static void print_table(Arena *a, const Table *t) {
  static const char *const head[] = {"unit", "block",  "forward", "backward", "gradients",
                                     "kept", "handed", "lasting", "sums",     "update"};
  enum { N = sizeof head / sizeof *head };
  for (int i = 0; i < N; i++)
    printf("%*s", i < 2 ? 6 : 13, head[i]);
  printf("  times  name\n");
  const UnitCosts *c = &t->costs;
  for (int i = 0; i < c->n; i++) {
    const UnitCost *u = &c->at[i];
    int times = 0, earlier = 0;
    for (int k = 0; k < c->n; k++) {
      times += k == i || same_costs(u, &c->at[k]);
      earlier += k < i && same_costs(u, &c->at[k]);
    }
    if (earlier) continue;
    printf("%6d", i);
    printf("%6s", u->block < 0 ? "-" : str_format(a, "%d", u->block));
    const double seconds[] = {u->forward, u->backward, u->weight_grad};
    const double bytes[] = {u->kept[0], u->handed, u->lasting};
    for (int k = 0; k < 3; k++)
      printf("%13s", seconds_text(a, seconds[k]));
    for (int k = 0; k < 3; k++)
      printf("%13s", bytes_text(a, bytes[k]));
    printf("%13s%13s  %5d  %s\n", seconds_text(a, u->sums), seconds_text(a, u->update), times,
           u->name);
  }
  printf("without stages %s, %s a rank\n", seconds_text(a, t->seconds), bytes_text(a, t->bytes));
}

static void print_levels(const char *name, const double *value, RecomputeLevel last) {
  printf(", \"%s\": [", name);
  for (int k = 0; k <= (int)last; k++)
    printf("%s%.9g", k ? ", " : "", value[k]);
  printf("]");
}

static void print_json(Arena *a, const Table *t, RecomputeLevel last, int built) {
  const UnitCosts *c = &t->costs;
  printf(
      "{\"seconds\": %.9g, \"bytes\": %.9g, \"built\": %d, \"hop_start\": %.9g, "
      "\"hop_seconds_per_byte\": %.9g, \"tied_sums\": %.9g, \"tied_lasting\": %.9g, \"units\": [",
      t->seconds, t->bytes, built, c->hop_start, c->hop_seconds_per_byte, c->tied_sums,
      c->tied_lasting);
  for (int i = 0; i < c->n; i++) {
    const UnitCost *u = &c->at[i];
    printf("%s\n  {\"name\": %s, \"block\": %d, \"forward\": %.9g, \"backward\": %.9g, "
           "\"weight_grad\": %.9g",
           i ? "," : "", json_string(a, u->name), u->block, u->forward, u->backward,
           u->weight_grad);
    print_levels("again", u->again, last);
    print_levels("kept", u->kept, last);
    print_levels("again_working", u->again_working, last);
    print_levels("split_working", u->split_working, last);
    printf(", \"waiting\": %.9g, \"both\": %.9g, \"working\": [%.9g, %.9g], \"handed\": %.9g, "
           "\"lasting\": %.9g, "
           "\"updating\": %.9g, \"sums\": %.9g, "
           "\"update\": %.9g}",
           u->waiting, u->both, u->working[0], u->working[1], u->handed, u->lasting, u->updating,
           u->sums, u->update);
  }
  printf("]}\n");
}

// -- The question ------------------------------------------------------------------------------

// Whether the costs of one device are those of all, and --stages fit the devices.
static bool check_devices(const Cluster *c, const char *name, Arena *a, Diag *d) {
  if (!cost_known(c))
    return diag_error(d, NULL,
                      "'%s' does not say how fast its devices are: that is memory_speed "
                      "and f32",
                      name);
  if (c->n_kinds) {
    diag_error(d, loc_node(a, name, NULL),
               "its devices differ, and a unit has one cost for the ranks of all stages");
    diag_hint(d, "leave out 'devices', and ask once for each kind of device");
    return false;
  }
  int64_t needed = stages * settings.ranks;
  if (needed <= cluster_devices(c)) return true;
  diag_error(d, NULL, "--cluster: '%s' has %d devices for %" PRId64 " stages of %" PRId64 " rank%s",
             name, cluster_devices(c), stages, settings.ranks, settings.ranks == 1 ? "" : "s");
  diag_hint(d, "name a cluster of at least %" PRId64 " devices, or fewer --stages", needed);
  return false;
}

static bool answer_blocks(RecomputeLevel level, Arena *a, Diag *d) {
  const Settings *s = &settings;
  const Target target = s->backend.target.target;
  const char *name = s->cluster ? s->cluster : target_info[target].cluster;
  const Cluster *cluster = cluster_read(a, name, "--cluster", d);
  if (!cluster || !check_devices(cluster, name, a, d)) return false;
  Module *front = read_front(a, d);
  if (!front) return false;
  TableOptions o = {.cluster = cluster, .target = target, .pipeline = pipeline_of};
  clock_t begin = clock();
  Tables *tables = tables_new(front, &o, a);
  clock_t found = clock();
  const char *why;
  TableShape shape = {s->plan, s->ranks, s->micro_batches, level, false};
  const Table *table = tables_get(tables, &shape, &why);
  if (timed)
    fprintf(stderr, "units %.4f s; table %.4f s, %d cut-outs\n",
            (double)(found - begin) / CLOCKS_PER_SEC, (double)(clock() - found) / CLOCKS_PER_SEC,
            tables_built(tables));
  if (!table)
    tables_report(tables, &shape, why, d);
  else if (json)
    print_json(a, table, level, tables_built(tables));
  else
    print_table(a, table);
  DealAsked asked = {(int)stages, schedule, s->micro_batches * s->accumulate, cluster->memory,
                     level > RECOMPUTE_none};
  bool ok = table && (!stages || deal_print(&table->costs, &asked, a, d));
  tables_free(tables);
  module_free(front);
  return ok && output_flush(d);
}

static int answer(const Program *program, const char *file) {
  if (!*file) return usage_error(program, "no model is given");
  settings.model = file;
  Diag *d = diag_new(stderr);
  Arena *a = arena_new();
  RecomputeLevel level;
  int status = check(program, &level, a, d);
  if (!status && !answer_blocks(level, a, d)) status = EXIT_FAILURE;
  arena_free(a);
  diag_free(d);
  return status;
}

const Question question_blocks = {
    {"nnaot-plan blocks",
     "nnaot-plan blocks MODEL -g N --plan NAME[=N],… --micro-batches M [--batch B] [--cluster "
     "NAME]\n                         [--target NAME] [--loss SPEC] [--optimizer NAME] "
     "[--dtype NAME] [--json]",
     "Prints the seconds and bytes of each unit of a model on a rank of a pipeline stage, for one "
     "plan inside\nof stages: of a layer, or of a part that a stage may end after. They come from "
     "the passes, on the\nmodel with few of its layers, in a step of at least two micro-batches.",
     options, sizeof options / sizeof *options, NULL, NULL},
    "what the layers of a model cost inside of a stage",
    true,
    answer,
};
