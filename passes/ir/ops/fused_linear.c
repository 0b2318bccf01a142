// Products with epilogues of a matrix library, and losses over classes that a product computes.
//
//     linear_bias            y = x w + b
//     linear_gelu_tanh       pre = x w + b, y = gelu_tanh(pre)
//     linear_gelu_tanh_back  dpre = gelu_tanh'(pre) (x w)
//     linear_back_w_bias     dw = x' dy, db = sum of dy over the leading dimensions
//     classifier             loss = cross_entropy(x w, labels)
//     classifier_back        the same, and dx, dw for the adjoint of the loss
//
// Their meaning is in ir/definition.c.  No op may be split along k: every part would add the bias,
// GELU is not linear, and db lacks k.

#include "ir/op.h"

bool linear_bias_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op, attr_i(op, "trans") ? "* k^, n k^, n -> * n" : "* k^, k^ n, n -> * n",
                    d);
}

bool linear_gelu_tanh_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(
      dims, op, attr_i(op, "trans") ? "* k^, n k^, n -> * n, * n" : "* k^, k^ n, n -> * n, * n", d);
}

bool linear_gelu_tanh_back_rule(const Op *op, Dims *dims, Diag *d) {
  return dims_parse(dims, op,
                    attr_i(op, "trans") ? "* k^, n k^, * n -> * n" : "* k^, k^ n, * n -> * n", d);
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
