// Our references compared with PyTorch: torch.nn has instances of ops with PyTorch's results,
// %want0, %want1 ..., as further parameters.  torch_ops.py writes it.
//
//     torch EXAMPLES.nn...

#include <stdlib.h>

#include "harness.h"

static const double tolerance = 1e-10;

static int failures, compared;

static Tensor contents(const Value *v) {
  return (Tensor){v->type, (void *)(uintptr_t)v->init->bytes};
}

static void check_graph(Graph *g, Arena *a, Diag *d) {
  const Op *op = g->first;
  Tensor *in = arena_array(a, Tensor, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    in[i] = contents(op->in[i].value);
  Tensor *out = reference_new(op, in, NULL, a, d);
  for (int i = 0; i < op->n_out; i++) {
    const Value *want = graph_find_value(g, str_format(a, "want%d", i));
    if (!want) continue;
    Tensor right = contents(want);
    double distance = out ? tensor_distance(&out[i], &right) : 1;
    compared++;
    if (distance <= tolerance) continue;
    failures++;
    fprintf(stderr, "%s: @%s: result %d of %s differs from PyTorch's by %g\n", loc_text(a, op->loc),
            g->name, i, op_info[op->kind].name, distance);
  }
}

int main(int argc, char **argv) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  for (int i = 1; i < argc; i++) {
    Module *m = module_read(argv[i], d);
    if (!m) return EXIT_FAILURE;
    for_each_graph(g, m)
      check_graph(g, a, d);
    module_free(m);
  }
  arena_free(a);
  diag_free(d);
  printf("torch: %d results, %d failures\n", compared, failures);
  return failures || !compared ? EXIT_FAILURE : EXIT_SUCCESS;
}
