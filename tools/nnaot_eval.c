// nnaot-eval: runs a module of any phase on simulated devices, and compares two pipelines.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"
#include "eval.h"
#include "input.h"
#include "options.h"
#include "output.h"
#include "pass.h"

static const char *pipeline, *same_as, *graph_name, *kernels = "reference";
static EvalOptions eval = {.seed = 1, .lr = 0.01, .tolerance = 1e-5};
static Strings inputs, outputs;
static OnnxCounts counts;
static InputOptions import = {.counts = &counts};
static bool onnx_test;

static const Option options[] = {
    GROUP("What to run"),
    STRING("passes", 0, &pipeline, "PIPELINE", "passes to run over the module first"),
    STRING("same-as", 0, &same_as, "PIPELINE",
           "run a second time after these passes instead, and compare all results"),
    NUMBER("tolerance", 0, &eval.tolerance, "X",
           "the largest relative norm of a difference that counts as equal"),
    STRING("graph", 0, &graph_name, "NAME", "which graph; without it the first entry"),
    STRING(
        "kernels", 0, &kernels, "WHICH",
        "'reference': ops as they are defined; 'cpu': the runtime's kernels where there are any"),
    FLAG("onnx-test", 0, &onnx_test,
         "the words are folders with cases of the ONNX backend test suite"),
    GROUP("Values"),
    LIST("input", 0, &inputs, "NAME=FILE.npy",
         "value of a parameter; parameters without a file get random values"),
    LIST("output", 0, &outputs, "NAME=FILE.npy", "write a result; 'update NAME' is one too"),
    INTEGER("seed", 0, &eval.seed, "S", "seed of random values and dropout"),
    INTEGER("step", 0, &eval.step, "N", "number of previous updates"),
    NUMBER("lr", 0, &eval.lr, "X", "the learning rate"),
    INPUT_OPTIONS(import),
};

static const Program program = {
    "nnaot-eval",
    "nnaot-eval FILE [--passes=P] [--same-as=Q] [--input NAME=FILE.npy] [--output NAME=FILE.npy]\n"
    "       nnaot-eval --onnx-test DIR...",
    "Runs a model (.onnx) or a module in text form (.nn, '-' is standard input) on simulated\n"
    "devices, as many as its mesh has, and prints its results or compares them with those after\n"
    "other passes.",
    options,
    sizeof options / sizeof *options,
    NULL,
    NULL,
};

static Graph *pick_graph(const Module *m, Diag *d) {
  if (graph_name) {
    Graph *g = graph_find(m, graph_name);
    if (!g) diag_error(d, NULL, "there is no graph '@%s'", graph_name);
    return g;
  }
  for_each_graph(g, m)
    if (g->entry) return g;
  if (!m->graphs) diag_error(d, NULL, "there is no graph to run");
  return m->graphs;
}

// Runs the module after `passes`.  Takes inputs that the previous run had from `in`, which then
// holds all inputs of this run.
static bool run(Module *m, const char *passes_text, Values *in, Values *out, Arena *a, Diag *d) {
  PipelineOptions o = {.verify_each = true, .bisect_limit = -1};
  if (passes_text ? !pipeline_run(m, passes_text, &o, d) : !module_verify(m, d)) return false;
  Graph *g = pick_graph(m, d);
  if (!g) return false;
  Values have = *in;
  graph_renumber(g);
  if (!eval_inputs(g, &eval, &have, in, a, d) || !eval_run(g, &eval, in, out, a, d)) return false;
  values_trim(out, &counts, m, a);
  return true;
}

static bool eval_file(const char *path, Arena *a, Diag *d) {
  counts.arena = a;
  Module *first = input_read(path, &import, d), *second = NULL;
  if (!first) return false;
  if (same_as) second = module_clone(first);
  Values in = {0}, x = {0}, y = {0};
  bool ok = run(first, pipeline, &in, &x, a, d);
  // Input files for names that no parameter has are an error.
  bool ran = ok;
  for (int i = 0; ran && i < inputs.n; i++) {
    bool found = false;
    for (int k = 0; k < in.n; k++) {
      size_t n = strlen(in.at[k].name);
      found |= str_starts(inputs.at[i], in.at[k].name) && inputs.at[i][n] == '=';
    }
    if (!found) ok = diag_error(d, NULL, "there is no parameter for '%s'", inputs.at[i]);
  }
  if (ok && second) ok = run(second, same_as, &in, &y, a, d);
  if (ok && second) {
    // If results differ, a run on perturbed operands finds those that are only rounding.
    bool quiet = diag_quiet(d, true);
    ok = values_equal(&x, &y, NULL, eval.tolerance, d);
    diag_quiet(d, quiet);
    if (!ok) {
      Values near_in = values_near(&in, eval.seed, a), near = {0};
      ok = eval_run(pick_graph(first, d), &eval, &near_in, &near, a, d) &&
           values_equal(&x, &y, &near, eval.tolerance, d);
    }
    if (ok) printf("%d results are equal\n", x.n);
  } else if (ok) {
    // A line for each result: loss  f32[]  |x| 2.302585  2.302585
    for (int i = 0; i < x.n; i++) {
      const Named *v = &x.at[i];
      double squares = 0;
      int64_t n = type_count(v->t.type);
      for (int64_t k = 0; k < n; k++)
        squares += tensor_f(&v->t, k) * tensor_f(&v->t, k);
      printf("%s  %s  |x| %.9g ", str_shown(a, v->name), type_text(a, v->t.type), sqrt(squares));
      for (int64_t k = 0; k < n && k < 4; k++)
        printf(" %.9g", tensor_f(&v->t, k));
      printf("%s\n", n > 4 ? " …" : "");
    }
  }
  // --output NAME=FILE.npy
  bool compared = ok;
  for (int i = 0; compared && i < outputs.n; i++) {
    const char *equals = strrchr(outputs.at[i], '=');
    const Tensor *t = NULL;
    for (int k = 0; equals && k < x.n; k++)
      if (str_starts(outputs.at[i], x.at[k].name) && outputs.at[i] + strlen(x.at[k].name) == equals)
        t = &x.at[k].t;
    if (t)
      ok &= npy_write(equals + 1, t, d);
    else
      ok = diag_error(d, NULL, "there is no result for '%s'", outputs.at[i]);
  }
  ok = ok && output_flush(d);
  if (second) module_free(second);
  module_free(first);
  return ok;
}

int main(int argc, char **argv) {
  crash_watch("nnaot-eval");
  static Strings words; // a leak checker finds it
  int status = options_parse(&program, argc, argv, &words);
  if (status >= 0) return status;
  if (strcmp(kernels, "reference") != 0 && strcmp(kernels, "cpu") != 0)
    return usage_error(&program, "--kernels wants reference or cpu, not '%s'", kernels);
  eval.kernels = !strcmp(kernels, "cpu");
  eval.inputs = inputs.at;
  eval.n_inputs = inputs.n;
  if (!words.n) return usage_error(&program, "no input is given");
  Diag *d = diag_new(stderr);
  if ((pipeline && !pipeline_check(pipeline, d)) || (same_as && !pipeline_check(same_as, d))) {
    diag_free(d);
    return EXIT_USAGE;
  }
  // Cases of the test suite report their own errors.
  if (onnx_test) {
    diag_free(d);
    // A folder without a model is a usage error, not an unsupported case.
    for (int i = 0; i < words.n; i++) {
      Arena *a = arena_new();
      bool found = access(str_format(a, "%s/model.onnx", words.at[i]), R_OK) == 0;
      arena_free(a);
      if (!found)
        return usage_error(&program, "'%s' is no case: there is no model.onnx in it", words.at[i]);
    }
    return eval_onnx(words.at, words.n, pipeline, &eval);
  }
  if (words.n > 1) {
    diag_free(d);
    return usage_error(&program, "more than one input: '%s'", words.at[1]);
  }
  Arena *a = arena_new();
  bool ok = eval_file(words.at[0], a, d);
  arena_free(a);
  diag_free(d);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
