// Kernels that move elements, against their definition index by index; tables and gathers; dropout;
// and the optimizers in place.

#include "kernels.h"
#include "places.h"

static void assert_element(const char *what, const char *y, int64_t i, const char *x, int64_t j,
                           int64_t width) {
  if (memcmp(y + i * width, x + j * width, (size_t)width) != 0)
    fail_msg("%s: element %lld is not element %lld of x", what, (long long)i, (long long)j);
}

static void transpose(void **state) {
  (void)state;
  static const struct {
    int64_t ndim, shape[5], perm[5];
  } cases[] = {
      {1, {100000}, {0}},
      {2, {71, 1023}, {1, 0}},
      {2, {1, 9}, {1, 0}},
      {3, {5, 67, 33}, {2, 0, 1}},
      {4, {8, 65, 6, 64}, {0, 2, 1, 3}},
      {4, {3, 37, 9, 11}, {0, 2, 3, 1}},
      {4, {3, 9, 11, 37}, {0, 3, 1, 2}},
      {4, {6, 7, 8, 9}, {3, 2, 1, 0}},
      {5, {2, 3, 1, 35, 40}, {4, 2, 0, 3, 1}},
      {5, {3, 1, 4, 1, 50}, {1, 4, 3, 0, 2}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int64_t width = 1; width <= 8; width *= 2) {
      int64_t ndim = cases[c].ndim, n = count(ndim, cases[c].shape), y_shape[5];
      char *x = elements(n, width), *y = malloc((size_t)(n * width));
      for (int64_t d = 0; d < ndim; d++)
        y_shape[d] = cases[c].shape[cases[c].perm[d]];
      assert_int_equal(BY_WIDTH(transpose, width, y, x, ndim, cases[c].shape, cases[c].perm), 0);
      for (int64_t i = 0; i < n; i++) {
        int64_t y_index[5], x_index[5];
        index_of(ndim, y_shape, i, y_index);
        for (int64_t d = 0; d < ndim; d++)
          x_index[cases[c].perm[d]] = y_index[d];
        assert_element("transpose", y, i, x, place_of(ndim, cases[c].shape, x_index), width);
      }
      free(x), free(y);
    }
}

static void broadcast(void **state) {
  (void)state;
  static const struct {
    int64_t x_ndim, x_shape[4], y_ndim, y_shape[4];
  } cases[] = {
      {0, {0}, 1, {70000}},
      {0, {0}, 0, {0}},
      {1, {33}, 3, {40, 50, 33}},
      {2, {50, 1}, 3, {40, 50, 33}},
      {3, {40, 1, 1}, 3, {40, 50, 33}},
      {4, {3, 1, 5, 1}, 4, {3, 40, 5, 60}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int64_t width = 1; width <= 8; width *= 2) {
      int64_t x_ndim = cases[c].x_ndim, y_ndim = cases[c].y_ndim, missing = y_ndim - x_ndim;
      int64_t n = count(y_ndim, cases[c].y_shape);
      char *x = elements(count(x_ndim, cases[c].x_shape), width), *y = malloc((size_t)(n * width));
      assert_int_equal(
          BY_WIDTH(broadcast, width, y, x, y_ndim, cases[c].y_shape, x_ndim, cases[c].x_shape), 0);
      for (int64_t i = 0; i < n; i++) {
        int64_t index[4];
        index_of(y_ndim, cases[c].y_shape, i, index);
        for (int64_t d = 0; d < x_ndim; d++)
          if (cases[c].x_shape[d] == 1) index[missing + d] = 0;
        assert_element("broadcast", y, i, x, place_of(x_ndim, cases[c].x_shape, index + missing),
                       width);
      }
      free(x), free(y);
    }
}

static void slice(void **state) {
  (void)state;
  static const struct {
    int64_t ndim, shape[3], starts[3], steps[3], y_shape[3];
  } cases[] = {
      {1, {100000}, {17}, {1}, {70001}},
      {1, {100000}, {99999}, {-1}, {100000}},
      {1, {10}, {8}, {-3}, {3}},
      {2, {70, 900}, {1, 2}, {3, 1}, {20, 890}},
      {2, {70, 900}, {0, 899}, {1, -7}, {70, 120}},
      {3, {9, 80, 70}, {8, 4, 0}, {-2, 1, 2}, {5, 70, 35}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int64_t width = 1; width <= 8; width *= 2) {
      int64_t ndim = cases[c].ndim, nx = count(ndim, cases[c].shape);
      int64_t ny = count(ndim, cases[c].y_shape);
      char *x = elements(nx, width), *y = malloc((size_t)(ny * width));
      char *back = malloc((size_t)(nx * width)), *hit = calloc((size_t)nx, 1), zero[8] = {0};
      assert_int_equal(BY_WIDTH(slice, width, y, x, ndim, cases[c].shape, cases[c].starts,
                                cases[c].steps, cases[c].y_shape),
                       0);
      assert_int_equal(BY_WIDTH(slice_back, width, back, y, ndim, cases[c].y_shape, cases[c].starts,
                                cases[c].steps, cases[c].shape),
                       0);
      for (int64_t i = 0; i < ny; i++) {
        int64_t index[3];
        index_of(ndim, cases[c].y_shape, i, index);
        for (int64_t d = 0; d < ndim; d++)
          index[d] = cases[c].starts[d] + index[d] * cases[c].steps[d];
        int64_t from = place_of(ndim, cases[c].shape, index);
        assert_element("slice", y, i, x, from, width);
        hit[from] = 1;
      }
      for (int64_t i = 0; i < nx; i++)
        if (hit[i])
          assert_element("slice_back", back, i, x, i, width);
        else
          assert_element("slice_back", back, i, zero, 0, width);
      free(x), free(y), free(back), free(hit);
    }
}

static void concat_and_pack(void **state) {
  (void)state;
  int64_t sizes[] = {40, 1, 300}, y_shape[] = {30, 341, 7}, counts[3];
  for (int64_t width = 1; width <= 8; width *= 2) {
    char *in[3], *y = malloc((size_t)(30 * 341 * 7 * width));
    for (int i = 0; i < 3; i++) {
      counts[i] = 30 * sizes[i] * 7;
      in[i] = elements(counts[i], width);
    }
    const void *const operands[] = {in[0], in[1], in[2]};
    assert_int_equal(BY_WIDTH(concat, width, y, operands, 3, 3, y_shape, sizes, 1), 0);
    int64_t before = 0;
    for (int i = 0; i < 3; before += sizes[i++])
      for (int64_t j = 0; j < counts[i]; j++) {
        int64_t shape[] = {30, sizes[i], 7}, index[3];
        index_of(3, shape, j, index);
        index[1] += before;
        assert_element("concat", y, place_of(3, y_shape, index), in[i], j, width);
      }
    // A bucket; its second operand was computed in its place.
    int64_t bytes = 0, at[3];
    for (int i = 0; i < 3; i++) {
      at[i] = bytes;
      bytes += (counts[i] * width + 63) / 64 * 64;
    }
    char *bucket = calloc((size_t)bytes, 1);
    memcpy(bucket + at[1], in[1], (size_t)(counts[1] * width));
    const void *const parts[] = {in[0], bucket + at[1], in[2]};
    assert_int_equal(BY_WIDTH(pack, width, bucket, parts, 3, counts), 0);
    for (int i = 0; i < 3; i++)
      assert_same_bits("pack", bucket + at[i], in[i], (size_t)(counts[i] * width));
    free(in[0]), free(in[1]), free(in[2]), free(y), free(bucket);
  }
}

static void bit_cast(void **state) {
  (void)state;
  for (int64_t width = 1; width <= 8; width *= 2) {
    char *x = elements(999, width), *y = malloc((size_t)(999 * width));
    assert_int_equal(BY_WIDTH(bit_cast, width, y, x, 999), 0);
    assert_same_bits("bit_cast", y, x, (size_t)(999 * width));
    free(x), free(y);
  }
}

static void trilu(void **state) {
  (void)state;
  int64_t shape[] = {3, 50, 70};
  for (int64_t width = 1; width <= 8; width *= 2)
    for (int64_t k = -60; k <= 80; k += 10)
      for (int upper = 0; upper < 2; upper++) {
        char *x = elements(3 * 50 * 70, width), *y = malloc((size_t)(3 * 50 * 70 * width));
        char zero[8] = {0};
        assert_int_equal(BY_WIDTH(trilu, width, y, x, 3, shape, upper, k), 0);
        for (int64_t i = 0; i < 3 * 50 * 70; i++) {
          int64_t row = i / 70 % 50, column = i % 70;
          bool kept = upper ? column >= row + k : column <= row + k;
          assert_element("trilu", y, i, kept ? x : zero, kept ? i : 0, width);
        }
        free(x), free(y);
      }
}

static void pad(void **state) {
  (void)state;
  static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
  // numpy.pad of 0 1 2, three before and four after
  static const float want[4][10] = {{9, 9, 9, 0, 1, 2, 9, 9, 9, 9},
                                    {1, 2, 1, 0, 1, 2, 1, 0, 1, 2},
                                    {0, 0, 0, 0, 1, 2, 2, 2, 2, 2},
                                    {0, 1, 2, 0, 1, 2, 0, 1, 2, 0}};
  float line[3] = {0, 1, 2}, y[10];
  int64_t three[] = {3}, ten[] = {10};
  for (int m = 0; m < 4; m++) {
    assert_int_equal(nnrt_pad_f32(y, line, 1, three, three, ten, modes[m], 9), 0);
    assert_same_bits(modes[m], y, want[m], sizeof y);
  }
  assert_int_equal(nnrt_pad_f32(y, line, 1, three, three, ten, "mirror", 9), NNRT_UNSUPPORTED);
  // Cropped at the low end, padded at the high end, over all axes: element by element.
  int64_t x_shape[] = {20, 30, 90}, low[] = {2, -3, -4}, y_shape[] = {25, 29, 99};
  int64_t n = count(3, y_shape);
  int64_t *x = calloc((size_t)count(3, x_shape), sizeof *x), *big = calloc((size_t)n, sizeof *big);
  for (int64_t i = 0; i < count(3, x_shape); i++)
    x[i] = i;
  assert_int_equal(nnrt_pad_i64(big, x, 3, x_shape, low, y_shape, "constant", -1), 0);
  for (int64_t i = 0; i < n; i++) {
    int64_t index[3];
    bool inside = true;
    index_of(3, y_shape, i, index);
    for (int d = 0; d < 3; d++) {
      index[d] -= low[d];
      inside &= index[d] >= 0 && index[d] < x_shape[d];
    }
    assert_int_equal(big[i], inside ? place_of(3, x_shape, index) : -1);
  }
  free(x), free(big);
}

static void gather(void **state) {
  (void)state;
  static const struct {
    int64_t ndim, shape[3], axis, n;
  } cases[] = {
      {2, {500, 130}, 0, 700}, {1, {50000}, 0, 40000}, {3, {6, 50, 40}, 1, 120},
      {2, {300, 70}, 1, 90},   {2, {40, 3}, 0, 50000},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int threads = 1; threads <= 3; threads += 2) {
      int64_t ndim = cases[c].ndim, axis = cases[c].axis, n = cases[c].n, inner = 1, outer = 1;
      const int64_t *shape = cases[c].shape;
      for (int64_t d = 0; d < axis; d++)
        outer *= shape[d];
      for (int64_t d = axis + 1; d < ndim; d++)
        inner *= shape[d];
      int64_t rows = shape[axis], nx = count(ndim, shape), ny = outer * n * inner, at_shape[] = {n};
      int64_t *at = calloc((size_t)n, sizeof *at);
      int32_t *at32 = calloc((size_t)n, sizeof *at32);
      for (int64_t i = 0; i < n; i++) {
        at[i] = (int64_t)(nnrt_random_mix((uint64_t)i) % (uint64_t)(2 * rows)) - rows;
        at32[i] = (int32_t)at[i];
      }
      omp_set_num_threads(threads);
      float *x = floats(nx, 1), *dy = floats(ny, 2), *y = results(ny), *dx = results(nx);
      double *want = zeros(nx);
      assert_int_equal(nnrt_gather_b4(y, x, at, ndim, shape, 1, at_shape, 8,
                                      &(NnrtGather){.axis = axis}, 0, rows),
                       0);
      assert_int_equal(
          nnrt_gather_back_f32(dx, at32, dy, 1, at_shape, 4, ndim, shape, axis, 0, 0, rows), 0);
      for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++)
          for (int64_t j = 0; j < inner; j++) {
            int64_t row = at[i] < 0 ? at[i] + rows : at[i];
            assert_true(y[(o * n + i) * inner + j] == x[(o * rows + row) * inner + j]);
            want[(o * rows + row) * inner + j] += (double)dy[(o * n + i) * inner + j];
          }
      assert_near("gather_back", dx, want, nx, 1e-5);
      free(at), free(at32), free(x), free(dy), free(y), free(dx), free(want);
    }
}

static void bad_indices(void **state) {
  (void)state;
  int64_t shape[] = {3, 2}, at_shape[] = {2};
  static const int64_t bad[][2] = {{0, 3}, {-4, 0}, {INT64_MIN, 0}};
  float x[6] = {0}, y[4] = {7, 7, 7, 7};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(nnrt_gather_b4(y, x, bad[i], 2, shape, 1, at_shape, 8, &(NnrtGather){0}, 0, 3),
                     NNRT_INDEX);
    assert_int_equal(nnrt_gather_back_f32(y, bad[i], x, 1, at_shape, 8, 2, shape, 0, 0, 0, 3),
                     NNRT_INDEX);
  }
  static const int64_t last[] = {2, -1};
  assert_int_equal(
      nnrt_gather_b4(y, x, last, 2, shape, 1, at_shape, 8, &(NnrtGather){.embedding = true}, 0, 3),
      NNRT_INDEX);
  assert_true(y[0] == 7 && y[3] == 7);
}

// Experts and slots beyond the last, or below -1, and rows without a slot are errors; with `drop`
// those rows have none.
static void experts(void **state) {
  (void)state;
  static const int64_t bad[][2] = {{0, 2}, {-2, 0}, {INT64_MIN, 0}};
  int64_t pair[] = {1, 2}, row[] = {2}, slotted[] = {2, 1, 1}, w_shape[] = {2, 2, 2}, y[2];
  float x[4] = {1, 2, 3, 4}, w[8] = {1, 2, 3, 4, 5, 6, 7, 8}, z[8] = {7, 7, 7, 7};
  NnrtSlots few = {.experts = 2, .parts = 2, .capacity = 1};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(nnrt_expert_slots_i64(y, bad[i], 1, 2, &few), NNRT_INDEX);
    assert_int_equal(nnrt_dispatch_b4(z, x, bad[i], 3, slotted, pair, 0, 2, false), NNRT_INDEX);
    assert_int_equal(nnrt_collect_b4(z, x, bad[i], 3, slotted, pair, 0, 2), NNRT_INDEX);
    assert_int_equal(
        nnrt_grouped_linear_f32(z, w, x, bad[i], 1, row, w_shape, 0, 2, 8, false, false),
        NNRT_INDEX);
    assert_int_equal(
        nnrt_grouped_linear_back_w_f32(z, bad[i], x, x, 1, row, w_shape, 0, 2, 8, false, false),
        NNRT_INDEX);
  }
  assert_true(z[0] == 7 && z[3] == 7);
  static const int64_t same[] = {1, 1};
  assert_int_equal(nnrt_expert_slots_i64(y, same, 1, 2, &few), NNRT_CAPACITY);
  few.drop = true;
  assert_int_equal(nnrt_expert_slots_i64(y, same, 1, 2, &few), NNRT_OK);
  assert_true(y[0] == 1 && y[1] == -1);
  // Both rows with the second expert, of which a shard has only that one; then with none.
  w_shape[0] = 1;
  assert_int_equal(
      nnrt_grouped_linear_f32(z, w + 4, x, same, 1, row, w_shape, 1, 2, 8, false, false), NNRT_OK);
  assert_true(z[0] == 1 * 5 + 2 * 7 && z[1] == 1 * 6 + 2 * 8 && z[2] == 3 * 5 + 4 * 7);
  assert_int_equal(nnrt_grouped_linear_f32(z, w, x, same, 1, row, w_shape, 0, 2, 8, false, false),
                   NNRT_OK);
  assert_true(z[0] == 0 && z[3] == 0);
}

// A shard drops the same elements as the whole tensor; and about `ratio` of all are dropped.
static void dropout(void **state) {
  (void)state;
  int64_t whole[] = {12, 70, 130}, zero[] = {0, 0, 0}, n = 12 * 70 * 130, step = 3, seed = 5;
  float *x = floats(n, 1), *y = results(n), *part = results(n);
  double ratio = 0.3;
  int64_t dropped = 0;
  assert_int_equal(
      nnrt_dropout_f32(y, x, &step, &seed, 3, whole, whole, zero, NULL, NULL, ratio, 9), 0);
  for (int64_t i = 0; i < n; i++) {
    bool keep = nnrt_random_uniform(seed, step, 9, i) >= ratio;
    assert_true(y[i] == (keep ? x[i] * (float)(1 / 0.7) : 0.0f));
    dropped += !keep;
  }
  assert_true(fabs((double)dropped / (double)n - ratio) < 0.01);
  static const int64_t boxes[][6] = {{3, 70, 130, 6, 0, 0},
                                     {12, 35, 130, 0, 35, 0},
                                     {12, 70, 65, 0, 0, 65},
                                     {2, 3, 5, 9, 66, 124}};
  for (size_t b = 0; b < sizeof boxes / sizeof *boxes; b++) {
    const int64_t *shape = boxes[b], *start = boxes[b] + 3;
    int64_t some = count(3, shape);
    for (int64_t i = 0; i < some; i++) {
      int64_t index[3];
      index_of(3, shape, i, index);
      for (int d = 0; d < 3; d++)
        index[d] += start[d];
      part[i] = x[place_of(3, whole, index)];
    }
    // In place; every second part as the whole of a piece of a larger tensor.
    assert_int_equal(nnrt_dropout_f32(part, part, &step, &seed, 3, shape, b % 2 ? shape : whole,
                                      b % 2 ? zero : start, b % 2 ? whole : NULL,
                                      b % 2 ? start : NULL, ratio, 9),
                     0);
    for (int64_t i = 0; i < some; i++) {
      int64_t index[3];
      index_of(3, shape, i, index);
      for (int d = 0; d < 3; d++)
        index[d] += start[d];
      assert_true(part[i] == y[place_of(3, whole, index)]);
    }
  }
  free(x), free(y), free(part);
}

// Results in the memory of weights and states, as in programs: like out of place, for any number of
// threads.
static void optimizers_in_place(void **state) {
  (void)state;
  int64_t n = 70001, step = 4;
  size_t bytes = (size_t)n * sizeof(float);
  float lr = 0.01f, scale = 0.5f;
  float *w = floats(n, 1), *g = floats(n, 2), *m = floats(n, 3), *v = floats(n, 4);
  float *w2 = results(n), *m2 = results(n), *v2 = results(n);
  for (int64_t i = 0; i < n; i++)
    v[i] = v[i] * v[i];
  const NnrtAdam adam = {0.9, 0.99, 1e-8, 0.1, .decoupled = true};
  const NnrtSgdMomentum momentum = {0.9, 0, 0.1, .nesterov = true};
  omp_set_num_threads(1);
  assert_int_equal(nnrt_adam_f32(w2, m2, v2, w, g, m, v, &lr, &scale, &step, n, &adam), 0);
  double *want = zeros(n);
  for (int64_t i = 0; i < n; i++) {
    double d = (double)g[i] * 0.5, mi = 0.9 * (double)m[i] + 0.1 * d;
    double vi = 0.99 * (double)v[i] + 0.01 * d * d, rate = (double)lr;
    want[i] = (double)w[i] * (1 - rate * 0.1) -
              rate * (mi / (1 - pow(0.9, 5))) / (sqrt(vi / (1 - pow(0.99, 5))) + 1e-8);
  }
  assert_near("adam", w2, want, n, 1e-6);
  omp_set_num_threads(3);
  assert_int_equal(nnrt_adam_f32(w, m, v, w, g, m, v, &lr, &scale, &step, n, &adam), 0);
  assert_same_bits("adam w", w, w2, bytes);
  assert_same_bits("adam m", m, m2, bytes);
  assert_same_bits("adam v", v, v2, bytes);
  assert_int_equal(nnrt_sgd_momentum_f32(w2, m2, w, g, m, &lr, &scale, &step, n, &momentum), 0);
  assert_int_equal(nnrt_sgd_momentum_f32(w, m, w, g, m, &lr, &scale, &step, n, &momentum), 0);
  assert_same_bits("sgd_momentum w", w, w2, bytes);
  assert_same_bits("sgd_momentum m", m, m2, bytes);
  assert_int_equal(nnrt_zero(v, (int64_t)bytes), 0);
  assert_int_equal(nnrt_accumulate_f32(v, w, n), 0);
  assert_same_bits("accumulate to zeros", v, w, bytes);
  free(w), free(g), free(m), free(v), free(w2), free(m2), free(v2), free(want);
}

TEST_GROUP(kernels_move) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transpose),   cmocka_unit_test(broadcast),
      cmocka_unit_test(slice),       cmocka_unit_test(concat_and_pack),
      cmocka_unit_test(bit_cast),    cmocka_unit_test(trilu),
      cmocka_unit_test(pad),         cmocka_unit_test(gather),
      cmocka_unit_test(bad_indices), cmocka_unit_test(experts),
      cmocka_unit_test(dropout),     cmocka_unit_test(optimizers_in_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
