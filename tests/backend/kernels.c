// Fused kernels compute what their bodies mean.
//
//     test_backend_kernels BODIES.nn    each graph there that is no entry, and random ones
//
// Each body is written as C, all of it is compiled into one shared object, and every kernel's
// results are compared with the reference evaluation of the body; once more with a result in the
// place of an operand, where that is allowed.

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/kernels.h"
#include "ir/build.h"
#include "ir/loops.h"
#include "ir/op.h"

enum { N_RANDOM = 80, MAX_VALUES = 24 };

typedef int Kernel(void **buffers);

static uint64_t state = 1;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

// -- Random bodies -----------------------------------------------------------------------------

typedef struct Maker {
  Builder b;
  int rank;
  int64_t dim[3];
  Value *value[MAX_VALUES]; // of the full shape
  int n;
} Maker;

static void add_param(Maker *k) {
  int64_t dim[3];
  int rank = k->rank, skip = 0;
  bool full = draw(2);
  for (int i = 0; i < rank; i++)
    dim[i] = full || draw(2) ? k->dim[i] : 1;
  while (!full && skip < rank && dim[skip] == 1 && draw(2))
    skip++;
  const Type *t = type_new(k->b.g->module, DT_f32, rank - skip, dim + skip);
  Value *v = graph_param(k->b.g, NULL, t, ROLE_none, NULL);
  k->value[k->n++] = build_broadcast(&k->b, v, rank, k->dim);
}

static Value *any(Maker *k) {
  return k->value[draw((uint32_t)k->n)];
}

static void add_op(Maker *k) {
  static const OpKind one[] = {OP_neg, OP_relu, OP_tanh, OP_gelu, OP_square, OP_sigmoid};
  static const OpKind two[] = {OP_add, OP_sub, OP_mul, OP_max, OP_gelu_back, OP_relu_back};
  Value *v;
  if (draw(2))
    v = build(&k->b, one[draw(6)], IN(any(k)), NO_ATTRS);
  else
    v = build(&k->b, two[draw(6)], IN(any(k), any(k)), NO_ATTRS);
  k->value[k->n++] = v;
}

// Sums over some of the first or of the last dimensions.
static void add_sums(Maker *k) {
  int n = 1 + (int)draw((uint32_t)k->rank);
  int64_t axes[3];
  bool first = draw(2);
  for (int i = 0; i < n; i++)
    axes[i] = first ? i : k->rank - n + i;
  int64_t summed = 1;
  for (int i = 0; i < n; i++)
    summed *= k->dim[axes[i]];
  if (summed == 1) return;
  for (int i = 0; i < 1 + (int)draw(2); i++)
    graph_output(k->b.g, build_reduce_sum(&k->b, any(k), axes, n, draw(2)), NULL);
}

// Bodies have no dead code.
static void erase_dead(Graph *g) {
  for (Op *op = g->last, *prev; op; op = prev) {
    prev = op->prev;
    if (!value_used(op->out[0])) op_erase(op);
  }
  for (int i = g->n_params - 1; i >= 0; i--)
    if (!value_used(g->params[i])) graph_erase_param(g, i);
}

static void make_body(Module *m, int i, Diag *d) {
  static const int64_t small[] = {1, 2, 3, 5, 8, 17}, large[] = {16, 21, 48, 65};
  char name[32];
  snprintf(name, sizeof name, "random_%d", i);
  Maker k = {.b = {.g = graph_new(m, name, false), .d = d}};
  k.rank = 1 + (int)draw(3);
  bool big = draw(2);
  for (int j = 0; j < k.rank; j++)
    k.dim[j] = big ? large[draw(4)] : small[draw(6)];
  if (k.rank == 1 && big) k.dim[0] *= 300;
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

// -- Compiling ---------------------------------------------------------------------------------

static bool is_body(const Graph *g, Arena *a) {
  Body body;
  return !g->entry && body_read(g, &body, a);
}

static void add_entry(StrBuf *out, const Graph *g) {
  strbuf_addf(out, "int call_%s(void **b);\nint call_%s(void **b) {\n  return %s(", g->name,
              g->name, g->name);
  int n = g->n_results + g->n_params;
  for (int i = 0; i < n; i++)
    strbuf_addf(out, "%sb[%d]", i ? ", " : "", i);
  strbuf_add(out, ");\n}\n\n");
}

static void *compile(Module *m, Arena *a, Diag *d) {
  StrBuf out = {.arena = a};
  strbuf_add(&out, "#include \"nnrt_math.h\"\n\n");
  for_each_graph(g, m) {
    if (!is_body(g, a)) continue;
    if (!kernel_emit(&out, g, g->name, NULL, d)) return NULL;
    add_entry(&out, g);
  }
  char dir[] = "/tmp/nnaot-test-XXXXXX";
  if (!mkdtemp(dir)) return NULL;
  const char *source = str_format(a, "%s/k.c", dir), *object = str_format(a, "%s/k.so", dir);
  FILE *f = fopen(source, "w");
  if (!f) return NULL;
  fputs(out.at, f);
  fclose(f);
  const char *command = str_format(
      a,
      "%s -std=gnu17 -O2 -fopenmp -ffp-contract=fast -fno-math-errno "
      "-fno-trapping-math -fwrapv -Wall -Wextra -Wpedantic -Wshadow -Wformat=2 "
      "-Wwrite-strings -Wcast-qual -Wundef -Wvla -Werror -shared -fPIC -I%s %s -o %s -lm",
      NNAOT_CC, RT_HEADERS, source, object);
  if (system(command) != 0) {
    printf("the code of the kernels, %s, does not compile\n", source);
    return NULL;
  }
  void *library = dlopen(object, RTLD_NOW);
  if (!library) printf("%s\n", dlerror());
  unlink(source);
  unlink(object);
  rmdir(dir);
  return library;
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

// The kernel's results, with result `moved` (or -1) where operand `onto` is.
static bool check(const Graph *g, Kernel *kernel, const Tensor *in, const Tensor *want, int moved,
                  int onto, double slack, Arena *a) {
  void *buffers[64];
  Tensor out[64];
  for (int i = 0; i < g->n_params; i++) {
    Tensor copy = tensor_new(a, g->params[i]->type);
    memcpy(copy.data, in[i].data, (size_t)type_bytes(copy.type));
    buffers[g->n_results + i] = copy.data;
  }
  for (int i = 0; i < g->n_results; i++) {
    out[i] = tensor_new(a, g->results[i]->use.value->type);
    memset(out[i].data, 0x7f, (size_t)type_bytes(out[i].type)); // every element must be written
    if (i == moved) out[i].data = buffers[g->n_results + onto];
    buffers[i] = out[i].data;
  }
  if (kernel(buffers) != 0) return false;
  bool ok = true;
  for (int i = 0; i < g->n_results; i++)
    ok &= compare(g, moved < 0 ? "" : ", in place", i, &out[i], &want[i], slack);
  return ok;
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
  Op *op = op_new_call(caller, NULL, OP_fused, g, operand, g->n_params, NULL, d);
  bool ok = op && op_evaluate(op, in, want, NULL, a, d);
  // Sums lose what is far below the sum of magnitudes.
  double slack = 2e-5 + (body.sum ? 1e-7 * (double)body.count / (double)body.n_kept : 0);
  ok = ok && check(g, kernel, in, want, -1, -1, slack, a);
  for (int r = 0; ok && r < g->n_results; r++)
    for (int i = 0; ok && i < g->n_params; i++)
      if (body_inplace(&body, r, i)) ok = check(g, kernel, in, want, r, i, slack, a);
  if (op) op_erase(op);
  graph_erase(caller);
  arena_free(a);
  return ok;
}

int main(int argc, char **argv) {
  Diag *d = diag_new(stdout);
  Arena *a = arena_new();
  Module *m = argc == 2 ? module_read(argv[1], d) : module_new();
  if (!m) return 1;
  for (int i = 0; i < N_RANDOM; i++)
    make_body(m, i, d);
  void *library = compile(m, a, d);
  int checked = 0, failed = 0;
  for (Graph *g = m->graphs, *next; library && g; g = next) {
    next = g->next;
    if (!is_body(g, a)) continue;
    Kernel *kernel;
    *(void **)&kernel = dlsym(library, str_format(a, "call_%s", g->name));
    bool ok = kernel && check_body(m, g, kernel, d);
    checked++;
    failed += !ok;
  }
  printf("%d kernels, %d wrong\n", checked, failed);
  module_free(m);
  arena_free(a);
  diag_free(d);
  return !library || failed || checked < N_RANDOM;
}
