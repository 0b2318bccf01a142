// Products of matrices, by our own kernel (gemm.h) or the library's (library.h), whichever is
// faster for the shape; transposed operands are strides.
//
// Operands of 16 bits become f32 as our kernel packs them; all sums are f32.  Weights stay in plain
// row-major order.  With --fpmath products of f32 are products of converted operands (fpmath.h).

#include "linear.h"

#include "fpmath.h"
#include "library.h"

typedef struct ProductPrep {
  NnrtPrep base;
  NnrtPrep *library; // NULL: our own kernel
  Gemm gemm;
  int converted; // products of bf16 in place of one of f32, on converted operands; 0: none
  bool swapped;  // the operands of the run are b, a
  bool small;    // run by one thread
} ProductPrep;

static void product_free(NnrtPrep *p) {
  nnrt_prep_free(((ProductPrep *)p)->library);
  free(p);
}

static NnrtPrep *product_prep(const char *name, const Gemm *of, bool swapped, bool fpmath) {
  ProductPrep *p = malloc(sizeof *p);
  if (!p) {
    nnrt_error(NNRT_MEMORY, "%s: no memory", name);
    return NULL;
  }
  *p = (ProductPrep){.base = {product_free}, .gemm = *of, .swapped = swapped};
  if (fpmath) p->gemm = fpmath_gemm(of, &p->converted);
  const Gemm *g = &p->gemm;
  p->small = kernel_small(g->batch * g->m * g->n * g->k,
                          g->batch * (g->m * g->k + g->k * g->n + g->m * g->n));
  if (!library_has_product(g)) return &p->base;
  p->library = library_product_prep(name, g);
  if (p->library) return &p->base;
  free(p);
  return NULL;
}

int product_run(NnrtPrep *prep, void *y, const void *a, const void *b) {
  const ProductPrep *p = (ProductPrep *)prep;
  const void *first = p->swapped ? b : a, *second = p->swapped ? a : b;
  if (p->converted) {
    int code = fpmath_convert(&p->gemm, p->converted, p->small, &first, &second);
    if (code) return code;
  }
  if (p->library) return library_product_run(p->library, y, first, second);
  return gemm_run(&p->gemm, p->small ? 1 : omp_get_max_threads(), y, first, second);
}

// -- The kernels -------------------------------------------------------------------------------

NnrtPrep *linear_prep(GemmType t, int64_t m, int64_t k, int64_t n, bool trans, bool fpmath) {
  Gemm g = {.batch = 1, .m = m, .n = n, .k = k, .in = t, .out = t};
  g.a_row = k;
  g.a_column = 1;
  g.b_row = trans ? 1 : n;
  g.b_column = trans ? k : 1;
  return product_prep("linear", &g, false, fpmath);
}

// dw (k, n) = x' dy, or dw (n, k) = dy' x
NnrtPrep *linear_back_w_prep(GemmType t, int64_t m, int64_t k, int64_t n, bool trans, bool fpmath) {
  Gemm g = {.batch = 1, .m = trans ? n : k, .n = trans ? k : n, .k = m, .in = t, .out = GEMM_f32};
  // The first operand is transposed.
  g.a_row = 1;
  g.a_column = g.m;
  g.b_row = g.n;
  g.b_column = 1;
  return product_prep("linear_back_w", &g, trans, fpmath);
}

NnrtPrep *matmul_prep(GemmType t, int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,
                      bool trans_b, bool fpmath) {
  Gemm g = {.batch = batch, .m = m, .n = n, .k = k, .in = t, .out = t};
  g.a_row = trans_a ? 1 : k;
  g.a_column = trans_a ? m : 1;
  g.b_row = trans_b ? 1 : n;
  g.b_column = trans_b ? k : 1;
  return product_prep("matmul", &g, false, fpmath);
}

#define KERNELS(type, T)                                                                           \
  NnrtPrep *nnrt_linear_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {                 \
    return linear_prep(GEMM_##type, m, k, n, trans, true);                                         \
  }                                                                                                \
  int nnrt_linear_##type(NnrtPrep *p, T *y, const T *x, const T *w) {                              \
    return product_run(p, y, x, w);                                                                \
  }                                                                                                \
  NnrtPrep *nnrt_linear_back_w_prep_##type(int64_t m, int64_t k, int64_t n, bool trans) {          \
    return linear_back_w_prep(GEMM_##type, m, k, n, trans, true);                                  \
  }                                                                                                \
  int nnrt_linear_back_w_##type(NnrtPrep *p, float *dw, const T *x, const T *dy) {                 \
    return product_run(p, dw, x, dy);                                                              \
  }                                                                                                \
  NnrtPrep *nnrt_matmul_prep_##type(int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a,  \
                                    bool trans_b) {                                                \
    return matmul_prep(GEMM_##type, batch, m, n, k, trans_a, trans_b, true);                       \
  }                                                                                                \
  int nnrt_matmul_##type(NnrtPrep *p, T *y, const T *a, const T *b) {                              \
    return product_run(p, y, a, b);                                                                \
  }

KERNELS(f32, float)
KERNELS(bf16, uint16_t)
KERNELS(f16, uint16_t)
