// The product of tiles for one kind of processor, for tile.c: NAME, TARGET, vectors of WIDTH
// floats, and BLOCK rows whose sums (2 vectors each) stay in registers.

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define VEC          PASTE(vec, NAME)
#define ROWS_OF      PASTE(rows, NAME)

typedef float VEC __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

// Computes `n` rows, a constant, of 2 * WIDTH lanes.  Three rows of `a` share an address register,
// by the processor's scaled index.
TARGET static inline __attribute__((always_inline)) void
ROWS_OF(const int n, float *c, int64_t c_row, const float *a, int64_t a_row, int64_t a_step,
        const float *b, int64_t b_row, int64_t steps, bool add) {
  VEC sum[BLOCK][2];
  const float *group[(BLOCK + 2) / 3];
  for (int i = 0; i < (n + 2) / 3; i++)
    group[i] = a + 3 * i * a_row;
  for (int r = 0; r < n; r++) {
    sum[r][0] = add ? *(VEC *)(c + r * c_row) : (VEC){0};
    sum[r][1] = add ? *(VEC *)(c + r * c_row + WIDTH) : (VEC){0};
  }
  for (int64_t k = 0; k < steps; k++) {
    VEC b0 = *(const VEC *)(b + k * b_row), b1 = *(const VEC *)(b + k * b_row + WIDTH);
    for (int r = 0; r < n; r++) {
      float s = group[r / 3][r % 3 * a_row];
      sum[r][0] += s * b0;
      sum[r][1] += s * b1;
    }
    for (int i = 0; i < (n + 2) / 3; i++)
      group[i] += a_step;
  }
  for (int r = 0; r < n; r++) {
    *(VEC *)(c + r * c_row) = sum[r][0];
    *(VEC *)(c + r * c_row + WIDTH) = sum[r][1];
  }
}

TARGET static void PASTE(product, NAME)(const TileProduct *p) {
  for (int64_t l = 0; l < p->lanes; l += 2 * WIDTH) {
    float *c = p->c + l;
    const float *a = p->a, *b = p->b + l;
    int64_t left = p->rows;
    for (; left >= BLOCK; left -= BLOCK, c += BLOCK * p->c_row, a += BLOCK * p->a_row)
      ROWS_OF(BLOCK, c, p->c_row, a, p->a_row, p->a_step, b, p->b_row, p->steps, p->add);
    for (; left >= 4; left -= 4, c += 4 * p->c_row, a += 4 * p->a_row)
      ROWS_OF(4, c, p->c_row, a, p->a_row, p->a_step, b, p->b_row, p->steps, p->add);
    for (; left > 0; left--, c += p->c_row, a += p->a_row)
      ROWS_OF(1, c, p->c_row, a, p->a_row, p->a_step, b, p->b_row, p->steps, p->add);
  }
}

#undef PASTE_
#undef PASTE
#undef VEC
#undef ROWS_OF
#undef NAME
#undef TARGET
#undef WIDTH
#undef BLOCK
