// Gradients of every row that has one, compared with central differences (gradients.h), with random
// r for each floating result in turn and each floating operand, in double, as a relative norm.  The
// gradient ops that the row appends are computed by their references.  A row may refuse the
// gradient of results after the first.  For an operand without a gradient the differences must be
// zero.
//
//     grad EXAMPLES.nn...

#include <math.h>
#include <stdlib.h>

#include "base/vec.h"
#include "gradients.h"

static const double tolerance = 1e-6;

static int failures, compared;
static bool quiet; // during the self-test

static bool fail(const Op *op, int result, int operand, const char *what, double distance) {
  failures++;
  if (!quiet)
    fprintf(stderr, "%s: %s: gradient of result %d by operand %d: %s (%g)\n",
            loc_text(op->graph->module->arena, op->loc), op_info[op->kind].name, result, operand,
            what, distance);
  return false;
}

static bool op_floats(const Value *v) {
  return dtype_class[v->type->dtype] == 'F';
}

// `lie`: one element of the adjoint of operand 0 is falsified.
static bool check_result(const Example *e, const Op *op, int result, bool lie, Random *random,
                         Arena *a, Diag *d) {
  Tensor *in = operands_new(e, op, random, a), din[MAX_TERMS];
  Tensor r = tensor_new(a, op->out[result]->type);
  for (int64_t i = 0; i < type_count(r.type); i++)
    tensor_set_f(&r, i, 2 * random_unit(random) - 1);
  diag_quiet(d, result > 0);
  bool given = gradients_by_row(op, result, in, &r, din, a, d);
  diag_quiet(d, quiet);
  if (!given) return result > 0 || fail(op, result, 0, "the row refuses", 0);
  bool ok = true;
  for (int i = 0; i < op->n_in; i++) {
    if (!op_floats(op->in[i].value)) continue;
    Tensor want = gradient_by_differences(op, result, i, in, &r, a, d);
    if (!din[i].data) din[i] = tensor_new(a, want.type);
    if (lie && i == 0) tensor_set_f(&din[i], 0, tensor_f(&din[i], 0) + 1e-3);
    double distance = tensor_distance(&din[i], &want);
    compared++;
    if (!(distance < tolerance)) ok = fail(op, result, i, "differs from differences", distance);
  }
  return ok;
}

static bool check_example(const Example *e, bool lie, Arena *a, Diag *d) {
  if (op_info[e->op->kind].grad == no_grad || op_info[e->op->kind].traits & COMM) return true;
  Op *op = op_double(e->module, e->op, d);
  if (!op) return fail(e->op, 0, 0, "in double", 0);
  bool ok = true;
  Random random = {2};
  for (int i = 0; i < op->n_out; i++)
    if (op_floats(op->out[i])) ok &= check_result(e, op, i, lie, &random, a, d);
  return ok;
}

static void check_the_test(const Examples *all, Arena *a, Diag *d) {
  int before = failures, wrong = 0, caught = 0;
  quiet = true;
  for (int i = 0; i < all->n; i++) {
    if (all->at[i].op->kind != OP_softmax && all->at[i].op->kind != OP_linear) continue;
    if (!op_floats(all->at[i].op->in[0].value)) continue;
    wrong++;
    caught += !check_example(&all->at[i], true, a, d);
  }
  quiet = false;
  failures = before;
  if (wrong && wrong == caught) return;
  fprintf(stderr, "grad: of %d gradients made wrong, %d were noticed\n", wrong, caught);
  failures++;
}

// Every differentiable row has an instance whose gradient is compared.
static void check_coverage(const Examples *all) {
  for (int kind = 0; kind < N_OPS; kind++) {
    // Those of loops, which have a body, are compared in tests/eval/loop_gradients.py.
    if (op_info[kind].grad == no_grad || op_info[kind].grad == zero_grad || kind == OP_call ||
        kind == OP_loop)
      continue;
    bool found = false;
    for (int i = 0; i < all->n && !found; i++)
      found = (int)all->at[i].op->kind == kind && op_floats(all->at[i].op->out[0]);
    if (found) continue;
    fprintf(stderr, "grad: no floating instance of %s\n", op_info[kind].name);
    failures++;
  }
}

int main(int argc, char **argv) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Examples all = examples_read(argv + 1, argc - 1, a, d);
  for (int i = 0; i < all.n; i++) {
    Arena *scratch = arena_new();
    check_example(&all.at[i], false, scratch, d);
    arena_free(scratch);
  }
  check_the_test(&all, a, d);
  check_coverage(&all);
  printf("grad: %d gradients of %d instances, %d failures\n", compared, all.n, failures);
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
