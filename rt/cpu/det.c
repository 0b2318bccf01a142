// Determinants of matrices (n, n), and their cofactors, by elimination in double.
//
// With rows and columns in an order that has the largest element of the rest as each pivot,
//
//     x = L U            L: below the diagonal, which is 1; U: on it and above
//     det x = sign U[0,0] … U[n-1,n-1]
//     cofactors of x = sign (adj(U) L^-1)'
//
// where sign is that of the order.  Of U = (V u; 0 d) with d the last pivot, and v the determinant
// of V,
//
//     adj(U) = (d v V^-1, -v V^-1 u; 0, v)
//
// which divides by all pivots but the last: a matrix of rank n - 1 has cofactors.  If another pivot
// is zero, all of them are.

#include <math.h>

#include "kernel.h"

// Memory for one matrix: the factors, the result, and the order of rows and columns.
typedef struct Work {
  double *a, *b;         // [n * n]
  int64_t *row, *column; // [n]
} Work;

static size_t work_bytes(int64_t n) {
  return round_64((size_t)(2 * n * n) * sizeof(double) + (size_t)(2 * n) * sizeof(int64_t));
}

static Work work_at(void *memory, int64_t n) {
  Work w = {.a = memory};
  w.b = w.a + n * n;
  w.row = (int64_t *)(w.b + n * n);
  w.column = w.row + n;
  return w;
}

static void swap(int64_t *at, int64_t i, int64_t j) {
  int64_t t = at[i];
  at[i] = at[j];
  at[j] = t;
}

// Rows of a matrix, or columns with the step of a row.
static void swap_lines(double *x, double *y, int64_t n, int64_t step) {
  for (int64_t i = 0; i < n * step; i += step) {
    double t = x[i];
    x[i] = y[i];
    y[i] = t;
  }
}

// Factors x into w->a.  Returns the sign of the order.  From the first pivot that is zero on, the
// rest is zero.
NNRT_CLONES static double factor(const Work *w, const float *x, int64_t n) {
  double *a = w->a, sign = 1;
  for (int64_t i = 0; i < n * n; i++)
    a[i] = (double)x[i];
  for (int64_t i = 0; i < n; i++)
    w->row[i] = w->column[i] = i;
  for (int64_t k = 0; k < n; k++) {
    int64_t p = k, q = k;
    for (int64_t i = k; i < n; i++)
      for (int64_t j = k; j < n; j++)
        // A NaN is a pivot, so that the result is one.
        if (!(fabs(a[i * n + j]) <= fabs(a[p * n + q]))) p = i, q = j;
    if (a[p * n + q] == 0) break;
    if (p != k) {
      swap_lines(a + p * n, a + k * n, n, 1);
      swap(w->row, p, k);
      sign = -sign;
    }
    if (q != k) {
      swap_lines(a + q, a + k, n, n);
      swap(w->column, q, k);
      sign = -sign;
    }
    for (int64_t i = k + 1; i < n; i++) {
      double by = a[i * n + k] /= a[k * n + k];
      for (int64_t j = k + 1; j < n; j++)
        a[i * n + j] -= by * a[k * n + j];
    }
  }
  return sign;
}

// The product of the first `m` pivots.
static double product_of(const double *a, int64_t n, int64_t m) {
  double v = 1;
  for (int64_t k = 0; k < m; k++)
    v *= a[k * n + k];
  return v;
}

// dx = dy times the cofactors of x.
NNRT_CLONES static void cofactors(const Work *w, float *dx, const float *x, double dy, int64_t n) {
  double *a = w->a, *b = w->b, sign = factor(w, x, n);
  int64_t last = n - 1;
  double v = product_of(a, n, last), d = a[n * n - 1];
  if (v == 0) {
    for (int64_t i = 0; i < n * n; i++)
      dx[i] = 0;
    return;
  }
  // b = V^-1, column by column, from the diagonal up.
  for (int64_t j = 0; j < last; j++)
    for (int64_t i = last - 1; i >= 0; i--) {
      double sum = i == j;
      for (int64_t k = i + 1; k <= j; k++)
        sum -= a[i * n + k] * b[k * n + j];
      b[i * n + j] = i > j ? 0 : sum / a[i * n + i];
    }
  // b = adj(U)
  for (int64_t i = 0; i < last; i++) {
    double sum = 0;
    for (int64_t k = i; k < last; k++) {
      sum += b[i * n + k] * a[k * n + last];
      b[i * n + k] *= d * v;
    }
    b[i * n + last] = -v * sum;
    b[last * n + i] = 0;
  }
  b[n * n - 1] = v;
  // b = adj(U) L^-1, from the last column to the first.
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = last; j >= 0; j--)
      for (int64_t k = j + 1; k < n; k++)
        b[i * n + j] -= b[i * n + k] * a[k * n + j];
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      dx[w->row[i] * n + w->column[j]] = (float)(dy * sign * b[j * n + i]);
}

int nnrt_det_f32(float *y, const float *x, int64_t m, int64_t n) {
  int threads = threads_for(m * n * n);
  char *memory = kernel_scratch((size_t)threads * work_bytes(n));
  if (!memory) return scratch_failed((size_t)threads * work_bytes(n));
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < m; i++) {
    Work w = work_at(memory + (size_t)omp_get_thread_num() * work_bytes(n), n);
    double sign = factor(&w, x + i * n * n, n);
    y[i] = (float)(sign * product_of(w.a, n, n));
  }
  return NNRT_OK;
}

int nnrt_det_back_f32(float *dx, const float *x, const float *dy, int64_t m, int64_t n) {
  int threads = threads_for(m * n * n);
  char *memory = kernel_scratch((size_t)threads * work_bytes(n));
  if (!memory) return scratch_failed((size_t)threads * work_bytes(n));
  if (n == 0) return NNRT_OK;
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < m; i++) {
    Work w = work_at(memory + (size_t)omp_get_thread_num() * work_bytes(n), n);
    cofactors(&w, dx + i * n * n, x + i * n * n, (double)dy[i], n);
  }
  return NNRT_OK;
}
