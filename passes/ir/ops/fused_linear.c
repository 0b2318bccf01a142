// Products with epilogues of a matrix library, and losses over classes that a product computes.
//
//     linear_bias            y = x w + b
//     linear_gelu_tanh       pre = x w + b, y = gelu_tanh(pre)
//     linear_gelu_tanh_back  dpre = gelu_tanh'(pre) (x w)
//     linear_back_w_bias     dw = x' dy, db = sum of dy over the leading dimensions
//     classifier             loss = cross_entropy(x w, labels)
//     classifier_back        the same, and dx, dw for the adjoint of the loss
//
// Passes build them from ops that are also their references.  An op with a bias must not be split
// along k, since every part would add the bias; the same holds for db, which lacks k.

#include "ir/math.h"
#include "ir/ops/reference.h"

bool linear_bias_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, attr_i(op, "trans") ? "* k^, n k^, n -> * n" : "* k^, k^ n, n -> * n",
                    d);
}

bool linear_gelu_tanh_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(
      dims, op, attr_i(op, "trans") ? "* k^, n k^, n -> * n, * n" : "* k^, k^ n, n -> * n, * n", d);
}

bool linear_gelu_tanh_back_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, attr_i(op, "trans") ? "* k, n k, * n -> * n" : "* k, k n, * n -> * n",
                    d);
}

bool linear_back_w_bias_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, attr_i(op, "trans") ? "* k^, * n -> n k^, n" : "* k^, * n -> k^ n, n",
                    d);
}

bool classifier_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, attr_i(op, "trans") ? "* k^, n^ k^, * -> *" : "* k^, k^ n^, * -> *",
                    d);
}

bool classifier_back_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op,
                    attr_i(op, "trans") ? "* k^, n^ k^, *, * -> *, * k^, n^ k^"
                                        : "* k^, k^ n^, *, * -> *, * k^, k^ n^",
                    d);
}

// x w + b, as doubles; without `b` if it is NULL.
static Tensor product(Arena *a, const Op *op, const Tensor *in, const Tensor *b) {
  const Type *x = in[0].type, *w = in[1].type;
  int64_t n = w->dim[attr_i(op, "trans") ? 0 : 1];
  Tensor y = tensor_of_doubles(a, op, x, n);
  linear_product(&in[0], &in[1], attr_i(op, "trans"), &y);
  double *at = y.data;
  // The bias is one number per column.
  for (int64_t i = 0; b && i < type_count(y.type); i++)
    at[i] += tensor_f(b, i % n);
  return y;
}

bool linear_bias_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  Arena *a = arena_new();
  tensor_set_doubles(&out[0], product(a, op, in, &in[2]).data);
  arena_free(a);
  return true;
}

bool linear_gelu_tanh_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  Arena *a = arena_new();
  double *y = product(a, op, in, &in[2]).data;
  // The gradient reads the value before gelu.
  tensor_set_doubles(&out[1], y);
  for (int64_t i = 0; i < type_count(out[0].type); i++)
    tensor_set_f(&out[0], i, m_gelu_tanh(y[i]));
  arena_free(a);
  return true;
}

bool linear_gelu_tanh_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box,
                               Diag *d) {
  (void)box, (void)d;
  Arena *a = arena_new();
  const double *dy = product(a, op, in, NULL).data;
  // The product is not rounded in between.
  for (int64_t i = 0; i < type_count(out[0].type); i++)
    tensor_set_f(&out[0], i, m_gelu_tanh_back(tensor_f(&in[2], i)) * dy[i]);
  arena_free(a);
  return true;
}

bool linear_back_w_bias_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  int64_t n = type_count(out[1].type);
  Arena *a = arena_new();
  double *db = arena_array(a, double, n);
  // db sums the columns of dy.
  for (int64_t i = 0; i < type_count(in[1].type); i++)
    db[i % n] += tensor_f(&in[1], i);
  linear_product_back_w(&in[0], &in[1], attr_i(op, "trans"), &out[0]);
  tensor_set_doubles(&out[1], db);
  arena_free(a);
  return true;
}

bool classifier_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Arena *a = arena_new();
  // The logits are never results of the op.
  Tensor of_loss[] = {product(a, op, in, NULL), in[2]};
  Tensor result[] = {out[0], tensor_new(a, out[0].type)};
  bool ok = cross_entropy_ref(op, of_loss, result, box, d);
  arena_free(a);
  return ok;
}

bool classifier_back_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  Arena *a = arena_new();
  bool trans = attr_i(op, "trans");
  Tensor logits = product(a, op, in, NULL);
  Tensor adjoint = tensor_new(a, logits.type), lse = tensor_of_doubles(a, op, out[0].type, 0);
  Tensor of_loss[] = {logits, in[2], lse, in[3]}, result[] = {out[0], lse};
  bool ok = cross_entropy_ref(op, of_loss, result, box, d) &&
            cross_entropy_back_ref(op, of_loss, &adjoint, box, d);
  // The adjoint of the logits, through both products.
  if (ok) {
    linear_product(&adjoint, &in[1], !trans, &out[1]);
    linear_product_back_w(&in[0], &adjoint, trans, &out[2]);
  }
  arena_free(a);
  return ok;
}
