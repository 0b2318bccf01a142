// The products that --fpmath rounds: see fpmath.h.

#include "fpmath.h"

static Fpmath wanted = FPMATH_f32;

void fpmath_set(Fpmath fpmath) {
  wanted = fpmath;
}

Gemm fpmath_gemm(const Gemm *g, int *out_products) {
  Gemm y = *g;
  *out_products = g->in != GEMM_f32 || wanted == FPMATH_f32 ? 0 : wanted == FPMATH_bf16 ? 1 : 3;
  if (!*out_products) return y;
  y.in = GEMM_bf16;
  y.k *= *out_products;
  // Rows of steps become longer; others become more.
  if (y.a_column == 1) y.a_row = y.k;
  if (y.b_row == 1) y.b_column = y.k;
  return y;
}
