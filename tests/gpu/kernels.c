// Every GPU kernel against its row's reference: see ../ops/trials.h.
//
// Operands and results are in GPU memory.  Results are full of NaN before the call, or zero if the
// row accumulates: then it is called twice, and must yield twice as much.  Operands must be
// unchanged afterwards, there must be no finding, and every kernel of the table must have been
// called.  The maximal distance from the reference, which computes in double on the same operands,
// as a relative norm:
//
//     f64    1e-12
//     f32    1e-5    kernels compute in float
//     bf16   2^-7    the reference rounds once, by 2^-9 at most.  A kernel may round the other way
//     f16    2^-10   near the middle, and rounds intermediate results between two products
//
// f32 results of rows with 16-bit operands get the 16-bit tolerance if the row rounds an
// intermediate result.
//
//     gpu_kernels EXAMPLES.nn...

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "../ops/trials.h"
#include "cuda/gpu.h"
#include "runtime.h"

static NnrtGpu gpu;

static void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "gpu_kernels: %s: %s\n", what, cudaGetErrorString(error));
  exit(EXIT_FAILURE);
}

static void gpu_open(void) {
  int major, minor;
  must(cudaSetDevice(0), "the first gpu");
  must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "the gpu's age");
  must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "the gpu's age");
  must(cudaDeviceGetAttribute(&gpu.processors, cudaDevAttrMultiProcessorCount, 0), "its size");
  gpu.sm = 10 * major + minor;
  must(cudaStreamCreate(&gpu.stream), "a stream");
  must(cudaStreamCreate(&gpu.comm), "a stream");
  must(cudaMalloc((void **)&gpu.finding, sizeof *gpu.finding), "memory");
  must(cudaMemset(gpu.finding, 0, sizeof *gpu.finding), "zeroing memory");
  nnrt_gpu_use(&gpu);
}

static void *bytes_new(const void *from, int64_t n) {
  void *p;
  must(cudaMalloc(&p, (size_t)(n ? n : 1)), "memory");
  if (from)
    must(cudaMemcpy(p, from, (size_t)n, cudaMemcpyHostToDevice), "copying there");
  else
    must(cudaMemset(p, 0xff, (size_t)n), "filling memory");
  return p;
}

static void *bytes_back(const void *p, int64_t n, Arena *a) {
  void *to = arena_array(a, char, n + 1);
  must(cudaMemcpy(to, p, (size_t)n, cudaMemcpyDeviceToHost), "copying back");
  return to;
}

static double limit_of(DType t) {
  switch ((int)t) {
  case DT_f64: return 1e-12;
  case DT_bf16: return 0x1p-7;
  case DT_f16: return 0x1p-10;
  }
  return 1e-5;
}

// The element type with the rounding that determines the tolerance of result `i`.
static DType rounded_to(const Op *op, int i) {
  DType t = op->out[i]->type->dtype;
  if (t != DT_f32) return t;
  // Results computed from a product or a sum that was rounded to 16 bits.
  switch ((int)op->kind) {
  case OP_conv_back_w: // cuDNN's result has 16 bits
  case OP_attention_back:
  case OP_attention_packed_back:
  case OP_add_layer_norm:
  case OP_add_rms_norm:
  case OP_lstm: // the states that products read have 16 bits
  case OP_lstm_back:
  case OP_classifier:
  case OP_classifier_back: return op->in[0].value->type->dtype;
  }
  return t;
}

static bool is_added_up(const Op *op, int i) {
  return i == 0 && (op_info[op->kind].traits & ACCUMULATES);
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
    int64_t bytes = type_bytes(op->out[i]->type);
    result[i] = operand >= 0 ? data[operand] : bytes_new(NULL, bytes);
    if (is_added_up(op, i)) must(cudaMemset(result[i], 0, (size_t)bytes), "zeroing a sum");
  }
  int code = trial_call(t, data, result, a);
  if (!code && (op_info[op->kind].traits & ACCUMULATES)) code = trial_call(t, data, result, a);
  must(cudaStreamSynchronize(gpu.stream), "waiting for the kernel");
  if (code) {
    ok = trial_fail(t, "the kernel returns", code);
    fprintf(stderr, "    %s\n", nnrt_error_detail());
  }
  NnrtFinding *found = bytes_back(gpu.finding, sizeof *found, a);
  if (ok && found->code)
    ok = trial_fail(t, "it finds an index out of range:", (double)found->value);
  must(cudaMemset(gpu.finding, 0, sizeof *gpu.finding), "zeroing memory");
  for (int i = 0; ok && i < op->n_out; i++) {
    const Type *type = op->out[i]->type;
    Tensor is = {type, bytes_back(result[i], type_bytes(type), a)};
    Tensor want = is_added_up(op, i) ? tensor_sum(&t->want[i], &t->want[i], a) : t->want[i];
    double distance = tensor_distance(&is, &want);
    if (!(distance <= limit_of(rounded_to(op, i))))
      ok = trial_fail(t, "differs from the reference by", distance);
  }
  for (int i = 0; i < op->n_in; i++) {
    int64_t n = type_bytes(t->in[i].type);
    if (ok && !taken[i] && memcmp(bytes_back(data[i], n, a), t->in[i].data, (size_t)n))
      ok = trial_fail(t, "it changes operand", i);
    if (!taken[i]) must(cudaFree(data[i]), "freeing memory");
  }
  for (int i = 0; i < op->n_out; i++)
    must(cudaFree(result[i]), "freeing memory");
  return ok;
}

int main(int argc, char **argv) {
  Arena *a = arena_new();
  Diag *d = diag_new(stderr);
  Examples all = examples_read(argv + 1, argc - 1, a, d);
  static const DType types[] = {DT_bf16, DT_f16, DT_f64, DT_i32, DT_i64, DT_i8, DT_i16};
  Trials t = {.target = TARGET_cuda,
              .types = types,
              .n_types = sizeof types / sizeof types[0],
              .n_larger_types = 2,
              .max_elements = 20000,
              .run = run};
  gpu_open();
  trials_run(&t, &all, d);
  examples_free(&all);
  arena_free(a);
  diag_free(d);
  return t.failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
