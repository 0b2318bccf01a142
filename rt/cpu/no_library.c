// No library: all kernels are our own.  See library.h.

#include "library.h"

// ---- Products

bool library_has_product(const Gemm *g) {
  (void)g;
  return false;
}

NnrtPrep *library_product_prep(const char *name, const Gemm *g) {
  (void)g;
  nnrt_error(NNRT_UNSUPPORTED, "%s: there is no library of products", name);
  return NULL;
}

int library_product_run(NnrtPrep *p, void *y, const void *a, const void *b) {
  (void)p;
  (void)y;
  (void)a;
  (void)b;
  return nnrt_error(NNRT_UNSUPPORTED, "there is no library of products");
}

int library_multiply(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                     int64_t a_row, const float *b, int64_t b_row, float *c) {
  Gemm g = {.batch = 1,
            .m = m,
            .n = n,
            .k = k,
            .a_row = trans_a ? 1 : a_row,
            .a_column = trans_a ? a_row : 1,
            .b_row = trans_b ? 1 : b_row,
            .b_column = trans_b ? b_row : 1,
            .in = GEMM_f32,
            .out = GEMM_f32};
  return gemm_run(&g, kernel_small(m * n * k, m * k + k * n + m * n) ? 1 : omp_get_max_threads(), c,
                  a, b);
}

// ---- Convolutions

bool library_has_conv(NnrtDtype type, const Conv *c, Direction direction) {
  (void)type;
  (void)c;
  (void)direction;
  return false;
}

NnrtPrep *library_conv_prep(const char *name, NnrtDtype type, const Conv *c, Direction direction) {
  (void)type;
  (void)c;
  (void)direction;
  nnrt_error(NNRT_UNSUPPORTED, "%s: there is no library of convolutions", name);
  return NULL;
}

int library_conv_run(NnrtPrep *p, void *result, const void *first, const void *second) {
  (void)p;
  (void)result;
  (void)first;
  (void)second;
  return nnrt_error(NNRT_UNSUPPORTED, "there is no library of convolutions");
}
