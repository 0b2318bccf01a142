// Operands of f32 as bf16: see fpmath.h.  In a file of its own, since a device sets the flag and
// needs no kernels.

#include "fpmath.h"
#include "kernel.h"
#include "nnrt_math.h"

NNRT_CLONES static void round_to(uint16_t *restrict y, const float *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    y[i] = m_bits_bf16(m_round_bf16(x[i]));
}

// hi is written twice.
NNRT_CLONES static void split_to(uint16_t *restrict hi, uint16_t *restrict again,
                                 uint16_t *restrict lo, const float *restrict x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    float high = m_round_bf16(x[i]);
    hi[i] = again[i] = m_bits_bf16(high);
    lo[i] = m_bits_bf16(m_round_bf16(x[i] - high));
  }
}

// An operand in memory: rows of elements, each of which becomes one row per product.
typedef struct Rows {
  int64_t n, length;
} Rows;

static Rows rows_of(const Gemm *g, int products, bool steps_adjacent, int64_t other) {
  int64_t k = g->k / products, all = g->batch * other * k;
  if (products == 1) return (Rows){1, all};
  return steps_adjacent ? (Rows){g->batch * other, k} : (Rows){g->batch, other * k};
}

// to (rows, products, length) = from (rows, length).  lo is row number `low` of each three.
static void convert(uint16_t *to, const float *from, Rows rows, int products, int low,
                    int threads) {
  int64_t all = rows.n * rows.length;
#pragma omp parallel for num_threads(threads)
  for (int t = 0; t < threads; t++) {
    Part p = part_of(all, 32, t, threads); // a cache line of `to`
    for (int64_t i = p.from, n; i < p.to; i += n) {
      int64_t row = i / rows.length, at = i % rows.length;
      n = rows.length - at < p.to - i ? rows.length - at : p.to - i;
      uint16_t *y = to + row * products * rows.length + at;
      if (products == 1)
        round_to(y, from + i, n);
      else
        split_to(y, y + (3 - low) * rows.length, y + low * rows.length, from + i, n);
    }
  }
}

int fpmath_convert(const Gemm *g, int products, bool one_thread, const void **a, const void **b) {
  Rows of_a = rows_of(g, products, g->a_column == 1, g->m);
  Rows of_b = rows_of(g, products, g->b_row == 1, g->n);
  int64_t n_a = of_a.n * of_a.length, n_b = of_b.n * of_b.length;
  size_t bytes_a = round_64((size_t)(n_a * products) * 2);
  size_t bytes = bytes_a + (size_t)(n_b * products) * 2;
  char *scratch = kernel_outer_scratch(bytes);
  if (!scratch) return scratch_failed(bytes);
  uint16_t *to_a = (uint16_t *)(void *)scratch, *to_b = (uint16_t *)(void *)(scratch + bytes_a);
  convert(to_a, *a, of_a, products, 2, one_thread ? 1 : threads_for(n_a));
  convert(to_b, *b, of_b, products, 1, one_thread ? 1 : threads_for(n_b));
  *a = to_a;
  *b = to_b;
  return NNRT_OK;
}
