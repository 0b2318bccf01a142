// Matrix products.
//
//     linear         y = x w     x: any leading dimensions and k; w: k n, or n k if `trans`
//     linear_back_w  dw = x' dy, summed over the leading dimensions, in the layout of w
//     matmul         y = a b     for each of the leading dimensions, either matrix transposed
//
// The gradients are products again, with other flags, and need no transpose op.

#include "ir/ops/reference.h"

bool linear_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, attr_i(op, "trans") ? "* k, n k -> * n" : "* k, k n -> * n", d);
}

bool linear_back_w_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, attr_i(op, "trans") ? "* k, * n -> n k" : "* k, * n -> k n", d);
}

bool matmul_rule(const Op *op, Dims *dims, Diag *d) {
  static const char *const einsum[2][2] = {
      {"* m k, * k n -> * m n", "* m k, * n k -> * m n"},
      {"* k m, * k n -> * m n", "* k m, * n k -> * m n"},
  };
  return dims_parse(dims, op, einsum[attr_i(op, "trans_a")][attr_i(op, "trans_b")], d);
}

// dx = dy w'     dw = x' dy, summed in f32 if w has 16 bits
bool linear_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *w = op->in[1].value, *dy = dout[0];
  bool trans = attr_i(op, "trans");
  din[0] = build_op(b, OP_linear, IN(dy, w), ATTRS(a_b("trans", !trans)));
  din[1] = build_op(b, OP_linear_back_w, IN(x, dy), ATTRS(a_b("trans", trans)));
  din[1] = build_cast(b, din[1], w->type->dtype);
  return !b->failed;
}

static Value *product(Builder *b, Value *x, bool trans_x, Value *y, bool trans_y) {
  return build_op(b, OP_matmul, IN(x, y), ATTRS(a_b("trans_a", trans_x), a_b("trans_b", trans_y)));
}

// y = a b:  da = dy b' and db = a' dy.  If the operand was read transposed, its adjoint is the
// transpose of that: the product of the transposes in the other order.
bool matmul_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *y = op->in[1].value, *dout0 = dout[0];
  bool trans_x = attr_i(op, "trans_a"), trans_y = attr_i(op, "trans_b");
  din[0] = trans_x ? product(b, y, trans_y, dout0, true) : product(b, dout0, false, y, !trans_y);
  din[1] = trans_y ? product(b, dout0, true, x, trans_x) : product(b, x, !trans_x, dout0, false);
  return !b->failed;
}

// One matrix of an operand: its element (i, j) is at i * row + j * column.
typedef struct Matrix {
  int64_t start, row, column;
} Matrix;

static Matrix matrix_at(int64_t start, int64_t rows, int64_t columns, bool trans) {
  return trans ? (Matrix){start, 1, rows} : (Matrix){start, columns, 1};
}

// out[m n] = x[m k] y[k n].  Integers stay integers: a product of i64 need not fit a double.
static void multiply(const Tensor *x, Matrix mx, const Tensor *y, Matrix my, Tensor *out, Matrix mo,
                     int64_t m, int64_t k, int64_t n) {
  bool floating = dtype_class[out->type->dtype] == 'F';
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      uint64_t whole = 0; // wraps; int64_t must not
      for (int64_t l = 0; l < k; l++) {
        int64_t at_x = mx.start + i * mx.row + l * mx.column;
        int64_t at_y = my.start + l * my.row + j * my.column;
        if (floating)
          sum += tensor_f(x, at_x) * tensor_f(y, at_y);
        else
          whole += (uint64_t)tensor_i(x, at_x) * (uint64_t)tensor_i(y, at_y);
      }
      // Rounded once, after the last addition.
      int64_t at = mo.start + i * mo.row + j * mo.column;
      if (floating)
        tensor_set_f(out, at, sum);
      else
        tensor_set_i(out, at, (int64_t)whole);
    }
  }
}

// The product of all but the last dimension.
static int64_t rows_of(const Type *t) {
  int64_t rows = 1;
  for (int i = 0; i < t->ndim - 1; i++)
    rows *= t->dim[i];
  return rows;
}

void linear_product(const Tensor *x, const Tensor *w, bool trans, Tensor *y) {
  int64_t m = rows_of(x->type), k = x->type->dim[x->type->ndim - 1];
  int64_t n = y->type->dim[y->type->ndim - 1];
  multiply(x, matrix_at(0, m, k, false), w, matrix_at(0, k, n, trans), y, matrix_at(0, m, n, false),
           m, k, n);
}

void linear_product_back_w(const Tensor *x, const Tensor *dy, bool trans, Tensor *dw) {
  int64_t m = rows_of(x->type), k = x->type->dim[x->type->ndim - 1];
  int64_t n = dy->type->dim[dy->type->ndim - 1];
  multiply(x, matrix_at(0, k, m, true), dy, matrix_at(0, m, n, false), dw,
           matrix_at(0, k, n, trans), k, m, n);
}

bool linear_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  linear_product(&in[0], &in[1], attr_i(op, "trans"), &out[0]);
  return true;
}

bool linear_back_w_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  linear_product_back_w(&in[0], &in[1], attr_i(op, "trans"), &out[0]);
  return true;
}

bool matmul_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  bool trans_a = attr_i(op, "trans_a"), trans_b = attr_i(op, "trans_b");
  const Type *a = in[0].type, *y = out[0].type;
  int ndim = y->ndim;
  int64_t m = y->dim[ndim - 2], n = y->dim[ndim - 1], k = a->dim[trans_a ? ndim - 2 : ndim - 1];
  // One product for each index of the leading dimensions.
  int64_t batch = 1;
  for (int i = 0; i < ndim - 2; i++)
    batch *= y->dim[i];
  for (int64_t i = 0; i < batch; i++)
    multiply(&in[0], matrix_at(i * m * k, m, k, trans_a), &in[1],
             matrix_at(i * k * n, k, n, trans_b), out, matrix_at(i * m * n, m, n, false), m, k, n);
  return true;
}
