// 16-bit types: every row with floating operands takes them, and computes like f32 on the same
// numbers, with one rounding at the end.  Operands of class S stay f32 and are not rounded.
//
//     types examples.nn …

#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

static int instances, failures;

static void fail(const Op *op, DType t, const char *what, double by) {
  fprintf(stderr, "types: %s in %s: %s %g\n", op_info[op->kind].name, dtype_name[t], what, by);
  failures++;
}

// Returns the op with its f32 operands, except class S, in type `t`; NULL if there are none.
static Op *with_type(const Example *e, DType t, Diag *d) {
  const Type *types[MAX_TERMS];
  bool any = false;
  for (int i = 0; i < e->op->n_in; i++) {
    const Type *was = types[i] = e->op->in[i].value->type;
    char class = op_operand_class(e->op, i);
    if (was->dtype != DT_f32 || !class || class == 'S') continue;
    types[i] = type_new(e->module, t, was->ndim, was->dim);
    any = true;
  }
  return any ? op_alone(e->module, e->op, types, d) : NULL;
}

static Tensor in_type(const Tensor *t, const Type *type, Arena *a) {
  if (t->type->dtype == type->dtype) return *t;
  Tensor to = tensor_new(a, type);
  for (int64_t i = 0; i < type_count(type); i++)
    tensor_set_f(&to, i, tensor_f(t, i));
  return to;
}

static void compare(const Op *op, const Op *narrow, DType t, const Tensor *is, const Tensor *wide,
                    Arena *a) {
  for (int i = 0; i < op->n_out; i++) {
    DType was = op->out[i]->type->dtype, now = narrow->out[i]->type->dtype;
    if (now != was && now != t) fail(op, t, "another type has result", i);
    // Rounding twice, by way of f32, may end at the other neighbour.
    double limit = now == t ? (t == DT_bf16 ? 0x1p-8 : 0x1p-11) : 0;
    Tensor want = in_type(&wide[i], narrow->out[i]->type, a);
    double distance = tensor_distance(&is[i], &want);
    if (!(distance <= limit)) fail(op, t, "a result differs by", distance);
  }
}

static void check(const Example *e, DType t, Diag *d) {
  const Op *op = e->op;
  // The offsets in a bucket depend on the element size.
  if (op->callee || op->kind == OP_pack || op_info[op->kind].traits & COMM) return;
  Op *narrow = with_type(e, t, d);
  if (!narrow) return;
  Arena *a = arena_new();
  Random r = {5};
  Tensor *in = operands_new(e, narrow, &r, a), *wide = arena_array(a, Tensor, op->n_in);
  for (int i = 0; i < op->n_in; i++)
    wide[i] = in_type(&in[i], op->in[i].value->type, a);
  Tensor *is = reference_new(narrow, in, NULL, a, d), *want = reference_new(op, wide, NULL, a, d);
  instances++;
  if (is && want)
    compare(op, narrow, t, is, want, a);
  else
    fail(op, t, "the reference fails", 0);
  arena_free(a);
}

int main(int argc, char **argv) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Examples all = examples_read(argv + 1, argc - 1, a, d);
  for (int i = 0; i < all.n; i++) {
    check(&all.at[i], DT_bf16, d);
    check(&all.at[i], DT_f16, d);
  }
  printf("types: %d instances, %d failures\n", instances, failures);
  bool ok = !failures && instances > 200;
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
