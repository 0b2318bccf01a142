// Along one axis of x (outer, n, inner): the index of the largest or smallest, and running sums
// and products.  And the sum of the squares of all elements.

#include "kernel.h"

enum { BLOCK = 4096 };

// Four sums, of a quarter each: one alone would wait for the end of each addition.
NNRT_CLONES static double block_squares(const float *x, int64_t n) {
  int64_t m = n / 4;
  const float *x1 = x + m, *x2 = x1 + m, *x3 = x2 + m;
  double sum = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#pragma omp simd reduction(+ : sum, sum1, sum2, sum3)
  for (int64_t i = 0; i < m; i++) {
    sum += (double)x[i] * (double)x[i];
    sum1 += (double)x1[i] * (double)x1[i];
    sum2 += (double)x2[i] * (double)x2[i];
    sum3 += (double)x3[i] * (double)x3[i];
  }
  for (int64_t i = 4 * m; i < n; i++)
    sum += (double)x[i] * (double)x[i];
  return sum + sum1 + sum2 + sum3;
}

// Blocks have a fixed size, so that the sum does not depend on the number of threads.
int nnrt_sum_squares_f32(float *y, const float *x, int64_t n) {
  int64_t blocks = (n + BLOCK - 1) / BLOCK;
  double *part = kernel_scratch((size_t)blocks * sizeof *part), sum = 0;
  if (!part) return scratch_failed((size_t)blocks * sizeof *part);
#pragma omp parallel for num_threads(threads_for(n))
  for (int64_t i = 0; i < blocks; i++)
    part[i] = block_squares(x + i * BLOCK, n - i * BLOCK < BLOCK ? n - i * BLOCK : BLOCK);
  // The partial sums are added in the order of the blocks.
  for (int64_t i = 0; i < blocks; i++)
    sum += part[i];
  *y = (float)sum;
  return NNRT_OK;
}

// Returns the index of the best of `n` numbers, `step` apart.  A NaN is better than a number.
typedef int64_t BestFn(const void *x, int64_t first, int64_t n, int64_t step, bool most, bool last);

#define BEST(type, T)                                                                              \
  static int64_t best_##type(const void *all, int64_t first, int64_t n, int64_t step, bool most,   \
                             bool last) {                                                          \
    const T *x = (const T *)all + first;                                                           \
    int64_t at = 0;                                                                                \
    for (int64_t i = 1; i < n; i++) {                                                              \
      T value = x[i * step], best = x[at * step];                                                  \
      bool better = most ? value > best : value < best;                                            \
      if (value != value) better = best == best || last;                                           \
      if (better || (last && value == best)) at = i;                                               \
    }                                                                                              \
    return at;                                                                                     \
  }
BEST(f32, float)
BEST(i32, int32_t)
BEST(i64, int64_t)

static int arg(int64_t *y, const void *x, Axis a, BestFn *best, bool most, bool last) {
#pragma omp parallel for collapse(2) num_threads(threads_for(a.outer *a.n *a.inner))
  for (int64_t o = 0; o < a.outer; o++)
    for (int64_t i = 0; i < a.inner; i++)
      // Each result is one scan of the axis.
      y[o * a.inner + i] = best(x, o * a.n * a.inner + i, a.n, a.inner, most, last);
  return NNRT_OK;
}

#define ARG(type, T)                                                                               \
  int nnrt_arg_max_##type(int64_t *y, const T *x, int64_t ndim, const int64_t *shape,              \
                          int64_t axis, bool last) {                                               \
    return arg(y, x, axis_of(ndim, shape, axis), best_##type, true, last);                         \
  }                                                                                                \
  int nnrt_arg_min_##type(int64_t *y, const T *x, int64_t ndim, const int64_t *shape,              \
                          int64_t axis, bool last) {                                               \
    return arg(y, x, axis_of(ndim, shape, axis), best_##type, false, last);                        \
  }
ARG(f32, float)
ARG(i32, int32_t)
ARG(i64, int64_t)

// Sums and products of integers wrap around.
#define SCAN(op, name, type, acc_type, start, of)                                                  \
  int nnrt_##op##_##name(type *y, const type *x, int64_t ndim, const int64_t *shape, int64_t axis, \
                         bool exclusive, bool reverse) {                                           \
    Axis a = axis_of(ndim, shape, axis);                                                           \
    int threads = threads_for(a.outer * a.n * a.inner);                                            \
    _Pragma("omp parallel for collapse(2) num_threads(threads)") for (int64_t o = 0; o < a.outer;  \
                                                                      o++) for (int64_t i = 0;     \
                                                                                i < a.inner;       \
                                                                                i++) {             \
      acc_type all = start;                                                                        \
      for (int64_t j = 0; j < a.n; j++) {                                                          \
        int64_t at = (o * a.n + (reverse ? a.n - 1 - j : j)) * a.inner + i;                        \
        acc_type v = (acc_type)x[at];                                                              \
        acc_type before = all;                                                                     \
        all = all of v;                                                                            \
        y[at] = (type)(exclusive ? before : all);                                                  \
      }                                                                                            \
    }                                                                                              \
    return NNRT_OK;                                                                                \
  }
SCAN(cumsum, f32, float, double, 0, +)
SCAN(cumsum, i32, int32_t, uint32_t, 0, +)
SCAN(cumsum, i64, int64_t, uint64_t, 0, +)
SCAN(cumprod, f32, float, double, 1, *)
SCAN(cumprod, i32, int32_t, uint32_t, 1, *)
SCAN(cumprod, i64, int64_t, uint64_t, 1, *)
