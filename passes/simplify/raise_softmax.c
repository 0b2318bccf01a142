// Softmax and log_softmax written out, with or without the shift by the maximum.
//
//     %e = exp (sub %x, max of %x over an axis)
//     %y = div %e, sum of %e over it                  =>     %y = softmax %x axis=…
//
//     %y = log (softmax %x)                           =>     %y = log_softmax %x axis=…
//
// The division may be a product with the reciprocal. The logarithm may also be x - max - log(sum of
// exp(x - max)), or x - (max + log(sum of exp(x - max))).

#include "raise.h"

// The operand and the only axis of a reduction that `v` is broadcast from.
static Value *match_one_axis(Match *m, Value *v, Along along, OpKind kind, int64_t *axis) {
  Op *reduce = match_reduction(m, v, along, kind);
  if (!reduce || attr_n(reduce, "axes") != 1) return NULL;
  *axis = attr_list(reduce, "axes")[0];
  return reduce->in[0].value;
}

// The x of e = exp(x), or of e = exp(x - max), where *shift is the difference; otherwise NULL.
static Value *match_shifted_exp(Match *m, Value *e, int64_t axis, Value **shift) {
  Op *exp = match_op(m, e, OP_exp);
  if (!exp) return NULL;
  Value *x = *shift = exp->in[0].value;
  int64_t axis_of_max = -1;
  Match shifted = *m;
  Op *sub = match_op(&shifted, x, OP_sub);
  if (!sub || match_one_axis(&shifted, sub->in[1].value, along_result(), OP_reduce_max,
                             &axis_of_max) != sub->in[0].value)
    return x;
  if (axis_of_max != axis) return x; // it is shifted by something else
  *m = shifted;
  return sub->in[0].value;
}

static bool put(Raise *r, Op *root, OpKind kind, Value *x, int64_t axis) {
  Value *y = build_op(&r->b, kind, IN(x), ATTRS(a_i("axis", axis)));
  if (y) value_replace_uses(root->out[0], y);
  return y;
}

bool raise_softmax(Raise *r, Op *root) {
  bool divides = root->kind == OP_div;
  if (!divides && root->kind != OP_mul) return false;
  for (int i = 0; i < 2 - divides; i++) {
    Match m = {0};
    match_op(&m, root->out[0], root->kind);
    // e / sum(e), or e times the reciprocal.
    Value *e = root->in[i].value, *by = root->in[1 - i].value, *shift;
    Along along = along_result();
    if (!divides) {
      Op *reciprocal = match_op(&m, match_through(&m, by, &along), OP_reciprocal);
      if (!reciprocal) continue;
      by = reciprocal->in[0].value;
    }
    int64_t axis = 0;
    if (match_one_axis(&m, by, along, OP_reduce_sum, &axis) != e) continue;
    Value *x = match_shifted_exp(&m, e, axis, &shift);
    if (x && match_closed(&m, root)) return put(r, root, OP_softmax, x, axis);
  }
  return false;
}

// The x of log(sum of exp(x)) over an axis; *shift: the operand of exp, x or x - max.
static Value *match_log_sum(Match *m, Value *v, Along along, int64_t *axis, Value **shift) {
  Op *log = match_op(m, match_through(m, v, &along), OP_log);
  if (!log) return NULL;
  Value *e = match_one_axis(m, log->in[0].value, along, OP_reduce_sum, axis);
  return e ? match_shifted_exp(m, e, *axis, shift) : NULL;
}

bool raise_log_softmax(Raise *r, Op *root) {
  Match m = {0};
  match_op(&m, root->out[0], root->kind);
  if (root->kind == OP_log) {
    Op *softmax = match_op(&m, root->in[0].value, OP_softmax);
    if (!softmax || !match_closed(&m, root)) return false;
    return put(r, root, OP_log_softmax, softmax->in[0].value, attr_i(softmax, "axis"));
  }
  if (root->kind != OP_sub) return false;
  // (x - max) - log(…), or x - log(sum of exp(x)).
  Match direct = m;
  Along along = along_result();
  Value *from = root->in[0].value, *shift = NULL, *x;
  int64_t axis = -1, axis_of_max = -1;
  x = match_log_sum(&direct, root->in[1].value, along, &axis, &shift);
  if (x && shift == from && match_closed(&direct, root))
    return put(r, root, OP_log_softmax, x, axis);
  // x - (max + log(…))
  Op *add = match_op(&m, match_through(&m, root->in[1].value, &along), OP_add);
  for (int i = 0; add && i < 2; i++) {
    Match attempt = m;
    x = match_log_sum(&attempt, add->in[i].value, along, &axis, &shift);
    if (x != from || shift == x) continue;
    if (match_one_axis(&attempt, add->in[1 - i].value, along, OP_reduce_max, &axis_of_max) != x)
      continue;
    if (axis_of_max == axis && match_closed(&attempt, root))
      return put(r, root, OP_log_softmax, x, axis);
  }
  return false;
}
