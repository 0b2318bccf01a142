// Every row after convolutions, with the pass channels_last: its results do not change.
//
//     %c = conv %x, %ones       1x1, a channel at a time, so that %c is %x
//     %y = OP %c, …             the example; an elementwise op takes operands of an image's shape
//
// An elementwise op must become channels-last, too, for all names of attributes.
//
//     images EXAMPLES.nn...

#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "ir/build.h"
#include "pass.h"

static const double tolerance = 1e-6;

static int failures, moved;

static void fail(const Example *e, const char *what, double x) {
  fprintf(stderr, "%s: %s behind a convolution: %s (%g)\n", loc_text(e->module->arena, e->op->loc),
          op_info[e->op->kind].name, what, x);
  failures++;
}

// Computes the types of the operands in `m`.  Returns false if the first is no image.
static bool image_types(const Example *e, Module *m, const Type **out) {
  static const int64_t image[] = {2, 4, 3, 5};
  for (int i = 0; i < e->op->n_in; i++) {
    const Type *t = e->op->in[i].value->type;
    out[i] = op_info[e->op->kind].formula ? type_new(m, t->dtype, 4, image)
                                          : type_new(m, t->dtype, t->ndim, t->dim);
  }
  bool typed =
      !(op_info[e->op->kind].traits & (COMM | ACCUMULATES)); // later passes create the others
  return typed && e->op->n_in && out[0]->dtype == DT_f32 && out[0]->ndim >= 3 &&
         type_count(out[0]) > 0;
}

static Value *input(Graph *g, int i, const Type *t) {
  Value *v = graph_param(g, NULL, t, ROLE_input, NULL);
  v->label = str_format(g->module->arena, "in%d", i);
  return v;
}

static Value *convolution(Builder *b, Value *x) {
  int ndim = x->type->ndim, n = ndim - 2;
  int64_t once[MAX_NDIM], shape[MAX_NDIM], pads[2 * MAX_NDIM] = {0};
  for (int i = 0; i < ndim; i++)
    once[i] = shape[i] = 1;
  shape[0] = x->type->dim[1];
  return build_op(b, OP_conv, IN(x, build_fill(b, DT_f32, ndim, shape, 1)),
                  ATTRS(a_list("strides", once, n), a_list("pads", pads, 2 * n),
                        a_list("dilations", once, n), a_i("group", shape[0]),
                        a_b("channels_last", false)));
}

static void compare(const Example *e, const Graph *g, const Tensor *values, const Tensor *want) {
  for (int i = 0; i < g->n_results; i++) {
    double distance = tensor_distance(&values[g->results[i]->use.value->id], &want[i]);
    if (!(distance <= tolerance)) fail(e, "another result", distance);
  }
  const Op *back = g->results[0]->use.value->def;
  bool goes_along = back->kind == OP_transpose && back->in[0].value->def->kind == e->op->kind;
  if (op_info[e->op->kind].formula && !goes_along) fail(e, "is not done with the channel last", 0);
  moved += goes_along;
}

static void try_one(const Example *e, Arena *a, Diag *d) {
  Module *m = module_new();
  m->phase = PHASE_typed;
  const Type *types[MAX_TERMS];
  if (!image_types(e, m, types)) {
    module_free(m);
    return;
  }
  Graph *g = graph_new(m, "main", true);
  Builder b = {.g = g, .d = d};
  Value *in[MAX_TERMS], *param[MAX_TERMS];
  for (int i = 0; i < e->op->n_in; i++) {
    in[i] = param[i] = input(g, i, types[i]);
    if (types[i] == types[0]) in[i] = convolution(&b, in[i]);
  }
  int n_attrs;
  op_attr_specs(e->op->kind, &n_attrs);
  Op *op = op_new(g, NULL, e->op->kind, in, e->op->n_in, e->op->attrs, n_attrs, b.origin, d);
  for (int i = 0; op && i < op->n_out; i++)
    graph_output(g, op->out[i], str_format(m->arena, "y%d", i));

  Random r = {.state = (uint64_t)e->op->kind};
  Tensor *operands = op ? operands_new(e, op, &r, a) : NULL;
  Box box = op ? box_new(op) : (Box){0};
  Tensor *want = op ? reference_new(op, operands, &box, a, d) : NULL;
  PipelineOptions o = {.verify_each = true, .bisect_limit = -1};
  if (want && pipeline_run(m, "channels_last", &o, d)) {
    graph_renumber(g);
    Tensor *values = arena_array(a, Tensor, g->n_values);
    for (int i = 0; i < e->op->n_in; i++)
      values[param[i]->id] = operands[i];
    if (graph_run(g, values, a, d))
      compare(e, g, values, want);
    else
      fail(e, "cannot be evaluated", 0);
  } else {
    fail(e, "cannot be made", 0);
  }
  module_free(m);
}

int main(int argc, char **argv) {
  Diag *d = diag_new(stderr);
  Arena *a = arena_new();
  Examples all = examples_read(argv + 1, argc - 1, a, d);
  for (int i = 0; i < all.n; i++)
    try_one(&all.at[i], a, d);
  printf("%d ops went along with the channel last, %d failures\n", moved, failures);
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return failures > 0 || moved == 0;
}
