// The products of tiles, packing and rounding for one kind of processor, for tile.c: see kinds.h.

#define VEC  KIND(vec)
#define WORD KIND(word)
#define HALF KIND(half)

typedef float VEC __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint32_t WORD __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t HALF __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));

// sum (n, vectors) += a b, with n and vectors constants.  Of a packed matrix a the elements of a
// step are side by side.  Else three rows of a share an address register, by the processor's scaled
// index.
KIND_INLINE void KIND(add_product)(const int n, const int vectors, const bool packed,
                                   VEC sum[ROWS][2], const float *a, int64_t a_row, int64_t a_step,
                                   const float *b, int64_t b_row, int64_t steps) {
  const float *group[(ROWS + 2) / 3];
  for (int i = 0; i < (n + 2) / 3; i++)
    group[i] = a + 3 * i * a_row;
  for (int64_t k = 0; k < steps; k++, a += a_step, b += b_row) {
    VEC b0 = *(const VEC *)b, b1 = vectors > 1 ? *(const VEC *)(b + WIDTH) : b0;
#pragma GCC unroll 16
    for (int r = 0; r < n; r++) {
      float s = packed ? a[r] : group[r / 3][r % 3 * a_row];
      sum[r][0] += s * b0;
      if (vectors > 1) sum[r][1] += s * b1;
    }
    for (int i = 0; i < (n + 2) / 3; i++)
      group[i] += a_step;
  }
}

// y (n, 2 * WIDTH) (+)= a b, with packed a (k, n) and b (k, 2 * WIDTH)
KIND_INLINE void KIND(panels_of)(const int n, int64_t k, const float *a, const float *b, float *y,
                                 int64_t y_row, bool add) {
  VEC sum[ROWS][2];
#pragma GCC unroll 16
  for (int r = 0; r < n; r++)
    sum[r][0] = sum[r][1] = (VEC){0};
#pragma GCC unroll 16
  for (int r = 0; r < n; r++) {
    __builtin_prefetch(y + r * y_row, 1);
    __builtin_prefetch(y + r * y_row + 2 * WIDTH - 1, 1);
  }
  KIND(add_product)(n, 2, true, sum, a, 1, n, b, 2 * WIDTH, k);
#pragma GCC unroll 16
  for (int r = 0; r < n; r++) {
    VEC *to = (VEC *)(y + r * y_row), *next = (VEC *)(y + r * y_row + WIDTH);
    if (add) {
      sum[r][0] += *to;
      sum[r][1] += *next;
    }
    *to = sum[r][0];
    *next = sum[r][1];
  }
}

// n rows of some vectors of a TileProduct, from those of c, a and b on.
KIND_INLINE void KIND(rows_of)(const int n, const int vectors, const TileProduct *p, float *c,
                               const float *a, const float *b) {
  VEC sum[ROWS][2];
#pragma GCC unroll 16
  for (int r = 0; r < n; r++)
    for (int i = 0; i < vectors; i++)
      sum[r][i] = p->add ? *(VEC *)(c + r * p->c_row + i * WIDTH) : (VEC){0};
  if (!p->pair)
    KIND(add_product)(n, vectors, false, sum, a, p->a_row, p->a_step, b, p->b_row, p->steps);
  for (int64_t i = 0; i < p->pairs; i++)
    KIND(add_product)
  (n, vectors, false, sum, a + p->pair[i].a * p->a_matrix, p->a_row, p->a_step,
   b + p->pair[i].b * p->b_matrix, p->b_row, p->steps);
#pragma GCC unroll 16
  for (int r = 0; r < n; r++)
    for (int i = 0; i < vectors; i++)
      *(VEC *)(c + r * p->c_row + i * WIDTH) = sum[r][i];
}

// The rows of a tile are constants.
#define UP_TO_6(CASE)  CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#define UP_TO_12(CASE) UP_TO_6(CASE) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#if ROWS == 14
#define EACH_N(CASE) UP_TO_12(CASE) CASE(13) CASE(14)
#elif ROWS == 12
#define EACH_N(CASE) UP_TO_12(CASE)
#else
#define EACH_N(CASE) UP_TO_6(CASE)
#endif

#define CASE(n)                                                                                    \
  case n: KIND(panels_of)(n, k, a, b, y, y_row, add); break;
TARGET static void KIND(panels)(int rows, int64_t k, const float *a, const float *b, float *y,
                                int64_t y_row, bool add) {
  switch (rows) { EACH_N(CASE) }
}
#undef CASE

#define CASE(n)                                                                                    \
  case n: KIND(rows_of)(n, 2, p, c, a, b); break;
TARGET static void KIND(rows)(int rows, const TileProduct *p, float *c, const float *a,
                              const float *b) {
  switch (rows) { EACH_N(CASE) }
}
#undef CASE

#define CASE(n)                                                                                    \
  case n: KIND(rows_of)(n, 1, p, c, a, b); break;
TARGET static void KIND(rows_of_one)(int rows, const TileProduct *p, float *c, const float *a,
                                     const float *b) {
  switch (rows) { EACH_N(CASE) }
}
#undef CASE
#undef EACH_N
#undef UP_TO_6
#undef UP_TO_12

TARGET static void KIND(product)(const TileProduct *p) {
  // Tiles of about equal numbers of rows: fewer than four do not hide the latency of the sums.
  int64_t tiles = (p->rows + ROWS - 1) / ROWS;
  int64_t rows = tiles ? p->rows / tiles : 0, longer = p->rows - tiles * rows;
  for (int64_t l = 0; l < p->lanes; l += 2 * WIDTH) {
    float *c = p->c + l;
    const float *a = p->a;
    for (int64_t i = 0; i < tiles; i++) {
      int n = (int)rows + (i < longer);
      if (p->lanes - l >= 2 * WIDTH)
        KIND(rows)(n, p, c, a, p->b + l);
      else
        KIND(rows_of_one)(n, p, c, a, p->b + l);
      c += n * p->c_row;
      a += n * p->a_row;
    }
  }
}

// -- Packing -----------------------------------------------------------------------------------

// A vector of f16 as floats: v3, v4 and aarch64 have an instruction for it.
KIND_INLINE VEC KIND(from_f16)(const uint16_t *from) {
#if WIDTH == 16
  return (VEC)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)from));
#elif WIDTH == 8
  return (VEC)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)from));
#elif defined(__aarch64__)
  return (VEC)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
  VEC y;
  for (int j = 0; j < WIDTH; j++)
    y[j] = m_from_f16(from[j]);
  return y;
#endif
}

// A vector of elements from number `i` on.
KIND_INLINE VEC KIND(load_vec)(const GemmType type, const void *x, int64_t i) {
  if (type == GEMM_f32) return *(const VEC *)((const float *)x + i);
  const uint16_t *from = (const uint16_t *)x + i;
  if (type == GEMM_bf16) return (VEC)(__builtin_convertvector(*(const HALF *)from, WORD) << 16);
  return KIND(from_f16)(from);
}

// Lanes side by side in memory: each step is a run of them.  Panels are packed together, up to
// PANELS of them, to read more of a row at once.
KIND_INLINE void KIND(copy_steps)(const GemmType type, const int vectors, const TilePack *p,
                                  float *to) {
  for (int64_t l = 0; l < p->lanes; l += PANELS * p->width)
    for (int64_t s = 0; s < p->steps; s++) {
      int64_t end = l + PANELS * p->width < p->lanes ? l + PANELS * p->width : p->lanes;
      for (int64_t j = l; j < end; j += p->width) {
        int64_t n = p->lanes - j < p->width ? p->lanes - j : p->width;
        int64_t stride = p->padded ? p->width : n, from = j + s * p->step;
        float *at = to + j / p->width * p->panel + s * stride;
        // Whole vectors also write elements of the next step, which follows.
        if (p->width <= vectors * WIDTH && j + vectors * WIDTH <= p->lanes &&
            (s < p->steps - 1 || n == vectors * WIDTH)) {
#pragma GCC unroll 2
          for (int i = 0; i < vectors; i++)
            *(VEC *)(at + i * WIDTH) = KIND(load_vec)(type, p->from, from + i * WIDTH);
          continue;
        }
        for (int64_t i = 0; i < n; i++)
          at[i] = element_at(type, p->from, from + i);
        for (int64_t i = n; i < stride; i++)
          at[i] = 0;
      }
    }
}

// Four numbers of x and y in each four lanes: those of y begin at 4.
#define IN_FOUR(i, four) ((i) < 4 ? (i) + 4 * (four) : (i)-4 + WIDTH + 4 * (four))
#define FOUR_AT(a, b, c, d, four)                                                                  \
  IN_FOUR(a, four), IN_FOUR(b, four), IN_FOUR(c, four), IN_FOUR(d, four)
#if WIDTH == 4
#define EACH_FOUR(x, y, ...) __builtin_shufflevector(x, y, FOUR_AT(__VA_ARGS__, 0))
#elif WIDTH == 8
#define EACH_FOUR(x, y, ...)                                                                       \
  __builtin_shufflevector(x, y, FOUR_AT(__VA_ARGS__, 0), FOUR_AT(__VA_ARGS__, 1))
#else
#define EACH_FOUR(x, y, ...)                                                                       \
  __builtin_shufflevector(x, y, FOUR_AT(__VA_ARGS__, 0), FOUR_AT(__VA_ARGS__, 1),                  \
                          FOUR_AT(__VA_ARGS__, 2), FOUR_AT(__VA_ARGS__, 3))
#endif

// Stores four lanes of some steps: those of step 4 i + first are four i of y.
KIND_INLINE void KIND(store_fours)(float *at, int64_t stride, VEC y) {
  *(Four *)at = __builtin_shufflevector(y, y, 0, 1, 2, 3);
  (void)stride;
#if WIDTH >= 8
  *(Four *)(at + 4 * stride) = __builtin_shufflevector(y, y, 4, 5, 6, 7);
#endif
#if WIDTH >= 16
  *(Four *)(at + 8 * stride) = __builtin_shufflevector(y, y, 8, 9, 10, 11);
  *(Four *)(at + 12 * stride) = __builtin_shufflevector(y, y, 12, 13, 14, 15);
#endif
}

// Four lanes, each of which has its steps side by side in memory: a vector of steps of each at a
// time.
KIND_INLINE void KIND(transpose_lanes)(const GemmType type, const TilePack *p, int64_t lane,
                                       float *at, int64_t stride) {
  int64_t s = 0, from = lane * p->lane;
  for (; s + WIDTH <= p->steps; s += WIDTH, at += WIDTH * stride) {
    VEC x0 = KIND(load_vec)(type, p->from, from + s);
    VEC x1 = KIND(load_vec)(type, p->from, from + p->lane + s);
    VEC x2 = KIND(load_vec)(type, p->from, from + 2 * p->lane + s);
    VEC x3 = KIND(load_vec)(type, p->from, from + 3 * p->lane + s);
    VEC low0 = EACH_FOUR(x0, x1, 0, 4, 1, 5), low1 = EACH_FOUR(x2, x3, 0, 4, 1, 5);
    VEC high0 = EACH_FOUR(x0, x1, 2, 6, 3, 7), high1 = EACH_FOUR(x2, x3, 2, 6, 3, 7);
    KIND(store_fours)(at, stride, EACH_FOUR(low0, low1, 0, 1, 4, 5));
    KIND(store_fours)(at + stride, stride, EACH_FOUR(low0, low1, 2, 3, 6, 7));
    KIND(store_fours)(at + 2 * stride, stride, EACH_FOUR(high0, high1, 0, 1, 4, 5));
    KIND(store_fours)(at + 3 * stride, stride, EACH_FOUR(high0, high1, 2, 3, 6, 7));
  }
  for (; s < p->steps; s++, at += stride)
    for (int j = 0; j < 4; j++)
      at[j] = element_at(type, p->from, from + j * p->lane + s);
}
#undef IN_FOUR
#undef FOUR_AT
#undef EACH_FOUR

KIND_INLINE void KIND(pack_of)(const GemmType type, const TilePack *p, float *to) {
  if (p->lane == 1) {
    if (p->padded)
      KIND(copy_steps)(type, 2, p, to);
    else
      KIND(copy_steps)(type, (ROWS + WIDTH - 1) / WIDTH, p, to);
    return;
  }
  for (int64_t l = 0; l < p->lanes; l += p->width) {
    int64_t n = p->lanes - l < p->width ? p->lanes - l : p->width;
    int64_t stride = p->padded ? p->width : n;
    float *at = to + l / p->width * p->panel;
    if (n < stride) memset(at, 0, (size_t)(p->steps * stride) * sizeof *at);
    for (int64_t j = 0; j < n - 3; j += 4)
      KIND(transpose_lanes)(type, p, l + j, at + j, stride);
    if (n >= 4 && n % 4) KIND(transpose_lanes)(type, p, l + n - 4, at + n - 4, stride);
    for (int64_t j = 0; n < 4 && j < n; j++)
      for (int64_t s = 0; s < p->steps; s++)
        at[s * stride + j] = element_at(type, p->from, (l + j) * p->lane + s);
  }
}

TARGET static void KIND(pack)(GemmType type, const TilePack *p, float *to) {
  switch (type) {
  case GEMM_f32: KIND(pack_of)(GEMM_f32, p, to); break;
  case GEMM_bf16: KIND(pack_of)(GEMM_bf16, p, to); break;
  case GEMM_f16: KIND(pack_of)(GEMM_f16, p, to); break;
  }
}

// -- Rows --------------------------------------------------------------------------------------

// Rows of sums as elements of y.
KIND_INLINE void KIND(store_of)(const GemmType type, void *y, const float *sum, int64_t n) {
  uint16_t *narrow = y;
  for (int64_t i = 0; i < n; i++)
    if (type == GEMM_f32)
      ((float *)y)[i] = sum[i];
    else
      narrow[i] =
          type == GEMM_bf16 ? m_bits_bf16(m_round_bf16(sum[i])) : m_bits_f16(m_round_f16(sum[i]));
}

TARGET static void KIND(store)(GemmType type, void *y, const float *sum, int64_t n) {
  switch (type) {
  case GEMM_f32: KIND(store_of)(GEMM_f32, y, sum, n); break;
  case GEMM_bf16: KIND(store_of)(GEMM_bf16, y, sum, n); break;
  case GEMM_f16: KIND(store_of)(GEMM_f16, y, sum, n); break;
  }
}

// Elements as floats.
KIND_INLINE void KIND(load_of)(const GemmType type, float *y, const void *x, int64_t n) {
  int64_t i = 0;
  for (; i + WIDTH <= n; i += WIDTH)
    *(VEC *)(y + i) = KIND(load_vec)(type, x, i);
  for (; i < n; i++)
    y[i] = element_at(type, x, i);
}

TARGET static void KIND(load_row)(GemmType type, float *y, const void *x, int64_t n) {
  switch (type) {
  case GEMM_f32: KIND(load_of)(GEMM_f32, y, x, n); break;
  case GEMM_bf16: KIND(load_of)(GEMM_bf16, y, x, n); break;
  case GEMM_f16: KIND(load_of)(GEMM_f16, y, x, n); break;
  }
}

static const TileKind KIND(kind) = {
    .rows = ROWS,
    .lanes = 2 * WIDTH,
    .depth = WIDTH < 16 ? 256 : 384,
    .product = KIND(product),
    .panels = KIND(panels),
    .pack = KIND(pack),
    .store = KIND(store),
    .load = KIND(load_row),
};

#undef VEC
#undef WORD
#undef HALF
