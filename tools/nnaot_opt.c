// nnaot-opt: reads a model or a module in text form, runs passes over it, writes it as text.

#include <stdio.h>
#include <stdlib.h>

#include "backend/validate/validate.h"
#include "crash.h"
#include "input.h"
#include "ir/graph.h"
#include "ir/model_values.h"
#include "ir/op.h"
#include "options.h"
#include "output.h"
#include "pass.h"
#include "planner/search/search.h"
#include "problem_file.h"
#include "prove_text.h"

static const char *pipeline = "", *output = "-", *model, *folder, *report_json;
static bool list;
static InputOptions import;
static PipelineOptions run = {.verify_each = true, .bisect_limit = -1};

static const Option options[] = {
    GROUP("Passes"),
    STRING("passes", 0, &pipeline, "PIPELINE",
           "the pipeline, such as 'simplify,raise,loss(spec=\"mse(y)\"),autodiff'"),
    FLAG("list", 0, &list, "show the passes with their options"),
    STRING("stop-after", 0, &run.stop_after, "PASS", "stop when this pass has run"),
    INTEGER("opt-bisect-limit", 0, &run.bisect_limit, "N",
            "run only the first N of the passes that may be skipped; -1: all"),
    FLAG("verify-each", 0, &run.verify_each, "check the module after every pass"),
    STRING("prove", 0, &model, "MODEL",
           "prove that the result computes MODEL, the module right before shard"),
    STRING("check-program", 0, &folder, "FOLDER",
           "check that FOLDER/program.c, of nnaot --emit c, runs the result, a planned module"),
    GROUP("Output"),
    STRING("output", 'o', &output, "FILE", "the output; '-' is standard output"),
    STRING("report-json", 0, &report_json, "FILE",
           "errors, warnings and notes as JSON: causes, all places, ways out"),
    STRING("print-before", 0, &run.print_before, "PASSES", "print the module before these"),
    STRING("print-after", 0, &run.print_after, "PASSES", "print the module after these"),
    FLAG("print-before-all", 0, &run.print_before_all, "print the module before every pass"),
    FLAG("print-after-all", 0, &run.print_after_all, "print the module after every pass"),
    FLAG("print-changed", 0, &run.print_changed, "print the changes of every pass as a diff"),
    STRING("dump-dir", 0, &run.dump_dir, "DIR",
           "write 00-input.nn, 01-PASS.nn … there; each can be read again"),
    FLAG("time-passes", 0, &run.time_passes, "print the seconds of every pass"),
    FLAG("stats", 0, &run.stats, "print the statistics of passes"),
    INPUT_OPTIONS(import),
};

static const Program program = {
    "nnaot-opt",
    "nnaot-opt INPUT [--passes=PIPELINE] [-o FILE.nn]",
    "Reads a model (.onnx) or a module in text form (.nn, '-' is standard input), runs a pipeline\n"
    "of passes over it, and writes it as text.",
    options,
    sizeof options / sizeof *options,
    NULL,
    NULL,
};

// Proves that a dump, changed by hand perhaps, computes the same as the dump from before `shard`,
// or of the model before `transform`.  With --check-program, the module gets the values that the
// proof finds, with which the program's are compared.
static bool prove_model(Module *m, const char *name, Diag *d) {
  if (!model) return true;
  Module *whole = input_read(model, &import, d);
  ModelValues *values = folder ? arena_one(m->arena, ModelValues) : NULL;
  bool ok = whole && prove_text(whole, model, m, name, values, d);
  if (ok && values) {
    // It is freed with the module.
    values->program = whole;
    m->model_values = values;
  } else if (whole)
    module_free(whole);
  return ok;
}

// Prints the explanation of shard(explain=…), beside the module.
static void say_explained(void *nothing, const SearchStats *s) {
  (void)nothing;
  if (s->explained) fputs(s->explained, stderr);
}

int main(int argc, char **argv) {
  crash_watch("nnaot-opt");
  static Strings words; // static: reachable until the end, for leak checkers
  int status = options_parse(&program, argc, argv, &words);
  if (status >= 0) return status;
  if (list) {
    passes_list(stdout);
    return options_printed(&program);
  }
  if (!words.n) return usage_error(&program, "no input is given");
  if (words.n > 1) return usage_error(&program, "more than one input: '%s'", words.at[1]);

  Diag *d = diag_new(stderr);
  if (!pipeline_check(pipeline, d) || !pipeline_check_prints(&run, d)) {
    diag_free(d);
    return EXIT_USAGE;
  }
  const UsedFile files[] = {{"the input", words.at[0], true},
                            {"-o", output, false},
                            {"--report-json", report_json, false}};
  if (report_json && (!outputs_apart(files, 3, d) || !output_writable(report_json, d))) {
    diag_free(d);
    return EXIT_FAILURE;
  }
  Arena *a = arena_new();
  if (report_json) diag_record(d, a);
  run.searched = say_explained;
  Module *m = input_read(words.at[0], &import, d);
  bool ok = m && pipeline_run(m, pipeline, &run, d) && prove_model(m, words.at[0], d) &&
            (!folder || program_validate(m, folder, NULL, d));
  ok = ok && output_write(output, module_text(m, a), d);
  if (report_json) ok = problem_file_write(report_json, words.at[0], ok, d) && ok;
  arena_free(a);
  module_free(m);
  diag_free(d);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
