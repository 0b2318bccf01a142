// Every CPU kernel compared with its row's reference: see trials.h.
//
// Results are full of NaN before the call, operands must be unchanged after it, and every kernel of
// the table must have been called.  Results must agree to 1e-5 as a relative norm (f64: 1e-12; 16
// bits of attention: 1e-4).
//
//     kernels EXAMPLES.nn...

#include <stdlib.h>
#include <string.h>

#include "trials.h"

// Allocates memory as in the slab, at a multiple of 64 bytes; a sanitizer detects accesses past the
// end.
static void *bytes_new(const void *from, int64_t n) {
  void *p;
  if (posix_memalign(&p, 64, (size_t)(n ? n : 1))) abort();
  if (from)
    memcpy(p, from, (size_t)n);
  else
    memset(p, 0xff, (size_t)n);
  return p;
}

// The largest distance of a result.  Those of attention are computed in f32, in several steps with
// errors of about 1e-6.  So a few are on the other side of the middle of two 16-bit numbers than
// the reference, and are rounded to the other one; an operand or a sum of 16 bits would be at 1e-3.
static double limit_of(const Op *op, const Type *t) {
  bool attention = op->kind == OP_attention || op->kind == OP_attention_back;
  if (t->dtype == DT_f64) return 1e-12;
  return attention && dtype_narrow(t->dtype) ? 1e-4 : 1e-5;
}

static bool run(const Trial *t, Arena *a) {
  const Op *op = t->op;
  void *data[MAX_TERMS], *result[MAX_RESULTS];
  bool ok = true, taken[MAX_TERMS] = {0};
  for (int i = 0; i < op->n_in; i++)
    data[i] = bytes_new(t->in[i].data, type_bytes(t->in[i].type));
  for (int i = 0; i < op->n_out; i++) {
    int operand = trial_place(t, i);
    if (operand >= 0) taken[operand] = true;
    result[i] = operand >= 0 ? data[operand] : bytes_new(NULL, type_bytes(op->out[i]->type));
  }
  int code = trial_call(t, data, result, a);
  if (code) ok = trial_fail(t, "the kernel returns", code);
  for (int i = 0; ok && i < op->n_out; i++) {
    Tensor is = {op->out[i]->type, result[i]};
    double distance = tensor_distance(&is, &t->want[i]);
    if (!(distance <= limit_of(op, is.type)))
      ok = trial_fail(t, "differs from the reference by", distance);
  }
  for (int i = 0; i < op->n_in; i++) {
    if (ok && !taken[i] && memcmp(data[i], t->in[i].data, (size_t)type_bytes(t->in[i].type)))
      ok = trial_fail(t, "it changes operand", i);
    if (!taken[i]) free(data[i]);
  }
  for (int i = 0; i < op->n_out; i++)
    free(result[i]);
  return ok;
}

int main(int argc, char **argv) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Examples all = examples_read(argv + 1, argc - 1, a, d);
  // i8 and i16 are for kernels by element size.
  static const DType types[] = {DT_bf16, DT_f16, DT_f64, DT_i32, DT_i64, DT_i8, DT_i16};
  Trials t = {.target = TARGET_cpu,
              .types = types,
              .n_types = sizeof types / sizeof types[0],
              .max_elements = 60000,
              .run = run};
  trials_run(&t, &all, d);
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return t.failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
