// Sigmoid and softplus written out, as exporters without these operators have them.
//
//     1 / (1 + exp(-x))                         sigmoid x
//     y / (1 + exp(-x))                         y * sigmoid x
//     0.5 tanh(0.5 x) + 0.5               =>    sigmoid x
//     log(1 + exp(x))                           softplus x
//     max(x, 0) + log(1 + exp(-|x|))            softplus x
//
// The ops do not overflow, as exp does. raise_swish finds x * sigmoid x next.

#include "raise.h"

// The a of 1 + exp(a), or NULL.
static Value *match_one_plus_exp(Match *m, Value *v) {
  Op *offset = match_op(m, v, OP_offset);
  if (!offset || attr_f(offset, "by") != 1) return NULL;
  Op *exp = match_op(m, offset->in[0].value, OP_exp);
  return exp ? exp->in[0].value : NULL;
}

static Value *negated(Builder *b, Value *v) {
  const Op *neg = made_by(v, OP_neg);
  return neg ? neg->in[0].value : build_op(b, OP_neg, IN(v), NO_ATTRS);
}

bool raise_sigmoid(Raise *r, Op *root) {
  Builder *b = &r->b;
  Match m = {0};
  Value *a = NULL, *y = NULL;
  match_op(&m, root->out[0], root->kind);
  bool divides = root->kind == OP_div;
  if (root->kind == OP_reciprocal || divides) {
    a = match_one_plus_exp(&m, root->in[divides].value);
    if (!a || !match_closed(&m, root)) return false;
    y = build_op(b, OP_sigmoid, IN(negated(b, a)), NO_ATTRS);
    if (divides && y) y = build_op(b, OP_mul, IN(root->in[0].value, y), NO_ATTRS);
  } else if (root->kind == OP_offset && attr_f(root, "by") == 0.5) {
    Op *half = match_op(&m, root->in[0].value, OP_scale), *tanh;
    if (!half || attr_f(half, "by") != 0.5) return false;
    if (!(tanh = match_op(&m, half->in[0].value, OP_tanh)) || !match_closed(&m, root)) return false;
    y = build_op(b, OP_sigmoid, IN(build_scale(b, tanh->in[0].value, 2)), NO_ATTRS);
  }
  if (y) value_replace_uses(root->out[0], y);
  return y;
}

// The x of max(x, 0), or NULL.
static Value *match_relu(Match *m, Value *v) {
  Op *op = match_op(m, v, OP_relu);
  double c;
  if (op) return op->in[0].value;
  if (!(op = match_op(m, v, OP_max))) return NULL;
  for (int i = 0; i < 2; i++)
    if (is_fill(op->in[i].value, &c) && c == 0) return op->in[1 - i].value;
  return NULL;
}

// Whether `v` is softplus(-|x|).
static bool match_rest(Match *m, Value *v, const Value *x) {
  Op *op = match_op(m, v, OP_softplus);
  if (op) op = match_op(m, op->in[0].value, OP_neg);
  if (op) op = match_op(m, op->in[0].value, OP_abs);
  return op && op->in[0].value == x;
}

bool raise_softplus(Raise *r, Op *root) {
  Match m = {0};
  Value *x = NULL;
  match_op(&m, root->out[0], root->kind);
  if (root->kind == OP_log) {
    x = match_one_plus_exp(&m, root->in[0].value);
  } else if (root->kind == OP_add) {
    for (int i = 0; i < 2 && !x; i++) {
      Match attempt = m;
      Value *v = match_relu(&attempt, root->in[i].value);
      if (!v || !match_rest(&attempt, root->in[1 - i].value, v)) continue;
      m = attempt;
      x = v;
    }
  }
  if (!x || !match_closed(&m, root)) return false;
  Value *y = build_op(&r->b, OP_softplus, IN(x), NO_ATTRS);
  if (y) value_replace_uses(root->out[0], y);
  return y;
}
