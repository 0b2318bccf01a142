// Writes one model that trains an instance of every differentiable row, and its gradients in
// double, for tests/e2e/row_gradients.py, which compiles and trains it in other types:
//
//     loss = sum over instances and floating results of sum(y * r)       r random
//
// Floating operands are trainable weights, of which the gradients are independent of each other;
// their labels are INSTANCE.RESULT.OPERAND.  Indices, masks with infinities and r are weights that
// are not trained, as constants would be folded.  Weights of fewer than two dimensions stay f32
// under mixed precision (as biases), so these get a leading dimension, and a reshape removes it;
// not those of class S, which every program reads in f32.  All numbers are exact in bf16 and f16.
//
//     gradient_model MODEL.nn GRADIENTS.txt EXAMPLES.nn...
//
// GRADIENTS.txt has a line of each row and of each gradient:
//
//     row NAME [differentiable] [kernel16]            kernel16: the CPU has a kernel in bf16
//     gradient LABEL ROW X...                         row-major, in double
//
// Each gradient is that of the row, which must agree with central differences: a program with a
// derivative of its own is compared with the definition of the op.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gradients.h"
#include "ir/build.h"

static const double tolerance = 1e-5;

typedef struct Writer {
  Module *m;
  Builder b;
  Value *loss;
  FILE *gradients;
  int n_gradients, failures;
  Diag *d;
} Writer;

static bool op_floats(const Value *v) {
  return dtype_class[v->type->dtype] == 'F';
}

static void fail(Writer *w, const Op *op, int operand, const char *what, double x) {
  fprintf(stderr, "gradient_model: @%s: operand %d: %s %g\n", op->graph->name, operand, what, x);
  w->failures++;
}

// -- Numbers -----------------------------------------------------------------------------------

// Rounds to numbers that are exact in bf16 and f16; those beyond f16's become 2^14.
static void round_to_16_bits(Tensor *t) {
  if (!tensor_floats(t)) return;
  static const Type types[] = {{.dtype = DT_bf16}, {.dtype = DT_f16}};
  for (int64_t i = 0; i < type_count(t->type); i++) {
    double x = tensor_f(t, i);
    if (isfinite(x) && fabs(x) > 0x1p14) x = copysign(0x1p14, x);
    for (int k = 0; k < 2; k++) {
      uint16_t bits;
      Tensor low = {&types[k], &bits};
      tensor_set_f(&low, 0, x);
      x = tensor_f(&low, 0);
    }
    tensor_set_f(t, i, x);
  }
}

static bool is_finite(const Tensor *t) {
  for (int64_t i = 0; i < type_count(t->type); i++)
    if (!isfinite(tensor_f(t, i))) return false;
  return true;
}

// -- The model ---------------------------------------------------------------------------------

// Adds a weight with these numbers, in f32 if they are in double.
static Value *add_weight(Writer *w, const char *label, const Tensor *t, bool train, bool lift) {
  Module *m = w->m;
  DType dtype = t->type->dtype == DT_f64 ? DT_f32 : t->type->dtype;
  lift &= t->type->ndim < 2;
  int64_t dim[MAX_NDIM] = {1};
  for (int i = 0; i < t->type->ndim; i++)
    dim[i + lift] = t->type->dim[i];
  const Type *type = type_new(m, dtype, t->type->ndim + lift, dim);
  Tensor numbers = tensor_new(m->arena, type);
  for (int64_t i = 0; i < type_count(type); i++) {
    if (tensor_floats(&numbers))
      tensor_set_f(&numbers, i, tensor_f(t, i));
    else
      tensor_set_i(&numbers, i, tensor_i(t, i));
  }
  Value *v = graph_param(w->b.g, NULL, type, ROLE_weight, NULL);
  v->label = str_format(m->arena, "%s", label);
  v->train = train;
  Init *init = arena_one(m->arena, Init);
  *init =
      (Init){.kind = INIT_bytes, .dtype = dtype, .bytes = numbers.data, .length = type_bytes(type)};
  v->init = init;
  return lift ? build_reshape(&w->b, v, t->type->ndim, t->type->dim) : v;
}

// Adds the sum of y * r to the loss, with y result `result` of a copy of `op`.
static void add_instance(Writer *w, const Op *op, int result, const Tensor *in, const bool *train,
                         const Tensor *r) {
  Value *values[MAX_TERMS];
  int n_attrs;
  op_attr_specs(op->kind, &n_attrs);
  for (int i = 0; i < op->n_in; i++) {
    const char *label = str_format(w->m->arena, "%s.%d.%d", op->graph->name, result, i);
    bool lift = op_floats(op->in[i].value) && op_operand_class(op, i) != 'S';
    values[i] = add_weight(w, label, &in[i], train[i], lift);
  }
  Value *first = build_op(&w->b, op->kind, values, op->n_in, (Attrs){op->attrs, n_attrs});
  if (!first) return;
  const char *label = str_format(w->m->arena, "%s.%d.r", op->graph->name, result);
  Value *y = first->def->out[result], *factor = add_weight(w, label, r, false, true);
  if (factor->type->dtype != y->type->dtype) factor = build_cast(&w->b, factor, y->type->dtype);
  Value *sum = build_sum(&w->b, build_binary(&w->b, OP_mul, y, factor));
  w->loss = build_add(&w->b, w->loss, build_cast(&w->b, sum, DT_f32));
}

// -- Instances ---------------------------------------------------------------------------------

// Writes the gradients of the operands; returns false if one is not that of the definition.
static bool write_gradients(Writer *w, const Op *op, const Op *wide, int result, const Tensor *in,
                            Tensor *din, const bool *train, const Tensor *r, Arena *a) {
  for (int i = 0; i < op->n_in; i++) {
    if (!train[i]) continue;
    Tensor want = gradient_by_differences(wide, result, i, in, r, a, w->d);
    if (!din[i].data) din[i] = tensor_new(a, want.type);
    double distance = tensor_distance(&din[i], &want);
    if (!(distance < tolerance)) {
      fail(w, op, i, "the gradient of the row differs from central differences by", distance);
      return false;
    }
    fprintf(w->gradients, "gradient %s.%d.%d %s", op->graph->name, result, i,
            op_info[op->kind].name);
    for (int64_t k = 0; k < type_count(din[i].type); k++)
      fprintf(w->gradients, " %.17g", tensor_f(&din[i], k));
    fprintf(w->gradients, "\n");
    w->n_gradients++;
  }
  return true;
}

static void write_instance(Writer *w, const Example *e, const Op *wide, int result, Arena *a) {
  const Op *op = e->op;
  Random random = {7};
  Tensor *in = operands_new(e, wide, &random, a), din[MAX_TERMS] = {0};
  Tensor r = tensor_new(a, wide->out[result]->type);
  for (int64_t i = 0; i < type_count(r.type); i++)
    tensor_set_f(&r, i, 2 * random_unit(&random) - 1);
  round_to_16_bits(&r);
  bool train[MAX_TERMS] = {0};
  for (int i = 0; i < op->n_in; i++) {
    round_to_16_bits(&in[i]);
    train[i] = op_floats(op->in[i].value) && is_finite(&in[i]);
  }
  diag_quiet(w->d, result > 0); // a row may refuse later results
  bool given = gradients_by_row(wide, result, in, &r, din, a, w->d);
  diag_quiet(w->d, false);
  if (!given && result == 0) fail(w, op, 0, "the row refuses the gradient of result", result);
  if (given && write_gradients(w, op, wide, result, in, din, train, &r, a))
    add_instance(w, op, result, in, train, &r);
}

// Whether the floating operands and results are f32: instances in other types are for tests of
// their kernels.
static bool is_f32(const Op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (op_floats(op->in[i].value) && op->in[i].value->type->dtype != DT_f32) return false;
  return true;
}

// Blocks of attention, and their order, are of a plan: one block of each rank (tests/e2e/ring.py).
static bool is_of_ranks(const Op *op) {
  return op->kind == OP_permute_blocks || (op->kind == OP_attention && attr_i(op, "blocks"));
}

static bool is_differentiable(int kind) {
  const OpInfo *info = &op_info[kind];
  return info->grad != no_grad && info->grad != zero_grad && !(info->traits & COMM) &&
         kind != OP_call && kind != OP_loop;
}

static void write_example(Writer *w, const Example *e) {
  Arena *a = arena_new();
  const Op *wide = op_double(e->module, e->op, w->d);
  for (int i = 0; i < e->op->n_out; i++)
    if (op_floats(e->op->out[i])) write_instance(w, e, wide, i, a);
  arena_free(a);
}

int main(int argc, char **argv) {
  if (argc < 4) return EXIT_FAILURE;
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Examples all = examples_read(argv + 3, argc - 3, a, d);
  Writer w = {.m = module_new(), .d = d, .gradients = fopen(argv[2], "w")};
  FILE *model = fopen(argv[1], "w");
  if (!w.gradients || !model) return EXIT_FAILURE;
  w.m->phase = PHASE_typed;
  w.b = (Builder){.g = graph_new(w.m, "main", true), .d = d};
  for (int kind = 0; kind < N_OPS; kind++)
    fprintf(w.gradients, "row %s%s%s\n", op_info[kind].name,
            is_differentiable(kind) ? " differentiable" : "",
            strstr(op_info[kind].kernels[TARGET_cpu], "bf16") ? " kernel16" : "");
  for (int i = 0; i < all.n; i++)
    if (is_differentiable((int)all.at[i].op->kind) && is_f32(all.at[i].op) &&
        !is_of_ranks(all.at[i].op))
      write_example(&w, &all.at[i]);
  if (w.loss) graph_output(w.b.g, w.loss, "loss");
  module_print(w.m, model);
  bool ok = !fclose(model) && !fclose(w.gradients) && !w.b.failed && !w.failures && w.loss;
  printf("gradient_model: %d gradients, %d failures\n", w.n_gradients, w.failures);
  examples_free(&all);
  module_free(w.m);
  arena_free(a);
  diag_free(d);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
