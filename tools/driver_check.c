// Checks of a command line.
//
//     nnaot: error: a batch of 10 cannot be split into 4 micro-batches
//
// Errors that do not depend on the model are found before it is read: options that contradict each
// other or have no effect, numbers out of range, files that cannot be written, a machine without a
// compiler.  Passes report errors that depend on the model, such as missing outputs of a loss.  The
// subject of --explain is checked before a plan is chosen.  The last checks, of memory and of the
// ranks of a pipeline, run after the passes.

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/vec.h"
#include "driver.h"
#include "explain.h"
#include "ir/analysis/batch_dim.h"
#include "output.h"
#include "planner/auto/memory_breakdown.h"
#include "train/param_groups.h"

// -- Options without effect --------------------------------------------------------------------

static bool is_one_of(const char *what, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(what, *list)) return true;
  return false;
}

static void refuse(const char *const *names, const char *with, const char *hint, Diag *d) {
  for (; *names; names++) {
    if (!option_given(*names)) continue;
    diag_error(d, NULL, "--%s has no effect with %s", *names, with);
    diag_hint(d, "%s", hint);
  }
}

// Rejects options that would have no effect.
static bool check_effect(const Settings *s, Diag *d) {
  static const char *const step[] = {
      "loss",           "optimizer",       "group",   "no-decay",  "freeze",
      "train",          "detach",          "init",    "clip-norm", "dtype",
      "accumulate",     "micro-batches",   "plan",    "cluster",   "per-node",
      "search-seconds", "expert-capacity", "reshard", NULL};
  static const char *const import[] = {
      "batch", "batch-dim", "dim", "accumulate", "external-data-dir", "train-mode", NULL};
  static const char *const of_target[] = {"link", "aot-plans"};
  int errors = diag_errors(d);
  // Report every option without effect, not only the first.
  if (s->emit == EMIT_onnx && (s->pipeline || is_text(s)))
    diag_error(d, NULL, "--emit onnx annotates an ONNX model with a plan, and %s",
               s->pipeline ? "--passes has none" : "this is a module in text form");
  if (s->emit == EMIT_onnx && s->run.stop_after)
    diag_error(d, NULL, "--stop-after has no effect with --emit onnx");
  // The file's ending should be that of --emit.
  static const struct {
    const char *ending, *text;
    Emit emit;
  } known[] = {{".onnx", "onnx", EMIT_onnx},
               {".nn", "nn", EMIT_nn},
               {".lua", "plan", EMIT_plan},
               {".json", "plan", EMIT_plan}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (str_ends(s->output, known[i].ending) && s->emit != known[i].emit) {
      diag_warning(d, NULL, "-o: '%s' ends like a file of --emit %s, and is written by --emit %s",
                   s->output, known[i].text, s->emit_text);
      diag_hint(d, "--emit %s", known[i].text);
    }
  if (s->pipeline)
    refuse(step, "--passes",
           "say it in the pipeline: loss(spec=…), autodiff(freeze=…), optimizer(name=…)", d);
  if (s->pipeline && !s->lr_text && (strstr(s->pipeline, ":lr=") || strstr(s->pipeline, ",lr=")))
    diag_error(d, NULL, "lr has no effect in the pipeline of --passes; give --lr");
  if (is_text(s))
    refuse(import, "a module in text form", "its sizes are those that it was written with", d);
  if (s->prove && !is_text(s))
    diag_error(d, NULL,
               "--prove is for a module in text form: the plan of a model is always proved");
  if (s->split_ranks && s->emit != EMIT_exe)
    diag_error(d, NULL, "--split-ranks has no effect with --emit %s", s->emit_text);
  if (option_given("check-with") && s->emit != EMIT_exe)
    diag_error(d, NULL, "--check-with has no effect with --emit %s", s->emit_text);
  if (option_given("expert-capacity") && !s->pipeline && s->plan && strcmp(s->plan, "auto") != 0) {
    diag_error(d, NULL, "--expert-capacity has no effect with --plan %s, only with auto", s->plan);
    diag_hint(d, "the slots of a named plan are its own: --plan ep:150");
  }
  if (s->rpath && s->emit != EMIT_exe && s->emit != EMIT_c)
    diag_error(d, NULL, "--rpath has no effect with --emit %s", s->emit_text);
  if (s->cache && s->emit != EMIT_exe)
    diag_error(d, NULL, "--cache has no effect with --emit %s", s->emit_text);
  // Some options belong to one target.
  for (size_t i = 0; i < sizeof of_target / sizeof *of_target; i++)
    if (option_given(of_target[i]) && !backend_takes(s->backend.target.target, of_target[i]))
      diag_error(d, NULL, "--%s has no effect with --target %s", of_target[i],
                 target_info[s->backend.target.target].name);
  return diag_errors(d) == errors;
}

// -- The values of options ---------------------------------------------------------------------

// Reads --target, --link and --aot-plans into s->backend, and checks --dtype and --reshard.
static bool check_target(Settings *s, Diag *d) {
  static const char *const links[] = {"static", "shared", NULL};
  static const char *const plans[] = {"yes", "no", NULL};
  if (s->link_text && !is_one_of(s->link_text, links))
    return diag_error(d, NULL, "--link is static or shared, not '%s'", s->link_text);
  if (s->rpath && !backend_rpath(s->rpath, d)) return false;
  s->backend.rpath = s->rpath;
  if (s->cache && !backend_cache(s->cache, d)) return false;
  if (s->aot_plans && !is_one_of(s->aot_plans, plans))
    return diag_error(d, NULL, "--aot-plans is yes or no, not '%s'", s->aot_plans);
  if (s->link_text) s->backend.link = !strcmp(s->link_text, "static") ? LINK_static : LINK_shared;
  if (s->aot_plans) s->backend.plans = !strcmp(s->aot_plans, "yes") ? PLANS_yes : PLANS_no;
  if (!backend_target_parse(s->target_text, &s->backend.target, d)) return false;
  static const char *const means[] = {"rvd", "intra", "p2p", NULL};
  if (!is_one_of(s->reshard, means))
    return diag_error(d, NULL, "--reshard is rvd, intra or p2p, not '%s'", s->reshard);
  static const char *const dtypes[] = {"f32", "bf16", "f16", NULL};
  return is_one_of(s->dtype, dtypes) ||
         diag_error(d, NULL, "--dtype is f32, bf16 or f16, not '%s'", s->dtype);
}

// Checks that no output has an empty name.
static bool check_names(const Settings *s, Diag *d) {
  const struct {
    const char *option, *path;
  } outputs[] = {
      {"-o", s->output},     {"--summary", s->summary}, {"--comm-manifest", s->manifest},
      {"--trace", s->trace}, {"--report", s->report},   {"--report-json", s->report_json}};
  bool ok = true;
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
    if (outputs[i].path && !*outputs[i].path)
      ok = diag_error(d, NULL, "%s wants the name of a file, not ''", outputs[i].option);
  return ok;
}

// Checks --init: keep, or random with a seed of 64 bits.
static bool check_init(const Settings *s, Diag *d) {
  size_t n = strlen("random:");
  if (!strcmp(s->init, "keep") || !strcmp(s->init, "random")) return true;
  const char *seed = strncmp(s->init, "random:", n) ? "" : s->init + n;
  if (!*seed || strspn(seed, "0123456789") != strlen(seed))
    return diag_error(d, NULL, "--init is keep or random[:SEED], not '%s'", s->init);
  errno = 0;
  strtoll(seed, NULL, 10);
  return !errno || diag_error(d, NULL, "--init %s: the seed is more than %lld", s->init,
                              (long long)INT64_MAX);
}

// Whether the text is NAME=SIZE, with this sign between the two; NULL: it has none.
static bool is_size(const char *text, const char *equals) {
  char *end;
  if (!equals || equals == text || !equals[1]) return false;
  long long n = strtoll(equals + 1, &end, 10);
  return !*end && n >= 1 && n <= INT32_MAX;
}

// Checks sizes, --dim, --bound, --train and --init.
static bool check_values(const Settings *s, Diag *d) {
  int errors = diag_errors(d);
  const struct {
    const char *name;
    int64_t value, least, most;
  } sizes[] = {{"--ranks", s->ranks, 1, option_given("cluster") ? CLUSTER_DEVICES : MAX_DEVICES},
               {"--batch", s->batch, 0, INT32_MAX},
               {"--micro-batches", s->micro_batches, 1, MAX_DEVICES},
               {"--accumulate", s->accumulate, 1, MAX_DEVICES},
               {"--expert-capacity", s->expert_capacity, 0, 100000},
               {"--per-node", s->per_node, option_given("per-node"), MAX_DEVICES},
               {"--jobs", s->jobs, 0, INT32_MAX}};
  if (option_given("check-with") && s->check_with != 1) {
    diag_error(d, NULL, "--check-with is 1, not %lld: the reference is of one rank",
               (long long)s->check_with);
    return false;
  }
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < sizes[i].least || sizes[i].value > sizes[i].most)
      diag_error(d, NULL, "%s cannot be %lld, only %lld to %lld%s", sizes[i].name,
                 (long long)sizes[i].value, (long long)sizes[i].least, (long long)sizes[i].most,
                 sizes[i].most == CLUSTER_DEVICES ? ", the most devices of a cluster" : "");
  if (s->expert_capacity > 0 && s->expert_capacity < 100) {
    diag_error(d, NULL, "--expert-capacity %lld loses rows: 100 is their mean",
               (long long)s->expert_capacity);
    diag_hint(d, "150 has room for 1.5 times the mean, 0 for the worst routing");
  }
  // The product is the length of the time axis of the mesh.
  if (s->accumulate >= 1 && s->micro_batches > MAX_DEVICES / s->accumulate)
    diag_error(d, NULL, "--accumulate times --micro-batches is at most %d", MAX_DEVICES);
  if (diag_errors(d) > errors) return false;
  if (!(s->clip_norm >= 0 && s->clip_norm < HUGE_VAL))
    return diag_error(d, NULL, "--clip-norm cannot be %g", s->clip_norm);
  if (option_given("search-seconds") && !(s->search_seconds > 0 && s->search_seconds < HUGE_VAL)) {
    diag_error(d, NULL, "--search-seconds cannot be %g", s->search_seconds);
    diag_hint(d, "it is more than 0; without it the choice ends after a fixed amount of work");
    return false;
  }
  if (s->accumulate > 1 && !s->batch && !s->pipeline) {
    diag_error(d, NULL, "--accumulate needs --batch: a step takes %lld times as many rows",
               (long long)s->accumulate);
    return false;
  }
  for (int i = 0; i < s->dims.n; i++)
    if (!is_size(s->dims.at[i], strchr(s->dims.at[i], '=')))
      return diag_error(d, NULL, "--dim wants NAME=SIZE, not '%s'", s->dims.at[i]);
  // The name of a node may contain '='.
  for (int i = 0; i < s->bounds.n; i++)
    if (!is_size(s->bounds.at[i], strrchr(s->bounds.at[i], '=')))
      return diag_error(d, NULL, "--bound wants NAME=SIZE, not '%s'", s->bounds.at[i]);
  // --train is for whole weights.
  bool ok = true;
  for (int i = 0; i < s->freeze.n; i++) {
    const char *glob = s->freeze.at[i];
    if (*glob != '!' || !str_row_glob(glob + 1)) continue;
    ok = diag_error(d, NULL, "--train '%s': a row cannot be trained alone", glob + 1);
    diag_hint(d, "--freeze 'NAME[ROW]' keeps a row; a class of digits is written as in w[1-2]");
  }
  return ok && check_init(s, d) && check_names(s, d);
}

// Checks --lr-schedule, which the executable reads, to find mistakes early, and --lr.
//
//     constant|linear|cosine[:warmup=…,min=…]
static bool check_schedule(Settings *s, Arena *a, Diag *d) {
  static const char *const kinds[] = {"constant", "linear", "cosine", NULL};
  size_t n = strcspn(s->lr_schedule, ":");
  if (!is_one_of(str_copy_n(a, s->lr_schedule, n), kinds)) {
    diag_error(d, NULL, "there is no learning rate schedule '%.*s'", (int)n, s->lr_schedule);
    diag_hint(d, "the schedules are: constant, linear, cosine");
    return false;
  }
  // Each iteration begins at a ':' or ','.
  for (const char *p = s->lr_schedule + n; *p; p += strcspn(p, ",")) {
    p++;
    size_t key = strcspn(p, "=,");
    char *end = NULL;
    bool warmup = key == 6 && !strncmp(p, "warmup", 6), min = key == 3 && !strncmp(p, "min", 3);
    double x = (warmup || min) && p[key] == '=' ? strtod(p + key + 1, &end) : 0;
    if (!(x >= 0 && x < 1e18) || (warmup && x != floor(x)))
      return diag_error(d, NULL, "--lr-schedule: %s cannot be %g", warmup ? "warmup" : "min", x);
    if (min) s->least_lr = x;
    if (!end || end == p + key + 1 || (*end && *end != ','))
      return diag_error(d, NULL,
                        "cannot read '%s' in --lr-schedule: it takes warmup=STEPS and min=X",
                        str_copy_n(a, p, strcspn(p, ",")));
  }
  // Without --lr, the optimizer gives its default.
  if (!s->lr_text) return true;
  char *end = NULL;
  s->lr = strtod(s->lr_text, &end);
  if (!*s->lr_text || *end) return diag_error(d, NULL, "--lr wants a number, not '%s'", s->lr_text);
  return (s->lr >= 0 && s->lr < HUGE_VAL) || diag_error(d, NULL, "--lr cannot be %s", s->lr_text);
}

bool check_least_lr(const Settings *s, double lr, Diag *d) {
  if (s->least_lr <= lr || str_starts(s->lr_schedule, "constant")) return true;
  return diag_error(d, NULL, "--lr-schedule: min=%g is more than the learning rate, %g",
                    s->least_lr, lr);
}

// -- The ranks ---------------------------------------------------------------------------------

// Makes --per-node a cluster: the target's default devices, as many as ranks.
static bool check_per_node(Settings *s, Arena *a, Diag *d) {
  s->network = s->cluster;
  if (!s->per_node) return true;
  if (s->cluster) {
    diag_error(d, NULL, "--per-node has no effect with --cluster, which has hosts of its own");
    diag_hint(d, "--cluster NAME:NODESxPER_NODE, or per_node in its file");
    return false;
  }
  if (s->ranks % s->per_node) {
    diag_error(d, NULL, "--per-node: %lld ranks do not fill hosts of %lld", (long long)s->ranks,
               (long long)s->per_node);
    diag_hint(d, "every host has as many: give a divisor of --ranks");
    return false;
  }
  s->network = str_format(a, "%s:%lldx%lld", target_info[s->backend.target.target].cluster,
                          (long long)(s->ranks / s->per_node), (long long)s->per_node);
  return cluster_read(a, s->network, "--per-node", d) != NULL;
}

// Checks that the step is for devices of the cluster's kind: the prediction would be of another
// step. A plan alone is made for the cluster's devices if no target is given.
static bool check_devices(Settings *s, const Cluster *c, Diag *d) {
  bool gpu = target_info[s->backend.target.target].gpu, given = option_given("target");
  if (c->gpus && !gpu && !given && s->emit != EMIT_exe && s->emit != EMIT_c)
    return backend_target_parse("cuda", &s->backend.target, d);
  if (gpu ? !c->cpus : !c->gpus) return true;
  diag_error(d, NULL,
             "--cluster: the devices of '%s' are %s, and the %s is for %s: the prediction would be "
             "of another step",
             s->cluster, gpu ? "processors" : "gpus", given ? "--target" : "executable",
             gpu ? "gpus" : "cpu");
  if (gpu)
    diag_hint(d, "leave out --target, or name a cluster of gpus, such as --cluster h100");
  else if (given)
    diag_hint(d, "give --target cuda, or name a cluster of processors, such as --cluster cpu");
  else if (c->predicted_only)
    diag_hint(d, "nnaot has no target for these gpus: make only a plan with --emit plan");
  else
    diag_hint(d, "compile with --target cuda, or make only a plan with --emit plan");
  return false;
}

// Reads --cluster, which must have a device for every rank.  An error in its file is an input
// error, not a usage error.  Returns an exit status.
static int check_cluster(Settings *s, Arena *a, Diag *d) {
  if (!check_per_node(s, a, d)) return EXIT_USAGE;
  if (!s->cluster || s->pipeline) return EXIT_SUCCESS;
  const Cluster *c = cluster_read(a, s->cluster, "--cluster", d);
  if (!c) return cluster_is_file(s->cluster) ? EXIT_FAILURE : EXIT_USAGE;
  if (s->ranks > cluster_devices(c)) {
    diag_error(d, NULL, "--cluster: '%s' has %d device%s for %lld ranks", s->cluster,
               cluster_devices(c), cluster_devices(c) == 1 ? "" : "s", (long long)s->ranks);
    int64_t nodes = (s->ranks + c->per_node - 1) / c->per_node;
    if (cluster_is_file(s->cluster))
      diag_hint(d, "the file has them with nodes = %lld, or give -g %d", (long long)nodes,
                cluster_devices(c));
    else
      diag_hint(d, "'%.*s:%lldx%d' has them, or give -g %d", (int)strcspn(s->cluster, ":"),
                s->cluster, (long long)nodes, c->per_node, cluster_devices(c));
    return EXIT_USAGE;
  }
  return check_devices(s, c, d) ? EXIT_SUCCESS : EXIT_USAGE;
}

// -- Compiler and output files -----------------------------------------------------------------

// Checks all outputs, so that an unwritable one is found before any is written.
static bool check_outputs(Settings *s, Arena *a, Diag *d) {
  // No output may overwrite another output or an input.
  const Plan *plan = &s->asked.plan;
  Vec(UsedFile) files = {0};
  vec_push(a, &files, ((UsedFile){"the model", s->model, true}));
  for (int i = 0; i < plan->n; i++)
    if (str_ends(plan->at[i].program, ".lua"))
      vec_push(a, &files, ((UsedFile){"the plan", plan->at[i].program, true}));
  if (s->cluster && cluster_is_file(s->cluster))
    vec_push(a, &files, ((UsedFile){"the cluster", s->cluster, true}));
  vec_push(a, &files, ((UsedFile){"-o", s->output, false}));
  if (s->check_with)
    vec_push(a, &files, ((UsedFile){"FILE.check of --check-with", check_output(s, a), false}));
  vec_push(a, &files, ((UsedFile){"--summary", s->summary, false}));
  vec_push(a, &files, ((UsedFile){"--comm-manifest", s->manifest, false}));
  vec_push(a, &files, ((UsedFile){"--trace", s->trace, false}));
  vec_push(a, &files, ((UsedFile){"--report", s->report, false}));
  vec_push(a, &files, ((UsedFile){"--report-json", s->report_json, false}));
  if (!outputs_apart(files.at, files.n, d)) return false;
  if (s->report_json && !output_writable(s->report_json, d)) return false;
  s->may_report = s->report_json != NULL;
  if (s->summary && !output_writable(s->summary, d)) return false;
  if (s->manifest && !output_writable(s->manifest, d)) return false;
  if (s->trace && !output_writable(s->trace, d)) return false;
  if (s->report && !output_writable(s->report, d)) return false;
  if (s->emit == EMIT_c) {
    // The folder of the sources is made now.
    struct stat st;
    s->made_folder = mkdir(s->output, 0777) == 0;
    if (s->made_folder || (errno == EEXIST && stat(s->output, &st) == 0 && S_ISDIR(st.st_mode) &&
                           access(s->output, W_OK | X_OK) == 0))
      return true;
    return diag_error(d, NULL, "cannot make the folder '%s': %s", s->output, strerror(errno));
  }
  if (s->emit != EMIT_exe) return output_writable(s->output, d);
  if (!strcmp(s->output, "-")) {
    diag_error(d, NULL, "an executable cannot be written to the standard output");
    diag_hint(d, "-o FILE names a file; './-' is one named '-'");
    return false;
  }
  if (s->check_with && !backend_writable(check_output(s, a), d)) return false;
  if (!s->split_ranks) return backend_writable(s->output, d);
  for (int64_t i = 0; i < s->ranks; i++)
    if (!backend_writable(str_format(a, "%s.%lld", s->output, (long long)i), d)) return false;
  return true;
}

int check_settings(Settings *s, Arena *a, Diag *d) {
  ParamGroups groups = {0};
  if (!check_target(s, d) || !check_effect(s, d) || !check_values(s, d) ||
      !check_schedule(s, a, d) || (s->pipeline && !pipeline_check(s->pipeline, d)) ||
      !pipeline_check_prints(&s->run, d) || !ask_plan(s, a, d) ||
      !param_groups_parse(&groups, s->optimizer, s->lr_text ? s->lr : 0,
                          s->groups.n ? strings_joined(a, &s->groups, ";") : NULL, s->no_decay, a,
                          d))
    return EXIT_USAGE;
  int status = check_cluster(s, a, d);
  if (status != EXIT_SUCCESS) return status;
  if (!s->lr_text) s->lr = groups.at[0].spec.lr;
  bool late = s->pipeline && !s->lr_text; // the optimizer of the ops gives lr: see write_executable
  if (!late && !check_least_lr(s, s->lr, d)) return EXIT_USAGE;

  // Programs of plans are files: their errors are input errors, not usage errors.
  if (!ask_programs(s, a, d)) return EXIT_FAILURE;
  // The batch has whole rows per micro-batch.  A plan that also needs rows for every rank checks
  // that itself, with the model.
  int64_t slices = s->asked.micro_batches;
  if (s->batch && s->batch % slices != 0) {
    diag_error(d, NULL, "a batch of %lld cannot be split into %lld micro-batches",
               (long long)s->batch, (long long)slices);
    if (s->cut_by) diag_note(d, s->cut_by, "the plan is for as many");
    diag_hint(d, "give a --batch that micro-batches divide");
    return EXIT_FAILURE;
  }
  // The compiler is there.
  s->backend.only_sources = s->emit == EMIT_c;
  if (s->backend.only_sources || s->emit == EMIT_exe) {
    Readiness ready = backend_ready(&s->backend, d);
    if (ready != READY_yes) return ready == READY_mistake ? EXIT_USAGE : EXIT_FAILURE;
  }
  return check_outputs(s, a, d) ? EXIT_SUCCESS : EXIT_FAILURE;
}

// -- Once the model is read --------------------------------------------------------------------

static bool lasts_nowhere(const void *nothing, const char *node) {
  (void)nothing, (void)node;
  return false;
}

// Passes that fail here report their errors in the real run.
bool check_explained(const Settings *s, const Module *m, Arena *a, Diag *d) {
  PipelineOptions front = {.bisect_limit = -1, .stop_after = "recompute", .unproved = true};
  Module *step = module_clone(m);
  bool quiet = diag_quiet(d, true), known = false;
  bool ok = !pipeline_run(step, train_pipeline(a, s, &s->asked), &front, d) ||
            explain_may_find(step, s->explain);
  diag_quiet(d, quiet);
  module_free(step);
  if (!ok && !is_text(s)) onnx_follow(s->model, s->explain, lasts_nowhere, NULL, a, &known);
  return ok || known || explain_failed(s->explain, d);
}

// -- After the passes --------------------------------------------------------------------------

// Whether a micro-batch has more than one row on a rank, so that there can be more micro-batches.
static bool has_rows_left(const Module *m) {
  for_each_graph(g, m)
    for (int i = 0; g->entry && i < g->n_params; i++) {
      const Value *v = g->params[i];
      if (value_has_batch(v) && v->type->dim[0] > 1) return true;
    }
  return false;
}

// A saved plan needs no more than when it was saved, unless something else was changed.
static void check_promise(const Settings *s, const Needs *n, Diag *d) {
  if (!s->promised || n->peak_bytes <= s->promised) return;
  diag_warning(d, s->promised_by, "rank %d needs %lld bytes, more than the %lld of the saved plan",
               n->rank, (long long)n->peak_bytes, (long long)s->promised);
  diag_hint(d, "it was saved for another --batch, --dtype, --target or number of micro-batches, or "
               "edited; save it again, or delete the line");
}

bool check_compiled(const Settings *s, const Compiled *c, Arena *a, Diag *d) {
  // A pipeline given by --passes has its own mesh, which must have as many ranks as -g.
  const Module *m = c->m;
  int found;
  module_devices(m, m->arena, &found);
  if (s->pipeline && option_given("ranks") && s->ranks != found) {
    diag_error(d, NULL, "-g asks for %lld ranks, but the mesh that --passes leaves has %d",
               (long long)s->ranks, found);
    diag_hint(d, "say it in the pipeline: shard(mesh=%lld)", (long long)s->ranks);
    return false;
  }
  // The memory that --cluster gives is a limit for every plan.
  const Cluster *cluster = c->summary.cluster;
  if (m->phase < PHASE_planned) return true;
  Needs n = needs_most(m, cluster);
  check_promise(s, &n, d);
  if (!s->cluster || needs_fit(&n, cluster)) return true;
  diag_error(
      d, NULL, "the plan does not fit: rank %d needs %lld bytes, and its device of '%s' has %.0f",
      n.rank, (long long)n.peak_bytes, cluster->name, cluster_device(cluster, n.rank).memory);
  diag_note(d, NULL, "%s", needs_text(a, &n));
  bool rows = has_rows_left(m), ranks = s->ranks == 1;
  diag_hint(d, "--plan auto takes one that fits, if there is any%s%s",
            rows    ? "; so may more --micro-batches"
            : ranks ? "; so may more ranks, -g"
                    : "; each micro-batch has one row of a rank already",
            rows && ranks ? ", or more ranks, -g" : "");
  return false;
}
