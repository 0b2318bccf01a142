// See raise.h.
//
// Matchers note every op they pass in the Match, so that match_closed can decide in the end whether
// an op outside reads a value that would go. Matchers are composed: one op, a value through views
// and scales, a mean, the factors of a product, a polynomial.

#include <math.h>
#include <string.h>

#include "raise.h"

Op *match_op(Match *m, const Value *v, OpKind kind) {
  Op *op = made_by(v, kind);
  // An op is noted once; past MAX_MATCHED the pattern is no longer closed.
  bool noted = !op;
  for (int i = 0; i < m->n && i < MAX_MATCHED && !noted; i++)
    noted = m->op[i] == op;
  if (!noted && m->n < MAX_MATCHED) m->op[m->n] = op;
  m->n += !noted;
  return op;
}

// Whether the shapes differ only in dimensions of length 1.
static bool same_but_ones(const Type *x, const Type *y) {
  int i = 0, k = 0;
  for (;;) {
    while (i < x->ndim && x->dim[i] == 1)
      i++;
    while (k < y->ndim && y->dim[k] == 1)
      k++;
    if (i == x->ndim || k == y->ndim) return i == x->ndim && k == y->ndim;
    if (x->dim[i++] != y->dim[k++]) return false;
  }
}

Along along_result(void) {
  Along along;
  for (int i = 0; i < MAX_NDIM; i++)
    along.dim[i] = i;
  return along;
}

// The operand of a broadcast aligns with its result at the last dimension; a reshape keeps the
// order of dimensions longer than 1.
static void follow(Along *along, const Op *op) {
  const Type *x = op->in[0].value->type, *y = op->out[0]->type;
  Along from = *along;
  int k = op->kind == OP_broadcast ? y->ndim - x->ndim : 0;
  for (int i = 0; i < x->ndim; i++) {
    while (op->kind == OP_reshape && x->dim[i] != 1 && y->dim[k] == 1)
      k++;
    along->dim[i] = x->dim[i] == 1 ? -1 : from.dim[k];
    k += op->kind == OP_broadcast || x->dim[i] != 1;
  }
}

Value *match_through(Match *m, Value *v, Along *along) {
  for (;;) {
    Op *op = match_op(m, v, OP_broadcast);
    if (!op && made_by(v, OP_reshape) && same_but_ones(v->type, v->def->in[0].value->type))
      op = match_op(m, v, OP_reshape);
    if (!op) return v;
    follow(along, op);
    v = op->in[0].value;
  }
}

Op *match_reduction(Match *m, Value *v, Along along, OpKind kind) {
  Op *op = match_op(m, match_through(m, v, &along), kind);
  if (!op) return NULL;
  const Type *x = op->in[0].value->type;
  bool reduced[MAX_NDIM] = {false};
  for (int i = 0; i < attr_n(op, "axes"); i++)
    reduced[attr_list(op, "axes")[i]] = true;
  // Dimension k of the result is dimension i of the operand.
  for (int i = 0, k = 0; i < x->ndim; i++) {
    if (!reduced[i] && x->dim[i] != 1 && along.dim[k] != i) return NULL;
    k += !reduced[i] || attr_i(op, "keep");
  }
  return op;
}

Value *match_scale(Match *m, Value *v, double *by) {
  *by = 1;
  for (;;) {
    Op *op = match_op(m, v, OP_scale);
    if (op)
      *by *= attr_f(op, "by");
    else if ((op = match_op(m, v, OP_neg)))
      *by = -*by;
    else
      return v;
    v = op->in[0].value;
  }
}

static bool inside(const Match *m, const Op *op) {
  for (int i = 0; i < m->n; i++)
    if (m->op[i] == op) return true;
  return false;
}

bool match_closed(const Match *m, const Op *root) {
  if (m->n > MAX_MATCHED) return false;
  for (int i = 0; i < m->n; i++) {
    // A multiple of a value from outside is cheap to compute twice.
    const Op *op = m->op[i];
    bool shared = (op->kind == OP_scale || op->kind == OP_neg) && !inside(m, op->in[0].value->def);
    if (m->op[i] == root || shared) continue;
    for (int k = 0; k < m->op[i]->n_out; k++)
      for_each_use(u, m->op[i]->out[k]) {
        if (!u->user || !inside(m, u->user)) return false;
      }
  }
  return true;
}

bool nearly_equal(double x, double y) {
  return fabs(x - y) <= 2e-3 * fabs(y);
}

bool match_mean_times(Match *m, Value *v, Along along, Value **x, bool *axes, double *times) {
  double by;
  v = match_scale(m, match_through(m, v, &along), &by);
  Op *sum = match_reduction(m, v, along, OP_reduce_sum);
  if (!sum) return false;
  *x = sum->in[0].value;
  int64_t n = 1;
  memset(axes, 0, MAX_NDIM * sizeof *axes);
  for (int i = 0; i < attr_n(sum, "axes"); i++) {
    int64_t axis = attr_list(sum, "axes")[i];
    axes[axis] = true;
    n *= (*x)->type->dim[axis];
  }
  *times = by * (double)n;
  return true;
}

bool match_mean(Match *m, Value *v, Along along, Value **x, bool *axes) {
  double times;
  return match_mean_times(m, v, along, x, axes, &times) && fabs(times - 1) < 1e-5;
}

static bool add_factors(Match *m, Value *v, Factors *f) {
  double by;
  v = match_scale(m, v, &by);
  f->by *= by;
  Op *mul = match_op(m, v, OP_mul);
  if (mul) return add_factors(m, mul->in[0].value, f) && add_factors(m, mul->in[1].value, f);
  if (f->n == (int)(sizeof f->factor / sizeof *f->factor)) return false;
  f->factor[f->n++] = v;
  return true;
}

bool match_product(Match *m, Value *v, Factors *f) {
  *f = (Factors){.by = 1};
  return add_factors(m, v, f);
}

static bool multiply(const Polynomial *p, const Polynomial *q, Polynomial *out) {
  *out = (Polynomial){0};
  for (int i = 0; i <= MAX_DEGREE; i++)
    for (int k = 0; k <= MAX_DEGREE; k++) {
      if (p->at[i] == 0 || q->at[k] == 0) continue;
      if (i + k > MAX_DEGREE) return false;
      out->at[i + k] += p->at[i] * q->at[k];
    }
  return true;
}

static void add(Polynomial *p, const Polynomial *q, double by) {
  for (int i = 0; i <= MAX_DEGREE; i++)
    p->at[i] += by * q->at[i];
}

bool match_polynomial(Match *m, Value *v, const Value *x, Polynomial *p) {
  static const OpKind kinds[] = {OP_scale, OP_neg, OP_offset, OP_square, OP_mul, OP_add, OP_sub};
  *p = (Polynomial){0};
  // The argument itself.
  if (v == x) {
    p->at[1] = 1;
    return true;
  }
  if (is_fill(v, &p->at[0])) return true;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Op *op = match_op(m, v, kinds[i]);
    if (op) {
      // The op changes the polynomial of its operand, or combines those of both.
      Polynomial q;
      if (op->n_in < 1 || !match_polynomial(m, op->in[0].value, x, p)) return false;
      switch ((int)op->kind) {
      case OP_scale:
      case OP_neg: {
        double by = op->kind == OP_neg ? -1 : attr_f(op, "by");
        add(p, p, by - 1);
        return true;
      }
      case OP_offset: p->at[0] += attr_f(op, "by"); return true;
      case OP_square: q = *p; return multiply(&q, &q, p);
      }
      // Ops of two operands.
      Polynomial r = *p;
      if (!match_polynomial(m, op->in[1].value, x, &q)) return false;
      if (op->kind == OP_mul) return multiply(&r, &q, p);
      add(p, &q, op->kind == OP_sub ? -1 : 1);
      return true;
    }
  }
  return false;
}
