// Weighted sums of taps along an axis, and the adjoint.
//
// Both are the same loop, with a table and its transpose: each result has a list of elements that
// it reads, and their weights.  Lists have one length, filled up with weight 0, and are stored tap
// by tap: (taps, results).
//
//     x (outer, n, inner)  ->  y (outer, m, inner)
//
// With inner > 1 vectors go along the inner dimension: a result is a sum of rows.  With inner 1
// they go along the results, and gather their elements.

#include "kernel.h"

typedef struct Table {
  int64_t n, taps; // results; elements of a list
  int32_t *at;     // (taps, n)
  float *weight;   // (taps, n)
} Table;

static bool table_in_scratch(Table *t) {
  size_t count = (size_t)(t->n * t->taps), half = round_64(count * sizeof *t->at);
  char *at = kernel_scratch(2 * half);
  t->at = (int32_t *)at;
  t->weight = (float *)(at + half);
  return at != NULL;
}

// The weight of tap k of position o; 0 for an element outside of x.
static inline float weight_of(const int32_t *first, const float *weight, int64_t o, int64_t k,
                              int64_t taps, int64_t n) {
  int64_t at = (int64_t)first[o] + k;
  return at < 0 || at >= n ? 0 : weight[o * taps + k];
}

NNRT_CLONES static void sum_rows(float *restrict y, const float *restrict x, const Table *t,
                                 int64_t o, int64_t inner) {
  bool first = true;
  for (int64_t k = 0; k < t->taps; k++) {
    float w = t->weight[k * t->n + o];
    if (w == 0) continue;
    const float *from = x + t->at[k * t->n + o] * inner;
    if (first)
      for (int64_t j = 0; j < inner; j++)
        y[j] = w * from[j];
    else
      for (int64_t j = 0; j < inner; j++)
        y[j] += w * from[j];
    first = false;
  }
  if (first) memset(y, 0, (size_t)inner * sizeof *y);
}

NNRT_CLONES static void sum_elements(float *restrict y, const float *restrict x, const Table *t) {
  memset(y, 0, (size_t)t->n * sizeof *y);
  for (int64_t k = 0; k < t->taps; k++) {
    const int32_t *at = t->at + k * t->n;
    const float *weight = t->weight + k * t->n;
#pragma omp simd
    for (int64_t o = 0; o < t->n; o++)
      // Element 0 stands for a tap that is not read.
      y[o] += weight[o] == 0 ? 0 : weight[o] * x[at[o]];
  }
}

// x has `n` elements along the axis.
static void sum_taps(float *y, const float *x, const Table *t, int64_t outer, int64_t n,
                     int64_t inner, int threads) {
  // Rows, or with inner 1 one list of elements after the other.
  int64_t rows = inner == 1 ? 1 : t->n;
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i = 0; i < outer; i++)
    for (int64_t o = 0; o < rows; o++)
      if (inner == 1)
        sum_elements(y + i * t->n, x + i * n, t);
      else
        sum_rows(y + (i * t->n + o) * inner, x + i * n * inner, t, o, inner);
}

int nnrt_resample_f32(float *y, const float *x, const int32_t *first, const float *weight,
                      int64_t ndim, const int64_t *x_shape, const int64_t *w_shape, int64_t axis) {
  Axis a = axis_of(ndim, x_shape, axis);
  Table t = {.n = w_shape[0], .taps = w_shape[1]};
  if (!table_in_scratch(&t)) return scratch_failed((size_t)(t.n * t.taps) * 8);
  for (int64_t o = 0; o < t.n; o++)
    for (int64_t k = 0; k < t.taps; k++) {
      float w = weight_of(first, weight, o, k, t.taps, a.n);
      t.at[k * t.n + o] = w == 0 ? 0 : first[o] + (int32_t)k;
      t.weight[k * t.n + o] = w;
    }
  sum_taps(y, x, &t, a.outer, a.n, a.inner, threads_for(a.outer * t.n * a.inner));
  return NNRT_OK;
}

// Returns the length of the longest list of the transposed table, with `count` as scratch (n).
static int64_t longest_list(const int32_t *first, const float *weight, int64_t m, int64_t taps,
                            int32_t *count, int64_t n) {
  int64_t most = 0;
  memset(count, 0, (size_t)n * sizeof *count);
  for (int64_t o = 0; o < m; o++)
    for (int64_t k = 0; k < taps; k++)
      if (weight_of(first, weight, o, k, taps, n) != 0 && ++count[first[o] + k] > most)
        most = count[first[o] + k];
  return most;
}

// Lists are in the order of dy, so sums do not depend on the number of threads.
int nnrt_resample_back_f32(float *dx, const int32_t *first, const float *weight, const float *dy,
                           int64_t ndim, const int64_t *x_shape, const int64_t *w_shape,
                           int64_t axis) {
  Axis a = axis_of(ndim, x_shape, axis);
  int64_t m = w_shape[0], taps = w_shape[1];
  int32_t *count = kernel_scratch((size_t)a.n * sizeof *count);
  if (!count) return scratch_failed((size_t)a.n * sizeof *count);
  Table t = {.n = a.n, .taps = longest_list(first, weight, m, taps, count, a.n)};
  if (!table_in_scratch(&t)) return scratch_failed((size_t)(t.n * t.taps) * 8);
  memset(t.at, 0, (size_t)(t.n * t.taps) * sizeof *t.at);
  memset(t.weight, 0, (size_t)(t.n * t.taps) * sizeof *t.weight);
  for (int64_t o = 0; o < m; o++)
    for (int64_t k = 0; k < taps; k++) {
      float w = weight_of(first, weight, o, k, taps, a.n);
      int64_t to = (int64_t)first[o] + k, place = 0;
      if (w == 0) continue;
      // The first free place of the list; lists are short.
      while (t.weight[place * t.n + to] != 0)
        place++;
      t.at[place * t.n + to] = (int32_t)o;
      t.weight[place * t.n + to] = w;
    }
  sum_taps(dx, dy, &t, a.outer, m, a.inner, threads_for(a.outer * t.n * a.inner));
  return NNRT_OK;
}
