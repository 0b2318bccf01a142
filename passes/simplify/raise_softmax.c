// Softmax written out, with or without the shift by the maximum.
//
//     %e = exp (sub %x, max of %x over an axis)
//     %y = div %e, sum of %e over it                  =>     %y = softmax %x axis=…

#include "raise.h"

// The operand and the only axis of a reduction that `v` is broadcast from.
static Value *match_reduction(Match *m, Value *v, OpKind kind, int64_t *axis) {
  Op *reduce = match_op(m, match_through(m, v), kind);
  if (!reduce || attr_n(reduce, "axes") != 1) return NULL;
  *axis = attr_list(reduce, "axes")[0];
  return reduce->in[0].value;
}

bool raise_softmax(Raise *r, Op *root) {
  Builder *b = &r->b;
  if (root->kind != OP_div) return false;
  Match m = {0};
  match_op(&m, root->out[0], OP_div);
  int64_t axis = 0, axis_of_max = 0;
  Value *e = root->in[0].value, *x;
  // e / sum(e), with e = exp(x).
  if (match_reduction(&m, root->in[1].value, OP_reduce_sum, &axis) != e) return false;
  Op *exp = match_op(&m, e, OP_exp);
  if (!exp) return false;
  x = exp->in[0].value;
  // The shift by the maximum is optional.
  Match shifted = m;
  Op *sub = match_op(&shifted, x, OP_sub);
  if (sub && match_reduction(&shifted, sub->in[1].value, OP_reduce_max, &axis_of_max) ==
                 sub->in[0].value) {
    if (axis_of_max != axis) return false;
    m = shifted;
    x = sub->in[0].value;
  }
  if (!match_closed(&m, root)) return false;
  Value *y = build_op(b, OP_softmax, IN(x), ATTRS(a_i("axis", axis)));
  if (y) value_replace_uses(root->out[0], y);
  return y;
}
