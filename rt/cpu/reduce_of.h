// One reduction, for reduce.c, which includes this once for each set of NAME, T, ACC, OF and START.

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define RUN_OF       PASTE(run, NAME)
#define TILE_OF      PASTE(tile, NAME)

// Reduces a contiguous run.
NNRT_CLONES static ACC RUN_OF(const T *x, int64_t n) {
  // Lanes, because OF is not always an operation that `omp simd reduction` knows.
  ACC lane[LANES], all = START;
  for (int j = 0; j < LANES; j++)
    lane[j] = START;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; j++) {
      ACC v = (ACC)x[i + j];
      lane[j] = OF(v, lane[j]);
    }
  for (; i < n; i++) {
    ACC v = (ACC)x[i];
    all = OF(v, all);
  }
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int j = 0; j < half; j++)
      lane[j] = OF(lane[j + half], lane[j]);
  return OF(lane[0], all);
}

// Reduces `rows` rows of x into acc (width).  Four at once, to read and write acc less often.
NNRT_CLONES static void TILE_OF(ACC *restrict acc, const T *restrict x, int64_t stride,
                                int64_t rows, int64_t width) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4, x += 4 * stride)
    for (int64_t j = 0; j < width; j++) {
      ACC a = (ACC)x[j], b = (ACC)x[stride + j];
      ACC c = (ACC)x[2 * stride + j], d = (ACC)x[3 * stride + j];
      a = OF(a, b);
      c = OF(c, d);
      a = OF(a, c);
      acc[j] = OF(a, acc[j]);
    }
  for (; i < rows; i++, x += stride)
    for (int64_t j = 0; j < width; j++) {
      ACC v = (ACC)x[j];
      acc[j] = OF(v, acc[j]);
    }
}

int PASTE(nnrt_reduce, NAME)(T *y, const T *x, int64_t ndim, const int64_t *shape, int64_t n_axes,
                             const int64_t *axes) {
  Groups g = groups_of(ndim, shape, n_axes, axes);
  int threads = threads_for(product(shape, ndim));
  bool rows = g.n == 0 || g.reduced[g.n - 1];
  int64_t inner = g.n ? g.size[g.n - 1] : 1;
  int64_t kept = combinations(&g, false, 1), reduced = combinations(&g, true, 1);
  if (rows && kept >= threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t k = 0; k < kept; k++) {
      const T *from = x + place(&g, false, 1, k);
      ACC acc = START;
      for (int64_t r = 0; r < reduced; r++) {
        ACC v = RUN_OF(from + place(&g, true, 1, r), inner);
        acc = OF(v, acc);
      }
      y[k] = (T)acc;
    }
    return NNRT_OK;
  }
  if (rows) { // few results: threads share each, by runs and parts of runs
    int64_t parts = (threads + reduced - 1) / reduced;
    ACC *part = kernel_scratch((size_t)(reduced * parts) * sizeof(ACC));
    if (!part) return scratch_failed((size_t)(reduced * parts) * sizeof(ACC));
    for (int64_t k = 0; k < kept; k++) {
      const T *from = x + place(&g, false, 1, k);
#pragma omp parallel for num_threads(threads)
      for (int64_t r = 0; r < reduced * parts; r++) {
        Part p = part_of(inner, 16, r % parts, parts);
        part[r] = RUN_OF(from + place(&g, true, 1, r / parts) + p.from, p.to - p.from);
      }
      ACC acc = START;
      for (int64_t r = 0; r < reduced * parts; r++)
        acc = OF(part[r], acc);
      y[k] = (T)acc;
    }
    return NNRT_OK;
  }
  if (g.n == 1) { // all kept
    memcpy(y, x, (size_t)inner * sizeof *y);
    return NNRT_OK;
  }
  // Columns, in tiles, over runs of rows that are one stride apart; with fewer tiles than threads,
  // rows are divided among threads too.
  int64_t tiles = (inner + TILE - 1) / TILE, length = g.size[g.n - 2];
  int64_t parts = kept * tiles >= threads ? 1 : (threads + kept * tiles - 1) / (kept * tiles);
  size_t bytes = (size_t)(kept * parts * inner) * sizeof(ACC);
  ACC *acc = kernel_scratch(bytes); // (kept, parts, inner)
  if (!acc) return scratch_failed(bytes);
#pragma omp parallel for collapse(3) num_threads(threads)
  for (int64_t k = 0; k < kept; k++)
    for (int64_t i = 0; i < parts; i++)
      for (int64_t t = 0; t < tiles; t++) {
        int64_t width = inner - t * TILE < TILE ? inner - t * TILE : TILE;
        const T *from = x + place(&g, false, 1, k) + t * TILE;
        ACC *mine = acc + (k * parts + i) * inner + t * TILE;
        Part p = part_of(reduced, 1, i, parts);
        for (int64_t j = 0; j < width; j++)
          mine[j] = START;
        for (int64_t r = p.from; r < p.to;) {
          int64_t left = length - r % length, run = left < p.to - r ? left : p.to - r;
          TILE_OF(mine, from + place(&g, true, 1, r), g.stride[g.n - 2], run, width);
          r += run;
        }
      }
#pragma omp parallel for num_threads(threads)
  for (int64_t k = 0; k < kept; k++) {
    ACC *all = acc + k * parts * inner;
    for (int64_t i = 1; i < parts; i++)
      for (int64_t j = 0; j < inner; j++)
        all[j] = OF(all[i * inner + j], all[j]);
    for (int64_t j = 0; j < inner; j++)
      y[k * inner + j] = (T)all[j];
  }
  return NNRT_OK;
}

#undef PASTE_
#undef PASTE
#undef RUN_OF
#undef TILE_OF
#undef NAME
#undef T
#undef ACC
#undef OF
#undef START
