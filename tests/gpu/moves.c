// Kernels that copy elements, and lookups, on a GPU, element by element against their definition:
// the cases that kernels.c does not reach, such as large tensors, odd addresses, many operands,
// long segments.

#include "check.h"

#include "../rt/places.h"

static void transpose(void) {
  static const struct {
    int64_t ndim, shape[6], perm[6];
  } cases[] = {
      {1, {1000}, {0}},
      {2, {71, 1023}, {1, 0}},
      {2, {1, 9}, {1, 0}},
      {2, {5, 300}, {1, 0}}, // too thin for tiles
      {2, {304, 5}, {1, 0}}, // and written 16 bytes at a time
      {4, {2, 4, 16, 3}, {0, 3, 1, 2}},
      {3, {5, 67, 33}, {2, 0, 1}},
      {3, {5, 67, 33}, {0, 2, 1}},
      {4, {2, 65, 6, 64}, {0, 2, 1, 3}}, // heads of attention
      {4, {3, 37, 9, 11}, {0, 2, 3, 1}}, // channels last, and back
      {4, {3, 9, 11, 37}, {0, 3, 1, 2}},
      {4, {6, 7, 8, 9}, {3, 2, 1, 0}},
      {5, {2, 3, 1, 35, 40}, {4, 2, 0, 3, 1}},
      {6, {2, 3, 4, 5, 6, 7}, {5, 0, 4, 1, 3, 2}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int64_t width = 1; width <= 8; width *= 2) {
      int64_t ndim = cases[c].ndim, n = count(ndim, cases[c].shape), y_shape[6], wrong = 0;
      char *x = elements(n, width), *gx = gpu_put(x, n * width), *gy = gpu_new(n * width);
      for (int64_t d = 0; d < ndim; d++)
        y_shape[d] = cases[c].shape[cases[c].perm[d]];
      int code = BY_WIDTH(transpose, width, gy, gx, ndim, cases[c].shape, cases[c].perm);
      char *y = gpu_get(gy, n * width);
      for (int64_t i = 0; i < n; i++) {
        int64_t y_index[6], x_index[6];
        index_of(ndim, y_shape, i, y_index);
        for (int64_t d = 0; d < ndim; d++)
          x_index[cases[c].perm[d]] = y_index[d];
        wrong += !!memcmp(y + i * width, x + place_of(ndim, cases[c].shape, x_index) * width,
                          (size_t)width);
      }
      CHECK(!code && !wrong, "transpose case %zu, width %d: %lld wrong", c, (int)width,
            (long long)wrong);
      free(x), free(y), gpu_free(gx), gpu_free(gy);
    }
}

static void broadcast(void) {
  static const struct {
    int64_t x_ndim, x_shape[4], y_ndim, y_shape[4];
  } cases[] = {
      {0, {0}, 1, {7001}},
      {0, {0}, 0, {0}},
      {1, {33}, 3, {40, 5, 33}},
      {1, {64}, 2, {40, 64}}, // 16 bytes at a time
      {2, {50, 1}, 3, {4, 50, 33}},
      {2, {50, 1}, 3, {4, 50, 32}},
      {3, {40, 1, 1}, 3, {40, 50, 3}},
      {4, {3, 1, 5, 1}, 4, {3, 40, 5, 6}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int64_t width = 1; width <= 8; width *= 2) {
      int64_t x_ndim = cases[c].x_ndim, y_ndim = cases[c].y_ndim, missing = y_ndim - x_ndim;
      int64_t nx = count(x_ndim, cases[c].x_shape), n = count(y_ndim, cases[c].y_shape), wrong = 0;
      char *x = elements(nx, width), *gx = gpu_put(x, nx * width), *gy = gpu_new(n * width);
      int code =
          BY_WIDTH(broadcast, width, gy, gx, y_ndim, cases[c].y_shape, x_ndim, cases[c].x_shape);
      char *y = gpu_get(gy, n * width);
      for (int64_t i = 0; i < n; i++) {
        int64_t index[4];
        index_of(y_ndim, cases[c].y_shape, i, index);
        for (int64_t d = 0; d < x_ndim; d++)
          if (cases[c].x_shape[d] == 1) index[missing + d] = 0;
        wrong +=
            !!memcmp(y + i * width, x + place_of(x_ndim, cases[c].x_shape, index + missing) * width,
                     (size_t)width);
      }
      CHECK(!code && !wrong, "broadcast case %zu, width %d: %lld wrong", c, (int)width,
            (long long)wrong);
      free(x), free(y), gpu_free(gx), gpu_free(gy);
    }
}

// Into, and out of, memory that begins `off` elements after a multiple of 256.
static void slice(void) {
  static const struct {
    int64_t ndim, shape[3], starts[3], steps[3], y_shape[3];
  } cases[] = {
      {1, {10000}, {17}, {1}, {7001}},
      {1, {10000}, {9999}, {-1}, {10000}},
      {2, {30, 200}, {29, 1}, {-1, 2}, {30, 96}},
      {1, {10}, {8}, {-3}, {3}},
      {2, {70, 96}, {1, 16}, {3, 1}, {20, 64}}, // 16 bytes at a time
      {2, {70, 90}, {1, 2}, {3, 1}, {20, 83}},
      {2, {70, 900}, {0, 899}, {1, -7}, {70, 120}},
      {3, {9, 80, 70}, {8, 4, 0}, {-2, 1, 2}, {5, 70, 35}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int64_t width = 1; width <= 8; width *= 2)
      for (int64_t off = 0; off < 4; off += 3) {
        int64_t ndim = cases[c].ndim, nx = count(ndim, cases[c].shape), shift = off * width;
        int64_t ny = count(ndim, cases[c].y_shape), wrong = 0;
        char *x = elements(nx + off, width), *gx = gpu_put(x, (nx + off) * width);
        char *gy = gpu_new((ny + off) * width), *gback = gpu_new((nx + off) * width);
        int code = BY_WIDTH(slice, width, gy + shift, gx + shift, ndim, cases[c].shape,
                            cases[c].starts, cases[c].steps, cases[c].y_shape);
        if (!code)
          code = BY_WIDTH(slice_back, width, gback + shift, gy + shift, ndim, cases[c].y_shape,
                          cases[c].starts, cases[c].steps, cases[c].shape);
        char *y = gpu_get(gy, (ny + off) * width), *back = gpu_get(gback, (nx + off) * width);
        char *want = calloc((size_t)nx, (size_t)width);
        for (int64_t i = 0; i < ny; i++) {
          int64_t index[3];
          index_of(ndim, cases[c].y_shape, i, index);
          for (int64_t d = 0; d < ndim; d++)
            index[d] = cases[c].starts[d] + index[d] * cases[c].steps[d];
          int64_t from = place_of(ndim, cases[c].shape, index);
          wrong += !!memcmp(y + shift + i * width, x + shift + from * width, (size_t)width);
          memcpy(want + from * width, x + shift + from * width, (size_t)width);
        }
        CHECK(!code && !wrong, "slice case %zu, width %d, off %d: %lld wrong", c, (int)width,
              (int)off, (long long)wrong);
        CHECK(!memcmp(back + shift, want, (size_t)(nx * width)),
              "slice_back case %zu, width %d, off %d", c, (int)width, (int)off);
        free(x), free(y), free(back), free(want);
        gpu_free(gx), gpu_free(gy), gpu_free(gback);
      }
}

// Rows so far apart that indices need 64 bits.
static void far_rows(void) {
  enum { COLUMNS = 40 };
  size_t free_bytes, all_bytes;
  int64_t row = ((int64_t)1 << 30) + 16, shape[] = {2, row}, starts[] = {0, 5}, steps[] = {1, 1};
  int64_t y_shape[] = {2, COLUMNS};
  MUST_CUDA(cudaMemGetInfo(&free_bytes, &all_bytes));
  if (free_bytes < (size_t)4 << 30) return;
  char *gx = gpu_new(2 * row), *gy = gpu_new(2 * COLUMNS), *x = elements(2 * COLUMNS, 1);
  MUST_CUDA(cudaMemcpy(gx + 5, x, COLUMNS, cudaMemcpyHostToDevice));
  MUST_CUDA(cudaMemcpy(gx + row + 5, x + COLUMNS, COLUMNS, cudaMemcpyHostToDevice));
  int code = nnrt_slice_b1(gy, gx, 2, shape, starts, steps, y_shape);
  char *y = gpu_get(gy, 2 * COLUMNS);
  CHECK(!code && !memcmp(y, x, 2 * COLUMNS), "a slice of rows far apart");
  free(x), free(y), gpu_free(gx), gpu_free(gy);
}

// More operands than one launch supports, of all sizes, empty ones too.
static void concat(void) {
  enum { N = 131, OUTER = 3 };
  for (int64_t width = 1; width <= 8; width *= 2)
    for (int64_t inner = 1; inner <= 16; inner *= 16) {
      int64_t sizes[N], all = 0, wrong = 0;
      char *in[N], *gin[N];
      for (int i = 0; i < N; i++) {
        sizes[i] = i % 5;
        all += sizes[i];
        in[i] = elements(OUTER * sizes[i] * inner, width);
        gin[i] = gpu_put(in[i], OUTER * sizes[i] * inner * width);
      }
      int64_t y_shape[] = {OUTER, all, inner}, bytes = OUTER * all * inner * width;
      char *gy = gpu_new(bytes);
      int code = BY_WIDTH(concat, width, gy, (const void *const *)gin, N, 3, y_shape, sizes, 1);
      char *y = gpu_get(gy, bytes);
      int64_t before = 0;
      for (int i = 0; i < N; before += sizes[i++])
        for (int64_t o = 0; o < OUTER; o++)
          wrong +=
              !!memcmp(y + (o * all + before) * inner * width, in[i] + o * sizes[i] * inner * width,
                       (size_t)(sizes[i] * inner * width));
      CHECK(!code && !wrong, "concat, width %d, inner %d: %lld wrong", (int)width, (int)inner,
            (long long)wrong);
      for (int i = 0; i < N; i++)
        free(in[i]), gpu_free(gin[i]);
      free(y), gpu_free(gy);
    }
}

// More operands than one launch supports; some in place; the padding becomes 0.
static void pack(void) {
  enum { N = 250 };
  for (int64_t width = 1; width <= 8; width *= 2) {
    int64_t sizes[N], at[N], bytes = 0, wrong = 0, not_zero = 0;
    char *in[N], *gin[N];
    for (int i = 0; i < N; i++) {
      sizes[i] = i * 37 % 101;
      at[i] = bytes;
      bytes += (sizes[i] * width + 63) / 64 * 64;
      in[i] = elements(sizes[i], width);
    }
    char *gy = gpu_new(bytes);
    for (int i = 0; i < N; i++) {
      bool in_place = i % 3 == 0;
      gin[i] = in_place ? gy + at[i] : gpu_put(in[i], sizes[i] * width);
      if (in_place)
        MUST_CUDA(cudaMemcpy(gin[i], in[i], (size_t)(sizes[i] * width), cudaMemcpyHostToDevice));
    }
    int code = BY_WIDTH(pack, width, gy, (const void *const *)gin, N, sizes);
    char *y = gpu_get(gy, bytes);
    for (int i = 0; i < N; i++) {
      int64_t used = sizes[i] * width, end = i + 1 < N ? at[i + 1] : bytes;
      wrong += !!memcmp(y + at[i], in[i], (size_t)used);
      for (int64_t b = at[i] + used; b < end; b++)
        not_zero += y[b] != 0;
    }
    CHECK(!code && !wrong && !not_zero, "pack, width %d: %lld wrong, %lld not zero", (int)width,
          (long long)wrong, (long long)not_zero);
    for (int i = 0; i < N; i++) {
      free(in[i]);
      if (i % 3) gpu_free(gin[i]);
    }
    free(y), gpu_free(gy);
  }
}

static void bit_cast(void) {
  for (int64_t width = 1; width <= 8; width *= 2) {
    char *x = elements(999, width), *gx = gpu_put(x, 999 * width), *gy = gpu_new(999 * width);
    int code = BY_WIDTH(bit_cast, width, gy, gx, 999);
    char *y = gpu_get(gy, 999 * width);
    CHECK(!code && !memcmp(x, y, (size_t)(999 * width)), "bit_cast, width %d", (int)width);
    free(x), free(y), gpu_free(gx), gpu_free(gy);
  }
}

static void trilu(void) {
  int64_t shape[] = {3, 20, 33}, n = 3 * 20 * 33;
  for (int64_t width = 1; width <= 8; width *= 2)
    for (int64_t k = -24; k <= 36; k += 6)
      for (int upper = 0; upper < 2; upper++) {
        char *x = elements(n, width), *gx = gpu_put(x, n * width), *gy = gpu_new(n * width);
        int code = BY_WIDTH(trilu, width, gy, gx, 3, shape, upper, k);
        char *y = gpu_get(gy, n * width);
        for (int64_t i = 0; i < n; i++) {
          int64_t row = i / 33 % 20, column = i % 33;
          if (!(upper ? column >= row + k : column <= row + k))
            memset(x + i * width, 0, (size_t)width);
        }
        CHECK(!code && !memcmp(x, y, (size_t)(n * width)), "trilu, width %d, k %d, upper %d",
              (int)width, (int)k, upper);
        free(x), free(y), gpu_free(gx), gpu_free(gy);
      }
}

static void pad(void) {
  static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
  // numpy.pad of 0 1 2, three before and four after
  static const float want[4][10] = {{9, 9, 9, 0, 1, 2, 9, 9, 9, 9},
                                    {1, 2, 1, 0, 1, 2, 1, 0, 1, 2},
                                    {0, 0, 0, 0, 1, 2, 2, 2, 2, 2},
                                    {0, 1, 2, 0, 1, 2, 0, 1, 2, 0}};
  float line[3] = {0, 1, 2}, *gx = gpu_put(line, sizeof line), *gy = gpu_new(sizeof *want);
  int64_t three[] = {3}, ten[] = {10};
  for (int m = 0; m < 4; m++) {
    int code = nnrt_pad_f32(gy, gx, 1, three, three, ten, modes[m], 9);
    float *y = gpu_get(gy, sizeof *want);
    CHECK(!code && !memcmp(y, want[m], sizeof *want), "pad %s", modes[m]);
    free(y);
  }
  CHECK(nnrt_pad_f32(gy, gx, 1, three, three, ten, "mirror", 9) == NNRT_UNSUPPORTED,
        "an unknown mode is an error");
  gpu_free(gx), gpu_free(gy);
  // Cropped at the beginning, padded at the end, over all axes.
  int64_t x_shape[] = {10, 15, 45}, low[] = {2, -3, -4}, y_shape[] = {15, 14, 54};
  int64_t n = count(3, y_shape), nx = count(3, x_shape), wrong = 0;
  int64_t *x = malloc((size_t)nx * sizeof *x);
  for (int64_t i = 0; i < nx; i++)
    x[i] = i;
  int64_t *gx64 = gpu_put(x, nx * 8), *gy64 = gpu_new(n * 8);
  int code = nnrt_pad_i64(gy64, gx64, 3, x_shape, low, y_shape, "constant", -1);
  int64_t *y = gpu_get(gy64, n * 8);
  for (int64_t i = 0; i < n; i++) {
    int64_t index[3];
    bool inside = true;
    index_of(3, y_shape, i, index);
    for (int d = 0; d < 3; d++) {
      index[d] -= low[d];
      inside = inside && index[d] >= 0 && index[d] < x_shape[d];
    }
    wrong += y[i] != (inside ? place_of(3, x_shape, index) : -1);
  }
  CHECK(!code && !wrong, "pad with cuts: %lld wrong", (long long)wrong);
  free(x), free(y), gpu_free(gx64), gpu_free(gy64);
}

// `skew`: the number of rows that most indices refer to, which makes long segments.
static void gather_case(int64_t ndim, const int64_t *shape, int64_t axis, int64_t n, int64_t skew,
                        NnrtDtype t) {
  int64_t inner = 1, outer = count(axis, shape), rows = shape[axis], size = size_of(t), wrong = 0;
  for (int64_t d = axis + 1; d < ndim; d++)
    inner *= shape[d];
  int64_t nx = count(ndim, shape), ny = outer * n * inner, at_shape[] = {n};
  int64_t *at = malloc((size_t)n * sizeof *at);
  int32_t *at32 = malloc((size_t)n * sizeof *at32);
  for (int64_t i = 0; i < n; i++) {
    uint64_t r = nnrt_random_mix((uint64_t)i);
    int64_t row = (int64_t)(r >> 8) % (r % 16 ? skew : rows);
    at[i] = (r & 32) ? row : row - rows;
    at32[i] = (int32_t)at[i];
  }
  char *x = numbers(t, nx, 1), *dy = numbers(t, ny, 2);
  char *gx = gpu_put(x, nx * size), *gdy = gpu_put(dy, ny * size), *gy = gpu_new(ny * size);
  float *gdx = gpu_new(nx * 4), *again = gpu_new(nx * 4);
  void *gat = gpu_put(at, n * 8), *gat32 = gpu_put(at32, n * 4);
  int code = BY_WIDTH(gather, size, gy, gx, gat, ndim, shape, 1, at_shape, 8,
                      &(NnrtGather){.axis = axis}, 0, rows);
  for (int i = 0; !code && i < 2; i++) {
    float *to = i ? again : gdx;
    code = t == NNRT_f32    ? nnrt_gather_back_f32(to, gat32, (float *)gdy, 1, at_shape, 4, ndim,
                                                   shape, axis, 0, 0, rows)
           : t == NNRT_bf16 ? nnrt_gather_back_bf16(to, gat32, (uint16_t *)gdy, 1, at_shape, 4,
                                                    ndim, shape, axis, 0, 0, rows)
                            : nnrt_gather_back_f16(to, gat32, (uint16_t *)gdy, 1, at_shape, 4, ndim,
                                                   shape, axis, 0, 0, rows);
  }
  char *y = gpu_get(gy, ny * size);
  double *want = calloc((size_t)nx, sizeof *want);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < n; i++) {
      int64_t row = at[i] < 0 ? at[i] + rows : at[i];
      wrong += !!memcmp(y + (o * n + i) * inner * size, x + (o * rows + row) * inner * size,
                        (size_t)(inner * size));
      for (int64_t j = 0; j < inner; j++)
        want[(o * rows + row) * inner + j] += element(dy, t, (o * n + i) * inner + j);
    }
  CHECK(!code && !wrong, "gather of %lld from %lld: %lld wrong", (long long)n, (long long)rows,
        (long long)wrong);
  check_near("gather_back", gdx, NNRT_f32, want, nx, 2e-6);
  char *first = gpu_get(gdx, nx * 4), *second = gpu_get(again, nx * 4);
  CHECK(!memcmp(first, second, (size_t)nx * 4), "gather_back gives other bits the second time");
  // Rows of axis 0 are added to those of an earlier micro-batch.
  if (axis == 0) {
    code = t == NNRT_f32 ? nnrt_gather_back_accumulate_f32(gdx, gat32, (float *)gdy, 1, at_shape, 4,
                                                           ndim, shape, 0, rows)
           : t == NNRT_bf16 ? nnrt_gather_back_accumulate_bf16(gdx, gat32, (uint16_t *)gdy, 1,
                                                               at_shape, 4, ndim, shape, 0, rows)
                            : nnrt_gather_back_accumulate_f16(gdx, gat32, (uint16_t *)gdy, 1,
                                                              at_shape, 4, ndim, shape, 0, rows);
    for (int64_t i = 0; i < nx; i++)
      want[i] *= 2;
    CHECK(!code, "gather_back_accumulate");
    check_near("gather_back_accumulate", gdx, NNRT_f32, want, nx, 2e-6);
  }
  free(at), free(at32), free(x), free(dy), free(y), free(want), free(first), free(second);
  gpu_free(gx), gpu_free(gdy), gpu_free(gy), gpu_free(gdx), gpu_free(again);
  gpu_free(gat), gpu_free(gat32);
}

static void gather(void) {
  static const struct {
    int64_t ndim, shape[3], axis, n, skew;
  } cases[] = {
      {2, {500, 13}, 0, 700, 500}, {1, {5000}, 0, 4000, 5000}, {3, {6, 50, 4}, 1, 120, 50},
      {2, {30, 70}, 1, 90, 70},    {2, {2, 40}, 0, 3000, 2}, // two rows, long segments
      {2, {70000, 3}, 0, 5000, 1}, // three digits, one long segment and many short
      {2, {300, 300}, 0, 64, 300}, // one piece; more columns than a block has threads
      {2, {1, 8}, 0, 129, 1},      // one row
      {2, {9, 16}, 0, 1, 9},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int t = 0; t < 3; t++)
      gather_case(cases[c].ndim, cases[c].shape, cases[c].axis, cases[c].n, cases[c].skew,
                  (NnrtDtype[]){NNRT_f32, NNRT_bf16, NNRT_f16}[t]);
}

// A row that selects more elements than the bound is reported; elements up to it are selected.
static void bound(void) {
  static const uint8_t flags[2][3] = {{0, 1, 1}, {1, 1, 1}};
  uint8_t *x = gpu_put(flags, sizeof flags);
  int64_t *index = gpu_new(4 * sizeof *index), *count = gpu_new(2 * sizeof *count);
  gpu.op = 7;
  CHECK(!nnrt_nonzero_bool(index, count, x, 2, 3, 2), "nonzero");
  NnrtFinding f = gpu_finding();
  CHECK(f.code == NNRT_CAPACITY && f.op == 7 && f.kind == FOUND_count && f.value == 3 &&
            f.place == 1 && f.least == 0 && f.limit == 3,
        "nonzero finds %lld in row %lld", f.value, f.place);
  int64_t *at = gpu_get(index, 4 * sizeof *at), *n = gpu_get(count, 2 * sizeof *n);
  CHECK(at[0] == 1 && at[1] == 2 && n[0] == 2 && n[1] == 3, "nonzero selects %lld, %lld",
        (long long)at[0], (long long)at[1]);
  free(at);
  free(n);
  gpu_free(index);
  gpu_free(count);
  gpu_free(x);
}

static void bad_indices(void) {
  int64_t shape[] = {3, 2}, at_shape[] = {2}, none[] = {0};
  static const int64_t bad[][2] = {{0, 3}, {-4, 0}, {INT64_MIN, 0}};
  float x[6] = {1, 2, 3, 4, 5, 6}, *gx = gpu_put(x, sizeof x), *gy = gpu_new(4 * sizeof *gy);
  float *gdx = gpu_new(sizeof x);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int64_t *at = gpu_put(bad[i], sizeof bad[i]);
    long long guilty = bad[i][0] == 0 ? bad[i][1] : bad[i][0];
    gpu.op = 7;
    CHECK(!nnrt_gather_b4(gy, gx, at, 2, shape, 1, at_shape, 8, &(NnrtGather){0}, 0, 3), "gather");
    NnrtFinding f = gpu_finding();
    CHECK(f.code == NNRT_INDEX && f.op == 7 && f.kind == FOUND_index && f.value == guilty &&
              f.place == (bad[i][0] == 0) && f.least == -3 && f.limit == 3,
          "gather finds %lld, not %lld", guilty, f.value);
    CHECK(!nnrt_gather_back_f32(gdx, at, gx, 1, at_shape, 8, 2, shape, 0, 0, 0, 3), "gather_back");
    f = gpu_finding();
    CHECK(f.code == NNRT_INDEX && f.value == guilty, "gather_back finds %lld, not %lld", guilty,
          f.value);
    gpu_free(at);
  }
  // Empty.
  int64_t last[] = {-1, 2}, *at = gpu_put(last, sizeof last);
  CHECK(
      !nnrt_gather_b4(gy, gx, at, 2, shape, 1, at_shape, 8, &(NnrtGather){.embedding = true}, 0, 3),
      "gather");
  NnrtFinding found = gpu_finding();
  CHECK(found.code == NNRT_INDEX && found.value == -1 && found.place == 0 && found.least == 0,
        "an embedding takes index %lld", found.value);
  gpu_free(at);
  CHECK(!nnrt_gather_back_f32(gdx, gx, gx, 1, none, 8, 2, shape, 0, 0, 0, 3),
        "gather_back of nothing");
  float *dx = gpu_get(gdx, sizeof x), zeros[6] = {0};
  CHECK(!memcmp(dx, zeros, sizeof x), "gather_back of nothing is zero");
  free(dx), gpu_free(gx), gpu_free(gy), gpu_free(gdx);
}

int main(void) {
  gpu_open();
  transpose();
  broadcast();
  slice();
  far_rows();
  concat();
  pack();
  bit_cast();
  trilu();
  pad();
  gather();
  bound();
  bad_indices();
  return gpu_close();
}
