// Every CPU kernel compared with its row's reference: see trials.h.
//
// Results are full of NaN before the call, operands must be unchanged after it, and every kernel of
// the table must have been called.  Results must agree to 1e-5 as a relative norm (f64: 1e-12).  A
// 16-bit result of a sum in f32 may instead differ in few elements, each the neighbour of the
// reference's: the sum is near the middle of both.  Of whole numbers, as in log_softmax of steep
// logits, more sums are exactly there.
//
// The products of lstm and its gradient in 16 bits read states and adjoints rounded to 16 bits, and
// the reference's are not rounded: the distance is at most 2^-7 (f16: 2^-10), as on GPUs.
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

// Whether 16-bit tensors differ in 1 of 32 elements at most, and only between neighbours.
static bool is_rounded_apart(const Tensor *is, const Tensor *want) {
  if (!dtype_narrow(is->type->dtype)) return false;
  const uint16_t *x = is->data, *y = want->data;
  int64_t n = type_count(is->type), apart = 0;
  for (int64_t i = 0; i < n; i++) {
    if (x[i] == y[i]) continue;
    // Neighbours of one sign have consecutive bits.
    if (x[i] != y[i] + 1 && y[i] != x[i] + 1) return false;
    apart++;
  }
  return apart <= 1 + n / 32;
}

// The maximal distance of result `i` from the reference.
static double limit_of(const Op *op, int i) {
  DType result = op->out[i]->type->dtype, operands = op->in[0].value->type->dtype;
  bool rounds = op->kind == OP_lstm || op->kind == OP_lstm_back;
  if (rounds && dtype_narrow(operands)) return operands == DT_bf16 ? 0x1p-7 : 0x1p-10;
  return result == DT_f64 ? 1e-12 : 1e-5;
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
    if (!(distance <= limit_of(op, i)) && !is_rounded_apart(&is, &t->want[i]))
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
