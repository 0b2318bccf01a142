// The parts of a product for one kind of processor, for gemm.c: NAME, TARGET, vectors of WIDTH
// floats, and tiles of TILE_ROWS rows and 2 vectors; their sums stay in registers.

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define VEC          PASTE(gemm_vec, NAME)
#define TILE         PASTE(tile, NAME)
#define TILE_OF      PASTE(tile_of, NAME)
#define HALF         PASTE(gemm_half, NAME)
#define WORD         PASTE(gemm_word, NAME)
#define LOAD         PASTE(load, NAME)
#define LOAD_VEC     PASTE(load_vec, NAME)
#define COPY         PASTE(copy_steps, NAME)
#define TRANSPOSE    PASTE(transpose_lanes, NAME)
#define PACK_OF      PASTE(pack_of, NAME)
#define PACK         PASTE(pack, NAME)
#define STORE_OF     PASTE(store_of, NAME)
#define STORE        PASTE(store, NAME)
#define GEMM_INLINE  TARGET static inline __attribute__((always_inline))

typedef float VEC __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint32_t WORD __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t HALF __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));

// y (rows, 2 * WIDTH) (+)= a b, with a (k, rows) and b (k, 2 * WIDTH)
GEMM_INLINE void TILE_OF(const int rows, int64_t k, const float *a, const float *b, float *y,
                         int64_t y_row, bool add) {
  VEC sum[TILE_ROWS][2];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
    sum[r][0] = sum[r][1] = (VEC){0};
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
    __builtin_prefetch(y + r * y_row, 1);
    __builtin_prefetch(y + r * y_row + 2 * WIDTH - 1, 1);
  }
  for (int64_t i = 0; i < k; i++, a += rows, b += 2 * WIDTH) {
    VEC b0 = *(const VEC *)b, b1 = *(const VEC *)(b + WIDTH);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
      sum[r][0] += a[r] * b0;
      sum[r][1] += a[r] * b1;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++) {
    VEC *to = (VEC *)(y + r * y_row), *next = (VEC *)(y + r * y_row + WIDTH);
    if (add) {
      sum[r][0] += *to;
      sum[r][1] += *next;
    }
    *to = sum[r][0];
    *next = sum[r][1];
  }
}

#define ROWS(n)                                                                                    \
  case n: TILE_OF(n, k, a, b, y, y_row, add); break
TARGET static void TILE(int rows, int64_t k, const float *a, const float *b, float *y,
                        int64_t y_row, bool add) {
  switch (rows) {
    ROWS(1);
    ROWS(2);
    ROWS(3);
    ROWS(4);
    ROWS(5);
    ROWS(6);
#if TILE_ROWS > 6
    ROWS(7);
    ROWS(8);
    ROWS(9);
    ROWS(10);
    ROWS(11);
    ROWS(12);
    ROWS(13);
    ROWS(14);
#endif
  }
}
#undef ROWS

// -- Packing -----------------------------------------------------------------------------------

// Four elements from number `i` on.
GEMM_INLINE Four LOAD(const GemmType type, const void *x, int64_t i) {
  if (type == GEMM_f32) return *(const Four *)((const float *)x + i);
  const uint16_t *from = (const uint16_t *)x + i;
  Four y;
  for (int j = 0; j < 4; j++)
    y[j] = type == GEMM_bf16 ? m_from_bf16(from[j]) : m_from_f16(from[j]);
  return y;
}

// A vector of elements from number `i` on.
GEMM_INLINE VEC LOAD_VEC(const GemmType type, const void *x, int64_t i) {
  if (type == GEMM_f32) return *(const VEC *)((const float *)x + i);
  const uint16_t *from = (const uint16_t *)x + i;
  if (type == GEMM_bf16) return (VEC)(__builtin_convertvector(*(const HALF *)from, WORD) << 16);
  VEC y;
  for (int j = 0; j < WIDTH; j++)
    y[j] = m_from_f16(from[j]);
  return y;
}

// Lanes side by side in memory: each step is a run of them.  Panels are packed together, up to
// PANELS of them, to read more of a row at once.
GEMM_INLINE void COPY(const GemmType type, const int vectors, const Pack *p, float *to) {
  for (int64_t l = 0; l < p->lanes; l += PANELS * p->width)
    for (int64_t s = 0; s < p->steps; s++) {
      int64_t end = l + PANELS * p->width < p->lanes ? l + PANELS * p->width : p->lanes;
      for (int64_t j = l; j < end; j += p->width) {
        int64_t n = p->lanes - j < p->width ? p->lanes - j : p->width;
        int64_t stride = p->padded ? p->width : n, from = j + s * p->step;
        float *at = to + j / p->width * p->panel + s * stride;
        // Whole vectors also write elements of the next step, which follows.
        if (j + vectors * WIDTH <= p->lanes && (s < p->steps - 1 || n == vectors * WIDTH)) {
#pragma GCC unroll 2
          for (int i = 0; i < vectors; i++)
            *(VEC *)(at + i * WIDTH) = LOAD_VEC(type, p->from, from + i * WIDTH);
          continue;
        }
        for (int64_t i = 0; i < n; i++)
          at[i] = gemm_element(type, p->from, from + i);
        for (int64_t i = n; i < stride; i++)
          at[i] = 0;
      }
    }
}

// Four lanes, each of which has its steps side by side in memory.
GEMM_INLINE void TRANSPOSE(const GemmType type, const Pack *p, int64_t lane, float *at,
                           int64_t stride) {
  int64_t s = 0, from = lane * p->lane;
  for (; s + 4 <= p->steps; s += 4, at += 4 * stride) {
    Four x0 = LOAD(type, p->from, from + s), x1 = LOAD(type, p->from, from + p->lane + s);
    Four x2 = LOAD(type, p->from, from + 2 * p->lane + s);
    Four x3 = LOAD(type, p->from, from + 3 * p->lane + s);
    Four low0 = FOUR_OF(x0, x1, 0, 4, 1, 5);
    Four low1 = FOUR_OF(x2, x3, 0, 4, 1, 5);
    Four high0 = FOUR_OF(x0, x1, 2, 6, 3, 7);
    Four high1 = FOUR_OF(x2, x3, 2, 6, 3, 7);
    *(Four *)at = FOUR_OF(low0, low1, 0, 1, 4, 5);
    *(Four *)(at + stride) = FOUR_OF(low0, low1, 2, 3, 6, 7);
    *(Four *)(at + 2 * stride) = FOUR_OF(high0, high1, 0, 1, 4, 5);
    *(Four *)(at + 3 * stride) = FOUR_OF(high0, high1, 2, 3, 6, 7);
  }
  for (; s < p->steps; s++, at += stride)
    for (int j = 0; j < 4; j++)
      at[j] = gemm_element(type, p->from, from + j * p->lane + s);
}

GEMM_INLINE void PACK_OF(const GemmType type, const Pack *p, float *to) {
  if (p->lane == 1) {
    if (p->padded)
      COPY(type, 2, p, to);
    else
      COPY(type, (TILE_ROWS + WIDTH - 1) / WIDTH, p, to);
    return;
  }
  for (int64_t l = 0; l < p->lanes; l += p->width) {
    int64_t n = p->lanes - l < p->width ? p->lanes - l : p->width;
    int64_t stride = p->padded ? p->width : n;
    float *at = to + l / p->width * p->panel;
    if (n < stride) memset(at, 0, (size_t)(p->steps * stride) * sizeof *at);
    for (int64_t j = 0; j < n - 3; j += 4)
      TRANSPOSE(type, p, l + j, at + j, stride);
    if (n >= 4 && n % 4) TRANSPOSE(type, p, l + n - 4, at + n - 4, stride);
    for (int64_t j = 0; n < 4 && j < n; j++)
      for (int64_t s = 0; s < p->steps; s++)
        at[s * stride + j] = gemm_element(type, p->from, (l + j) * p->lane + s);
  }
}

TARGET static void PACK(GemmType type, const Pack *p, float *to) {
  switch (type) {
  case GEMM_f32: PACK_OF(GEMM_f32, p, to); break;
  case GEMM_bf16: PACK_OF(GEMM_bf16, p, to); break;
  case GEMM_f16: PACK_OF(GEMM_f16, p, to); break;
  }
}

// -- Results -----------------------------------------------------------------------------------

// Rows of sums as elements of y.
GEMM_INLINE void STORE_OF(const GemmType type, void *y, const float *sum, int64_t n) {
  uint16_t *narrow = y;
  for (int64_t i = 0; i < n; i++)
    if (type == GEMM_f32)
      ((float *)y)[i] = sum[i];
    else
      narrow[i] =
          type == GEMM_bf16 ? m_bits_bf16(m_round_bf16(sum[i])) : m_bits_f16(m_round_f16(sum[i]));
}

TARGET static void STORE(GemmType type, void *y, const float *sum, int64_t n) {
  switch (type) {
  case GEMM_f32: STORE_OF(GEMM_f32, y, sum, n); break;
  case GEMM_bf16: STORE_OF(GEMM_bf16, y, sum, n); break;
  case GEMM_f16: STORE_OF(GEMM_f16, y, sum, n); break;
  }
}

#undef PASTE_
#undef PASTE
#undef VEC
#undef TILE
#undef TILE_OF
#undef HALF
#undef WORD
#undef LOAD
#undef LOAD_VEC
#undef COPY
#undef TRANSPOSE
#undef PACK_OF
#undef PACK
#undef STORE_OF
#undef STORE
#undef GEMM_INLINE
#undef NAME
#undef TARGET
#undef WIDTH
#undef TILE_ROWS
