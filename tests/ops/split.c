// The table's promises about splitting, for every instance of every row:
//
//   letters  Every letter without the mark ^ and of even length is split in two.  The halves
//            are computed separately; results that have the letter are their concatenation, the
//            others their sum.  Both must equal the whole.
//   ADDITIVE      f(a + a', b + b') = f(a, b) + f(a', b')
//   MULTILINEAR     f(a + a', b) = f(a, b) + f(a', b), for each operand
//   rows     every row has an instance
//
// A wrong row fails here before it causes a wrong gradient.  A self-test removes the marks of a
// softmax and calls other ops linear: these must fail.
//
//     split EXAMPLES.nn...

#include <stdlib.h>

#include "harness.h"

static const double tolerance = 1e-10;

static int failures, cuts;
static bool quiet; // during the self-test

static bool fail(const Op *op, const char *what, int result, double distance) {
  failures++;
  if (!quiet)
    fprintf(stderr, "%s: %s: %s: result %d differs by %g\n",
            loc_text(op->graph->module->arena, op->loc), op_info[op->kind].name, what, result,
            distance);
  return false;
}

static bool compare(const Op *op, const char *what, const Tensor *is, const Tensor *want) {
  for (int i = 0; i < op->n_out; i++) {
    double distance = tensor_distance(&is[i], &want[i]);
    if (!(distance <= tolerance)) return fail(op, what, i, distance);
  }
  return true;
}

// Checks a split of letter `letter` in two, if it is splittable.
static bool check_letter(const Op *op, const Dims *dims, int letter, const Tensor *in,
                         const Tensor *whole, Arena *a, Diag *d) {
  Module *m = op->graph->module;
  char what[] = "letter ?";
  what[7] = dims->letter[letter].name;
  if (dims->letter[letter].whole || dims->letter[letter].size % 2) return true;
  for (int i = 0; i < dims->n_in; i++)
    if (dims_position(dims, &dims->in[i], letter) == -2) return true;
  for (int i = 0; i < dims->n_out; i++)
    if (dims_position(dims, &dims->out[i], letter) == -2) return true;

  cuts++;
  Tensor *out[2];
  for (int half = 0; half < 2; half++) {
    Tensor part[MAX_TERMS];
    for (int i = 0; i < op->n_in; i++) {
      int dim = dims_position(dims, &dims->in[i], letter);
      part[i] = dim < 0 ? in[i] : tensor_part(&in[i], m, dim, half, 2, a);
    }
    const Value *boxed = op_boxed(op);
    Box box = box_new(op);
    const Term *placed = boxed && !boxed->def ? &dims->in[0] : &dims->out[0];
    int cut = dims_position(dims, placed, letter);
    if (cut >= 0) box.start[cut] = half * box.whole[cut] / 2;
    Op *piece = op_cut_alone(m, op, dims, letter, 2, d);
    if (!piece || !(out[half] = reference_new(piece, part, &box, a, d)))
      return fail(op, what, 0, 1);
  }
  for (int i = 0; i < op->n_out; i++) {
    int dim = dims_position(dims, &dims->out[i], letter);
    Tensor both = dim < 0 ? tensor_sum(&out[0][i], &out[1][i], a)
                          : tensor_concat(&out[0][i], &out[1][i], m, dim, a);
    double distance = tensor_distance(&both, &whole[i]);
    if (!(distance <= tolerance)) return fail(op, what, i, distance);
  }
  return true;
}

// Whether linearity covers this operand: floats; integers of the result's type if results are
// integers.
static bool counts(const Op *op, const Tensor *in) {
  if (op->n_out && !tensor_floats(in) && in->type->dtype != DT_bool)
    return in->type->dtype == op->out[0]->type->dtype;
  return tensor_floats(in);
}

// Adds `other` to these operands (to operand `only`, unless that is -1), and compares with the sum
// of the results.
static bool check_linear(const Op *op, const Tensor *in, const Tensor *other, int only, Arena *a,
                         Diag *d) {
  Tensor changed[MAX_TERMS], sum[MAX_TERMS];
  for (int i = 0; i < op->n_in; i++) {
    bool adds = counts(op, &in[i]) && (only < 0 || i == only);
    changed[i] = adds ? other[i] : in[i];
    sum[i] = adds ? tensor_sum(&in[i], &other[i], a) : in[i];
  }
  Tensor *x = reference_new(op, in, NULL, a, d), *y = reference_new(op, changed, NULL, a, d);
  Tensor *is = reference_new(op, sum, NULL, a, d), want[MAX_RESULTS];
  if (!x || !y || !is) return fail(op, "traits", 0, 1);
  for (int i = 0; i < op->n_out; i++)
    want[i] = tensor_sum(&x[i], &y[i], a);
  return compare(op, only < 0 ? "ADDITIVE" : "MULTILINEAR", is, want);
}

// `lie`: pretends that no letter is marked and that the row is linear.
static bool check_example(const Example *e, bool lie, Arena *a, Diag *d) {
  Module *m = e->module;
  Op *op = op_double(m, e->op, d);
  Dims dims;
  if (!op || !op_dims(op, &dims, d)) return fail(e->op, "in double", 0, 1);
  int traits = op_info[op->kind].traits;
  if (traits & COMM) return true; // tested with ranks in tests/passes
  for (int i = 0; lie && i < dims.n_letters; i++)
    dims.letter[i].whole = false;
  Random r = {1};
  Tensor *in = operands_new(e, op, &r, a), *other = operands_new(e, op, &r, a);
  Tensor *whole = reference_new(op, in, NULL, a, d);
  if (!whole) return fail(op, "reference", 0, 1);
  bool ok = true;
  for (int letter = 0; letter < dims.n_letters; letter++)
    ok &= check_letter(op, &dims, letter, in, whole, a, d);
  if (lie || traits & ADDITIVE) ok &= check_linear(op, in, other, -1, a, d);
  for (int i = 0; traits & MULTILINEAR && i < op->n_in; i++)
    if (counts(op, &in[i])) ok &= check_linear(op, in, other, i, a, d);
  return ok;
}

// Wrong rows must fail: softmax without its marks, and nonlinear ops as linear ones.
static void check_the_test(const Examples *all, Arena *a, Diag *d) {
  int wrong = 0, caught = 0;
  int before = failures, cuts_before = cuts;
  quiet = true;
  diag_quiet(d, true);
  for (int i = 0; i < all->n; i++) {
    OpKind kind = all->at[i].op->kind;
    if (kind != OP_softmax && kind != OP_layer_norm && kind != OP_cross_entropy &&
        kind != OP_square)
      continue;
    wrong++;
    caught += !check_example(&all->at[i], true, a, d);
  }
  quiet = false;
  diag_quiet(d, false);
  failures = before;
  cuts = cuts_before;
  if (wrong && wrong == caught) return;
  fprintf(stderr, "split: of %d rows made wrong, %d were noticed\n", wrong, caught);
  failures++;
}

static void check_coverage(const Examples *all) {
  for (int kind = 0; kind < N_OPS; kind++) {
    // Ops that copy to host memory and back are split like their value, and valid only in pairs.
    bool swaps = kind == OP_swap_out || kind == OP_swap_in || kind == OP_swap_wait;
    bool found = op_info[kind].traits & COMM || op_has_callee((OpKind)kind) || swaps;
    for (int i = 0; i < all->n && !found; i++)
      found = (int)all->at[i].op->kind == kind;
    if (found) continue;
    fprintf(stderr, "split: no instance of %s\n", op_info[kind].name);
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
  printf("split: %d cuts of %d instances, %d failures\n", cuts, all.n, failures);
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
