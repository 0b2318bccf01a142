// The determinant of each matrix (n, n), and its adjoint:
//
//     det       y = sum over permutations p of sign(p) x[0, p(0)] … x[n - 1, p(n - 1)]
//     det_back  dx[i, j] = dy (-1)^(i + j) det of x without row i and column j
//
// The cofactors exist for singular matrices, too, which have no inverse.  The references
// triangulate by reflections, which keep lengths; kernels eliminate.

#include <math.h>
#include <string.h>

#include "ir/ops/reference.h"

static bool parse_square(const Op *op, Dims *dims, const char *einsum, Diag *d) {
  const Type *x = op->in[0].value->type;
  if (x->ndim < 2 || x->dim[x->ndim - 1] != x->dim[x->ndim - 2])
    return diag_error(d, op->loc, "%s: the operand has no square matrices", op_info[op->kind].name);
  return dims_parse(dims, op, einsum, d);
}

bool det_rule(const Op *op, Dims *dims, Diag *d) {
  return parse_square(op, dims, "* m^ n^ -> *", d);
}

bool det_back_rule(const Op *op, Dims *dims, Diag *d) {
  return parse_square(op, dims, "* m^ n^, * -> * m^ n^", d);
}

bool det_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_op(b, OP_det_back, IN(op->in[0].value, dout[0]), NO_ATTRS);
  return din[0] != NULL;
}

// Returns the determinant of a, which it changes: every reflection has determinant -1, and makes
// zeros of a column below the diagonal.
static double determinant(double *a, int64_t n) {
  double det = 1;
  for (int64_t k = 0; k < n; k++) {
    double length = 0;
    for (int64_t i = k; i < n; i++)
      length = hypot(length, a[i * n + k]);
    if (length == 0) return 0;
    // The column becomes `to` times a unit vector; v, the difference, stays in the column.
    double to = a[k * n + k] > 0 ? -length : length, squares = 0;
    a[k * n + k] -= to;
    for (int64_t i = k; i < n; i++)
      squares += a[i * n + k] * a[i * n + k];
    for (int64_t j = k + 1; j < n; j++) {
      double dot = 0;
      for (int64_t i = k; i < n; i++)
        dot += a[i * n + k] * a[i * n + j];
      for (int64_t i = k; i < n; i++)
        a[i * n + j] -= 2 * dot / squares * a[i * n + k];
    }
    det *= -to;
  }
  return det;
}

// The matrix at `x` without a row and a column.
static void minor_of(const double *x, int64_t n, int64_t row, int64_t column, double *out) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      if (i != row && j != column) *out++ = x[i * n + j];
}

bool det_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  const Type *t = in[0].type;
  int64_t n = t->dim[t->ndim - 1];
  Arena *a = arena_new();
  double *x = tensor_doubles(a, &in[0]);
  for (int64_t i = 0; i < type_count(out->type); i++)
    tensor_set_f(out, i, determinant(x + i * n * n, n));
  arena_free(a);
  return true;
}

bool det_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  const Type *t = in[0].type;
  int64_t n = t->dim[t->ndim - 1];
  Arena *a = arena_new();
  double *x = tensor_doubles(a, &in[0]), *rest = arena_array(a, double, n *n);
  for (int64_t k = 0; k < type_count(out->type); k++) {
    int64_t matrix = k / (n * n), row = k / n % n, column = k % n;
    minor_of(x + matrix * n * n, n, row, column, rest);
    double sign = (row + column) % 2 ? -1 : 1;
    tensor_set_f(out, k, tensor_f(&in[1], matrix) * sign * determinant(rest, n - 1));
  }
  arena_free(a);
  return true;
}
