// Products of matrices, by oneDNN's matmul; transposed operands are strides.
//
// Weights stay in plain row-major order.  They change every step, so a better layout for oneDNN
// would need a reorder each time, for a gain within the noise (at m 1024, two cores of AVX-512: 490
// to 530 Gflop/s plain, 500 to 540 reordered).

#include "dnnl.h"

// y (batch, m, n) = a b, with the strides of a's and b's rows and columns.
typedef struct Product {
  int64_t batch, m, n, k;
  int64_t a_row, a_column, b_row, b_column;
  bool swapped; // the operands of the run are b, a
} Product;

static NnrtPrep *product_prep(const char *name, const Product *p) {
  DnnlOp *op = dnnl_op_new(name, p->batch * p->m * p->n * p->k,
                           p->batch * (p->m * p->k + p->k * p->n + p->m * p->n));
  if (!op) return NULL;
  // A batch of one is a plain product, for which oneDNN has more implementations.
  int skip = p->batch == 1;
  int64_t ndim = 3 - skip;
  int64_t a_dim[] = {p->batch, p->m, p->k}, a_stride[] = {p->m * p->k, p->a_row, p->a_column};
  int64_t b_dim[] = {p->batch, p->k, p->n}, b_stride[] = {p->k * p->n, p->b_row, p->b_column};
  int64_t y_dim[] = {p->batch, p->m, p->n};
  dnnl_memory_desc_t a = dnnl_op_desc_strided(op, ndim, a_dim + skip, a_stride + skip);
  dnnl_memory_desc_t b = dnnl_op_desc_strided(op, ndim, b_dim + skip, b_stride + skip);
  dnnl_memory_desc_t y = dnnl_op_desc(op, ndim, y_dim + skip);
  dnnl_primitive_attr_t attr = dnnl_op_attr(op);
  dnnl_primitive_desc_t pd = NULL;
  // dnnl_op_arg reports errors; the descriptors are freed in any case.
  if (!op->failed && dnnl_op_ok(op, dnnl_matmul_primitive_desc_create(&pd, dnnl_op_engine(), a, b,
                                                                      NULL, y, attr))) {
    dnnl_op_step(op, pd);
    dnnl_op_arg(op, DNNL_ARG_DST, y, 0);
    dnnl_op_arg(op, DNNL_ARG_SRC, a, p->swapped ? 2 : 1);
    dnnl_op_arg(op, DNNL_ARG_WEIGHTS, b, p->swapped ? 1 : 2);
    dnnl_primitive_desc_destroy(pd);
  }
  dnnl_primitive_attr_destroy(attr);
  dnnl_desc_free(a);
  dnnl_desc_free(b);
  dnnl_desc_free(y);
  return dnnl_op_end(op);
}

NnrtPrep *nnrt_linear_prep_f32(int64_t m, int64_t k, int64_t n, bool trans) {
  Product p = {.batch = 1, .m = m, .n = n, .k = k, .a_row = k, .a_column = 1};
  p.b_row = trans ? 1 : n;
  p.b_column = trans ? k : 1;
  return product_prep("linear", &p);
}

int nnrt_linear_f32(NnrtPrep *p, float *y, const float *x, const float *w) {
  return dnnl_op_run(p, (const void *[]){y, x, w});
}

// dw (k, n) = x' dy, or dw (n, k) = dy' x
NnrtPrep *nnrt_linear_back_w_prep_f32(int64_t m, int64_t k, int64_t n, bool trans) {
  Product p = {.batch = 1, .m = trans ? n : k, .n = trans ? k : n, .k = m, .swapped = trans};
  // The first operand is transposed.
  p.a_row = 1;
  p.a_column = p.m;
  p.b_row = p.n;
  p.b_column = 1;
  return product_prep("linear_back_w", &p);
}

int nnrt_linear_back_w_f32(NnrtPrep *p, float *dw, const float *x, const float *dy) {
  return dnnl_op_run(p, (const void *[]){dw, x, dy});
}

NnrtPrep *nnrt_matmul_prep_f32(int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,
                               bool trans_b) {
  Product p = {.batch = batch, .m = m, .n = n, .k = k};
  p.a_row = trans_a ? 1 : k;
  p.a_column = trans_a ? m : 1;
  p.b_row = trans_b ? 1 : n;
  p.b_column = trans_b ? k : 1;
  return product_prep("matmul", &p);
}

int nnrt_matmul_f32(NnrtPrep *p, float *y, const float *a, const float *b) {
  return dnnl_op_run(p, (const void *[]){y, a, b});
}
