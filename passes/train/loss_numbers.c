// Losses of numbers: mse, l1, huber and bce_with_logits.

#include "loss_builders.h"

static Value *mean_all(Builder *b, Value *x) {
  return x ? loss_mean_of(b, x, (double)type_count(x->type)) : NULL;
}

static Value *add_target(LossPass *p, const Value *x) {
  return loss_input(p, "target", x->type->dtype, x->type->ndim, x->type->dim,
                    batch_dim(p->batch[x->id]));
}

static Value *difference(LossPass *p, Value *x) {
  return build_binary(&p->b, OP_sub, x, add_target(p, x));
}

Value *loss_mse(LossPass *p, Value *x) {
  return mean_all(&p->b, build_unary(&p->b, OP_square, difference(p, x)));
}

Value *loss_l1(LossPass *p, Value *x) {
  return mean_all(&p->b, build_unary(&p->b, OP_abs, difference(p, x)));
}

// a^2 / 2 up to delta and delta * (a - delta / 2) beyond, which is c * (a - c / 2) with
// c = min(a, delta).
Value *loss_huber(LossPass *p, Value *x) {
  Builder *b = &p->b;
  Value *a = build_unary(b, OP_abs, difference(p, x));
  Value *c = build_op(b, OP_clip, IN(a), ATTRS(a_f("low", 0), a_f("high", p->spec->delta)));
  Value *half = c ? build_scale(b, c, 0.5) : NULL;
  return mean_all(b, build_binary(b, OP_mul, c, build_binary(b, OP_sub, a, half)));
}

// log(1 + exp(x)) - x t
Value *loss_bce_with_logits(LossPass *p, Value *x) {
  Builder *b = &p->b;
  Value *product = build_binary(b, OP_mul, x, add_target(p, x));
  return mean_all(b, build_binary(b, OP_sub, build_unary(b, OP_softplus, x), product));
}
