// Fused kernels compute the same as the reference evaluation of their bodies.
//
//     test_backend_kernels BODIES.nn                 each graph there that is no entry, and
//                                                    random ones
//     test_backend_kernels --write K.cu BODIES.nn    the same as CUDA C, for
//                                                    test_backend_kernels_cuda
//
// Each body is written as C or CUDA C, all of it is compiled, and every kernel's results are
// compared with the reference evaluation of the body; once more with a result in the place of an
// operand, if that is allowed.  In 16 bits a result near the middle of two numbers may be rounded
// to the other one.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernels.h"
#include "ir/analysis/loops.h"
#include "ir/build.h"
#include "ir/op.h"
#include "machine.h"

enum { N_RANDOM = 80, MAX_VALUES = 24 };

static uint64_t state = 1;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

// -- Random bodies -----------------------------------------------------------------------------

typedef struct Maker {
  Builder b;
  DType dtype;
  int ndim;
  int64_t dim[3];
  Value *value[MAX_VALUES]; // of the full shape
  int n;
} Maker;

static void add_param(Maker *k) {
  int64_t dim[3];
  int ndim = k->ndim, skip = 0;
  bool full = draw(2);
  for (int i = 0; i < ndim; i++)
    dim[i] = full || draw(2) ? k->dim[i] : 1;
  while (!full && skip < ndim && dim[skip] == 1 && draw(2))
    skip++;
  const Type *t = type_new(k->b.g->module, k->dtype, ndim - skip, dim + skip);
  Value *v = graph_param(k->b.g, NULL, t, ROLE_none, NULL);
  k->value[k->n++] = build_broadcast(&k->b, v, ndim, k->dim);
}

static Value *any(Maker *k) {
  return k->value[draw((uint32_t)k->n)];
}

static void add_op(Maker *k) {
  static const OpKind one[] = {OP_neg, OP_relu, OP_tanh, OP_gelu, OP_square, OP_sigmoid};
  static const OpKind two[] = {OP_add, OP_sub, OP_mul, OP_max, OP_gelu_back, OP_relu_back};
  Value *v;
  if (draw(2))
    v = build_op(&k->b, one[draw(6)], IN(any(k)), NO_ATTRS);
  else
    v = build_op(&k->b, two[draw(6)], IN(any(k), any(k)), NO_ATTRS);
  k->value[k->n++] = v;
}

// Adds sums over some of the first or of the last dimensions.
static void add_sums(Maker *k) {
  int n = 1 + (int)draw((uint32_t)k->ndim);
  int64_t axes[3];
  bool first = draw(2);
  for (int i = 0; i < n; i++)
    axes[i] = first ? i : k->ndim - n + i;
  int64_t summed = 1;
  for (int i = 0; i < n; i++)
    summed *= k->dim[axes[i]];
  if (summed == 1) return;
  for (int i = 0; i < 1 + (int)draw(2); i++)
    graph_output(k->b.g, build_reduce_sum(&k->b, any(k), axes, n, draw(2)), NULL);
}

// Erases dead ops: bodies have none.
static void erase_dead(Graph *g) {
  for (Op *op = g->last, *prev; op; op = prev) {
    prev = op->prev;
    if (!value_used(op->out[0])) op_erase(op);
  }
  for (int i = g->n_params - 1; i >= 0; i--)
    if (!value_used(g->params[i])) graph_erase_param(g, i);
}

static void make_body(Module *m, const char *name, DType dtype, Diag *d) {
  static const int64_t small[] = {1, 2, 3, 5, 8, 17}, large[] = {16, 21, 48, 65};
  Maker k = {.b = {.g = graph_new(m, name, false), .d = d}, .dtype = dtype};
  k.ndim = 1 + (int)draw(3);
  bool big = draw(2);
  for (int j = 0; j < k.ndim; j++)
    k.dim[j] = big ? large[draw(4)] : small[draw(6)];
  if (k.ndim == 1 && big) k.dim[0] *= 300;
  for (int j = 0; j < 1 + (int)draw(3); j++)
    add_param(&k);
  for (int j = 0; j < 1 + (int)draw(5); j++)
    add_op(&k);
  graph_output(k.b.g, k.value[k.n - 1], NULL);
  if (draw(2)) graph_output(k.b.g, k.value[k.n - 1 - (int)draw(2)], NULL);
  if (draw(2)) add_sums(&k);
  erase_dead(k.b.g);
  graph_renumber(k.b.g);
}

static void make_bodies(Module *m, Arena *a, Diag *d) {
  static const DType types[] = {DT_f32, DT_f32, DT_bf16, DT_f16};
  for (int i = 0; i < N_RANDOM; i++) {
    make_body(m, str_format(a, "random_%d", i), types[i % 4], d);
  }
}

// -- Compiling ---------------------------------------------------------------------------------

static bool is_body(const Graph *g, Arena *a) {
  Body body;
  return !g->entry && body_read(g, &body, a);
}

// Writes a function that takes all buffers as one array.
static void add_entry(StrBuf *out, const Graph *g, const char *linkage) {
  strbuf_addf(out, "%sint call_%s(void **b);\n%sint call_%s(void **b) {\n  return %s(", linkage,
              g->name, linkage, g->name, g->name);
  for (int i = 0; i < g->n_results; i++)
    strbuf_addf(out, "%s(%s *)b[%d]", i ? ", " : "",
                dtype_ctype[g->results[i]->use.value->type->dtype], i);
  for (int i = 0; i < g->n_params; i++)
    strbuf_addf(out, ", (const %s *)b[%d]", dtype_ctype[g->params[i]->type->dtype],
                g->n_results + i);
  strbuf_add(out, ");\n}\n\n");
}

static const char *code_c(Module *m, Arena *a) {
  StrBuf out = {.arena = a};
  CpuKernels *kernels = cpu_kernels_new(a);
  for_each_graph(g, m)
    if (is_body(g, a)) kernel_emit_cpu(kernels, g, g->name);
  strbuf_add(&out, "#include \"nnrt_math.h\"\n\n");
  cpu_kernels_text(kernels, &out);
  for_each_graph(g, m)
    if (is_body(g, a)) add_entry(&out, g, "");
  return out.at;
}

static const char *code_cuda(Module *m, Arena *a) {
  StrBuf out = {.arena = a}, table = {.arena = a};
  strbuf_add(&out, "#include \"cuda/fused.cuh\"\n\ntypedef int Kernel(void **);\n\n");
  for_each_graph(g, m) {
    if (!is_body(g, a)) continue;
    kernel_emit_cuda(&out, g, g->name);
    add_entry(&out, g, "extern \"C\" ");
    strbuf_addf(&table, "  if (!strcmp(name, \"%s\")) return call_%s;\n", g->name, g->name);
  }
  strbuf_addf(&out,
              "extern \"C\" Kernel *generated_kernel(const char *name) {\n%s  return NULL;\n}\n",
              table.at);
  return out.at;
}

static bool write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  if (f) fputs(text, f);
  return f && fclose(f) == 0;
}

// -- Comparing ---------------------------------------------------------------------------------

static void fill_random(Tensor *t) {
  for (int64_t i = 0; i < type_count(t->type); i++) {
    double x = (double)draw(4001) / 1000 - 2;
    if (dtype_class[t->type->dtype] == 'F')
      tensor_set_f(t, i, x);
    else
      tensor_set_i(t, i, dtype_class[t->type->dtype] == 'I' ? (int64_t)(x * 10) : x > 0);
  }
}

static bool compare(const Graph *g, const char *how, int result, const Tensor *got,
                    const Tensor *want, double slack) {
  for (int64_t i = 0; i < type_count(want->type); i++) {
    double x = tensor_f(got, i), y = tensor_f(want, i);
    if (fabs(x - y) <= slack * (1 + fabs(y)) || (isnan(x) && isnan(y))) continue;
    printf("@%s%s: result %d, element %lld: %.9g, should be %.9g\n", g->name, how, result,
           (long long)i, x, y);
    return false;
  }
  return true;
}

// Checks the kernel's results, with result `moved` (or -1) in the memory of operand `onto`.
static bool check(const Graph *g, Kernel *kernel, const Tensor *in, const Tensor *want, int moved,
                  int onto, double slack, Arena *a) {
  void *buffers[64];
  Tensor out[64];
  for (int i = 0; i < g->n_params; i++)
    buffers[g->n_results + i] = machine_new(in[i].data, type_bytes(in[i].type));
  for (int i = 0; i < g->n_results; i++) {
    out[i] = tensor_new(a, g->results[i]->use.value->type);
    memset(out[i].data, 0x7f, (size_t)type_bytes(out[i].type)); // every element must be written
    buffers[i] = i == moved ? buffers[g->n_results + onto]
                            : machine_new(out[i].data, type_bytes(out[i].type));
  }
  bool ok = kernel(buffers) == 0;
  for (int i = 0; ok && i < g->n_results; i++) {
    machine_read(out[i].data, buffers[i], type_bytes(out[i].type));
    ok &= compare(g, moved < 0 ? "" : ", in place", i, &out[i], &want[i], slack);
  }
  machine_free_all();
  return ok;
}

// The relative error of rounding to the type.
static double rounding(DType t) {
  return t == DT_bf16 ? 0x1p-8 : t == DT_f16 ? 0x1p-11 : 0;
}

static bool check_body(Module *m, Graph *g, Kernel *kernel, Diag *d) {
  Arena *a = arena_new();
  Body body;
  Tensor in[64], want[64];
  body_read(g, &body, a);
  Graph *caller = graph_new(m, str_format(a, "of_%s", g->name), true);
  Value *operand[64];
  for (int i = 0; i < g->n_params; i++) {
    in[i] = tensor_new(a, g->params[i]->type);
    fill_random(&in[i]);
    operand[i] = graph_param(caller, NULL, g->params[i]->type, ROLE_input, NULL);
  }
  Op *op = op_new_call(caller, NULL, OP_fused, g, operand, g->n_params, (Origin){0}, d);
  bool ok = op && op_evaluate(op, in, want, NULL, a, d);
  // Sums lose terms far below the sum of magnitudes.
  double slack = 2e-5 + (body.sum ? 1e-7 * (double)body.count / (double)body.n_kept : 0);
  slack += g->n_results ? rounding(g->results[0]->use.value->type->dtype) : 0;
  ok = ok && check(g, kernel, in, want, -1, -1, slack, a);
  for (int r = 0; ok && r < g->n_results; r++)
    for (int i = 0; ok && i < g->n_params; i++)
      if (body_inplace(&body, r, i)) ok = check(g, kernel, in, want, r, i, slack, a);
  if (op) op_erase(op);
  graph_erase(caller);
  arena_free(a);
  return ok;
}

// Counts the kernels, and the wrong ones among them.
static void try_kernels(Module *m, Arena *a, int *out_tried, int *out_wrong, Diag *d) {
  for (Graph *g = m->graphs, *next; g; g = next) {
    next = g->next;
    if (!is_body(g, a)) continue;
    Kernel *kernel = machine_kernel(g->name);
    bool ok = kernel && check_body(m, g, kernel, d);
    ++*out_tried;
    *out_wrong += !ok;
  }
}

int main(int argc, char **argv) {
  Diag *d = diag_new(stdout);
  Arena *a = arena_new();
  int tried = 0, wrong = 0;
  Module *m = module_read(argv[argc - 1], d);
  bool ok = m != NULL;
  if (ok) make_bodies(m, a, d);
  if (ok && argc == 4 && !strcmp(argv[1], "--write")) {
    ok = write_file(argv[2], code_cuda(m, a));
  } else if (ok) {
    ok = machine_open(code_c(m, a));
    if (ok) try_kernels(m, a, &tried, &wrong, d);
    printf("%d kernels, %d wrong\n", tried, wrong);
    ok = ok && !wrong && tried >= N_RANDOM;
  }
  module_free(m);
  arena_free(a);
  diag_free(d);
  return ok ? 0 : 1;
}
