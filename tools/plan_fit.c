// nnaot-plan fit: whether a model fits on clusters, how fast it trains there, and at which price.
//
//     nnaot-plan fit gpt.onnx --batch 64 --loss 'next_token(logits,ids)' --cluster h100:1x8,h200:1x4
//
// Each cluster is one choice of a plan, as `nnaot -g DEVICES --cluster CLUSTER --emit plan` makes
// it, without the step itself: candidates are only priced.  The options of the step are nnaot's.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "fit.h"
#include "interrupt.h"
#include "ir/analysis/batch_dim.h"
#include "output.h"
#include "paths/path_store.h"
#include "planner/auto/evaluate.h"
#include "questions.h"

static struct {
  const char *clusters;
  bool json;
} asked;

static const Option options[] = {
    GROUP("Clusters"),
    NEEDED_STRING("cluster", 0, &asked.clusters, "A,B,…",
                  "the clusters to compare, each NAME:NODESxPER_NODE or FILE.lua, with a rank on "
                  "every device"),
    STRING("target", 0, &settings.target_text, "cpu|cuda",
           "the devices of files that do not say whether they are gpus"),
#include "option_rows.h"

    GROUP("Plan"),
    STRING("plan", 0, &settings.plan, "NAME[=N],…|FILE.lua",
           "a plan for all clusters, instead of the best one of each"),
    NUMBER("search-seconds", 0, &settings.search_seconds, "S",
           "seconds of the choice of each cluster's plan, by the clock, with the best plan so far; "
           "by default a limit in work"),
    INTEGER("expert-capacity", 0, &settings.expert_capacity, "N",
            "slots of a rank of experts, in per cent of the mean; 0: for the worst routing"),
#include "step.def"

    GROUP("Output"),
    FLAG("json", 0, &asked.json, "print one object instead of a table"),
    FLAG("verbose", 'v', &settings.verbose,
         "print the use of memory by every plan, and how each term of its step was priced"),
};

// Options of nnaot that --cluster stands for.
static const char *const of_nnaot[] = {"ranks", "g", "per-node", NULL};

// -- Rows and tokens of a step -------------------------------------------------------------------

// Returns the parameter that the value is a view or a conversion of; NULL: of none.
static const Value *param_of(const Value *v) {
  while (v->def && v->def->n_in == 1)
    v = v->def->in[0].value;
  return v->def ? NULL : v;
}

// Counts the rows of a step, and its tokens: the elements of the longest input that is looked up in
// a weight.  An input of one number per row has categories, not tokens.
static void count_rows(const Module *m, FitRow *row) {
  const Graph *g = m->graphs;
  row->rows = (double)graph_batch_size(g);
  for_each_op(op, g) {
    if (op->kind != OP_gather) continue;
    const Value *table = param_of(op->in[0].value), *v = param_of(op->in[1].value);
    if (!table || table->role != ROLE_weight || !v || v->role != ROLE_input) continue;
    double n = (double)type_count(v->type);
    if (n > row->rows && n > row->tokens) row->tokens = n;
  }
}

// -- A cluster -----------------------------------------------------------------------------------

// Makes the command line one for this cluster, with a rank on each of its devices.
static void settings_on(Settings *s, const char *cluster, const Cluster *c) {
  s->cluster = cluster;
  s->ranks = cluster_devices(c);
}

// Tries the quick plans on a cluster.  Returns "h100:2x8 with zero1 in 2 micro-batches", or NULL.
static const char *fits_on(const Settings *s, const Compiled *c, const char *name, Arena *a) {
  Settings other = *s;
  Compiled there = *c;
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  Candidate plan;
  other.plan = "auto";
  there.summary.cluster = cluster_read(a, name, "--cluster", d);
  settings_on(&other, name, there.summary.cluster);
  bool fits =
      check_settings(&other, a, d) == EXIT_SUCCESS && driver_quick(&other, &there, a, &plan);
  diag_free(d);
  return fits ? str_format(a, "%s with --plan %s --micro-batches %lld", name, plan.plan,
                           (long long)plan.micro_batches)
              : NULL;
}

// Looks for something that fits near a cluster on which nothing does: another plan than the
// requested one, and more nodes of the same kind.
static void find_cures(const Settings *s, const Compiled *c, FitRow *row, Arena *a) {
  enum { DOUBLINGS = 6 };
  row->requested = strcmp(s->plan, "auto") != 0;
  row->cut = s->is_cut && !s->cut_by && row->rows > 1;
  if (row->requested) row->other = fits_on(s, c, row->name, a);
  const char *colon = strchr(row->name, ':');
  if (row->other || !colon || cluster_is_file(row->name)) return;
  long nodes = row->cluster->nodes, per_node = row->cluster->per_node;
  double needs = row->best ? (double)row->best->needs.peak_bytes : row->least;
  for (int i = 0; i < DOUBLINGS && !row->wider && !interrupt_seen(); i++) {
    nodes *= 2;
    if (nodes * per_node > CLUSTER_DEVICES) return;
    // So few do not suffice if even equal parts of the nearest miss do not fit.
    if (needs * row->devices > (double)(nodes * per_node) * row->cluster->memory) continue;
    const char *name =
        str_format(a, "%.*s:%ldx%ld", (int)(colon - row->name), row->name, nodes, per_node);
    row->wider = fits_on(s, c, name, a);
    row->nodes_tried = (int)nodes;
  }
}

// Imports the model, and measures its candidates.  Returns false after an error, which is reported.
static bool fit_model(Settings *s, FitRow *row, Arena *a, Diag *d) {
  Compiled c = {
      .found = {.arena = a},
      .paths = path_store_new(a),
      .summary = {.arena = a, .ranks = row->devices, .cluster = row->cluster, .chosen = -1}};
  bool annotated = false;
  const Annotations *annotations = NULL;
  Module *made = NULL;
  if (!driver_import(s, &c, &annotated, d)) return false;
  if (c.m->phase >= PHASE_sharded) {
    diag_error(d, loc_node(a, s->model, NULL), "is planned already, for its own ranks");
    diag_hint(d, "give the model, or a module from before shard");
    module_free(c.m);
    return false;
  }
  count_rows(c.m, row);
  c.summary.target = s->backend.target.target;
  bool ok = take_annotations(s, c.m, annotated, &annotations, a, d) &&
            driver_choose(s, &c, annotations, &made, a, d);
  row->best = c.best;
  row->n_tried = c.tried.n;
  if (ok && !row->best) row->why = c.tried.n ? c.tried.at[0].why : "there is no plan for it";
  // Without a plan that could be made, the bytes that one would need at least.
  for (int i = 0; !row->best && i < c.tried.n; i++) {
    const Candidate *tried = &c.tried.at[i];
    if (tried->least > 0 && (row->least <= 0 || tried->least < row->least)) {
      row->least = tried->least;
      row->why = tried->why;
    }
  }
  if (row->best) row->memory = cluster_device(row->cluster, row->best->needs.rank).memory;
  if (ok && !fit_fits(row) && (row->best || row->least > 0)) find_cures(s, &c, row, a);
  // The terms of its price are those of the compiled step.
  Module *step = ok && s->verbose && fit_fits(row)
                     ? driver_compile(s, &c, annotations, row->best, a, d)
                     : NULL;
  if (step) {
    summary_prices(step, row->cluster, c.summary.target, a, &row->priced_rank, &row->prices);
    module_free(step);
  }
  module_free(c.m);
  return ok;
}

// The messages of a row.
typedef struct Messages {
  char *text;
  size_t n;
  int status; // of the program, after an error
} Messages;

static void fit_row(FitRow *row, Messages *out, Arena *a) {
  FILE *f = open_memstream(&out->text, &out->n);
  if (!f) BUG("no memory for the messages");
  Diag *d = diag_new(f);
  Settings s = settings;
  settings_on(&s, row->name, row->cluster);
  out->status = check_settings(&s, a, d);
  if (out->status == EXIT_SUCCESS && !fit_model(&s, row, a, d)) out->status = EXIT_FAILURE;
  diag_free(d);
  fclose(f);
  if (out->status != EXIT_SUCCESS) row->why = first_error(a, out->text);
}

// -- The command ---------------------------------------------------------------------------------

// Reads the list of clusters; all errors are reported.  Returns an exit status.
static int read_clusters(const char *list, FitRows *out, Arena *a, Diag *d) {
  int status = EXIT_SUCCESS;
  bool is_missing = false; // a name, which is reported once
  for (const char *at = list;; at++) {
    size_t n = strcspn(at, ",");
    const char *name = str_copy_n(a, at, n);
    const Cluster *c = *name ? cluster_read(a, name, "--cluster", d) : NULL;
    bool is_file = cluster_is_file(name);
    if (!*name && !is_missing) {
      is_missing = true;
      diag_error(d, NULL, "--cluster: a name is missing between commas in '%s'", list);
    } else if (c && !is_file && !strchr(name, ':')) {
      diag_error(d, NULL, "--cluster: '%s' does not say how many devices there are", name);
      diag_hint(d, "%s:NODESxPER_NODE, such as %s:1x%d", name, name, c->per_node);
      c = NULL;
    }
    for (int i = 0; c && i < out->n; i++) {
      if (strcmp(out->at[i].name, name) != 0) continue;
      diag_error(d, NULL, "--cluster: '%s' is in the list twice", name);
      c = NULL;
      is_file = false;
    }
    if (!c && status != EXIT_USAGE) status = is_file ? EXIT_FAILURE : EXIT_USAGE;
    if (c) vec_push(a, out, ((FitRow){.name = name, .cluster = c, .devices = cluster_devices(c)}));
    at += n;
    if (!*at) return status;
  }
}

// Fits one cluster after the other.  Ctrl-C ends it, and leaves out the cluster at hand.  Warnings
// on the model are the same for all; if no cluster can be answered, the cause is the model or an
// option.  Returns an exit status.
static int fit_rows(FitRows *rows, Arena *a) {
  bool answered = false, shows = isatty(STDERR_FILENO);
  Messages *messages = arena_array(a, Messages, rows->n);
  int done = 0, started = 0;
  interrupt_watch("the clusters so far are printed", "no cluster was done yet");
  while (started < rows->n && done == started) {
    FitRow *row = &rows->at[started];
    Messages *own = &messages[started++];
    if (shows) fprintf(stderr, "\r\x1b[Kcluster %d of %d: %s", started, rows->n, row->name);
    fit_row(row, own, a);
    if (shows) fprintf(stderr, "\r\x1b[K");
    if (interrupt_seen()) continue;
    if (own->status == EXIT_SUCCESS && !answered) fputs(own->text, stderr);
    answered |= own->status == EXIT_SUCCESS;
    done = started;
    interrupt_allow();
  }
  bool interrupted = interrupt_seen();
  interrupt_release();
  if (!answered && !interrupted) fputs(messages[0].text, stderr);
  int status = answered ? EXIT_SUCCESS : messages[0].status;
  for (int i = 0; i < started; i++)
    free(messages[i].text);
  rows->n = answered ? done : 0;
  return interrupted ? EXIT_INTERRUPTED : status;
}

static int fit(const Program *program, const char *model, Arena *a, Diag *d) {
  if (!*model) return usage_error(program, "no model is given");
  if (!strcmp(model, "-"))
    return usage_error(program, "the model is read for each cluster: give a file, not '-'");
  settings.model = model;
  settings.emit = EMIT_plan;
  settings.output = "-";
  settings.only_priced = true;
  FitRows rows = {0};
  int status = read_clusters(asked.clusters, &rows, a, d);
  if (status != EXIT_SUCCESS) return status;
  status = fit_rows(&rows, a);
  if (!rows.n) return status;
  bool any = fit_smallest(&rows) >= 0;
  fputs(asked.json ? fit_json(a, &rows, model) : fit_text(a, &rows, settings.verbose), stdout);
  bool written = output_flush(d);
  if (status != EXIT_SUCCESS) return status;
  return written && any ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int answer(const Program *program, const char *file) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  int status = fit(program, file, a, d);
  diag_free(d);
  arena_free(a);
  return status;
}

const Question question_fit = {
    {"nnaot-plan fit",
     "nnaot-plan fit MODEL --cluster A,B,… [--batch B] [--loss SPEC] [--plan P] [--json]",
     "Prints the best plan of the model for each cluster: the time of a step, samples per second, "
     "the peak of\nmemory, and the price if the cluster's file has one. No weights are read. Exit "
     "status 1: it fits on none.",
     options, sizeof options / sizeof *options, of_nnaot,
     "there is a rank on every device of --cluster: NAME:NODESxPER_NODE says how many"},
    "whether a model fits on clusters, how fast it trains there, and at which price",
    true,
    answer,
};
