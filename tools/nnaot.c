// nnaot: a model in, one training executable out.
//
//     nnaot mlp.onnx -g 2 --batch 32 --loss 'cross_entropy(logits)' --optimizer adamw -o train_rank
//
// The model is imported with the batch of a whole step, the passes of the pipeline turn it into
// what one rank does, and the backend writes that as C and compiles it.  What can be known to be
// wrong without the model is found before it is read: options that contradict each other or have no
// effect, numbers out of range, files that cannot be written.  What depends on it, such as the
// outputs that a loss names, is for the passes to say.

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "annotate.h"
#include "backend/backend.h"
#include "base/vec.h"
#include "cluster.h"
#include "cost.h"
#include "explain.h"
#include "frontend/onnx.h"
#include "ir/op.h"
#include "needs.h"
#include "optimizer_spec.h"
#include "options.h"
#include "output.h"
#include "pass.h"
#include "plan.h"
#include "record.h"
#include "summary.h"

static const char *output, *target_text = "cpu", *emit_what = "exe";
static const char *link_text, *aot_plans; // NULL: nnaot chooses
static BackendOptions backend;            // target and how to link, then all the rest (make_output)
static int64_t ranks = 1, batch, micro_batches = 1, accumulate = 1, jobs = 1;
static Plan sharing; // what --plan says
static bool split_ranks, verbose, train_mode;
static const char *batch_dim, *external_data_dir, *loss, *optimizer = "sgd";
static const char *lr_text, *lr_schedule = "constant", *init = "keep", *dtype = "f32",
                            *plan = "auto";
static double clip_norm;
static const char *pipeline, *cluster, *explain, *summary, *report, *trace, *manifest;
static Strings dims, freeze;
static double lr; // --lr, or the default of the optimizer
static PipelineOptions run = {.verify_each = true, .bisect_limit = -1};

static const Option options[] = {
    GROUP("Output"),
    STRING("output", 'o', &output, "FILE", "the executable; with --emit, what that makes"),
    INTEGER("ranks", 'g', &ranks, "N", "number of ranks; the executable can be any of them"),
    FLAG("split-ranks", 0, &split_ranks, "write FILE.0, FILE.1, …: each can be one rank only"),
    STRING("target", 0, &target_text, "cpu|cuda[:sm_XX,…]",
           "what to compile for; cuda is cuda:" CUDA_ARCHITECTURES),
    STRING("link", 0, &link_text, "static|shared",
           "the libraries of a gpu; by default static where there are archives of them"),
    STRING("aot-plans", 0, &aot_plans, "yes|no",
           "make plans of cudnn ahead of time; by default where that is possible"),
    STRING("emit", 0, &emit_what, "exe|nn|c|plan|onnx",
           "where to stop: executable, IR of a rank, folder of C, the model annotated with the "
           "plan, or decisions: a program for --plan if -o ends in .lua, else JSON"),
    STRING("summary", 0, &summary, "FILE", "decisions and predictions as JSON"),
    STRING("comm-manifest", 0, &manifest, "FILE",
           "every collective of a step, as JSON, or for NCCL's tuner if FILE ends in .csv"),
    INTEGER("jobs", 'j', &jobs, "N", "compile so many programs at once (with --split-ranks)"),
    FLAG("verbose", 'v', &verbose,
         "say which weights are trained, what is run, and the peak of memory"),
    GROUP("Model"),
    INTEGER("batch", 0, &batch, "B", "rows of a batch, of all ranks; 0: as in the model"),
    STRING("batch-dim", 0, &batch_dim, "NAME", "the symbolic dimension that is the batch"),
    LIST("dim", 0, &dims, "NAME=VALUE", "the size of another symbolic dimension"),
    STRING("external-data-dir", 0, &external_data_dir, "DIR",
           "one more folder that external data may lie in"),
    FLAG("train-mode", 0, &train_mode, "Dropout and BatchNormalization behave as in training"),
    STRING("init", 0, &init, "keep|random[:SEED]", "the model's weights, or fresh ones"),
    STRING("dtype", 0, &dtype, "f32|bf16|f16",
           "the type to compute in; weights stay f32, and with f16 the loss is scaled"),
    GROUP("Training"),
    STRING(
        "loss", 0, &loss, "SPEC",
        "OUTPUT, cross_entropy(OUTPUT), next_token(OUTPUT,INPUT), mse(OUTPUT), …; by default the "
        "model's only scalar output"),
    STRING("optimizer", 0, &optimizer, "NAME[:k=v,…]", "sgd, adam, adamw, adagrad or lamb"),
    STRING("lr", 0, &lr_text, "X", "learning rate; by default the optimizer's"),
    STRING("lr-schedule", 0, &lr_schedule, "KIND[:k=v,…]",
           "constant, linear or cosine, with warmup=STEPS and min=X"),
    NUMBER("clip-norm", 0, &clip_norm, "X", "limit of the gradients' total norm; 0: none"),
    INTEGER("accumulate", 0, &accumulate, "K", "a step takes K batches and updates once"),
    INTEGER("micro-batches", 0, &micro_batches, "M", "cut a batch in M, one after the other"),
    LIST("freeze", 0, &freeze, "GLOB", "weights that stay as they are"),
    GROUP("Plan"),
    STRING(
        "plan", 0, &plan, "NAME[=N],…|FILE.lua",
        "how ranks share the work: auto, dp, tp, zero1, …, or several with their ranks, dp=2,tp=4"),
    STRING("cluster", 0, &cluster, "NAME[:NxM]|FILE.lua",
           "what the ranks run on, N nodes of M; values then go the ways that are cheapest there"),
    STRING("explain", 0, &explain, "VALUE|OP", "what was decided about it"),
    STRING("report", 0, &report, "FILE", "not supported yet: the plan as a page"),
    STRING("trace", 0, &trace, "FILE", "not supported yet: the predicted timeline"),
    GROUP("Passes"),
    STRING("passes", 0, &pipeline, "PIPELINE", "instead of those that the options above make"),
    STRING("stop-after", 0, &run.stop_after, "PASS",
           "stop when this pass has run (with --emit nn)"),
    STRING("print-before", 0, &run.print_before, "PASSES", "print the module before these"),
    STRING("print-after", 0, &run.print_after, "PASSES", "print the module after these"),
    FLAG("print-before-all", 0, &run.print_before_all, "print the module before every pass"),
    FLAG("print-after-all", 0, &run.print_after_all, "print the module after every pass"),
    FLAG("print-changed", 0, &run.print_changed, "print what every pass changed, as a diff"),
    STRING("dump-dir", 0, &run.dump_dir, "DIR",
           "write 00-input.nn, 01-PASS.nn … there; each can be read again"),
    FLAG("verify-each", 0, &run.verify_each, "check the module after every pass"),
    FLAG("time-passes", 0, &run.time_passes, "print the seconds of every pass"),
    FLAG("stats", 0, &run.stats, "print what passes counted"),
    INTEGER("opt-bisect-limit", 0, &run.bisect_limit, "N",
            "run only the first N of the passes that may be skipped; -1: all"),
};

// Those of the executable that nnaot has not got itself; rt/flags.def has them all.
static const char of_executable[] =
    "input tokens shuffle steps epochs seed eval-input eval-tokens eval-every stall-timeout tune "
    "tf32 traffic checkpoint-dir checkpoint-every keep resume log tensorboard save export describe";

static const Program program = {
    "nnaot",
    "nnaot MODEL.onnx [-g RANKS] [--batch B] [--loss SPEC] [--optimizer NAME] -o FILE",
    "Compiles an ONNX model ahead of time into an executable that trains it. A module in text "
    "form\n"
    "(.nn, as nnaot-opt writes it) is taken as well; --passes says what is left to do.",
    options,
    sizeof options / sizeof *options,
    of_executable,
    "it is an option of the executable that nnaot makes",
};

// -- The command line --------------------------------------------------------------------------

static bool computes_in_16_bits(void) {
  return !strcmp(dtype, "bf16") || !strcmp(dtype, "f16");
}

// What belongs to later versions: false, having said what there is, when it is asked for.
static bool check_supported(Diag *d) {
  int errors = diag_errors(d);
  static const struct {
    const char *option;
    const char **value;
  } later[] = {{"--report", &report}, {"--trace", &trace}};
  for (size_t i = 0; i < sizeof later / sizeof *later; i++)
    if (*later[i].value) diag_error(d, NULL, "%s is not supported yet", later[i].option);
  if (strcmp(dtype, "f32") != 0 && !computes_in_16_bits())
    diag_error(d, NULL, "--dtype is f32, bf16 or f16, not '%s'", dtype);
  return diag_errors(d) == errors;
}

static bool is_text(const char *model) {
  return str_ends(model, ".nn") || !strcmp(model, "-");
}

static void refuse(const char *const *names, const char *with, const char *hint, Diag *d) {
  for (; *names; names++) {
    if (!option_given(*names)) continue;
    diag_error(d, NULL, "--%s has no effect with %s", *names, with);
    diag_hint(d, "%s", hint);
  }
}

// What an option asks for is done, or it is an error.
static bool check_effect(const char *model, Diag *d) {
  static const char *const step[] = {"loss",      "optimizer", "freeze",     "init",
                                     "clip-norm", "dtype",     "accumulate", "micro-batches",
                                     "plan",      "cluster",   NULL};
  static const char *const import[] = {
      "batch", "batch-dim", "dim", "accumulate", "external-data-dir", "train-mode", NULL};
  static const char *const of_target[] = {"link", "aot-plans"};
  int errors = diag_errors(d);
  if (!strcmp(emit_what, "onnx") && (pipeline || is_text(model)))
    diag_error(d, NULL, "--emit onnx annotates an ONNX model with a plan, and %s",
               pipeline ? "--passes has none" : "this is a module in text form");
  if (!strcmp(emit_what, "onnx") && run.stop_after)
    diag_error(d, NULL, "--stop-after has no effect with --emit onnx");
  if (pipeline)
    refuse(step, "--passes",
           "say it in the pipeline: loss(spec=…), autodiff(freeze=…), optimizer(name=…)", d);
  if (pipeline && !lr_text && (strstr(pipeline, ":lr=") || strstr(pipeline, ",lr=")))
    diag_error(d, NULL, "lr has no effect in the pipeline of --passes; give --lr");
  if (is_text(model))
    refuse(import, "a module in text form", "its sizes are those that it was written with", d);
  if (split_ranks && strcmp(emit_what, "exe") != 0)
    diag_error(d, NULL, "--split-ranks has no effect with --emit %s", emit_what);
  for (size_t i = 0; i < sizeof of_target / sizeof *of_target; i++)
    if (option_given(of_target[i]) && !backend_takes(backend.target.target, of_target[i]))
      diag_error(d, NULL, "--%s has no effect with --target %s", of_target[i],
                 target_info[backend.target.target].name);
  return diag_errors(d) == errors;
}

static bool is_one_of(const char *what, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(what, *list)) return true;
  return false;
}

// --target, --link and --aot-plans, into `backend`.
static bool check_target(Diag *d) {
  static const char *const links[] = {"static", "shared", NULL};
  static const char *const plans[] = {"yes", "no", NULL};
  if (link_text && !is_one_of(link_text, links))
    return diag_error(d, NULL, "--link is static or shared, not '%s'", link_text);
  if (aot_plans && !is_one_of(aot_plans, plans))
    return diag_error(d, NULL, "--aot-plans is yes or no, not '%s'", aot_plans);
  if (link_text) backend.link = !strcmp(link_text, "static") ? LINK_static : LINK_shared;
  if (aot_plans) backend.plans = !strcmp(aot_plans, "yes") ? PLANS_yes : PLANS_no;
  return backend_target_parse(target_text, &backend.target, d);
}

// What compiles is looked for before anything is read.  Returns an exit status.
static int check_machine(Diag *d) {
  backend.only_sources = !strcmp(emit_what, "c");
  if (!backend.only_sources && strcmp(emit_what, "exe") != 0) return EXIT_SUCCESS;
  Readiness ready = backend_ready(&backend, d);
  return ready == READY_yes ? EXIT_SUCCESS : ready == READY_mistake ? EXIT_USAGE : EXIT_FAILURE;
}

// constant|linear|cosine[:warmup=…,min=…].  The executable reads it; here mistakes are found early.
static double least_lr;

static bool check_schedule(Arena *a, Diag *d) {
  static const char *const kinds[] = {"constant", "linear", "cosine", NULL};
  size_t n = strcspn(lr_schedule, ":");
  if (!is_one_of(str_copy_n(a, lr_schedule, n), kinds)) {
    diag_error(d, NULL, "there is no learning rate schedule '%.*s'", (int)n, lr_schedule);
    diag_hint(d, "the schedules are: constant, linear, cosine");
    return false;
  }
  for (const char *p = lr_schedule + n; *p; p += strcspn(p, ",")) {
    p++;
    size_t key = strcspn(p, "=,");
    char *end = NULL;
    bool warmup = key == 6 && !strncmp(p, "warmup", 6), min = key == 3 && !strncmp(p, "min", 3);
    double x = (warmup || min) && p[key] == '=' ? strtod(p + key + 1, &end) : 0;
    if (!(x >= 0 && x < 1e18) || (warmup && x != floor(x)))
      return diag_error(d, NULL, "--lr-schedule: %s cannot be %g", warmup ? "warmup" : "min", x);
    if (min) least_lr = x;
    if (!end || end == p + key + 1 || (*end && *end != ','))
      return diag_error(d, NULL,
                        "cannot read '%s' in --lr-schedule: it takes warmup=STEPS and min=X",
                        str_copy_n(a, p, strcspn(p, ",")));
  }
  return true;
}

static bool check_lr(Diag *d) {
  char *end = NULL;
  if (!lr_text) return true;
  lr = strtod(lr_text, &end);
  if (!*lr_text || *end) return diag_error(d, NULL, "--lr wants a number, not '%s'", lr_text);
  return (lr >= 0 && lr < HUGE_VAL) || diag_error(d, NULL, "--lr cannot be %s", lr_text);
}

// The schedule goes down from the learning rate to its least.
static bool check_least_lr(Diag *d) {
  if (least_lr <= lr || str_starts(lr_schedule, "constant")) return true;
  return diag_error(d, NULL, "--lr-schedule: min=%g is more than the learning rate, %g", least_lr,
                    lr);
}

// NAME=VALUE
static bool check_dims(Diag *d) {
  for (int i = 0; i < dims.n; i++) {
    const char *equals = strchr(dims.at[i], '=');
    char *end = NULL;
    long long n = equals ? strtoll(equals + 1, &end, 10) : 0;
    if (!equals || equals == dims.at[i] || !equals[1] || *end || n < 1 || n > INT32_MAX)
      return diag_error(d, NULL, "--dim wants NAME=SIZE, not '%s'", dims.at[i]);
  }
  return true;
}

static bool check_sizes(Diag *d) {
  int errors = diag_errors(d);
  const struct {
    const char *name;
    int64_t value, least;
  } sizes[] = {{"--ranks", ranks, 1},
               {"--batch", batch, 0},
               {"--micro-batches", micro_batches, 1},
               {"--accumulate", accumulate, 1},
               {"--jobs", jobs, 1}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < sizes[i].least || sizes[i].value > INT32_MAX)
      diag_error(d, NULL, "%s cannot be %lld", sizes[i].name, (long long)sizes[i].value);
  if (diag_errors(d) > errors) return false;
  if (!(clip_norm >= 0 && clip_norm < HUGE_VAL))
    return diag_error(d, NULL, "--clip-norm cannot be %g", clip_norm);
  if (accumulate > 1 && !batch && !pipeline) {
    diag_error(d, NULL, "--accumulate needs --batch: a step takes %lld times as many rows",
               (long long)accumulate);
    return false;
  }
  return true;
}

// Whether nnaot chooses the plan: one rank has nothing to choose.
static bool is_auto(void) {
  return !pipeline && ranks > 1 && !strcmp(plan, "auto");
}

// The plans of what the model is annotated with.
static const char *const annotated_plans[] = {"onnx", "onnx_search"};

static bool is_annotated_plan(const char *name) {
  for (size_t i = 0; i < sizeof annotated_plans / sizeof *annotated_plans; i++)
    if (!strcmp(name, annotated_plans[i])) return true;
  return false;
}

static bool follows_annotations(void) {
  return !pipeline && is_annotated_plan(plan);
}

// --plan, into `sharing`; a pipeline that was given says its own, and auto is chosen later.
static bool check_plan(Arena *a, Diag *d) {
  if (pipeline || is_auto() || follows_annotations()) return true;
  if (!plan_parse(a, !strcmp(plan, "auto") ? "dp" : plan, ranks, &sharing, d)) return false;
  for (int i = 0; i < sharing.n; i++)
    if (!plan_known(sharing.at[i].program, a, d)) return false;
  for (int i = 0; i < sharing.n; i++)
    if (is_annotated_plan(sharing.at[i].program))
      return diag_error(d, NULL,
                        "the plan '%s' stands alone and takes no size: the model says which axes "
                        "there are",
                        sharing.at[i].program);
  return true;
}

// Whether the programs can be run: files of their own, so they are input and not usage.  They may
// say how many micro-batches they are for.
static bool check_programs(Arena *a, Diag *d) {
  for (int i = 0; i < sharing.n; i++) {
    PlanProgram *p = program_open(a, sharing.at[i].program, d);
    if (!p) return false;
    int64_t wanted = program_micro_batches(p);
    program_close(p);
    if (wanted < 0) return false;
    if (wanted && !option_given("micro-batches")) micro_batches = wanted;
  }
  return true;
}

// --cluster, which must have a device for every rank.
static bool check_cluster(Arena *a, Diag *d) {
  if (!cluster || pipeline) return true;
  const Cluster *c = cluster_read(a, cluster, "--cluster", d);
  if (!c) return false;
  if (ranks <= cluster_devices(c)) return true;
  return diag_error(d, NULL, "--cluster: '%s' has %d devices for %lld ranks", cluster,
                    cluster_devices(c), (long long)ranks);
}

// Of how many parts the batch must be made, as far as that is known before there is a model.
static bool check_batch(Diag *d) {
  bool rows = sharing.n == 1 && !strcmp(sharing.at[0].program, "dp");
  int64_t parts = (rows ? ranks : 1) * micro_batches;
  if (!batch || batch % parts == 0) return true;
  if (rows && ranks > 1 && micro_batches > 1)
    diag_error(d, NULL,
               "a batch of %lld cannot be cut in %lld: %lld ranks times %lld micro-batches",
               (long long)batch, (long long)parts, (long long)ranks, (long long)micro_batches);
  else
    diag_error(d, NULL, "a batch of %lld cannot be cut in %lld %s", (long long)batch,
               (long long)parts, micro_batches > 1 ? "micro-batches" : "ranks");
  diag_hint(d, "give a --batch that ranks times micro-batches divides");
  return false;
}

static bool needs_output(void) {
  return strcmp(emit_what, "plan") != 0;
}

static bool made_folder; // and it goes again when nothing comes into it

static bool check_folder(Diag *d) {
  struct stat st;
  made_folder = mkdir(output, 0777) == 0;
  if (made_folder || (errno == EEXIST && stat(output, &st) == 0 && S_ISDIR(st.st_mode) &&
                      access(output, W_OK | X_OK) == 0))
    return true;
  return diag_error(d, NULL, "cannot make the folder '%s': %s", output, strerror(errno));
}

// No output takes the place of another or of what is read.
static bool check_apart(const char *model, Arena *a, Diag *d) {
  Vec(UsedFile) files = {0};
  vec_push(a, &files, ((UsedFile){"the model", model, true}));
  for (int i = 0; i < sharing.n; i++)
    if (str_ends(sharing.at[i].program, ".lua"))
      vec_push(a, &files, ((UsedFile){"the plan", sharing.at[i].program, true}));
  if (cluster && str_ends(cluster, ".lua"))
    vec_push(a, &files, ((UsedFile){"the cluster", cluster, true}));
  const char *written = output || needs_output() ? output : "-";
  vec_push(a, &files, ((UsedFile){"-o", written, false}));
  vec_push(a, &files, ((UsedFile){"--summary", summary, false}));
  vec_push(a, &files, ((UsedFile){"--comm-manifest", manifest, false}));
  return outputs_apart(files.at, files.n, d);
}

// All of them, so that one that cannot be written is found before anything is.
static bool check_outputs(const char *model, Arena *a, Diag *d) {
  if (!check_apart(model, a, d)) return false;
  if (summary && !output_writable(summary, d)) return false;
  if (manifest && !output_writable(manifest, d)) return false;
  if (!output) return true;
  if (!strcmp(emit_what, "c")) return check_folder(d);
  if (strcmp(emit_what, "exe") != 0) return output_writable(output, d);
  if (!split_ranks) return backend_writable(output, d);
  for (int64_t i = 0; i < ranks; i++)
    if (!backend_writable(str_format(a, "%s.%lld", output, (long long)i), d)) return false;
  return true;
}

// -- The pipeline ------------------------------------------------------------------------------

// A value of a pass's option, in quotes.
static const char *quoted(Arena *a, const char *s) {
  StrBuf b = {.arena = a};
  strbuf_add(&b, "\"");
  for (; *s; s++)
    strbuf_addf(&b, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
  strbuf_add(&b, "\"");
  return b.at;
}

static const char *joined(Arena *a, const Strings *s) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < s->n; i++)
    strbuf_addf(&b, "%s%s", i ? "," : "", s->at[i]);
  return b.at;
}

// "acc:2:time+dp:2+tp:4"
static const char *mesh_text(Arena *a) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "acc:%lld:time", (long long)(accumulate * micro_batches));
  for (int i = 0; i < sharing.n; i++)
    strbuf_addf(&b, "+%s:%lld", sharing.at[i].axis, (long long)sharing.at[i].size);
  return b.at;
}

// "dp,tp": of axes that there are.
static const char *programs_text(Arena *a) {
  StrBuf b = {.arena = a};
  for (int i = 0; i < sharing.n; i++)
    if (sharing.at[i].size > 1) strbuf_addf(&b, "%s%s", b.n ? "," : "", sharing.at[i].program);
  return b.n ? b.at : "dp";
}

// What plans are priced on.
static const char *cluster_text(void) {
  return cluster ? cluster : target_info[backend.target.target].cluster;
}

// What the options say to a pass of the pipeline.  `over_cluster`: values go the cheapest ways
// there.
static const char *pass_options(Arena *a, const char *pass, bool over_cluster) {
  if (!strcmp(pass, "loss") && loss) return str_format(a, "(spec=%s)", quoted(a, loss));
  if (!strcmp(pass, "autodiff")) {
    // As torch.amp.GradScaler begins; bf16 has the range of f32.
    bool scaled = !strcmp(dtype, "f16");
    if (!freeze.n) return scaled ? "(scale=65536)" : "";
    return str_format(a, "(freeze=%s%s)", quoted(a, joined(a, &freeze)),
                      scaled ? " scale=65536" : "");
  }
  if (!strcmp(pass, "optimizer"))
    return str_format(a, "(name=%s clip=%.17g)", quoted(a, optimizer), clip_norm);
  // Time is the outermost axis: a micro-batch is a run of neighbouring rows.
  if (!strcmp(pass, "shard"))
    return str_format(a, "(mesh=%s plan=%s cluster=%s%s%s)", quoted(a, mesh_text(a)),
                      quoted(a, programs_text(a)), quoted(a, cluster_text()),
                      cluster ? "" : " unlimited=true",
                      explain ? str_format(a, " explain=%s", quoted(a, explain)) : "");
  if (!strcmp(pass, "comm") && cluster && over_cluster)
    return str_format(a, "(cluster=%s)", quoted(a, cluster));
  if (!strcmp(pass, "transform")) return str_format(a, "(plan=%s)", quoted(a, programs_text(a)));
  return "";
}

// `given` with the target, if the pass wants to know it.
static const char *with_target(Arena *a, const char *pass, const char *given) {
  const char *target = target_info[backend.target.target].name;
  for (int i = 0; i < n_passes; i++) {
    if (strcmp(passes[i].name, pass) != 0 || !strstr(passes[i].options, "target:s")) continue;
    if (!*given) return str_format(a, "(target=%s)", target);
    return str_format(a, "%.*s target=%s)", (int)strlen(given) - 1, given, target);
  }
  return given;
}

// The target's pipeline, with what the options describe.
static const char *train_pipeline(Arena *a, bool over_cluster) {
  StrBuf b = {.arena = a};
  for (const char *p = pipeline_named(target_info[backend.target.target].pipeline); *p;) {
    size_t n = strcspn(p, ",");
    const char *pass = str_copy_n(a, p, n);
    if (!strcmp(pass, "shard") && computes_in_16_bits())
      strbuf_addf(&b, ",lower_precision(to=%s)", dtype);
    strbuf_addf(&b, "%s%s%s", b.n ? "," : "", pass,
                with_target(a, pass, pass_options(a, pass, over_cluster)));
    if (!strcmp(pass, "loss") && str_starts(init, "random"))
      strbuf_addf(&b, ",init(seed=%s)", init[6] == ':' ? init + 7 : "0");
    p += n + (p[n] == ',');
  }
  return b.at;
}

// -- The plan ----------------------------------------------------------------------------------

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static Annotations *annotations; // of the model, when they are followed

// The axes that the model is annotated for, each of which the program is run for.
static void share_as_annotated(const char *name) {
  sharing = (Plan){.n = annotations->n_axes};
  for (int i = 0; i < sharing.n; i++)
    sharing.at[i] = (PlanAxes){name, annotations->axis[i].name, annotations->axis[i].size};
}

// As the candidate says.
static void take_candidate(Arena *a, const Candidate *c, int64_t n) {
  Diag *d = diag_new(stderr);
  micro_batches = c->micro_batches;
  if (is_annotated_plan(c->plan)) {
    share_as_annotated(c->plan);
    diag_free(d);
    return;
  }
  if (!plan_parse(a, c->plan, n, &sharing, d)) BUG("the plan '%s' is none", c->plan);
  diag_free(d);
}

static const char *pipeline_of(void *arena, const Candidate *c) {
  take_candidate(arena, c, c->ranks);
  return train_pipeline(arena, !c->by_axes);
}

// Without a price none is better than another.
static void warn_unpriced(const Cluster *c, Diag *d) {
  const char *name = cluster ? cluster : c->name;
  if (ranks > cluster_devices(c))
    diag_warning(d, NULL, "plans cannot be priced: '%s' has %d devices for %lld ranks", name,
                 cluster_devices(c), (long long)ranks);
  else if (!cost_known(c))
    diag_warning(d, NULL, "plans cannot be priced: '%s' does not say how fast its devices are",
                 name);
}

// The plan, where it is auto; and how many micro-batches it takes to fit into memory, whatever plan
// it is.
static bool choose(const Module *m, Summary *s, Arena *a, Diag *d) {
  bool limited = cluster != NULL && s->cluster->memory > 0;
  bool cuts = limited && batch > 0 && !pipeline && !option_given("micro-batches");
  if (!is_auto() && !cuts) return true;
  ChooseOptions o = {.ranks = ranks, .batch = batch, .cluster = s->cluster, .context = a};
  const char *named = strcmp(plan, "auto") != 0 ? plan : "dp";
  o.plans = is_auto() ? NULL : &named;
  o.n_plans = is_auto() ? 0 : 1;
  if (is_auto() && annotations) {
    o.plans = annotated_plans;
    o.n_plans = sizeof annotated_plans / sizeof *annotated_plans;
  }
  o.micro_batches = option_given("micro-batches") ? micro_batches : 0;
  o.by_axes = is_auto() && cluster != NULL;
  o.limited = limited;
  o.target = backend.target.target;
  o.pipeline = pipeline_of;
  if (is_auto()) warn_unpriced(s->cluster, d);
  double start = now();
  Candidates all = {0};
  int chosen = choose_plan(m, &o, a, &all);
  if (is_auto()) {
    s->candidates = all;
    s->chosen = chosen;
    s->choosing = now() - start;
    bool made = !annotations;
    for (int i = 0; i < all.n; i++)
      made |= all.at[i].made;
    if (chosen < 0 && made) return choose_failed(m, &o, a, &all, d);
    named = annotations ? "onnx" : named;
  }
  // A plan that was asked for, by a model as well, and does not fit or cannot be made will say so.
  Candidate as_asked = {.plan = named, .micro_batches = 1};
  const Candidate *best = chosen < 0 ? &as_asked : &all.at[chosen];
  take_candidate(a, best, ranks);
  if (is_auto()) plan = best->plan;
  return true;
}

static bool check_init(Diag *d) {
  size_t n = strlen("random:");
  bool ok = !strcmp(init, "keep") || !strcmp(init, "random") ||
            (!strncmp(init, "random:", n) && init[n] &&
             strspn(init + n, "0123456789") == strlen(init + n));
  return ok || diag_error(d, NULL, "--init is keep or random[:SEED], not '%s'", init);
}

static Module *read_model(const char *path, const OnnxOptions *import, Diag *d) {
  return is_text(path) ? module_read(path, d) : onnx_import(path, import, d);
}

// -- What is said about it ---------------------------------------------------------------------

static void say_weights(const Module *m) {
  const Graph *g = m->graphs;
  int64_t trained = 0, kept = 0;
  for (int i = 0; g && i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role != ROLE_weight) continue;
    Arena *a = arena_new();
    fprintf(stderr, "%s  %s %s\n", v->train ? "trained" : "frozen ", v->label,
            type_text(a, v->type));
    arena_free(a);
    *(v->train ? &trained : &kept) += type_count(v->type);
  }
  fprintf(stderr, "%lld parameters are trained, %lld are not\n", (long long)trained,
          (long long)kept);
  if (m->phase >= PHASE_planned)
    fprintf(stderr, "%lld bytes per rank at the peak\n", (long long)m->slab_bytes);
}

// Beside what goes to standard output, if anything does.
static FILE *beside_output(void) {
  const char *written[] = {output || needs_output() ? output : "-", summary, manifest};
  for (size_t i = 0; i < sizeof written / sizeof *written; i++)
    if (written[i] && !strcmp(written[i], "-")) return stderr;
  return stdout;
}

// --explain: what a search saw, and what became of it.  Some ops are parts of others by then.
static bool say_explained(const Module *m, const Summary *s, Diag *d) {
  FILE *out = beside_output();
  if (s->chosen >= 0) explain_candidates(&s->candidates, s->chosen, s->cluster, out);
  if (s->searched.explained) fputs(s->searched.explained, out);
  if (explain_module(m, explain, out) || s->searched.explained) return true;
  diag_error(d, NULL, "nothing is called '%s'", explain);
  diag_hint(d, "--explain takes %%value, an op such as linear, or a part of a node's name");
  return false;
}

// One that was chosen has its name.
static const char *plan_text(void) {
  return pipeline || !strcmp(plan, "auto") ? "dp" : plan;
}

// The optimizer whose ops update the weights, or NULL.
static const char *optimizer_of(const Module *m) {
  for_each_graph(g, m)
    for_each_op(op, g) {
      if (op->kind == OP_sgd || op->kind == OP_sgd_momentum) return "sgd";
      if (op->kind == OP_adam) return attr_i(op, "decoupled") ? "adamw" : "adam";
      if (op->kind == OP_adagrad) return "adagrad";
      if (op->kind == OP_lamb) return "lamb";
    }
  return NULL;
}

// What --describe of the executable adds to what the runtime knows.  Of a pipeline that was given,
// the ops say which optimizer it is, and the rest is null: nobody knows what made the module.
static const char *describe_text(Arena *a, const char *model, const Module *m,
                                 const char *updated_by) {
  StrBuf b = {.arena = a};
  strbuf_addf(&b, "{\"source\": %s, \"dtype\": \"%s\", \"lr_from\": \"%s\"", json_string(a, model),
              summary_dtype(m), lr_text ? "--lr" : "default of the optimizer");
  const TargetSpec *t = &backend.target;
  for (int i = 0; i < t->n_sm; i++)
    strbuf_addf(&b, "%s\"sm_%d\"", i ? ", " : ", \"architectures\": [", t->sm[i]);
  if (t->n_sm)
    strbuf_addf(&b, "], \"link\": \"%s\"", backend.link == LINK_static ? "static" : "shared");
  if (pipeline) {
    strbuf_addf(&b, ", \"passes\": %s", json_string(a, pipeline));
    strbuf_addf(&b, ", \"optimizer\": %s", updated_by ? json_string(a, updated_by) : "null");
    strbuf_add(&b, ", \"loss\": null, \"clip_norm\": null, \"accumulate\": null, "
                   "\"frozen\": null}");
    return b.at;
  }
  strbuf_addf(&b, ", \"optimizer\": %s", json_string(a, optimizer));
  strbuf_addf(&b, ", \"loss\": %s", json_string(a, loss ? loss : ""));
  strbuf_addf(&b, ", \"clip_norm\": %.9g, \"accumulate\": %lld", clip_norm, (long long)accumulate);
  strbuf_addf(&b, ", \"frozen\": %s}", json_string(a, freeze.n ? joined(a, &freeze) : ""));
  return b.at;
}

// -- The executable ----------------------------------------------------------------------------

static bool is_updated(const Graph *g, const Value *v) {
  for (int i = 0; i < g->n_results; i++)
    if (g->results[i]->target == v) return true;
  return false;
}

// Whether a weight that training leaves alone can be written as the file has it.
static bool is_kept(const Graph *g, const Value *v) {
  if (is_updated(g, v) || !v->init) return false;
  DType file = v->init->dtype, here = v->type->dtype;
  if (v->init->kind != INIT_file && v->init->kind != INIT_bytes) return true;
  return file == here ||
         (dtype_class[file] == dtype_class[here] && dtype_bytes[file] < dtype_bytes[here]);
}

// The model with room for what the ranks have; first of all what training changes.
static bool add_skeleton(const Module *m, const char *path, const OnnxOptions *import, Arena *a,
                         BackendOptions *o, Diag *d) {
  if (!str_ends(path, ".onnx")) return true;
  Vec(const char *) labels = {0};
  const Graph *g = m->graphs;
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->role == ROLE_weight && is_updated(g, g->params[i]))
      vec_push(a, &labels, g->params[i]->label);
  int n_updated = labels.n;
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->role == ROLE_weight && is_kept(g, g->params[i]))
      vec_push(a, &labels, g->params[i]->label);
  OnnxSkeleton s = {0};
  if (!onnx_skeleton(path, import, labels.at, labels.n, n_updated, a, &s, d)) return false;
  ExportHole *holes = arena_array(a, ExportHole, s.n_holes);
  for (int i = 0; i < s.n_holes; i++)
    holes[i] =
        (ExportHole){s.holes[i].label, s.holes[i].dtype, s.holes[i].offset, s.holes[i].length};
  o->skeleton = s.bytes;
  o->skeleton_bytes = s.n;
  o->holes = holes;
  o->n_holes = s.n_holes;
  return true;
}

// The model as it is, annotated with the plan.  `m` is the module before the pipeline, which has
// gone all the way with it already, so that this is a plan that can be executed.
static bool emit_onnx(Module *m, const char *path, Arena *a, Diag *d) {
  PipelineOptions again = {
      .bisect_limit = run.bisect_limit, .stop_after = "shard", .unproved = true};
  const uint8_t *bytes;
  int64_t n;
  bool quiet = diag_quiet(d, true);
  bool ok = pipeline_run(m, train_pipeline(a, true), &again, d);
  diag_quiet(d, quiet);
  if (!ok) BUG("what could be sharded cannot be sharded again");
  return onnx_annotate(path, annotate(m, plan_text(), a, d), output, a, &bytes, &n, d) &&
         output_write_bytes(output, bytes, n, d);
}

static bool make_output(const Module *m, const char *path, const OnnxOptions *import, Arena *a,
                        Diag *d) {
  if (!strcmp(emit_what, "nn")) return output_write(output, module_text(m, a), d);
  const char *updated_by = optimizer_of(m);
  OptimizerSpec spec;
  if (pipeline && !lr_text && updated_by) {
    if (!optimizer_parse(updated_by, &spec, a, d)) return false;
    lr = spec.lr;
    if (!check_least_lr(d)) return false;
  }
  BackendOptions o = backend;
  o.output = output;
  o.split_ranks = split_ranks;
  o.jobs = (int)jobs;
  o.verbose = verbose;
  o.version = NNAOT_VERSION;
  o.plan = plan_text();
  o.describe = describe_text(a, path, m, updated_by);
  o.lr = lr;
  o.lr_schedule = lr_schedule;
  if (!add_skeleton(m, path, import, a, &o, d)) return false;
  return !strcmp(emit_what, "c") ? emit(m, output, &o, d) : backend_build(m, &o, d);
}

// A pipeline that was given has its own mesh.
static bool check_ranks(const Module *m, Diag *d) {
  int found;
  module_devices(m, m->arena, &found);
  if (!pipeline || !option_given("ranks") || ranks == found) return true;
  diag_error(d, NULL, "-g asks for %lld ranks, but the mesh that --passes leaves has %d",
             (long long)ranks, found);
  diag_hint(d, "say it in the pipeline: shard(mesh=%lld)", (long long)ranks);
  return false;
}

// What --cluster says of memory holds for every plan.
static bool check_memory(const Module *m, const Cluster *c, Arena *a, Diag *d) {
  if (!cluster || m->phase < PHASE_planned) return true;
  Needs n = needs_most(m, c);
  if (needs_fit(&n, c)) return true;
  diag_error(d, NULL,
             "the plan does not fit: rank %d needs %lld bytes, and a device of '%s' has %.0f",
             n.rank, (long long)n.peak_bytes, c->name, cluster_device(c, n.rank).memory);
  diag_note(d, NULL, "%s", needs_text(a, &n));
  if (ranks == 1)
    diag_hint(d, "give it more ranks, -g");
  else
    diag_hint(d, "--plan auto takes one that fits, if there is any; so may more --micro-batches");
  return false;
}

static bool check_annotations(const char *path, Arena *a, Diag *d) {
  int64_t n = 1;
  const Loc *loc = loc_node(a, path, NULL);
  for (int i = 0; i < annotations->n_axes; i++)
    if (__builtin_mul_overflow(n, annotations->axis[i].size, &n)) n = INT64_MAX;
  if (annotations->n_axes > MAX_PLAN)
    return diag_error(d, loc, "is annotated for %d axes of ranks; there can be %d",
                      annotations->n_axes, MAX_PLAN);
  return n == ranks || diag_error(d, loc, "is annotated for %lld ranks, not for %lld", (long long)n,
                                  (long long)ranks);
}

// What the model says of devices, if that is to be followed.
static bool take_annotations(Module *m, const char *path, Arena *a, bool annotated, Diag *d) {
  if (is_auto() || follows_annotations())
    annotations = annotations_clone(a, m->annotations);
  else
    m->annotations = NULL;
  if (verbose && annotated && !annotations)
    fprintf(stderr,
            "the multi-device annotations of the model are not followed; --plan onnx does\n");
  if (annotations && !check_annotations(path, a, d)) return false;
  if (!follows_annotations()) return true;
  if (annotations) {
    share_as_annotated(plan);
    return true;
  }
  diag_error(d, loc_node(a, path, NULL), "no node of it has multi-device annotations");
  diag_hint(d, "nnaot --emit onnx writes them; another --plan needs none");
  return false;
}

// --emit plan -o FILE.lua
static bool saves_program(void) {
  return output && !strcmp(emit_what, "plan") && str_ends(output, ".lua");
}

static bool save_program(Record *record, const char *model, Diag *d) {
  const char *slash = strrchr(model, '/');
  const char *text = record_text(record, slash ? slash + 1 : model, pipeline ? 1 : micro_batches);
  if (!text) return diag_error(d, NULL, "there is no plan to write: no pass 'shard' was run");
  return output_write(output, text, d);
}

static bool compile(const char *path, Arena *a, Diag *d) {
  OnnxOptions import = {.batch = batch * accumulate,
                        .batch_dim = batch_dim,
                        .dims = dims.at,
                        .n_dims = dims.n,
                        .external_data_dir = external_data_dir,
                        .train_mode = train_mode,
                        .unread = !strcmp(emit_what, "plan") || !strcmp(emit_what, "onnx")};
  Target target = backend.target.target;
  Summary s = {.arena = a, .ranks = (int)ranks, .target = target, .chosen = -1};
  s.cluster = cluster_read(a, cluster ? cluster : target_info[target].cluster, "--cluster", d);
  if (!s.cluster) return false;
  run.timed = summary_timed;
  run.timed_to = &s;
  run.searched = summary_searched;
  run.searched_to = &s;
  bool annotated = false;
  if (is_auto() || follows_annotations()) import.devices = ranks;
  import.annotated = &annotated;
  Module *m = read_model(path, &import, d);
  bool ok = m != NULL && take_annotations(m, path, a, annotated, d);
  bool is_summed = summary || !strcmp(emit_what, "plan"), is_program = saves_program();
  bool is_onnx = !strcmp(emit_what, "onnx");
  Record record = {.arena = a};
  if (ok && is_summed) summary_before(&s, m);
  if (ok) ok = choose(m, &s, a, d);
  run.record = is_program ? &record : NULL;
  Module *model = ok && is_onnx ? module_clone(m) : NULL;
  ok = ok && pipeline_run(m, pipeline ? pipeline : train_pipeline(a, true), &run, d) &&
       check_ranks(m, d) && check_memory(m, s.cluster, a, d);
  if (ok && verbose) say_weights(m);
  if (ok && explain) ok = say_explained(m, &s, d);
  if (ok && is_onnx) ok = emit_onnx(model, path, a, d);
  if (ok && strcmp(emit_what, "plan") != 0 && !is_onnx) ok = make_output(m, path, &import, a, d);
  if (ok && is_program)
    ok = save_program(&record, path, d);
  else if (ok && !strcmp(emit_what, "plan"))
    ok = output_write(output ? output : "-", summary_text(&s, m), d);
  if (ok && summary) ok = output_write(summary, summary_text(&s, m), d);
  if (ok && manifest)
    ok = output_write(manifest, manifest_text(a, m, str_ends(manifest, ".csv")), d);
  if (!ok && made_folder) rmdir(output);
  if (model) module_free(model);
  module_free(m);
  return ok;
}

int main(int argc, char **argv) {
  static const char *const kinds[] = {"exe", "nn", "c", "plan", "onnx", NULL};
  Strings words;
  int status = options_parse(&program, argc, argv, &words);
  if (status >= 0) return status;
  if (words.n != 1)
    return usage_error(&program, words.n ? "more than one model" : "no model is given");
  if (!is_one_of(emit_what, kinds))
    return usage_error(&program, "--emit is exe, nn, c, plan or onnx, not '%s'", emit_what);
  if (!output && needs_output()) return usage_error(&program, "-o is missing");

  Diag *d = diag_new(stderr);
  Arena *a = arena_new();
  const char *model = words.at[0];
  OptimizerSpec spec;
  if (!check_target(d) || !check_supported(d) || !check_effect(model, d) || !check_sizes(d) ||
      !check_dims(d) || !check_init(d) || !check_schedule(a, d) || !check_lr(d) ||
      (pipeline && !pipeline_check(pipeline, d)) || !check_plan(a, d) || !check_cluster(a, d) ||
      !optimizer_parse(optimizer, &spec, a, d)) {
    status = EXIT_USAGE;
  } else {
    if (!lr_text) lr = spec.lr;
    bool late = pipeline && !lr_text; // the ops will say
    status = !late && !check_least_lr(d)                ? EXIT_USAGE
             : !check_programs(a, d) || !check_batch(d) ? EXIT_FAILURE
                                                        : check_machine(d);
    if (status == EXIT_SUCCESS && !(check_outputs(model, a, d) && compile(model, a, d)))
      status = EXIT_FAILURE;
  }
  arena_free(a);
  diag_free(d);
  return status;
}
