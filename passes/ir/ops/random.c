// Dropout and random numbers.  The number that an element gets depends on seed, step, the op's key
// and the global index of the element, so it is the same for every split of the tensor.  The
// gradient of dropout drops the same elements by drawing the same numbers, without a saved mask.
//
//     %1 = dropout %x1, %step, %seed ratio=0.1 key=7 whole=[8,64] start=[0,32] : f32[8,32]
//
// is the right half of dropout %x, in a model whose op was split into pieces.

#include "ir/random.h"
#include "ir/ops/index.h"

bool dropout_rule(const Op *op, Dims *dims, Diag *d) {
  const Type *t = op->in[0].value->type;
  const int64_t *whole = attr_list(op, "whole"), *start = attr_list(op, "start");
  int n = attr_n(op, "whole");
  if (n != attr_n(op, "start") || (n && n != t->ndim))
    return diag_error(d, op->loc, "%s: 'whole' and 'start' have %d and %d numbers, x has %d",
                      op_info[op->kind].name, n, attr_n(op, "start"), t->ndim);
  // The piece must be within the whole tensor.
  for (int i = 0; i < n; i++)
    if (start[i] < 0 || start[i] > whole[i] - t->dim[i])
      return diag_error(d, op->loc,
                        "%s: along dimension %d a piece of %lld does not begin at %lld of %lld",
                        op_info[op->kind].name, i, (long long)t->dim[i], (long long)start[i],
                        (long long)whole[i]);
  return dims_parse(dims, op, "*, ,  -> *", d);
}

// Dropout is linear in x: its adjoint is dropout itself.
bool dropout_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = build_op(b, OP_dropout, IN(dout[0], op->in[1].value, op->in[2].value),
                    ATTRS(*op_attr(op, "ratio"), *op_attr(op, "key"), *op_attr(op, "whole"),
                          *op_attr(op, "start")));
  return !b->failed;
}

// The global index of an element: `first`, and its index times `stride`.
typedef struct Place {
  int64_t first, stride[MAX_NDIM];
} Place;

// The index is in the whole tensor, for a shard (box) and for a piece (start).
static Place place_of(const Op *op, const Type *y, const Box *box) {
  Place p;
  Type whole = *y;
  int pieces = attr_n(op, "whole");
  if (box) memcpy(whole.dim, box->whole, sizeof whole.dim);
  for (int k = 0; k < pieces; k++)
    whole.dim[k] = attr_list(op, "whole")[k];
  strides_of(&whole, p.stride);
  p.first = box ? index_offset(box->start, p.stride, y->ndim) : 0;
  p.first += pieces ? index_offset(attr_list(op, "start"), p.stride, y->ndim) : 0;
  return p;
}

bool dropout_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  double ratio = attr_f(op, "ratio"), scale = ratio < 1 ? 1 / (1 - ratio) : 0;
  int64_t step = tensor_i(&in[1], 0), seed = tensor_i(&in[2], 0), key = attr_i(op, "key");
  if (!(ratio >= 0 && ratio <= 1))
    return diag_error(d, op->loc, "dropout: ratio %g is not from 0 to 1", ratio);
  const Type *y = out->type;
  Place place = place_of(op, y, box);
  int64_t at[MAX_NDIM] = {0}, n = type_count(y);
  for (int64_t i = 0; i < n; i++, index_next(y, at)) {
    int64_t logical = place.first + index_offset(at, place.stride, y->ndim);
    // Scaling by 1 / (1 - ratio) preserves the mean.
    bool keep = random_uniform(seed, step, key, logical) >= ratio;
    tensor_set_f(out, i, keep ? tensor_f(&in[0], i) * scale : 0);
  }
  return true;
}

// -- noise -------------------------------------------------------------------------------------

bool noise_grad(Builder *b, Op *op, Value **dout, Value **din) {
  (void)op;
  din[0] = dout[0];
  return !b->failed;
}

bool noise_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)d;
  int64_t step = tensor_i(&in[1], 0), seed = tensor_i(&in[2], 0), key = attr_i(op, "key");
  const Type *y = out->type;
  Place place = place_of(op, y, box);
  int64_t at[MAX_NDIM] = {0}, n = type_count(y);
  for (int64_t i = 0; i < n; i++, index_next(y, at)) {
    int64_t element = place.first + index_offset(at, place.stride, y->ndim);
    double number = attr_i(op, "normal") ? random_normal(seed, step, key, element)
                                         : random_uniform(seed, step, key, element);
    tensor_set_f(out, i, tensor_f(&in[0], i) + attr_f(op, "scale") * number);
  }
  return true;
}
