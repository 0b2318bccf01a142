// The products of the op table: each is one prepared product of products.h.
//
//     linear           y (m, n)  = x w          w is stored (k, n), or (n, k) when `trans`
//     linear_back_w    dw (k, n) = x' dy        or dw (n, k) = dy' x; always f32
//     matmul           y = a b, a batch of them

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
  if (!gemm) return NULL;
  Product *p = nnrt_must_alloc(sizeof *p);
  *p = (Product){.base = {.free = product_free}, .gemm = gemm, .swapped = swapped};
  return &p->base;
}

static NnrtPrep *linear(NnrtDtype t, int64_t m, int64_t k, int64_t n, bool trans) {
  NnrtGemmSpec s = nnrt_gemm_packed(t, t, 1, m, n, k, false, trans);
  return product_new(&s, false);
}

static NnrtPrep *linear_back_w(NnrtDtype t, int64_t m, int64_t k, int64_t n, bool trans) {
  NnrtGemmSpec s = trans ? nnrt_gemm_packed(t, NNRT_f32, 1, n, k, m, true, false)
                         : nnrt_gemm_packed(t, NNRT_f32, 1, k, n, m, true, false);
  return product_new(&s, trans);
}

static NnrtPrep *matmul(NnrtDtype t, int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,
                        bool trans_b) {
  NnrtGemmSpec s = nnrt_gemm_packed(t, t, batch, m, n, k, trans_a, trans_b);
  return product_new(&s, false);
}

static int run(NnrtPrep *prep, void *d, const void *a, const void *b) {
  Product *p = (Product *)prep;
  return nnrt_gemm_run(p->gemm, d, p->swapped ? b : a, p->swapped ? a : b, NULL, NULL, NULL);
}

#define PRODUCTS(type, T)                                                                          \
  NnrtPrep *nnrt_linear_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {                 \
    return linear(NNRT_##type, m, k, n, trans);                                                    \
  }                                                                                                \
  int nnrt_linear_##type(NnrtPrep *p, T *y, const T *x, const T *w) {                              \
    return run(p, y, x, w);                                                                        \
  }                                                                                                \
  NnrtPrep *nnrt_linear_back_w_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {          \
    return linear_back_w(NNRT_##type, m, k, n, trans);                                             \
  }                                                                                                \
  int nnrt_linear_back_w_##type(NnrtPrep *p, float *dw, const T *x, const T *dy) {                 \
    return run(p, dw, x, dy);                                                                      \
  }                                                                                                \
  NnrtPrep *nnrt_matmul_prep_##type(int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,  \
                                    bool trans_b) {                                                \
    return matmul(NNRT_##type, batch, m, n, k, trans_a, trans_b);                                  \
  }                                                                                                \
  int nnrt_matmul_##type(NnrtPrep *p, T *y, const T *a, const T *b) {                              \
    return run(p, y, a, b);                                                                        \
  }
PRODUCTS(f32, float)
PRODUCTS(bf16, uint16_t)
PRODUCTS(f16, uint16_t)
