// Products of matrices by oneDNN's matmul, for the shapes of which it is faster than our own kernel
// (gemm.h); transposed operands are strides.
//
// GFLOP/s of f32 by one core of a Zen 5, oneDNN 3.2's and ours; dx and dw are the gradients:
//
//     m: k > n                      AVX2         AVX-512
//     2048: 256 > 1024   dw         67  105      210  198
//     2048: 1024 > 256   dw         82  100      229  205
//     128: 512 > 512     dw         88  126      256  246
//     128: 512 > 512     dx        113  120      249  232
//     1024: 384 > 1536   forward   124  114      253  234
//     1024: 384 > 50257  dx        123  115      204  211
//     1024: 384 > 50257  dw        118  108      200  209
//
// Before AVX-512 oneDNN's kernels lose time on rows a power of two apart, which are in the same
// sets of a cache; ours packs them.  Smaller caches lose more: of 102 GFLOP/s a Zen 3 does 37 in
// the first two, and 71 forward of 2048: 1024 > 256, where this one does 124.  With AVX-512 ours is
// the faster one of large vocabularies.  The choice depends on shape and instruction set alone, on
// which ranks agree.
//
// Products of bf16 are oneDNN's if the processor has instructions for them (AVX512-BF16, AMX),
// which multiply twice as many numbers: 480 to 520 GFLOP/s in most of the shapes above.  Otherwise,
// and for f16, ours are: operands become f32 as they are packed.  All sums are f32.
//
// Weights stay in plain row-major order.  They change every step, so a better layout for oneDNN
// would need a reorder each time, for a gain within the noise (at m 1024, two cores of AVX-512: 490
// to 530 Gflop/s plain, 500 to 540 reordered).

#include "dnnl.h"
#include "library.h"

static dnnl_data_type_t dnnl_type(GemmType t) {
  return t == GEMM_f32 ? dnnl_f32 : t == GEMM_bf16 ? dnnl_bf16 : dnnl_f16;
}

NnrtPrep *library_product_prep(const char *name, const Gemm *g) {
  DnnlOp *op = dnnl_op_new(name, g->batch * g->m * g->n * g->k,
                           g->batch * (g->m * g->k + g->k * g->n + g->m * g->n));
  if (!op) return NULL;
  // A batch of one is a plain product, for which oneDNN has more implementations.
  int skip = g->batch == 1;
  int64_t ndim = 3 - skip;
  int64_t a_dim[] = {g->batch, g->m, g->k}, a_stride[] = {g->m * g->k, g->a_row, g->a_column};
  int64_t b_dim[] = {g->batch, g->k, g->n}, b_stride[] = {g->k * g->n, g->b_row, g->b_column};
  int64_t y_dim[] = {g->batch, g->m, g->n};
  int64_t y_stride[] = {g->m * g->n, g->n, 1};
  dnnl_data_type_t in = dnnl_type(g->in), out = dnnl_type(g->out);
  dnnl_memory_desc_t a = dnnl_op_desc_typed(op, in, ndim, a_dim + skip, a_stride + skip);
  dnnl_memory_desc_t b = dnnl_op_desc_typed(op, in, ndim, b_dim + skip, b_stride + skip);
  dnnl_memory_desc_t y = dnnl_op_desc_typed(op, out, ndim, y_dim + skip, y_stride + skip);
  dnnl_primitive_attr_t attr = dnnl_op_attr(op);
  dnnl_primitive_desc_t pd = NULL;
  // dnnl_op_arg reports errors; the descriptors are freed in any case.
  if (!op->failed && dnnl_op_ok(op, dnnl_matmul_primitive_desc_create(&pd, dnnl_op_engine(), a, b,
                                                                      NULL, y, attr))) {
    dnnl_op_step(op, pd);
    dnnl_op_arg(op, DNNL_ARG_DST, y, 0);
    dnnl_op_arg(op, DNNL_ARG_SRC, a, 1);
    dnnl_op_arg(op, DNNL_ARG_WEIGHTS, b, 2);
    dnnl_primitive_desc_destroy(pd);
  }
  dnnl_primitive_attr_destroy(attr);
  dnnl_desc_free(a);
  dnnl_desc_free(b);
  dnnl_desc_free(y);
  return dnnl_op_end(op);
}

static bool dnnl_has(int set) {
  return ((int)dnnl_get_effective_cpu_isa() & set) == set;
}

// Whether our own kernel is the faster one: see the table above.
static bool prefers_own(const Gemm *g) {
  enum { NARROW = 48, LONG = 1 << 14 };
  if (g->in != GEMM_f32) return g->in == GEMM_f16 || !dnnl_has(dnnl_cpu_isa_avx512_core_bf16);
  if (g->m < NARROW || g->n < NARROW || g->k < NARROW) return false; // oneDNN has smaller tiles
  if (!tile_is_wide()) return false;
  // Distances of rows in memory, in floats.
  int64_t a = g->a_column == 1 ? g->a_row : g->a_column;
  int64_t b = g->b_column == 1 ? g->b_row : g->b_column;
  bool weight_gradient = g->a_column != 1;
  if (dnnl_has(dnnl_cpu_isa_avx512_core))
    return weight_gradient ? g->m >= LONG && a % 16 != 0 : g->k >= LONG && g->b_column == 1;
  if (weight_gradient) return a % 256 == 0 || b % 256 == 0;
  return a % 1024 == 0 || (g->b_column == 1 && a % 512 == 0 && b % 512 == 0);
}

bool library_has_product(const Gemm *g) {
  return !prefers_own(g);
}

int library_product_run(NnrtPrep *p, void *y, const void *a, const void *b) {
  return dnnl_op_run(p, (const void *[]){y, a, b});
}

int library_multiply(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                     int64_t a_row, const float *b, int64_t b_row, float *c) {
  dnnl_status_t status = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0f, a,
                                    a_row, b, b_row, 0.0f, c, n);
  if (status == dnnl_success) return NNRT_OK;
  return nnrt_error(NNRT_LIBRARY, "oneDNN's sgemm fails with status %d", (int)status);
}
