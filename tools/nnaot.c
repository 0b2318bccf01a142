// nnaot: a model in, one training executable out.
//
//     nnaot mlp.onnx -g 2 --batch 32 --loss 'cross_entropy(logits)' --optimizer adamw -o train_rank
//
// The model is imported with the batch of a whole step.  The passes of the pipeline turn it into
// the program of a rank, and the backend writes that as C and compiles it.  This file has the
// options and the order of the steps; driver.h lists the files of the steps.

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"
#include "driver.h"
#include "explain.h"
#include "heap.h"
#include "interrupt.h"
#include "ir/model_values.h"
#include "paths/path_store.h"
#include "planner/plan/plan_texts.h"
#include "problem_file.h"
#include "prove_text.h"
#include "train/loss_spec.h"
#include "train/optimizer_spec.h"

static const Option options[] = {
#include "option_rows.h"

#include "nnaot.def"
};

#undef GROUP
#undef FLAG
static const char *const of_executable[] = {
#define FLAG(field, kind, flag, value, agree, use, help) flag,
#include "rt/flags.def"
    NULL,
};

// Whether a dot ends a sentence: a space follows, and no digit, as in "et al. 2019".
static bool ends_sentence(const char *at) {
  size_t space = *at == '.' ? strspn(at + 1, " \n-") : 0;
  return space > 0 && !isdigit((unsigned char)at[1 + space]);
}

static void help_more(void) {
  Arena *a = arena_new();
  printf("\nLosses, and sums of them such as a+0.3*b; names may stand in double quotes:\n"
         "  OUTPUT\n  %s\n",
         loss_usage(a, "\n  "));
  printf("\nOptimizers, with torch.optim's names and defaults:\n  %s\n",
         optimizer_usage(a, "\n  "));
  printf("\nPlans, besides programs of your own:\n");
  for (int i = 0; i < n_plan_texts; i++)
    if (str_starts(plan_texts[i].text, "-- ")) {
      // The title of a plan: the first sentence of its text, or as much of it as fits.
      enum { WIDTH = 74 };
      StrBuf b = {.arena = a};
      const char *text = plan_texts[i].text;
      for (bool begins = true; *text && !ends_sentence(text) && b.n < 2 * WIDTH; text++) {
        if (begins) text += strspn(text, "- ");
        begins = *text == '\n';
        strbuf_add_n(&b, begins ? " " : text, 1);
      }
      size_t n = b.n;
      while (n > WIDTH || (n < b.n && b.at[n] != ' '))
        n--;
      printf("  %-22s %.*s%s\n", plan_texts[i].name, (int)n, b.at, n < b.n ? " …" : "");
    }
  arena_free(a);
}

static const Program program = {
    "nnaot",
    "nnaot MODEL.onnx [-g RANKS] [--batch B] [--loss SPEC] [--optimizer NAME] -o FILE",
    "Compiles an ONNX model ahead of time into an executable that trains it. A module in text "
    "form\n"
    "(.nn, as nnaot-opt writes it) is compiled by the rest of its pipeline, --passes.",
    options,
    sizeof options / sizeof *options,
    of_executable,
    "it is an option of the executable that nnaot makes",
};

// Proves a module in text form, which may have been edited, against the model's program of --prove.
static bool prove_input(const Settings *s, Compiled *c, Diag *d) {
  if (!s->prove) {
    // Passes prove that they distribute the module that they get.
    c->unproved = c->m->phase >= PHASE_sharded;
    if (c->unproved)
      diag_note(d, NULL,
                "'%s' is distributed already, and nothing proves that it computes its model: "
                "--prove=MODEL does, with the dump of global tensors from right before shard",
                s->model);
    return true;
  }
  c->proved = module_read(s->prove, d);
  if (!c->proved) return false;
  ModelValues *values = arena_one(c->m->arena, ModelValues);
  if (!prove_text(c->proved, s->prove, c->m, s->model, values, d)) return false;
  values->program = module_clone(c->proved);
  c->m->model_values = values;
  return true;
}

// Turns the model into the program of a rank, unless choosing the plan did so already.
static bool make_step(const Settings *s, Compiled *c, Module *made, Arena *a, Diag *d) {
  const char *pipeline = s->pipeline ? s->pipeline : train_pipeline(a, s, &c->choice);
  if (!made) return pipeline_run(c->m, pipeline, run_options(s, c, a), d);
  module_free(c->m);
  c->m = made;
  return true;
}

// Prints which attention becomes one op, and why other attention does not.  Works on a copy, as the
// passes will find it.
static void say_recognised(const Module *m, Diag *d) {
  Module *copy = module_clone(m);
  PipelineOptions run = {.bisect_limit = -1};
  if (m->phase == PHASE_typed) pipeline_run(copy, "simplify,raise(say=true)", &run, d);
  module_free(copy);
}

// Returns an exit status.
static int compile(const Settings *s, Arena *a, Diag *d) {
  Target target = s->backend.target.target;
  bool annotated = false;
  const Annotations *annotations = NULL;
  Compiled c = {.found = {.arena = a},
                .paths = path_store_new(a),
                .summary = {.arena = a, .ranks = (int)s->ranks, .target = target, .chosen = -1}};
  c.summary.argc = s->argc;
  c.summary.argv = s->argv;
  c.summary.version = NNAOT_VERSION;

  // The devices of the ranks: their speed gives predictions, and their memory is a limit.
  const char *cluster = s->network ? s->network : target_info[target].cluster;
  c.summary.cluster = cluster_read(a, cluster, "--cluster", d);
  if (!c.summary.cluster) return EXIT_FAILURE;
  if (!s->pipeline && !check_priced(s, c.summary.cluster, s->ranks, d)) return EXIT_FAILURE;

  // The model as a module, with all micro-batches of a step.
  if (!driver_import(s, &c, &annotated, d)) return EXIT_FAILURE;
  // Passes may drop the name of a value that --explain asks about.
  Settings lasting = *s;
  if (s->explain) lasting.explain = explain_lasting(c.m, s->explain, a);
  s = &lasting;

  // Take the model's own device annotations, if the plan follows them.
  bool ok = prove_input(s, &c, d) && take_annotations(s, c.m, annotated, &annotations, a, d);

  if (ok && s->verbose && !s->pipeline) say_recognised(c.m, d);

  // Count repeated subgraphs while the module is as imported.
  if (ok && (s->summary || s->emit == EMIT_plan)) summary_before(&c.summary, c.m);

  // An unknown name in --explain should not wait for a choice.
  ok = ok && (!s->explain || !is_auto(s) || check_explained(s, c.m, a, d));

  // Choose the plan.  Beyond this point the plan is known.
  Module *made = NULL;
  ok = ok && driver_choose(s, &c, annotations, &made, a, d);
  c.summary.plan = s->pipeline ? NULL : c.choice.name;
  c.summary.micro_batches = s->pipeline ? 1 : c.choice.micro_batches;

  // --emit onnx annotates the model as it is now.
  if (ok && s->emit == EMIT_onnx) c.model = module_clone(c.m);

  if (s->report) c.diffs = open_memstream(&c.diff_text, &c.diff_bytes);
  if (s->report) c.counts = open_memstream(&c.count_text, &c.count_bytes);

  // Beyond this point c.m is a program of ranks.
  ok = ok && make_step(s, &c, made, a, d);

  // Only now are the number of ranks and the memory known.
  ok = ok && check_compiled(s, &c, a, d) && (!s->check_with || check_reference(s, &c, d));

  // Print and write the requested outputs.
  ok = ok && write_all(s, &c, a, d) && (!s->check_with || write_check(s, &c, a, d));

  if (c.diffs) fclose(c.diffs);
  if (c.counts) fclose(c.counts);
  free(c.diff_text);
  free(c.count_text);
  if (c.model) module_free(c.model);
  if (c.proved) module_free(c.proved);
  module_free(c.m);
  return ok ? EXIT_SUCCESS : c.interrupted ? EXIT_INTERRUPTED : EXIT_FAILURE;
}

int main(int argc, char **argv) {
  crash_watch("nnaot");
  heap_keep();
  Settings *s = &settings;
  static Strings words; // static: reachable until the end, for leak checkers
  int status = options_parse(&program, argc, argv, &words);
  if (status == EXIT_SUCCESS && option_given("help")) {
    help_more();
    status = options_printed(&program);
  }
  if (status >= 0) return status;
  if (!words.n) return usage_error(&program, "no model is given");
  if (words.n > 1) return usage_error(&program, "more than one model: '%s'", words.at[1]);
  s->model = words.at[0];
  s->argc = argc;
  s->argv = argv;
  static const char *const emits[] = {[EMIT_exe] = "exe",
                                      [EMIT_nn] = "nn",
                                      [EMIT_c] = "c",
                                      [EMIT_plan] = "plan",
                                      [EMIT_onnx] = "onnx"};
  bool known = false;
  for (size_t i = 0; i < sizeof emits / sizeof *emits; i++)
    if (!strcmp(s->emit_text, emits[i])) {
      s->emit = (Emit)i;
      known = true;
    }
  if (!known)
    return usage_error(&program, "--emit is exe, nn, c, plan or onnx, not '%s'", s->emit_text);
  if (!s->output && s->emit != EMIT_plan) return usage_error(&program, "-o is missing");
  if (!s->output) s->output = "-";

  Diag *d = diag_new(stderr);
  Arena *a = arena_new();
  if (s->report_json) diag_record(d, a);
  status = check_settings(s, a, d);
  if (status == EXIT_SUCCESS) status = compile(s, a, d);
  if (s->may_report && !problem_file_write(s->report_json, s->model, status == EXIT_SUCCESS, d))
    status = EXIT_FAILURE;
  if (status != EXIT_SUCCESS && s->made_folder) rmdir(s->output);
  arena_free(a);
  diag_free(d);
  return status;
}
