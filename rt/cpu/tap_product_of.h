// The sum of products for one kind of processor, for tap_product.c: NAME, TARGET, vectors of WIDTH
// floats, and up to BLOCK rows; their sums (2 vectors each) stay in registers.

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define VEC          PASTE(vec, NAME)
#define ROWS_OF      PASTE(rows, NAME)

typedef float VEC __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

// Computes `n` rows, a constant.  Three rows of `a` share an address register, by the processor's
// scaled index.
TARGET static inline __attribute__((always_inline)) void ROWS_OF(const int n, const TapProduct *p) {
  VEC sum[BLOCK][2];
  float *c = p->c;
  int64_t a_row = p->a_row, a_step = p->a_step;
  for (int r = 0; r < n; r++) {
    sum[r][0] = p->add ? *(VEC *)(c + r * 2 * WIDTH) : (VEC){0};
    sum[r][1] = p->add ? *(VEC *)(c + r * 2 * WIDTH + WIDTH) : (VEC){0};
  }
  for (int64_t i = 0; i < p->pairs; i++) {
    const float *a = p->a + p->pair[i].a * p->a_matrix, *group[(BLOCK + 2) / 3];
    const float *b = p->b + p->pair[i].b * p->b_matrix, *end = b + p->steps * 2 * WIDTH;
    for (int j = 0; j < (n + 2) / 3; j++)
      group[j] = a + 3 * j * a_row;
    for (; b != end; b += 2 * WIDTH) {
      VEC b0 = *(const VEC *)b, b1 = *(const VEC *)(b + WIDTH);
      for (int r = 0; r < n; r++) {
        float s = group[r / 3][r % 3 * a_row];
        sum[r][0] += s * b0;
        sum[r][1] += s * b1;
      }
      for (int j = 0; j < (n + 2) / 3; j++)
        group[j] += a_step;
    }
  }
  for (int r = 0; r < n; r++) {
    *(VEC *)(c + r * 2 * WIDTH) = sum[r][0];
    *(VEC *)(c + r * 2 * WIDTH + WIDTH) = sum[r][1];
  }
}

TARGET static void PASTE(product, NAME)(const TapProduct *p) {
  switch (p->rows) {
  case 1: ROWS_OF(1, p); break;
  case 2: ROWS_OF(2, p); break;
  case 3: ROWS_OF(3, p); break;
  case 4: ROWS_OF(4, p); break;
  case 5: ROWS_OF(5, p); break;
  case 6: ROWS_OF(6, p); break;
#if BLOCK > 6
  case 7: ROWS_OF(7, p); break;
  case 8: ROWS_OF(8, p); break;
  case 9: ROWS_OF(9, p); break;
  case 10: ROWS_OF(10, p); break;
  case 11: ROWS_OF(11, p); break;
  case 12: ROWS_OF(12, p); break;
#endif
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
