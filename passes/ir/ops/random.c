// Dropout.  Whether an element is kept depends on seed, step, the op's key and where the element
// lies in the whole tensor, so it is the same however the tensor is split; the gradient drops the
// same elements by asking again instead of keeping a mask.

#include "ir/random.h"
#include "ir/ops/index.h"

// It is linear in x: its adjoint is itself.
bool dropout_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build(b, OP_dropout, IN(dout[0], op->in[1].value, op->in[2].value),
                 ATTRS(a_f("ratio", attr_f(op, "ratio")), a_i("key", attr_i(op, "key"))));
  return !b->failed;
}

bool dropout_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  double ratio = attr_f(op, "ratio"), scale = ratio < 1 ? 1 / (1 - ratio) : 0;
  int64_t step = tensor_i(&in[1], 0), seed = tensor_i(&in[2], 0), key = attr_i(op, "key");
  if (!(ratio >= 0 && ratio <= 1))
    return diag_error(d, op->loc, "dropout: ratio %g is not from 0 to 1", ratio);
  const Type *y = out->type;
  Type whole = *y;
  if (box) memcpy(whole.dim, box->whole, sizeof whole.dim);
  int64_t stride[MAX_RANK], at[MAX_RANK] = {0}, n = type_count(y);
  strides_of(&whole, stride);
  int64_t start = box ? index_offset(box->start, stride, y->rank) : 0;
  for (int64_t i = 0; i < n; i++, index_next(y, at)) {
    int64_t logical = start + index_offset(at, stride, y->rank);
    bool keep = random_uniform(seed, step, key, logical) >= ratio;
    tensor_set_f(out, i, keep ? tensor_f(&in[0], i) * scale : 0);
  }
  return true;
}
