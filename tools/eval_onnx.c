// Cases of the ONNX backend test suite:
//
//     CASE/model.onnx
//     CASE/test_data_set_0/input_0.pb, output_0.pb …      inputs and outputs in the model's order
//
// A case passes if every output has the expected element type, shape and numbers: |a - b| <= 1e-7 +
// 1e-3 |b|, NaN for an expected NaN.  In f16 and bf16 this is less than one rounding of an
// intermediate result, so two units in the last place are allowed there.  A case is unsupported if
// the model cannot be compiled, or if it expects the numbers of a particular random generator,
// which ONNX leaves open; otherwise it is wrong.
//
// In many cases, shapes, axes or counts are inputs, but must be known at compile time.  The
// importer gets the files of the inputs for them.

#include "eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/onnx.h"
#include "frontend/onnx_tensor.h"
#include "pass.h"

enum { MAX_INPUTS = 64 };

typedef enum Outcome { PASSED, UNSUPPORTED, WRONG, N_OUTCOMES } Outcome;

static const char *const outcome_name[N_OUTCOMES] = {"passed", "unsupported", "wrong"};

// The number of cases of one op by outcome.
typedef struct Row {
  const char *op;
  int n[N_OUTCOMES];
} Row;
typedef Vec(Row) Table;

// One case while it runs.
typedef struct Case {
  const char *folder, *pipeline;
  const EvalOptions *o;
  Arena *a;
  OnnxStrings strings; // of the model and of the files
  FILE *said;          // messages
  char *text;
  size_t text_n;
  Diag *d;
} Case;

static bool exists(const char *path) {
  return access(path, F_OK) == 0;
}

static const char *data_path(const Case *c, int set, const char *what, int k) {
  return str_format(c->a, "%s/test_data_set_%d/%s_%d.pb", c->folder, set, what, k);
}

// -- Comparing -------------------------------------------------------------------------------

static bool near(double x, double want, DType t) {
  if (isnan(want)) return isnan(x);
  if (isinf(want)) return x == want;
  double allowed = 1e-7 + 1e-3 * fabs(want);
  int bits = t == DT_f16 ? 10 : t == DT_bf16 ? 7 : 52; // of the mantissa
  double two_units = want != 0 ? ldexp(2, ilogb(want) - bits) : 0;
  return fabs(x - want) <= (allowed > two_units ? allowed : two_units);
}

// -- One case --------------------------------------------------------------------------------

// The inputs, or the outputs, of one data set: files, and all tensors in them, one after the other,
// which are those of the module.
typedef struct Data {
  const char *path[MAX_INPUTS];
  int n_files;
  Vec(Tensor) tensors;
} Data;

// Reads input_K or output_K, until one is missing.
static bool read_data(Case *c, Module *m, int set, bool outputs, Data *data) {
  const char *what = outputs ? "output" : "input";
  OnnxDatum datum[MAX_INPUTS];
  *data = (Data){0};
  for (int n = 0; exists(data_path(c, set, what, n)); n++) {
    if (n == MAX_INPUTS)
      return diag_error(c->d, NULL, "more than %d files of one kind", MAX_INPUTS);
    data->path[data->n_files++] = data_path(c, set, what, n);
  }
  if (!onnx_data_read(str_format(c->a, "%s/model.onnx", c->folder), outputs, data->path,
                      data->n_files, &c->strings, m, c->a, datum, c->d))
    return false;
  for (int i = 0; i < data->n_files; i++)
    for (int k = 0; k < datum[i].n; k++)
      vec_push(c->a, &data->tensors, datum[i].at[k]);
  return true;
}

static Outcome run_model(Case *c, Module *m, const OnnxCounts *counts, const Tensor *in, int n_in,
                         const Tensor *want, int n_want) {
  Graph *g = m->graphs;
  graph_renumber(g);
  Values values = {0}, have = {0}, out = {0};

  // The inputs of the case are those of the model, in order.
  int n = 0;
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role != ROLE_input) continue;
    if (n == n_in) {
      diag_error(c->d, NULL, "the model has more inputs than the case: %d", n);
      return WRONG;
    }
    const Type *t = in[n].type;
    if (!type_equal(t, v->type)) {
      diag_error(c->d, NULL, "input %d is %s and should be %s", n, type_text(c->a, t),
                 type_text(c->a, v->type));
      return WRONG;
    }
    vec_push(c->a, &have, (Named){param_label(v, c->a), in[n++]});
  }
  if (!eval_inputs(g, c->o, &have, &values, c->a, c->d) ||
      !eval_run(g, c->o, &values, &out, c->a, c->d))
    return WRONG;
  values_trim(&out, counts, m, c->a);
  if (out.n != n_want) {
    diag_error(c->d, NULL, "there are %d outputs and should be %d", out.n, n_want);
    return WRONG;
  }

  // The numbers of a particular random generator cannot be expected.
  bool draws_numbers = false;
  for_each_op(op, g)
    draws_numbers |= op_draws(op->kind) && (op->kind != OP_dropout || attr_f(op, "ratio") > 0);
  for (int k = 0; k < n_want; k++) {
    const Tensor *x = &out.at[k].t, *expected = &want[k];
    bool ok = type_equal(x->type, expected->type) ||
              diag_error(c->d, NULL, "output %d is %s and should be %s", k,
                         type_text(c->a, x->type), type_text(c->a, expected->type));
    bool floating = dtype_class[x->type->dtype] == 'F';
    for (int64_t i = 0; ok && i < type_count(x->type); i++)
      if (floating ? !near(tensor_f(x, i), tensor_f(expected, i), x->type->dtype)
                   : tensor_i(x, i) != tensor_i(expected, i))
        ok = diag_error(c->d, NULL, "output %d, element %lld is %.9g and should be %.9g", k,
                        (long long)i, tensor_f(x, i), tensor_f(expected, i));
    if (!ok) return draws_numbers ? UNSUPPORTED : WRONG;
  }
  return PASSED;
}

static Outcome run_data(Case *c, int set) {
  Data in, want;
  Module *types = module_new(), *m = NULL;
  Outcome outcome = UNSUPPORTED;
  if (read_data(c, types, set, false, &in) && read_data(c, types, set, true, &want)) {
    // Shapes and axes may be inputs: the importer gets their files as hints.
    OnnxCounts counts = {.arena = c->a};
    OnnxOptions o = {.keep_f64 = true,
                     .hints = in.path,
                     .n_hints = in.n_files,
                     .counts = &counts,
                     .strings = &c->strings};
    m = onnx_import(str_format(c->a, "%s/model.onnx", c->folder), &o, c->d);
    PipelineOptions p = {.verify_each = true, .bisect_limit = -1};
    bool ok = m && (!c->pipeline || pipeline_run(m, c->pipeline, &p, c->d));
    if (ok)
      outcome =
          run_model(c, m, &counts, in.tensors.at, in.tensors.n, want.tensors.at, want.tensors.n);
    if (m) module_free(m);
  }
  module_free(types);
  return outcome;
}

// -- The table -------------------------------------------------------------------------------

static int by_name(const void *x, const void *y) {
  return strcmp(((const Row *)x)->op, ((const Row *)y)->op);
}

static void print_row(const Row *r) {
  printf("%-32s %8d %12d %8d\n", r->op, r->n[PASSED], r->n[UNSUPPORTED], r->n[WRONG]);
}

static Outcome run_folder(const char *folder, const char *pipeline, const EvalOptions *o,
                          bool alone, Table *table, Arena *a) {
  Case c = {.folder = folder, .pipeline = pipeline, .o = o, .a = arena_new()};
  c.said = open_memstream(&c.text, &c.text_n);
  if (!c.said) abort(); // out of memory
  c.d = diag_new(c.said);
  c.strings = onnx_strings_new(c.a);

  // Data sets are run until one fails.
  Outcome outcome = PASSED;
  int set = 0;
  for (; outcome == PASSED; set++) {
    if (!exists(str_format(c.a, "%s/test_data_set_%d", c.folder, set))) break;
    outcome = run_data(&c, set);
  }
  if (!set) {
    diag_error(c.d, NULL, "there is no test_data_set_0 to compare with");
    outcome = UNSUPPORTED;
  }
  const char *op = onnx_subject(str_format(c.a, "%s/model.onnx", folder), c.a);

  // Cases of several ops count together.
  if (!op) op = "(several)";
  int i = 0;
  while (i < table->n && !str_equal(table->at[i].op, op))
    i++;
  if (i == table->n) vec_push(a, table, (Row){.op = str_copy(a, op)});
  table->at[i].n[outcome]++;
  if (alone || outcome != PASSED) {
    // The first error in the messages, without its prefix, is the reason.
    fflush(c.said);
    char *at = strstr(c.text, "error: ");
    if (at) {
      at += strlen("error: ");
      at[strcspn(at, "\n")] = 0;
    }
    printf("%s: %s%s%s\n", folder, outcome_name[outcome], outcome == PASSED ? "" : ": ",
           outcome == PASSED || !at ? "" : at);
  }
  diag_free(c.d);
  fclose(c.said);
  free(c.text);
  arena_free(c.a);
  return outcome;
}

int eval_onnx(const char *const *folders, int n, const char *pipeline, const EvalOptions *o) {
  Arena *a = arena_new();
  Table table = {0};
  int status = EXIT_SUCCESS;
  for (int i = 0; i < n; i++)
    if (run_folder(folders[i], pipeline, o, n == 1, &table, a) != PASSED) status = EXIT_FAILURE;
  if (n > 1) {
    // A row for each op, and their sum.
    Row sum = {.op = "all"};
    qsort(table.at, (size_t)table.n, sizeof *table.at, by_name);
    printf("\n%-32s %8s %12s %8s\n", "op", "passed", "unsupported", "wrong");
    for (int i = 0; i < table.n; i++) {
      print_row(&table.at[i]);
      for (int k = 0; k < N_OUTCOMES; k++)
        sum.n[k] += table.at[i].n[k];
    }
    print_row(&sum);
  }
  arena_free(a);
  return status;
}
