// A loss as a sum of terms: see loss_terms.h.

#include "loss_terms.h"

#include "ir/op.h"

// Takes one op off the term, or replaces the term by two.  Returns false if its start has other
// readers, or its op is of another kind.
static bool take_apart(Builder *b, LossTerms *terms, int i, const bool *varied, Arena *a) {
  LossTerm *t = &terms->at[i];
  const Op *op = t->start->def;
  Value *x = op && op->n_in > 0 ? op->in[0].value : NULL;
  Value *y = op && op->n_in > 1 ? op->in[1].value : NULL;
  // A value with several readers is a start: otherwise there could be more terms than ops.
  if (!x || type_count(x->type) != 1 || (t->of_sum && (!t->start->uses || t->start->uses->next)))
    return false;
  bool first = varied[x->id], second = y && varied[y->id];
  switch (op->kind) {
  case OP_reshape: t->start = x; return true;
  case OP_neg: t->by = -t->by, t->start = x; return true;
  case OP_scale: t->by *= attr_f(op, "by"), t->start = x; return true;
  case OP_div:
    if (!first || second) return false;
    // A constant divisor is a number of the term, any other part of its factor.
    if (y->def && y->def->kind == OP_fill)
      t->by /= attr_f(y->def, "value");
    else if (t->factor)
      t->factor = build_op(b, OP_div, IN(t->factor, build_scalar(b, y)), NO_ATTRS);
    else
      t->factor = build_op(b, OP_reciprocal, IN(build_scalar(b, y)), NO_ATTRS);
    t->start = x;
    return true;
  case OP_mul:
    if (first == second) return false;
    // A constant factor is a number of the term, any other a value.
    Value *by = first ? y : x;
    if (by->def && by->def->kind == OP_fill)
      t->by *= attr_f(by->def, "value");
    else if (t->factor)
      t->factor = build_op(b, OP_mul, IN(t->factor, build_scalar(b, by)), NO_ATTRS);
    else
      t->factor = build_scalar(b, by);
    t->start = first ? x : y;
    return true;
  case OP_add:
  case OP_sub: {
    if (type_count(y->type) != 1) return false;
    t->of_sum = true;
    LossTerm other = *t;
    t->start = x;
    other.start = y;
    if (op->kind == OP_sub) other.by = -other.by;
    vec_push(a, terms, other);
    return true;
  }
  default: return false;
  }
}

// Whether both are the same computation on the same values.
static bool is_same(const Value *x, const Value *y) {
  if (x == y) return true;
  const Op *p = x ? x->def : NULL, *q = y ? y->def : NULL;
  bool factors =
      p && q &&
      (p->kind == OP_mul || p->kind == OP_div || p->kind == OP_reciprocal || p->kind == OP_reshape);
  if (!factors || p->kind != q->kind) return false;
  for (int i = 0; i < p->n_in; i++)
    if (!is_same(p->in[i].value, q->in[i].value)) return false;
  return true;
}

LossTerms find_loss_terms(Builder *b, Value *loss, const bool *varied, Arena *a) {
  LossTerms terms = {0};
  LossTerm whole = {.start = loss, .by = 1};
  vec_push(a, &terms, whole);
  for (int i = 0; i < terms.n; i++)
    while (!b->failed && take_apart(b, &terms, i, varied, a))
      ;
  // Equal factors become one value.
  for (int i = 0; i < terms.n; i++) {
    int same = 0;
    while (!is_same(terms.at[same].factor, terms.at[i].factor))
      same++;
    terms.at[i].factor = terms.at[same].factor;
  }
  return terms;
}

bool is_first_of_factor(const LossTerms *terms, int i) {
  int first = 0;
  while (terms->at[first].factor != terms->at[i].factor)
    first++;
  return first == i;
}
