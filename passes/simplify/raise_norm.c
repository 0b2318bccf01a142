// Layer and RMS normalisation.
//
//     %m = mean of %x over the last dimensions
//     %c = sub %x, %m                               %y, %mean, %rstd = layer_norm %x, %gamma, %beta
//     %v = mean of (square %c)               =>
//     %y = %c / sqrt(%v + eps) * gamma + beta
//
// Without the subtraction it is rms_norm. gamma and beta may be absent, may be either operand of
// their op, and may be broadcast from any shape that is that of the normalised dimensions.
// Exporters also write
//
//     c * (rstd * gamma) + beta                     with rstd = rsqrt(v + eps)
//     x * (rstd * gamma) + (beta - m * (rstd * gamma))
//     v = max(mean of (square x) - square m, 0)
//
// So a product is compared as a set of factors, and a sum as a set of terms.

#include <math.h>
#include <string.h>

#include "raise.h"

typedef struct Norm {
  Value *x;
  bool layer;    // the mean is subtracted: layer_norm, otherwise rms_norm
  bool mean_out; // of the form with the mean outside of the product
  double eps;
  bool axes[MAX_NDIM];
  int first; // the first of the normalised dimensions
  int64_t n; // of their elements
  Value *gamma, *beta;
} Norm;

// Whether `v` is the mean of s->x over its axes, or with sign -1 its negative.
static bool match_mean_of(Match *m, Value *v, Along along, const Norm *s, int sign) {
  bool axes[MAX_NDIM];
  Match attempt = *m;
  Value *of;
  double times;
  if (!match_mean_times(&attempt, v, along, &of, axes, &times) || of != s->x) return false;
  if (fabs(times - sign) > 1e-5) return false;
  if (memcmp(axes, s->axes, sizeof axes) != 0) return false;
  *m = attempt;
  return true;
}

// Whether `c` is s->x without its mean, or with `either` also their difference the other way round.
static bool match_centred(Match *m, Value *c, Norm *s, bool either) {
  Op *sub = match_op(m, c, OP_sub);
  for (int i = 0; sub && i < 1 + either; i++) {
    s->x = sub->in[i].value;
    if (match_mean_of(m, sub->in[1 - i].value, along_result(), s, 1)) return true;
  }
  return false;
}

// Whether `v` is the mean of squares of some x, or its variance.
static bool match_variance(Match *m, Value *v, Along along, Norm *s) {
  Match attempt = *m;
  Value *squares, *mean;
  double none;
  v = match_through(&attempt, v, &along);
  // It may be kept from falling below 0.
  Op *max = match_op(&attempt, v, OP_max);
  for (int i = 0; max && i < 2; i++)
    if (is_fill(max->in[i].value, &none) && none == 0) v = max->in[1 - i].value;
  Op *sub = match_op(&attempt, v, OP_sub), *square;
  if (!match_mean(&attempt, sub ? sub->in[0].value : v, along, &squares, s->axes)) return false;
  if (!(square = match_op(&attempt, squares, OP_square))) return false;
  s->x = square->in[0].value;
  s->layer = sub;
  if (sub) {
    // The mean of squares, without the square of the mean.
    mean = match_through(&attempt, sub->in[1].value, &along);
    if (!(square = match_op(&attempt, mean, OP_square))) return false;
    if (!match_mean_of(&attempt, square->in[0].value, along, s, 1)) return false;
  } else {
    Match centred = attempt;
    Norm other = *s;
    if (match_centred(&centred, s->x, &other, true)) {
      attempt = centred;
      *s = other;
      s->layer = true;
    }
  }
  *m = attempt;
  return true;
}

// Whether `v` is the root of the variance plus eps (sqrt), or one divided by it (rsqrt).
static bool match_root(Match *m, Value *v, OpKind kind, Norm *s) {
  Match attempt = *m;
  Along along = along_result();
  Op *root = match_op(&attempt, match_through(&attempt, v, &along), kind);
  if (!root) return false;
  Op *sum = match_op(&attempt, match_through(&attempt, root->in[0].value, &along), OP_offset);
  if (!sum || !match_variance(&attempt, sum->in[0].value, along, s)) return false;
  s->eps = attr_f(sum, "by");
  *m = attempt;
  return true;
}

// Whether the normalised dimensions are the last ones; their number of elements.
static bool measure(Norm *s) {
  const Type *t = s->x->type;
  s->first = t->ndim;
  s->n = 1;
  while (s->first > 0 && s->axes[s->first - 1])
    s->n *= t->dim[--s->first];
  for (int i = 0; i < s->first; i++)
    if (s->axes[i]) return false;
  return s->first < t->ndim;
}

// The vector that `v` is broadcast from, with exactly the normalised dimensions and along them, or
// NULL. Layers that share the vector share the broadcast, so it is no part of the pattern.
static Value *vector_of(Value *v, const Norm *s) {
  Match outside = {0};
  Along along = along_result();
  Value *vector = match_through(&outside, v, &along);
  const Type *t = s->x->type, *u = vector->type;
  double c;
  if (is_fill(vector, &c) || !same_shape(v->type, t)) return NULL;
  int k = u->ndim;
  for (int i = t->ndim; i > s->first; i--, k--)
    if (k <= 0 || u->dim[k - 1] != t->dim[i - 1] ||
        (u->dim[k - 1] != 1 && along.dim[k - 1] != i - 1))
      return NULL;
  for (; k > 0; k--)
    if (u->dim[k - 1] != 1) return NULL;
  return vector;
}

// The vector of  v (op) vector,  if that is the only reader of v; advances *v to its result.
static Value *next_vector(Value **v, OpKind kind, const Norm *s) {
  if (!(*v)->uses || (*v)->uses->next || !(*v)->uses->user) return NULL;
  Op *op = (*v)->uses->user;
  if (op->kind != kind || op->in[0].value == op->in[1].value) return NULL;
  Value *vector = vector_of(op->in[1 - (*v)->uses->index].value, s);
  if (vector) *v = op->out[0];
  return vector;
}

// -- Forms -------------------------------------------------------------------------------------

// Whether the factors are 1 / root, x or the centred x, and perhaps a vector, gamma. With `mean` 1
// or -1, that multiple of the mean stands in the place of x.
static bool match_factors(Match *m, const Factors *f, Norm *s, int mean) {
  int root = -1, value = -1;
  Norm found = *s;
  for (int i = 0; i < f->n && root < 0; i++)
    if (match_root(m, f->factor[i], OP_rsqrt, &found)) root = i;
  if (root < 0 || f->n > 3 || !measure(&found)) return false;
  // With a second product, both have the same factors.
  if (s->x && (found.x != s->x || found.eps != s->eps || found.first != s->first)) return false;
  for (int i = 0; i < f->n && value < 0; i++) {
    Match attempt = *m;
    Norm other = found;
    if (i == root) continue;
    bool is_mean = mean && match_mean_of(&attempt, f->factor[i], along_result(), &found, mean);
    bool is_x = !mean && f->factor[i] == found.x;
    bool is_centred = !mean && !is_x && found.layer &&
                      match_centred(&attempt, f->factor[i], &other, false) && other.x == found.x;
    if (!is_mean && !is_x && !is_centred) continue;
    value = i;
    *m = attempt;
    found.mean_out = found.layer && is_x;
  }
  if (value < 0) return false;
  if (mean) found.mean_out = true;
  for (int i = 0; i < f->n; i++) {
    if (i == root || i == value) continue;
    Value *gamma = vector_of(f->factor[i], &found);
    if (!gamma || (s->x && gamma != s->gamma)) return false;
    found.gamma = gamma;
  }
  if (s->x && !found.gamma != !s->gamma) return false;
  *s = found;
  return true;
}

// c / root, c rstd, or c rstd gamma
static bool match_product_form(Match *m, Op *root, Norm *s) {
  Factors f;
  match_op(m, root->out[0], root->kind);
  if (root->kind == OP_div) {
    Value *c = root->in[0].value;
    if (!match_root(m, root->in[1].value, OP_sqrt, s) || !measure(s)) return false;
    if (c == s->x) return !s->layer;
    Norm other = *s;
    return s->layer && match_centred(m, c, &other, false) && other.x == s->x;
  }
  return match_product(m, root->out[0], &f) && f.by == 1 && match_factors(m, &f, s, 0) &&
         !s->mean_out;
}

// A sum of at most three terms, each with its sign.
typedef struct Terms {
  Value *term[3];
  double sign[3];
  int n, n_sums;
} Terms;

static bool add_terms(Match *m, Value *v, double sign, Terms *t) {
  Op *op = match_op(m, v, OP_add);
  bool minus = !op && (op = match_op(m, v, OP_sub));
  // Three sums have four terms.  A residual stream is a sum of all layers: it is not followed.
  if (op && ++t->n_sums == 3) return false;
  if (op)
    return add_terms(m, op->in[0].value, sign, t) &&
           add_terms(m, op->in[1].value, minus ? -sign : sign, t);
  if (t->n == 3) return false;
  t->sign[t->n] = sign;
  t->term[t->n++] = v;
  return true;
}

// x rstd gamma - mean rstd gamma + beta
static bool match_sum_form(Match *m, Op *root, Norm *s) {
  Terms t = {.n = 0};
  bool used[3] = {false};
  if (!add_terms(m, root->out[0], 1, &t) || t.n < 2) return false;
  // The product with x, then that with the mean, then the rest.
  for (int part = 0; part < 2; part++) {
    bool found = false;
    for (int i = 0; i < t.n && !found; i++) {
      Match attempt = *m;
      Norm other = *s;
      Factors f;
      if (used[i] || !match_product(&attempt, t.term[i], &f)) continue;
      // The mean is subtracted, or its negative is added.
      double sign = f.by * t.sign[i];
      int mean = part == 0 ? 0 : sign == 1 ? -1 : sign == -1 ? 1 : 2;
      if (mean == 2 || (part == 0 && sign != 1)) continue;
      if (!match_factors(&attempt, &f, &other, mean) || !other.mean_out) continue;
      *m = attempt;
      *s = other;
      used[i] = found = true;
    }
    if (!found) return false;
  }
  for (int i = 0; i < t.n; i++)
    if (!used[i] && (t.sign[i] < 0 || !(s->beta = vector_of(t.term[i], s)))) return false;
  return true;
}

static Value *vector_or(Builder *b, Value *vector, DType dtype, int64_t n, double otherwise) {
  return vector ? build_reshape(b, vector, 1, &n) : build_fill(b, dtype, 1, &n, otherwise);
}

bool raise_norm(Raise *r, Op *root) {
  Builder *b = &r->b;
  Match m = {0};
  Norm s = {0};
  bool product = root->kind == OP_div || root->kind == OP_mul;
  bool sum = root->kind == OP_add || root->kind == OP_sub;
  if (!(product && match_product_form(&m, root, &s)) && !(sum && match_sum_form(&m, root, &s)))
    return false;
  if (!match_closed(&m, root)) return false;

  Value *y = root->out[0];
  // Gamma and beta are optional.
  if (product && !s.gamma) s.gamma = next_vector(&y, OP_mul, &s);
  if (s.layer && !s.beta) s.beta = next_vector(&y, OP_add, &s);
  // All operands are defined before the last op of the pattern.
  b->at = y->def;
  b->origin = op_origin(y->def);
  const Type *t = s.x->type;
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < s.first; i++)
    dim[i] = t->dim[i];
  dim[s.first] = s.n;
  // The op normalises one dimension.
  Value *flat = build_reshape(b, s.x, s.first + 1, dim);
  Value *gamma = vector_or(b, s.gamma, t->dtype, s.n, 1);
  Value *result;
  if (s.layer) {
    Value *beta = vector_or(b, s.beta, t->dtype, s.n, 0);
    result = build_op(b, OP_layer_norm, IN(flat, gamma, beta), ATTRS(a_f("eps", s.eps)));
  } else {
    result = build_op(b, OP_rms_norm, IN(flat, gamma), ATTRS(a_f("eps", s.eps)));
  }
  result = build_reshape(b, result, t->ndim, t->dim);
  if (result) value_replace_uses(y, result);
  return result;
}
