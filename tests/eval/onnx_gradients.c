// Gradients of ONNX models, by the importer and the pass `autodiff`, compared with central
// differences in double:
//
//     L = sum over outputs of y * r          dL/dx = (L(x + h) - L(x - h)) / 2h
//
// A case is a folder with model.onnx and a file of each input, input_0.pb …  Gradients are those of
// all floating inputs that are not named fixed_….  Element i of r of output k is cos(0.7 (i + 1) +
// k), so that PyTorch's numbers are of the same loss.
//
//     onnx_gradients [--falsify] CASE...
//
// prints, of the gradient that autodiff gives right after the import,
//
//     CASE loss L
//     CASE input NAME norm N projection P distance D
//
// with P, the sum of element i times cos(i + 1), and D, the largest relative norm of the
// difference, with and without simplification.  A case that cannot be computed has a line
//
//     CASE fails MESSAGE
//
// With --falsify one element of each gradient is wrong by a thousandth of the norm, which the
// comparisons must notice.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx.h"
#include "frontend/onnx_tensor.h"
#include "ir/build.h"
#include "pass.h"

#include "tests/ops/harness.h"

static const double step = 1e-5;
static const char *const pipelines[] = {"autodiff", "simplify,raise,simplify,autodiff,simplify"};

static bool falsify;

enum { MAX_INPUTS = 16, N_PIPELINES = sizeof pipelines / sizeof *pipelines };

typedef struct Input {
  const char *label;
  bool checked;
  Tensor at;
} Input;

typedef struct Case {
  const char *name, *folder;
  Module *m;
  Input in[MAX_INPUTS];
  int n_in;
  Arena *a;
  Diag *d;
} Case;

static bool op_floats(const Value *v) {
  return dtype_class[v->type->dtype] == 'F';
}

// -- The loss --------------------------------------------------------------------------------

// The sum of y times cos(0.7 (i + 1) + k).
static Value *weighted_sum(Builder *b, Value *y, int k, Arena *a) {
  Tensor r = tensor_new(a, y->type);
  for (int64_t i = 0; i < type_count(y->type); i++)
    tensor_set_f(&r, i, cos(0.7 * (double)(i + 1) + k));
  Value *factors = build_constant(b, y->type, r.data);
  return build_sum(b, build_op(b, OP_mul, IN(y, factors), NO_ATTRS));
}

static void make_weight(Value *v) {
  v->role = ROLE_weight;
  v->train = true;
  v->init = init_fill(v->graph->module, v->type->dtype, 0);
}

// Replaces the outputs by the loss, and makes weights of the checked inputs.  One more weight is
// added to the loss, as a model in which no weight reaches the loss is an error.
static bool make_loss(Case *c) {
  Graph *g = c->m->graphs;
  Builder b = {.g = g, .d = c->d};
  Value *extra = graph_param(g, "extra", type_scalar(c->m, DT_f64), ROLE_weight, NULL);
  extra->label = "extra";
  make_weight(extra);
  Value *sum = extra;
  int k = 0;
  for (int i = 0; i < g->n_results; i++) {
    Value *y = g->results[i]->use.value;
    if (!g->results[i]->label || !op_floats(y)) continue;
    b.origin = value_origin(y);
    sum = build_add(&b, sum, build_cast(&b, weighted_sum(&b, y, k++, c->a), DT_f64));
  }
  if (b.failed || !k) return !b.failed && diag_error(c->d, NULL, "no output is floating");
  while (g->n_results)
    graph_erase_result(g, g->n_results - 1);
  graph_output(g, sum, "loss");
  for (int i = 0; i < c->n_in; i++)
    if (c->in[i].checked) make_weight(graph_find_role(g, ROLE_input, c->in[i].label));
  return true;
}

// -- Running ---------------------------------------------------------------------------------

// Runs the graph; `moved` instead of the contents of input `which`, if that is not negative.
// Returns the result with this label, allocated in `a`; no data without one.
static bool run(const Case *c, Graph *g, int which, const Tensor *moved, const char *label,
                Tensor *out, Arena *a) {
  Tensor *values = arena_array(a, Tensor, g->n_values);
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    Tensor *t = &values[v->id];
    *t = tensor_new(a, v->type);
    memset(t->data, 0, (size_t)type_bytes(v->type));
    for (int k = 0; k < c->n_in; k++)
      if (v->label && str_equal(v->label, c->in[k].label))
        t->data = k == which ? moved->data : c->in[k].at.data;
  }
  if (!graph_run(g, values, a, c->d)) return false;
  const Result *r = graph_find_output(g, label);
  *out = r ? values[r->use.value->id] : (Tensor){0};
  return true;
}

static double loss(const Case *c, Graph *g, int which, const Tensor *moved) {
  Arena *a = arena_new();
  Tensor l;
  double x = run(c, g, which, moved, "loss", &l, a) ? tensor_f(&l, 0) : NAN;
  arena_free(a);
  return x;
}

static Tensor by_differences(const Case *c, Graph *g, int which) {
  const Tensor *in = &c->in[which].at;
  Tensor moved = tensor_copy(in, c->a), dx = tensor_new(c->a, in->type);
  for (int64_t i = 0; i < type_count(in->type); i++) {
    double x = tensor_f(in, i);
    tensor_set_f(&moved, i, x + step);
    double up = loss(c, g, which, &moved);
    tensor_set_f(&moved, i, x - step);
    double down = loss(c, g, which, &moved);
    tensor_set_f(&moved, i, x);
    tensor_set_f(&dx, i, (up - down) / (2 * step));
  }
  return dx;
}

// -- One case --------------------------------------------------------------------------------

static bool read_case(Case *c, Module *types) {
  const char *files[MAX_INPUTS];
  Tensor t[MAX_INPUTS];
  const char *model = str_format(c->a, "%s/model.onnx", c->folder);
  int n = 0;
  for (;; n++) {
    const char *path = str_format(c->a, "%s/input_%d.pb", c->folder, n);
    FILE *f = fopen(path, "rb");
    if (!f) break;
    fclose(f);
    if (n == MAX_INPUTS) return diag_error(c->d, NULL, "more than %d inputs", MAX_INPUTS);
    if (!onnx_tensor_read(path, true, NULL, types, c->a, &t[n], c->d)) return false;
    files[n] = path;
  }
  OnnxOptions o = {.keep_f64 = true, .hints = files, .n_hints = n};
  c->m = onnx_import(model, &o, c->d);
  if (!c->m) return false;
  Graph *g = c->m->graphs;
  for (int i = 0; i < g->n_params; i++) {
    const Value *v = g->params[i];
    if (v->role != ROLE_input) continue;
    if (c->n_in == n) return diag_error(c->d, NULL, "there are more inputs than files");
    bool checked = op_floats(v) && !str_starts(v->label, "fixed_");
    c->in[c->n_in] = (Input){v->label, checked, t[c->n_in]};
    c->n_in++;
  }
  return c->n_in == n || diag_error(c->d, NULL, "there are fewer inputs than files");
}

static double norm(const Tensor *t) {
  double squares = 0;
  for (int64_t i = 0; i < type_count(t->type); i++)
    squares += tensor_f(t, i) * tensor_f(t, i);
  return sqrt(squares);
}

// Gradients of all checked inputs after the passes; zeros of an input without one.
static bool by_passes(const Case *c, const char *pipeline, Tensor *out) {
  Module *m = module_clone(c->m);
  PipelineOptions o = {.verify_each = true, .bisect_limit = -1};
  bool ok = pipeline_run(m, pipeline, &o, c->d);
  if (ok) graph_renumber(m->graphs);
  for (int i = 0; i < c->n_in && ok; i++) {
    if (!c->in[i].checked) continue;
    const char *label = str_format(c->a, "grad:%s", c->in[i].label);
    Arena *a = arena_new();
    Tensor t;
    ok = run(c, m->graphs, -1, NULL, label, &t, a);
    out[i] = tensor_new(c->a, c->in[i].at.type);
    memset(out[i].data, 0, (size_t)type_bytes(out[i].type));
    if (ok && t.data) memcpy(out[i].data, t.data, (size_t)type_bytes(out[i].type));
    if (falsify) tensor_set_f(&out[i], 0, tensor_f(&out[i], 0) + 1e-3 * norm(&out[i]));
    arena_free(a);
  }
  module_free(m);
  return ok;
}

static bool check_case(Case *c) {
  Tensor got[N_PIPELINES][MAX_INPUTS];
  if (!make_loss(c)) return false;
  for (int p = 0; p < N_PIPELINES; p++)
    if (!by_passes(c, pipelines[p], got[p])) return false;
  Graph *g = c->m->graphs;
  graph_renumber(g);
  printf("%s loss %.17g\n", c->name, loss(c, g, -1, NULL));
  for (int i = 0; i < c->n_in; i++) {
    if (!c->in[i].checked) continue;
    Tensor want = by_differences(c, g, i);
    double worst = 0, projection = 0;
    for (int p = 0; p < N_PIPELINES; p++) {
      double distance = tensor_distance(&got[p][i], &want);
      if (!(distance <= worst)) worst = distance;
    }
    for (int64_t k = 0; k < type_count(want.type); k++)
      projection += tensor_f(&got[0][i], k) * cos((double)k + 1);
    printf("%s input %s norm %.17g projection %.17g distance %.3g\n", c->name, c->in[i].label,
           norm(&got[0][i]), projection, worst);
  }
  return true;
}

int main(int argc, char **argv) {
  falsify = argc > 1 && str_equal(argv[1], "--falsify");
  int first = falsify ? 2 : 1;
  bool failed = argc <= first;
  for (int i = first; i < argc; i++) {
    char *text = NULL;
    size_t length = 0;
    FILE *said = open_memstream(&text, &length);
    if (!said) abort(); // out of memory
    const char *slash = strrchr(argv[i], '/');
    Case c = {.name = slash ? slash + 1 : argv[i], .folder = argv[i], .a = arena_new()};
    c.d = diag_new(said);
    Module *types = module_new();
    if (!read_case(&c, types) || !check_case(&c)) {
      fflush(said);
      char *at = strstr(text, "error: ");
      at = at ? at + strlen("error: ") : text;
      at[strcspn(at, "\n")] = 0;
      printf("%s fails %s\n", c.name, at);
      failed = true;
    }
    fflush(stdout);
    if (c.m) module_free(c.m);
    module_free(types);
    diag_free(c.d);
    fclose(said);
    free(text);
    arena_free(c.a);
  }
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
