// GELU in its forms, and swish.
//
//     x * 0.5 * (1 + erf(x / sqrt 2))                            gelu x
//     x * 0.5 * (1 - erf(-x / sqrt 2))                           gelu x
//     x * 0.5 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   =>   gelu_tanh x
//     x * sigmoid(b x)                                           swish x beta=b
//
// Exporters write the products in any order and put the constants anywhere. So the root is divided
// into factors, and the argument of erf, tanh or sigmoid is compared as a polynomial in x.

#include <math.h>

#include "raise.h"

// The argument of  1 + f(...), or of f(...),  among the two factors of the product; x is the other.
// *sign: -1 for 1 - f(...).
static Value *match_gate(Match *m, const Factors *f, OpKind kind, bool plus_one, Value **x,
                         int *sign) {
  if (f->n != 2) return NULL;
  for (int i = 0; i < 2; i++) {
    Value *v = f->factor[i];
    // Either factor may be the gate.
    Match attempt = *m;
    *sign = 1;
    if (plus_one) {
      Op *offset = match_op(&attempt, v, OP_offset);
      if (!offset || attr_f(offset, "by") != 1) continue;
      v = offset->in[0].value;
      Op *neg = match_op(&attempt, v, OP_neg);
      if (neg) {
        *sign = -1;
        v = neg->in[0].value;
      }
    }
    Op *gate = match_op(&attempt, v, kind);
    if (!gate) continue;
    *m = attempt;
    *x = f->factor[1 - i];
    return gate->in[0].value;
  }
  return NULL;
}

// Whether the root is scaled further: that scale is the actual root, since the factor belongs to
// the pattern.
static bool is_scaled_further(const Op *root) {
  const Use *u = root->out[0]->uses;
  return u && !u->next && u->user && u->user->kind == OP_scale;
}

// Matches  by * x * (1 + gate(p(x))).
static bool match_gated(Match *m, Op *root, OpKind kind, bool plus_one, double *by, Value **x,
                        Polynomial *p) {
  Factors f;
  bool is_product = root->kind == OP_mul || root->kind == OP_scale;
  if (!is_product || !match_product(m, root->out[0], &f)) return false;
  *by = f.by;
  int sign;
  Value *argument = match_gate(m, &f, kind, plus_one, x, &sign);
  if (!argument || !match_polynomial(m, argument, *x, p)) return false;
  // erf and tanh are odd.
  for (int i = 0; i <= MAX_DEGREE; i++)
    p->at[i] *= sign;
  return match_closed(m, root);
}

// Replaces y = by x (1 + gate(first c x)) by the GELU of c x times by / (c/2), if the product has
// no other factor than a GELU has, or c is 1.
static bool put_gelu(Builder *b, Op *root, OpKind kind, Value *x, double by, double c) {
  double factor = 2 * by / c;
  if (nearly_equal(factor, 1)) {
    factor = 1;
    c = 2 * by; // the exact one of the two
  } else if (nearly_equal(c, 1)) {
    c = 1;
    factor = 2 * by;
  } else {
    return false;
  }
  // x is scaled before, the result after.
  Value *y = build_op(b, kind, IN(build_scale(b, x, c)), NO_ATTRS);
  if (y) y = build_scale(b, y, factor);
  if (y) value_replace_uses(root->out[0], y);
  return y;
}

bool raise_gelu(Raise *r, Op *root) {
  Builder *b = &r->b;
  Match m = {0};
  Value *x;
  double by;
  Polynomial p;
  if (is_scaled_further(root) || !match_gated(&m, root, OP_erf, true, &by, &x, &p)) return false;
  if (p.at[0] != 0 || p.at[1] == 0 || p.at[2] != 0 || p.at[3] != 0) return false;
  return put_gelu(b, root, OP_gelu, x, by, p.at[1] / M_SQRT1_2);
}

bool raise_gelu_tanh(Raise *r, Op *root) {
  Builder *b = &r->b;
  Match m = {0};
  Value *x;
  double by, first = sqrt(2 / M_PI);
  Polynomial p;
  if (is_scaled_further(root) || !match_gated(&m, root, OP_tanh, true, &by, &x, &p)) return false;
  double c = p.at[1] / first;
  if (p.at[0] != 0 || c == 0 || p.at[2] != 0 ||
      !nearly_equal(p.at[3], 0.044715 * first * c * c * c))
    return false;
  return put_gelu(b, root, OP_gelu_tanh, x, by, c);
}

bool raise_swish(Raise *r, Op *root) {
  Builder *b = &r->b;
  Match m = {0};
  Value *x;
  double by;
  Polynomial p;
  if (!match_gated(&m, root, OP_sigmoid, false, &by, &x, &p)) return false;
  if (p.at[0] != 0 || p.at[1] == 0 || p.at[2] != 0 || p.at[3] != 0 || by == 0) return false;
  // by x sigmoid(p x) is the swish of (by x) with beta p / by.
  Value *y = build_op(b, OP_swish, IN(build_scale(b, x, by)), ATTRS(a_f("beta", p.at[1] / by)));
  if (y) value_replace_uses(root->out[0], y);
  return y;
}
