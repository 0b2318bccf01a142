// Layer and RMS normalisation.
//
//     %m = mean of %x over the last dimensions
//     %c = sub %x, %m                               %y, %mean, %rstd = layer_norm %x, %gamma, %beta
//     %v = mean of (square %c)               =>
//     %y = %c / sqrt(%v + eps) * gamma + beta
//
// Without the subtraction it is rms_norm. The division is written as div by sqrt, or mul by rsqrt.
// gamma and beta may be absent, may be either operand of their op, and may be broadcast from any
// shape that is that of the normalised dimensions.

#include "raise.h"

// The x of x / sqrt(mean(square(x)) + eps), if `root` computes that.
static Value *match_core(Match *m, Op *root, double *eps, bool *axes) {
  for (int i = 0; i < 2; i++) {
    Match attempt = *m;
    Value *x = root->in[i].value, *other = match_through(&attempt, root->in[1 - i].value);
    if (root->kind == OP_div && i == 1) return NULL;
    // x / sqrt(...), or x * rsqrt(...) in either order.
    Op *root_of = match_op(&attempt, other, root->kind == OP_div ? OP_sqrt : OP_rsqrt);
    if (!root_of) continue;
    Op *sum = match_op(&attempt, match_through(&attempt, root_of->in[0].value), OP_offset);
    if (!sum) continue;
    Value *squares, *of;
    *eps = attr_f(sum, "by");
    if (!match_mean(&attempt, sum->in[0].value, &squares, axes)) continue;
    // The mean must be that of the squares of x.
    Op *square = match_op(&attempt, squares, OP_square);
    of = square ? square->in[0].value : NULL;
    if (of != x) continue;
    *m = attempt;
    return x;
  }
  return NULL;
}

// The first of the flagged axes if these are exactly the last dimensions, else ndim; `n`: the
// number of their elements.
static int last_axes(const Type *t, const bool *axes, int64_t *n) {
  int first = t->ndim;
  *n = 1;
  while (first > 0 && axes[first - 1])
    *n *= t->dim[--first];
  for (int i = 0; i < first; i++)
    if (axes[i]) return t->ndim;
  return first;
}

// The vector of  v (op) vector,  if that is the only reader of v; advances *v to its result.
static Value *match_vector(Match *m, Value **v, OpKind kind, int first) {
  if (!(*v)->uses || (*v)->uses->next || !(*v)->uses->user) return NULL;
  Op *op = (*v)->uses->user;
  if (op->kind != kind || op->in[0].value == op->in[1].value) return NULL;
  // The other operand may be broadcast.
  Match attempt = *m;
  Value *other = op->in[1 - (*v)->uses->index].value, *vector = match_through(&attempt, other);
  const Type *t = op->out[0]->type, *u = vector->type;
  double c;
  if (is_fill(vector, &c)) return NULL;
  // It must have exactly the normalised dimensions, at the end.
  int k = u->ndim;
  for (int i = t->ndim; i > first; i--, k--)
    if (k <= 0 || u->dim[k - 1] != t->dim[i - 1]) return NULL;
  for (; k > 0; k--)
    if (u->dim[k - 1] != 1) return NULL;
  if (!match_op(&attempt, op->out[0], kind)) return NULL;
  *m = attempt;
  *v = op->out[0];
  return vector;
}

static Value *vector_or(Builder *b, Value *vector, DType dtype, int64_t n, double otherwise) {
  return vector ? build_reshape(b, vector, 1, &n) : build_fill(b, dtype, 1, &n, otherwise);
}

bool raise_norm(Raise *r, Op *root) {
  Builder *b = &r->b;
  if (root->kind != OP_div && root->kind != OP_mul) return false;
  Match m = {0};
  bool axes[MAX_NDIM], mean_axes[MAX_NDIM];
  double eps;
  Value *centred = match_core(&m, root, &eps, axes), *x = centred;
  if (!centred) return false;
  int64_t n;
  // The mean must be over the last dimensions.
  int first = last_axes(x->type, axes, &n), mean_first = -1;
  if (first == x->type->ndim) return false;
  match_op(&m, root->out[0], root->kind);

  // With layer_norm the normalised value is x minus its mean.
  Match with_mean = m;
  Op *sub = match_op(&with_mean, centred, OP_sub);
  Value *of;
  int64_t n_mean;
  if (sub && match_mean(&with_mean, sub->in[1].value, &of, mean_axes) && of == sub->in[0].value)
    mean_first = last_axes(of->type, mean_axes, &n_mean);
  bool layer = mean_first == first;
  if (layer) {
    m = with_mean;
    x = of;
  }
  if (!match_closed(&m, root)) return false;

  Value *y = root->out[0];
  // Gamma and beta are optional.
  Value *gamma = match_vector(&m, &y, OP_mul, first);
  Value *beta = layer ? match_vector(&m, &y, OP_add, first) : NULL;
  // All operands are defined before the last op of the pattern.
  b->at = y->def;
  b->origin = op_origin(y->def);
  const Type *t = x->type;
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < first; i++)
    dim[i] = t->dim[i];
  dim[first] = n;
  // The op normalises one dimension.
  Value *flat = build_reshape(b, x, first + 1, dim);
  gamma = vector_or(b, gamma, t->dtype, n, 1);
  Value *result;
  if (layer) {
    beta = vector_or(b, beta, t->dtype, n, 0);
    result = build_op(b, OP_layer_norm, IN(flat, gamma, beta), ATTRS(a_f("eps", eps)));
  } else {
    result = build_op(b, OP_rms_norm, IN(flat, gamma), ATTRS(a_f("eps", eps)));
  }
  result = build_reshape(b, result, t->ndim, t->dim);
  if (result) value_replace_uses(y, result);
  return result;
}
