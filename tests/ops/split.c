// The table's promises about splitting, for every instance of every row:
//
//   letters  Every letter without the mark ^ and of even length is split in two.  The halves
//            are computed separately; results that have the letter are their concatenation, the
//            others their sum.  Both must equal the whole.  The elements along the letter are
//            independent, so the same holds for the even and the odd ones, unless the op reads
//            their global index; and of a reshape for letters that are minor factors.
//   queries  An interval of the queries of a causal attention, with the first attention_keys keys,
//            yields the rows of the interval.
//   places   Random numbers of a part, with `whole` and `start`, are those of the part of the whole.
//   ADDITIVE      f(a + a', b + b') = f(a, b) + f(a', b')
//   MULTILINEAR     f(a + a', b) = f(a, b) + f(a', b), for each operand
//   rows     every row has an instance and is split, or is exempt for a reason
//
// A wrong row fails here before it causes a wrong gradient.  A self-test removes the marks of a
// softmax and calls other ops linear: these must fail.
//
//     split EXAMPLES.nn...

#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "ir/build.h"

static const double tolerance = 1e-10;

static int failures, cuts;
static int cuts_of[N_OPS]; // by row
static bool quiet;         // during the self-test

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

// The halves of a letter: the first and the second, or the even and the odd elements.
typedef struct Halves {
  const Dims *dims;
  int letter;
  bool alternate;
} Halves;

// The type of a tensor whose dimension with the letter is three: of the factors before the halves,
// of the halves, of the factors after.  `n` of two halves.
static const Type *opened(const Halves *h, Module *m, const Type *t, const Term *term, int n) {
  int dim = term_dim(term, h->letter), f = 0;
  int64_t before = 1, size = h->dims->letter[h->letter].size, after = 1;
  for (; term->dim[dim].letter[f] != h->letter; f++)
    before *= h->dims->letter[term->dim[dim].letter[f]].size;
  for (f++; f < term->dim[dim].n; f++)
    after *= h->dims->letter[term->dim[dim].letter[f]].size;
  Type u = *t;
  memmove(&u.dim[dim + 3], &t->dim[dim + 1], (size_t)(t->ndim - dim - 1) * sizeof *t->dim);
  u.dim[dim] = h->alternate ? before * size / 2 : before;
  u.dim[dim + 1] = n;
  u.dim[dim + 2] = h->alternate ? after : size / 2 * after;
  u.ndim += 2;
  return type_new(m, u.dtype, u.ndim, u.dim);
}

static Tensor half_of(const Halves *h, Module *m, const Tensor *t, const Term *term, int half,
                      Arena *a) {
  int dim = term_dim(term, h->letter);
  if (dim < 0) return *t;
  Type u = *t->type;
  u.dim[dim] /= 2;
  Tensor open = {opened(h, m, t->type, term, 2), t->data};
  Tensor part = tensor_part(&open, m, dim + 1, half, 2, a);
  part.type = type_new(m, u.dtype, u.ndim, u.dim);
  return part;
}

static Tensor joined(const Halves *h, Module *m, const Tensor *t, const Tensor *u, const Term *term,
                     const Type *whole, Arena *a) {
  int dim = term_dim(term, h->letter);
  if (dim < 0) return tensor_sum(t, u, a);
  Tensor first = {opened(h, m, t->type, term, 1), t->data}, second = {first.type, u->data};
  Tensor both = tensor_concat(&first, &second, m, dim + 1, a);
  both.type = whole;
  return both;
}

// Checks a split of letter `letter` in two, if it is splittable.
static bool check_letter(const Op *op, const Halves *h, const Tensor *in, const Tensor *whole,
                         Arena *a, Diag *d) {
  Module *m = op->graph->module;
  const Dims *dims = h->dims;
  int letter = h->letter;
  char what[] = "letter ?";
  what[7] = dims->letter[letter].name;
  if (dims->letter[letter].whole || dims->letter[letter].size % 2) return true;
  bool skip = op->kind != OP_reshape && !dims_leads(dims, letter);
  // Permuted blocks are moved to other ranks: tests/passes/shard/ring.nn.
  skip |= op->kind == OP_permute_blocks && dims->letter[letter].name == PERMUTED_BLOCKS;
  for (int i = 0; i < op->n_in; i++)
    skip |= h->alternate && op->in[i].value->type->ndim + 2 > MAX_NDIM;
  for (int i = 0; i < op->n_out; i++)
    skip |= h->alternate && op->out[i]->type->ndim + 2 > MAX_NDIM;
  const Value *boxed = op_boxed(op);
  const Term *placed = boxed && !boxed->def ? &dims->in[0] : &dims->out[0];
  int cut = boxed ? term_dim(placed, letter) : -1;
  if (skip || (h->alternate && cut >= 0)) return true;

  cuts++;
  cuts_of[op->kind]++;
  Tensor *out[2];
  for (int half = 0; half < 2; half++) {
    Tensor part[MAX_TERMS];
    for (int i = 0; i < op->n_in; i++)
      part[i] = half_of(h, m, &in[i], &dims->in[i], half, a);
    Box box = box_new(op);
    if (cut >= 0) box.start[cut] = half * box.whole[cut] / 2;
    Op *piece = op_cut_alone(m, op, dims, letter, 2, d);
    if (!piece || !(out[half] = reference_new(piece, part, &box, a, d)))
      return fail(op, what, 0, 1);
  }
  for (int i = 0; i < op->n_out; i++) {
    Tensor both = joined(h, m, &out[0][i], &out[1][i], &dims->out[i], whole[i].type, a);
    double distance = tensor_distance(&both, &whole[i]);
    if (!(distance <= tolerance)) return fail(op, what, i, distance);
  }
  return true;
}

// Elements `from` to `to` along a dimension; all of them for dim < 0.
static Tensor interval(const Tensor *t, Module *m, int dim, int64_t from, int64_t to, Arena *a) {
  return dim < 0 ? *t : tensor_interval(t, m, dim, from, to, a);
}

// Checks the op on intervals of its operands and results along dimensions.
static bool check_interval(const Op *op, const Op *changed, const char *what, const Tensor *part,
                           const Tensor *whole, const int *dim, int64_t from, int64_t to, Arena *a,
                           Diag *d) {
  const Type *types[MAX_TERMS];
  for (int i = 0; i < op->n_in; i++)
    types[i] = part[i].type;
  cuts++;
  cuts_of[op->kind]++;
  Op *piece = op_alone(op->graph->module, changed, types, d);
  Tensor *out = piece ? reference_new(piece, part, NULL, a, d) : NULL;
  if (!out) return fail(op, what, 0, 1);
  for (int i = 0; i < op->n_out; i++) {
    Tensor want = interval(&whole[i], op->graph->module, dim[i], from, to, a);
    double distance = tensor_distance(&out[i], &want);
    if (!(distance <= tolerance)) return fail(op, what, i, distance);
  }
  return true;
}

static bool check_queries(const Op *op, const Dims *dims, const Tensor *in, const Tensor *whole,
                          Arena *a, Diag *d) {
  if (op->kind != OP_attention || !attr_i(op, "causal") || attr_i(op, "blocks")) return true;
  Module *m = op->graph->module;
  int t = dims_find(dims, 't'), s = dims_find(dims, 's'), dim[2];
  bool ok = true;
  for (int i = 0; i < 2; i++)
    dim[i] = term_dim(&dims->out[i], t);
  for (int64_t to = 1; to <= dims->letter[t].size; to++)
    for (int64_t from = 0; from < to && attention_keys(op, to) > 0; from++) {
      Tensor part[4];
      for (int i = 0; i < op->n_in; i++) {
        part[i] = interval(&in[i], m, term_dim(&dims->in[i], t), from, to, a);
        part[i] = interval(&part[i], m, term_dim(&dims->in[i], s), 0, attention_keys(op, to), a);
      }
      ok &= check_interval(op, op, "queries", part, whole, dim, from, to, a, d);
    }
  return ok;
}

static bool check_places(const Op *op, const Tensor *in, const Tensor *whole, Arena *a, Diag *d) {
  const Type *t = op->out[0]->type;
  if (!op_draws(op->kind) || attr_n(op, "whole")) return true;
  int n_attrs;
  const AttrSpec *spec = op_attr_specs(op->kind, &n_attrs);
  bool ok = true;
  for (int dim = 0; dim < t->ndim; dim++)
    for (int64_t from = 0; from < t->dim[dim]; from++) {
      // From there to the end, and the op with the place.
      Tensor part[3] = {interval(&in[0], op->graph->module, dim, from, t->dim[dim], a), in[1],
                        in[2]};
      int64_t start[MAX_NDIM] = {0};
      start[dim] = from;
      Op changed = *op;
      Attr *attrs = arena_copy(a, op->attrs, sizeof(Attr) * (size_t)n_attrs);
      for (int i = 0; i < n_attrs; i++) {
        if (str_equal(spec[i].name, "whole")) attrs[i] = a_list("whole", t->dim, t->ndim);
        if (str_equal(spec[i].name, "start")) attrs[i] = a_list("start", start, t->ndim);
      }
      changed.attrs = attrs;
      ok &= check_interval(op, &changed, "places", part, whole, &dim, from, t->dim[dim], a, d);
    }
  return ok;
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
    for (int alternate = 0; alternate < 2; alternate++)
      ok &= check_letter(op, &(Halves){&dims, letter, alternate}, in, whole, a, d);
  ok &= check_queries(op, &dims, in, whole, a, d) && check_places(op, in, whole, a, d);
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

// Rows that nothing here splits.
static const struct {
  OpKind kind;
  const char *reason;
} exempt[] = {
    {OP_constant, "its bytes are those of the whole value, of which ranks take slices"},
    {OP_pack, "a bucket of local gradients, made after all ops are split"},
    {OP_unpack, "the same"},
    {OP_swap_out, "a copy to host memory of a local value, made after all ops are split"},
    {OP_swap_in, "the same, back"},
    {OP_swap_wait, "the end of such a copy"},
};

static const char *reason_of(OpKind kind) {
  if (op_info[kind].traits & COMM) return "communicates: ranks run it in tests/passes/comm";
  if (op_has_callee(kind)) return "calls a graph, whose ops are split";
  for (size_t i = 0; i < sizeof exempt / sizeof *exempt; i++)
    if (exempt[i].kind == kind) return exempt[i].reason;
  return NULL;
}

// Each row has an instance and a cut, or is named above; and none of these has one.
static void check_coverage(const Examples *all) {
  for (int kind = 0; kind < N_OPS; kind++) {
    const char *reason = reason_of(kind), *wrong = NULL;
    bool found = false;
    for (int i = 0; i < all->n; i++)
      found |= (int)all->at[i].op->kind == kind;
    if (!found && !reason) wrong = "has no instance";
    if (found && !reason && !cuts_of[kind]) wrong = "is split by no letter of its instances";
    if (reason && cuts_of[kind]) wrong = "is named as one that nothing splits";
    if (!wrong) continue;
    fprintf(stderr, "split: %s %s\n", op_info[kind].name, wrong);
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
  check_coverage(&all);
  check_the_test(&all, a, d);
  printf("split: %d cuts of %d instances, %d failures\n", cuts, all.n, failures);
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
