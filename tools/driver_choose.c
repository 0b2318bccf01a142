// The plan of the step: the requested one, the one that the model is annotated with, or the best of
// the known ones (choose.h).
//
//     --plan dp=2,tp=4    {"dp=2,tp=4", dp over an axis of 2 and tp over one of 4, 1 micro-batch}
//
// A requested plan with a cluster still leaves one choice: the number of micro-batches, and the
// limits of a search, with which the step fits into memory.

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cluster/cluster.h"
#include "cost/cost.h"
#include "driver.h"
#include "interrupt.h"
#include "ir/analysis/batch_dim.h"
#include "planner/plan/factoring.h"

bool is_auto(const Settings *s) {
  return !s->pipeline && s->ranks > 1 && !strcmp(s->plan, "auto");
}

// Whether plans other than the requested one may be taken.  A single rank takes one that needs less
// memory, if memory is limited.
static bool is_open(const Settings *s) {
  return !s->pipeline && !strcmp(s->plan, "auto");
}

// The plans that follow the annotations of a model.
static const char *const annotated_plans[] = {"onnx", "onnx_search"};
enum { N_ANNOTATED_PLANS = sizeof annotated_plans / sizeof *annotated_plans };

bool is_annotated_plan(const char *name) {
  for (int i = 0; i < N_ANNOTATED_PLANS; i++)
    if (!strcmp(name, annotated_plans[i])) return true;
  return false;
}

bool follows_annotations(const Settings *s) {
  return !s->pipeline && is_annotated_plan(s->plan);
}

// -- Requested plans ---------------------------------------------------------------------------

// A pipeline given by --passes names its own plan, and auto is chosen later.
bool ask_plan(Settings *s, Arena *a, Diag *d) {
  Plan *plan = &s->asked.plan;
  bool is_named = !s->pipeline && strcmp(s->plan, "auto") != 0;
  s->asked = (Choice){.name = is_named ? s->plan : "dp", .micro_batches = s->micro_batches};
  s->asked.factoring = FACTORING_OPEN;
  if (s->pipeline || is_auto(s) || follows_annotations(s)) return true;
  if (!plan_parse(a, s->asked.name, s->ranks, plan, d)) return false;
  for (int i = 0; i < plan->n; i++)
    if (!plan_known(plan->at[i].program, a, d)) return false;
  for (int i = 0; i < plan->n; i++)
    if (is_annotated_plan(plan->at[i].program))
      return diag_error(d, NULL,
                        "the plan '%s' stands alone and takes no size: the model says which axes "
                        "there are",
                        plan->at[i].program);
  return factoring_number(a, plan, &s->asked.factoring, d);
}

// Whether program `i` has no ranks and therefore no effect on the axes inside of it, which it has
// constraints for: an error.
static bool has_no_effect(const Plan *plan, int i, const PlanProgram *p, Diag *d) {
  if (plan->at[i].size > 1 || !program_has_inside(p)) return false;
  for (int k = i + 1; k < plan->n; k++) {
    if (plan->at[k].size == 1) continue;
    diag_error(d, NULL, "'%s' has one rank, and so no effect on '%s' inside of it",
               plan->at[i].program, plan->at[k].program);
    diag_hint(d, "give it more ranks, or leave it out");
    return true;
  }
  return false;
}

bool ask_programs(Settings *s, Arena *a, Diag *d) {
  const Plan *plan = &s->asked.plan;
  bool given = s->is_cut = option_given("micro-batches");
  for (int i = 0; i < plan->n; i++) {
    PlanProgram *p = program_open(a, plan->at[i].program, d);
    if (!p) return false;
    const Loc *loc;
    if (has_no_effect(plan, i, p, d)) {
      program_close(p);
      return false;
    }
    int64_t wanted = program_micro_batches(p, &loc);
    int64_t promised = wanted < 0 ? -1 : program_peak_bytes(p, &s->promised_by);
    program_close(p);
    if (promised < 0) return false;
    // Beside other programs it has other parts.
    s->promised = plan->n == 1 ? promised : 0;
    // --micro-batches overrides the programs, which otherwise must agree.
    if (!wanted || given) continue;
    if (s->cut_by && s->asked.micro_batches != wanted) {
      diag_error(d, loc, "this is for %lld micro-batch%s, and another program of the plan for %lld",
                 (long long)wanted, wanted == 1 ? "" : "es", (long long)s->asked.micro_batches);
      diag_note(d, s->cut_by, "here");
      diag_hint(d, "--micro-batches says how many there are");
      return false;
    }
    s->asked.micro_batches = wanted;
    s->is_cut = true;
    s->cut_by = loc;
  }
  return true;
}

// -- Annotated plans ---------------------------------------------------------------------------

bool take_annotations(const Settings *s, Module *m, bool annotated, const Annotations **out,
                      Arena *a, Diag *d) {
  *out = NULL;
  if (is_auto(s) || follows_annotations(s))
    *out = annotations_clone(a, m->annotations);
  else
    m->annotations = NULL;
  if (s->verbose && annotated && !*out)
    fprintf(stderr,
            "the multi-device annotations of the model are not followed; --plan onnx does\n");
  if (*out) {
    // The product of the annotated axes is the number of ranks.
    const Annotations *annotations = *out;
    int64_t n = 1;
    const Loc *loc = loc_node(a, s->model, NULL);
    for (int i = 0; i < annotations->n_axes; i++)
      if (__builtin_mul_overflow(n, annotations->axis[i].size, &n)) n = INT64_MAX;
    if (annotations->n_axes > MAX_PLAN)
      return diag_error(d, loc, "is annotated for %d axes of ranks; there can be %d",
                        annotations->n_axes, MAX_PLAN);
    return n == s->ranks || diag_error(d, loc, "is annotated for %lld ranks, not for %lld",
                                       (long long)n, (long long)s->ranks);
  }
  if (!follows_annotations(s)) return true;
  diag_error(d, loc_node(a, s->model, NULL), "no node of it has multi-device annotations");
  diag_hint(d, "nnaot --emit onnx writes them; another --plan needs none");
  return false;
}

// The annotated axes of the model, each with the program.
static Plan annotated_axes(const char *program, const Annotations *annotations) {
  Plan plan = {.n = annotations->n_axes};
  for (int i = 0; i < plan.n; i++)
    plan.at[i] = (PlanAxes){
        .program = program, .axis = annotations->axis[i].name, .size = annotations->axis[i].size};
  return plan;
}

// -- Chosen plans ------------------------------------------------------------------------------

static Choice choice_of(Arena *a, const Candidate *c, const Annotations *annotations) {
  Choice out = {.name = c->plan, .micro_batches = c->micro_batches};
  out.factoring = FACTORING_OPEN;
  out.memory = c->memory;
  out.work = c->work;
  out.wanted = c->wanted;
  out.known = c->known;
  if (is_annotated_plan(c->plan)) {
    out.plan = annotated_axes(c->plan, annotations);
    return out;
  }
  Diag *d = diag_new(stderr);
  if (!plan_parse(a, c->plan, c->ranks, &out.plan, d) ||
      !factoring_number(a, &out.plan, &out.factoring, d))
    BUG("the plan '%s' is none", c->plan);
  diag_free(d);
  return out;
}

// Data shared by the candidates of one model: the context of choose_options.
typedef struct Common {
  const Settings *s;
  Compiled *compiled;
  const Annotations *annotations;
  Arena *a;
  double start; // of the choice, in seconds
  int n;        // candidates so far
  const char *best;
  double least; // its seconds; 0: none fits
  double shown; // when progress was, in seconds
  bool late;    // the message that the time is over without a plan was shown
} Common;

static const char *pipeline_of(void *context, const Candidate *c) {
  Common *common = context;
  Choice choice = choice_of(common->a, c, common->annotations);
  Settings s = *common->s;
  if (is_open(&s)) s.explain = NULL; // slow, and only of interest for the chosen plan
  return train_pipeline(common->a, &s, &choice);
}

// The pipeline of a plan inside of stages, for tables.
static const char *table_pipeline_of(void *context, Arena *a, const char *plan, int64_t ranks,
                                     int64_t micro_batches, Diag *d) {
  const Common *common = context;
  Choice c = {.name = plan, .micro_batches = micro_batches, .factoring = FACTORING_OPEN};
  Settings s = *common->s;
  s.explain = NULL;
  if (!plan_parse(a, plan, ranks, &c.plan, d)) return NULL;
  return train_pipeline_from(a, &s, &c, "loss");
}

// Each run has lists of its own, as the findings of an earlier one may be kept.
static const PipelineOptions *run_of(void *context) {
  Common *common = context;
  common->compiled->summary.seconds = (PassTimes){0};
  return run_options(common->s, common->compiled, common->a);
}

// Findings of a run's observers.
typedef struct Findings {
  PassTimes seconds;
  SearchStats searched;
  Record record;
} Findings;

static void *keep_findings(void *context) {
  const Common *common = context;
  const Compiled *c = common->compiled;
  Findings now = {c->summary.seconds, c->summary.searched, c->record};
  return arena_copy(common->a, &now, sizeof now);
}

static void take_findings(void *context, void *findings) {
  Compiled *c = ((Common *)context)->compiled;
  const Findings *found = findings;
  c->summary.seconds = found->seconds;
  c->summary.searched = found->searched;
  c->record = found->record;
}

// -- Ending early, and progress ----------------------------------------------------------------

static bool wants_to_stop(void *context) {
  const Common *common = context;
  double limit = common->s->search_seconds;
  return interrupt_seen() || (limit > 0 && clock_seconds() - common->start > limit);
}

// Ctrl-C ends the choice without a plan, too.
static bool wants_to_abandon(void *context) {
  (void)context;
  return interrupt_seen();
}

static int terminal_width(void) {
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

// The text of a long plan is cut, so that the line has one row of the terminal.
static void show_line(const Common *common, double seconds, double bound) {
  char tried[64], best[32] = "", least[48] = "";
  snprintf(tried, sizeof tried, "%d plan%s tried in %.0f s", common->n, common->n == 1 ? "" : "s",
           seconds);
  if (common->best) snprintf(best, sizeof best, " %.4g ms", 1e3 * common->least);
  if (bound > 0) snprintf(least, sizeof least, ", none below %.4g ms", 1e3 * bound);
  fprintf(stderr, "\r\033[K%s", tried);
  if (common->best) {
    int room = terminal_width() - (int)(strlen(tried) + strlen(best) + strlen(least)) - 3;
    bool cut = (int)strlen(common->best) > room;
    if (cut) room--;
    fprintf(stderr, ": %.*s%s", room > 0 ? room : 0, common->best, cut ? "…" : "");
  }
  fprintf(stderr, "%s%s", best, least);
  fflush(stderr);
}

static void clear_progress(void) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

// Says once that the time is over and the choice goes on, as nothing fits.
static void say_late(Common *common) {
  if (common->late || common->least > 0 || interrupt_seen() || !wants_to_stop(common)) return;
  common->late = true;
  clear_progress();
  fprintf(stderr,
          "the time of --search-seconds %g is over, and no plan fits yet: the first one that fits "
          "will be the result\n",
          common->s->search_seconds);
}

// On a terminal, shows the best plan so far in one line, which the next one replaces: after each
// candidate, and between these, also during a compilation, as time passes.
static void show_progress(void *context, const Candidate *c, double bound) {
  Common *common = context;
  double now = clock_seconds();
  if (!c) say_late(common);
  if (!c && now - common->shown < 0.5) return;
  common->shown = now;
  common->n += c != NULL;
  if (c && c->fits && (common->least <= 0 || c->seconds < common->least)) {
    common->best = c->plan;
    common->least = c->seconds;
    interrupt_allow();
  }
  if (isatty(STDERR_FILENO)) show_line(common, now - common->start, bound);
}

// "better", or "more than 9 % better".
static const char *say_better(Arena *a, double percent, int digits) {
  return percent > 0 ? str_format(a, "more than %.*f %% better", digits, percent) : "better";
}

// Says how much better another plan could be. Percentages of bounds are rounded up.
static void say_certificate(Arena *a, const Certificate *c, const char *plan,
                            int64_t micro_batches) {
  if (!c->points || c->best <= 0 || c->bound <= 0) return;
  double least = c->priced > 0 && c->priced < c->best ? c->priced : c->best;
  fprintf(stderr, "%s in %" PRId64 " micro-batch%s: %.4g ms; of %d points of the space", plan,
          micro_batches, micro_batches == 1 ? "" : "es", 1e3 * c->best, c->points);
  const struct {
    int n;
    const char *savers;
  } added[] = {{c->recomputed, "with recomputation"},
               {c->offloaded, "with offloaded states"},
               {c->swapped, "with swapped activations"}};
  enum { N_ADDED = sizeof added / sizeof *added };
  int last = N_ADDED - 1;
  while (last >= 0 && !added[last].n)
    last--;
  for (int i = 0; i <= last; i++)
    if (added[i].n)
      fprintf(stderr, "%s %d %s", i < last ? "," : " and", added[i].n, added[i].savers);
  if (last >= 0) fprintf(stderr, ",");
  if (c->unpriced)
    fprintf(stderr, " %d that may be better %s no price,", c->unpriced,
            c->unpriced == 1 ? "has" : "have");
  fprintf(stderr, " none%s is priced %s, ", c->unpriced ? " of the others" : "",
          say_better(a, round(1e3 * (1 - least / c->best)) / 10, 1));
  double gap = ceil(100 * (1 - c->bound / c->best));
  double tabled = ceil(100 * (1 - c->tabled / c->best));
  if (c->tables && tabled < gap)
    fprintf(stderr, "none can be %s by the tables of its layers, ", say_better(a, tabled, 0));
  fprintf(stderr, "and none can be %s%s\n", say_better(a, gap, 0),
          c->stopped ? " (the search ended early)" : "");
}

// Whether the memory of the given cluster is a limit.
static bool is_limited(const Settings *s, const Cluster *c) {
  return s->cluster && c->memory > 0;
}

// The rows of a batch that the model fixes: its inputs have those of all batches of an update.
static int64_t model_batch(const Settings *s, const Module *m) {
  int64_t rows = graph_batch_size(m->graphs);
  return rows > 1 ? rows / s->accumulate : 0;
}

// The candidates: the requested plan with more and more micro-batches, the plans that follow
// annotations, or all known plans.
static ChooseOptions choose_options(Common *common) {
  const Settings *s = common->s;
  // If passes print or dump something, the user sees only that of the chosen plan.
  const Cluster *cluster = common->compiled->summary.cluster;
  const PipelineOptions *run = &s->run;
  bool watched = run->print_before || run->print_after || run->print_after_all ||
                 run->print_before_all || run->print_changed || run->dump_dir || run->stop_after ||
                 run->bisect_limit >= 0;
  // Candidates explain nothing, as it is slow, and only of interest for the chosen plan.
  bool explained = is_open(s) && s->explain;
  ChooseOptions o = {.ranks = s->ranks,
                     .micro_batches = s->is_cut ? s->asked.micro_batches : 0,
                     .batch = s->batch ? s->batch : model_batch(s, common->compiled->m),
                     .accumulate = s->accumulate,
                     .expert_capacity = (int)s->expert_capacity,
                     .cluster = cluster,
                     .limited = is_limited(s, cluster),
                     .target = s->backend.target.target,
                     .paths = common->compiled->paths,
                     .pipeline = pipeline_of,
                     .tables = table_pipeline_of,
                     .stop = wants_to_stop,
                     .abandon = wants_to_abandon,
                     .progress = is_auto(s) && !s->only_priced ? show_progress : NULL,
                     .run = watched || explained || s->report || s->only_priced ? NULL : run_of,
                     .keep = keep_findings,
                     .take = take_findings,
                     .context = common};
  if (!is_open(s)) {
    o.plans = &s->asked.name;
    o.n_plans = 1;
  } else if (common->annotations) {
    o.plans = annotated_plans;
    o.n_plans = N_ANNOTATED_PLANS;
  }
  return o;
}

Module *driver_compile(const Settings *s, Compiled *c, const Annotations *annotations,
                       const Candidate *of, Arena *a, Diag *d) {
  Common common = {.s = s, .compiled = c, .annotations = annotations, .a = a};
  PipelineOptions run = {.bisect_limit = -1, .unproved = true, .lives = of->known};
  Module *m = module_clone(c->m);
  if (pipeline_run(m, pipeline_of(&common, of), &run, d)) return m;
  module_free(m);
  return NULL;
}

// Compiles a candidate that cannot be made once more, for its messages.  Returns false.
static bool report_failure(Common *common, const Candidate *c, Diag *d) {
  Module *m = driver_compile(common->s, common->compiled, common->annotations, c, common->a, d);
  if (m && !diag_errors(d)) diag_error(d, NULL, "%s: %s", c->plan, c->why);
  if (m) module_free(m);
  return false;
}

bool driver_quick(const Settings *s, Compiled *c, Arena *a, Candidate *out) {
  Common common = {.s = s, .compiled = c, .a = a, .start = clock_seconds()};
  ChooseOptions o = choose_options(&common);
  return choose_quick(c->m, &o, a, out);
}

// Plans without a price cannot be compared.
static void warn_unpriced(const Settings *s, const Cluster *c, Diag *d) {
  const char *name = s->cluster ? s->cluster : c->name;
  int n = cluster_devices(c);
  if (s->ranks > n)
    diag_warning(d, NULL, "plans cannot be priced: '%s' has %d device%s for %lld ranks", name, n,
                 n == 1 ? "" : "s", (long long)s->ranks);
  else if (!cost_known(c))
    diag_warning(d, NULL,
                 "plans cannot be priced: '%s' does not say how fast its devices are: that is "
                 "memory_speed and f32",
                 name);
}

// Reports that Ctrl-C ended the choice before any plan.  Returns false.
static bool report_interrupted(Compiled *c, const Candidates *all, Diag *d) {
  int n = all->n + c->summary.certificate.estimated;
  c->interrupted = true;
  return diag_error(d, NULL, "no plan was chosen: of the %d considered so far, none fits", n);
}

// Records an open choice, and says how good it is. *chosen: the candidate to compile;
// -1: the requested plan. False, after errors: no plan fits.
static bool note_open(Common *common, const ChooseOptions *o, const Candidates *all, int *chosen,
                      Diag *d) {
  const Settings *s = common->s;
  Compiled *c = common->compiled;
  Summary *seen = &c->summary;
  seen->candidates = *all;
  seen->chosen = *chosen;
  seen->choosing = clock_seconds() - common->start;
  if (s->run.time_passes) fprintf(stderr, "%10.4f seconds  choose\n", seen->choosing);
  if (*chosen >= 0)
    say_certificate(common->a, &seen->certificate, all->at[*chosen].plan,
                    all->at[*chosen].micro_batches);
  // The lack of a plan that fits is an error here if some candidate could be compiled.  If none
  // could, for annotations, a single rank or a mistake in the model, compilation reports the
  // reason.
  bool choosable = !common->annotations && s->ranks > 1 && !choose_failed_alike(all);
  for (int i = 0; i < all->n; i++)
    choosable |= all->at[i].made;
  if (*chosen < 0 && choosable)
    return choose_failed(c->m, o, common->a, all, &seen->certificate, d);
  // Any of several plans with the same error.
  if (*chosen < 0 && !common->annotations && choose_failed_alike(all)) *chosen = 0;
  return true;
}

bool driver_choose(const Settings *s, Compiled *c, const Annotations *annotations, Module **made,
                   Arena *a, Diag *d) {
  Summary *seen = &c->summary;
  *made = NULL;
  c->choice = s->asked;
  if (follows_annotations(s)) c->choice.plan = annotated_axes(s->plan, annotations);
  bool may_not_fit = is_limited(s, seen->cluster) && !s->pipeline;
  if (!is_auto(s) && !may_not_fit && !s->only_priced) return true;

  Common common = {
      .s = s, .compiled = c, .annotations = annotations, .a = a, .start = clock_seconds()};
  ChooseOptions o = choose_options(&common);
  if (is_auto(s)) warn_unpriced(s, seen->cluster, d);
  Candidates all = {0};
  // Of several clusters (nnaot-plan fit), Ctrl-C ends all choices.
  bool watches = o.progress;
  if (watches) interrupt_watch("the best plan so far is taken", "no plan that fits was found yet");
  int chosen = choose_plan(c->m, &o, a, &all, &seen->certificate, made);
  if (watches) {
    interrupt_release();
    clear_progress();
    o.progress = NULL; // of candidates that are tried for messages
    if (chosen < 0 && interrupt_seen()) return report_interrupted(c, &all, d);
  }
  if (*made && chosen >= 0) seen->step = all.at[chosen].step;
  if (s->only_priced) {
    if (chosen < 0 && choose_failed_alike(&all)) return report_failure(&common, &all.at[0], d);
    c->best = chosen >= 0 ? &all.at[chosen] : choose_nearest(c->m, &o, a, &all);
    c->tried = all;
    return true;
  }
  if (is_open(s) && !note_open(&common, &o, &all, &chosen, d)) return false;
  // A plan requested by the user or the model that does not fit or compile is reported later.
  Candidate as_asked = {.plan = is_auto(s) && annotations ? "onnx" : s->asked.name,
                        .ranks = s->ranks,
                        .micro_batches = s->is_cut ? s->asked.micro_batches : 1};
  c->choice = choice_of(a, chosen < 0 ? &as_asked : &all.at[chosen], annotations);
  return true;
}
