// The products of the op table: each is one prepared product of products.h.
//
//     linear                  y (m, n) = x w       w is stored (k, n), or (n, k) when `trans`
//     linear_back_w           dw (k, n) = x' dy    or dw (n, k) = dy' x; always f32
//     matmul                  y = a b, a batch of them
//     linear_bias             y = x w + b
//     linear_gelu_tanh        pre = x w + b, y = gelu_tanh(pre)
//     linear_gelu_tanh_back   dpre = gelu_tanh'(pre) (x w)
//     linear_back_w_bias      linear_back_w, and db (n) = the sum of the rows of dy
//     …_accumulate            of these two: dw is added to its old value, db is written
//
// Accumulating costs one more read of dw.  A separate kernel would read dw again, and the sum, and
// write it.

#include "products.h"

#include <stdlib.h>

#include "runtime.h"

typedef struct Product {
  NnrtPrep base;
  NnrtGemm *gemm;
  bool swapped; // dy is on the left
} Product;

static void product_free(NnrtPrep *prep) {
  Product *p = (Product *)prep;
  nnrt_gemm_free(p->gemm);
  free(p);
}

static NnrtPrep *product_new(const NnrtGemmSpec *s, bool swapped) {
  NnrtGemm *gemm = nnrt_gemm_new(s);
  // The error is already reported.
  if (!gemm) return NULL;
  Product *p = nnrt_must_alloc(sizeof *p);
  *p = (Product){.base = {.free = product_free}, .gemm = gemm, .swapped = swapped};
  return &p->base;
}

static NnrtPrep *linear(NnrtDtype t, int64_t m, int64_t k, int64_t n, bool trans, NnrtEpilogue e) {
  NnrtGemmSpec s = nnrt_gemm_packed(t, t, 1, m, n, k, false, trans);
  s.epilogue = e;
  return product_new(&s, false);
}

// `beta` is 1 if dw is accumulated.
static NnrtPrep *linear_back_w(NnrtDtype t, int64_t m, int64_t k, int64_t n, bool trans, bool bias,
                               float beta) {
  // The transposed dw is dy' x, with the operands swapped.
  NnrtGemmSpec s = trans ? nnrt_gemm_packed(t, NNRT_f32, 1, n, k, m, true, false)
                         : nnrt_gemm_packed(t, NNRT_f32, 1, k, n, m, true, false);
  s.beta = beta;
  if (bias) s.epilogue = trans ? NNRT_EPILOGUE_sum_a : NNRT_EPILOGUE_sum_b;
  return product_new(&s, trans);
}

static NnrtPrep *matmul(NnrtDtype t, int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,
                        bool trans_b) {
  NnrtGemmSpec s = nnrt_gemm_packed(t, t, batch, m, n, k, trans_a, trans_b);
  return product_new(&s, false);
}

static int run(NnrtPrep *prep, void *d, const void *a, const void *b, const void *bias,
               const void *aux) {
  Product *p = (Product *)prep;
  // The epilogue writes one of the last two.
  return nnrt_gemm_run(p->gemm, d, p->swapped ? b : a, p->swapped ? a : b, unconst(bias),
                       unconst(aux), NULL);
}

#define PRODUCTS(type, T)                                                                          \
  NnrtPrep *nnrt_linear_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {                 \
    return linear(NNRT_##type, m, k, n, trans, NNRT_EPILOGUE_none);                                \
  }                                                                                                \
  int nnrt_linear_##type(NnrtPrep *p, T *y, const T *x, const T *w) {                              \
    return run(p, y, x, w, NULL, NULL);                                                            \
  }                                                                                                \
  NnrtPrep *nnrt_linear_back_w_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {          \
    return linear_back_w(NNRT_##type, m, k, n, trans, false, 0);                                   \
  }                                                                                                \
  int nnrt_linear_back_w_##type(NnrtPrep *p, float *dw, const T *x, const T *dy) {                 \
    return run(p, dw, x, dy, NULL, NULL);                                                          \
  }                                                                                                \
  NnrtPrep *nnrt_matmul_prep_##type(int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,  \
                                    bool trans_b) {                                                \
    return matmul(NNRT_##type, batch, m, n, k, trans_a, trans_b);                                  \
  }                                                                                                \
  int nnrt_matmul_##type(NnrtPrep *p, T *y, const T *a, const T *b) {                              \
    return run(p, y, a, b, NULL, NULL);                                                            \
  }                                                                                                \
  NnrtPrep *nnrt_linear_bias_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {            \
    return linear(NNRT_##type, m, k, n, trans, NNRT_EPILOGUE_bias);                                \
  }                                                                                                \
  int nnrt_linear_bias_##type(NnrtPrep *p, T *y, const T *x, const T *w, const T *b) {             \
    return run(p, y, x, w, b, NULL);                                                               \
  }                                                                                                \
  NnrtPrep *nnrt_linear_gelu_tanh_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {       \
    return linear(NNRT_##type, m, k, n, trans, NNRT_EPILOGUE_gelu_bias);                           \
  }                                                                                                \
  int nnrt_linear_gelu_tanh_##type(NnrtPrep *p, T *y, T *pre, const T *x, const T *w,              \
                                   const T *b) {                                                   \
    return run(p, y, x, w, b, pre);                                                                \
  }                                                                                                \
  NnrtPrep *nnrt_linear_gelu_tanh_back_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {  \
    return linear(NNRT_##type, m, k, n, trans, NNRT_EPILOGUE_gelu_back);                           \
  }                                                                                                \
  int nnrt_linear_gelu_tanh_back_##type(NnrtPrep *p, T *dpre, const T *x, const T *w,              \
                                        const T *pre) {                                            \
    return run(p, dpre, x, w, NULL, pre);                                                          \
  }                                                                                                \
  NnrtPrep *nnrt_linear_back_w_bias_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {     \
    return linear_back_w(NNRT_##type, m, k, n, trans, true, 0);                                    \
  }                                                                                                \
  int nnrt_linear_back_w_bias_##type(NnrtPrep *p, float *dw, float *db, const T *x, const T *dy) { \
    return run(p, dw, x, dy, db, NULL);                                                            \
  }                                                                                                \
  NnrtPrep *nnrt_linear_back_w_accumulate_prep_##type(int64_t m, int64_t k, int64_t n,             \
                                                      bool trans) {                                \
    return linear_back_w(NNRT_##type, m, k, n, trans, false, 1);                                   \
  }                                                                                                \
  int nnrt_linear_back_w_accumulate_##type(NnrtPrep *p, float *dw, const T *x, const T *dy) {      \
    return run(p, dw, x, dy, NULL, NULL);                                                          \
  }                                                                                                \
  NnrtPrep *nnrt_linear_back_w_bias_accumulate_prep_##type(int64_t m, int64_t k, int64_t n,        \
                                                           bool trans) {                           \
    return linear_back_w(NNRT_##type, m, k, n, trans, true, 1);                                    \
  }                                                                                                \
  int nnrt_linear_back_w_bias_accumulate_##type(NnrtPrep *p, float *dw, float *db, const T *x,     \
                                                const T *dy) {                                     \
    return run(p, dw, x, dy, db, NULL);                                                            \
  }
PRODUCTS(f32, float)
PRODUCTS(bf16, uint16_t)
PRODUCTS(f16, uint16_t)
