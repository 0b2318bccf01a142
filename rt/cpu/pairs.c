// Products of bf16 in pairs: see pairs.h.

#include "pairs.h"

#include <string.h>

// clang has the instructions too, but compiles kernels for SSE alone (kinds.h).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_PAIRS 1
#else
#define HAS_PAIRS 0
#endif

void pairs_pack(uint16_t *panel, const uint16_t *w, int64_t k, int64_t n, int64_t j, bool trans) {
  int64_t columns = n - j < PAIR_LANES ? n - j : PAIR_LANES;
  if (columns < PAIR_LANES) memset(panel, 0, (size_t)(k * PAIR_LANES) * sizeof *panel);
  for (int64_t i = 0; i < k; i += 2)
    for (int64_t l = 0; l < columns; l++) {
      uint16_t *to = panel + i * PAIR_LANES + 2 * l;
      to[0] = trans ? w[(j + l) * k + i] : w[i * n + j + l];
      to[1] = trans ? w[(j + l) * k + i + 1] : w[(i + 1) * n + j + l];
    }
}

#if HAS_PAIRS

#include <immintrin.h>

#include "isa.h"

#define TARGET __attribute__((target("arch=x86-64-v4,avx512bf16")))

bool pairs_here(void) {
  return isa_bf16_products(isa_in_use()) != BF16_none;
}

// A tile of `rows`, a constant, by 32 sums: two vectors of each row, in registers.
TARGET static inline __attribute__((always_inline)) void tile_of(const int rows, float *c,
                                                                 int64_t c_row, const uint16_t *a,
                                                                 int64_t a_row, const uint16_t *b,
                                                                 int64_t pairs, bool add) {
  enum { MOST = 14, LANES = 16 };
  __m512 sum[MOST][2];
#pragma GCC unroll 14
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < 2; v++)
      sum[r][v] = add ? _mm512_loadu_ps(c + r * c_row + v * LANES) : _mm512_setzero_ps();
  for (int64_t i = 0; i < pairs; i++, a += 2, b += 2 * PAIR_LANES) {
    __m512bh b0 = (__m512bh)_mm512_loadu_si512(b);
    __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + 2 * LANES);
#pragma GCC unroll 14
    for (int r = 0; r < rows; r++) {
      int pair;
      memcpy(&pair, a + r * a_row, sizeof pair);
      __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], b0, both);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], b1, both);
    }
  }
#pragma GCC unroll 14
  for (int r = 0; r < rows; r++)
    for (int v = 0; v < 2; v++)
      _mm512_storeu_ps(c + r * c_row + v * LANES, sum[r][v]);
}

#define CASE(n)                                                                                    \
  case n: tile_of(n, c, c_row, a, a_row, b, pairs, add); break;
TARGET static void tile(int rows, float *c, int64_t c_row, const uint16_t *a, int64_t a_row,
                        const uint16_t *b, int64_t pairs, bool add) {
  switch (rows) {
    CASE(1)
    CASE(2)
    CASE(3)
    CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
  }
}
#undef CASE

void pairs_product(float *c, int64_t c_row, const uint16_t *a, int64_t a_row, const uint16_t *b,
                   int64_t rows, int64_t pairs, bool add) {
  // Tiles of about equal numbers of rows: few do not hide the latency of the sums.
  enum { ROWS = 14 };
  int64_t tiles = (rows + ROWS - 1) / ROWS;
  for (int64_t i = 0, from = 0; i < tiles; i++) {
    int64_t to = rows * (i + 1) / tiles;
    tile((int)(to - from), c + from * c_row, c_row, a + from * a_row, a_row, b, pairs, add);
    from = to;
  }
}

#else

bool pairs_here(void) {
  return false;
}

void pairs_product(float *c, int64_t c_row, const uint16_t *a, int64_t a_row, const uint16_t *b,
                   int64_t rows, int64_t pairs, bool add) {
  (void)c, (void)c_row, (void)a, (void)a_row, (void)b, (void)rows, (void)pairs, (void)add;
}

#endif
