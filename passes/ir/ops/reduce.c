// Reductions and scans.
//
// A sum can be split along the reduced dimensions: every rank has a partial sum.  The maximum,
// minimum or product of a shard is not a term of any sum, so there the reduced dimensions are
// whole.
//
//     reduce_sum f32[4,6,8] axes=[1]              a b c -> a c       split by b: partial
//     reduce_max f32[4,6,8] axes=[1] keep=true    a b^ c -> a 1 c

#include <math.h>

#include "ir/ops/einsum.h"
#include "ir/ops/index.h"
#include "ir/ops/reference.h"

static bool reducing_rule(const Op *op, Dims *dims, bool whole, Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  // The reduced dimensions: attribute `axes`, or `axis`.
  bool one = op->kind == OP_arg_max || op->kind == OP_arg_min;
  int64_t axis = one ? attr_i(op, "axis") : 0;
  const int64_t *axes = one ? &axis : attr_list(op, "axes");
  int n = one ? 1 : attr_n(op, "axes");
  for (int i = 0; i < n; i++)
    if (axes[i] < 0 || axes[i] >= ndim || (i > 0 && axes[i] <= axes[i - 1]))
      return diag_error(d, op->loc, "%s: axes must be ascending and from 0 to %d",
                        op_info[op->kind].name, ndim - 1);
  // All letters of the operand; the result lacks those of the axes, or keeps a 1 for each.
  Einsum e = {0};
  for (int i = 0; i < ndim; i++)
    einsum_add(&e, "%c%s ", letter_free(i), whole && is_axis(axes, n, i) ? "^" : "");
  einsum_add(&e, "->");
  for (int i = 0; i < ndim; i++)
    if (!is_axis(axes, n, i))
      einsum_add(&e, " %c", letter_free(i));
    else if (attr_i(op, "keep"))
      einsum_add(&e, " 1");
  return dims_parse(dims, op, e.text, d);
}

bool reduce_sum_rule(const Op *op, Dims *dims, Diag *d) {
  return reducing_rule(op, dims, !ranks_add(op->in[0].value->type->dtype), d);
}

// The maximum of nothing does not exist.
bool reduce_rule(const Op *op, Dims *dims, Diag *d) {
  if (!reducing_rule(op, dims, true, d)) return false;
  const Type *x = op->in[0].value->type;
  for (int i = 0; i < attr_n(op, "axes") && op->kind != OP_reduce_prod; i++)
    if (x->dim[attr_list(op, "axes")[i]] == 0)
      return diag_error(d, op->loc, "%s: dimension %lld has no elements", op_info[op->kind].name,
                        (long long)attr_list(op, "axes")[i]);
  return true;
}

bool arg_rule(const Op *op, Dims *dims, Diag *d) {
  if (!axis_fits(op, op->in[0].value->type->ndim, d)) return false;
  if (op->in[0].value->type->dim[attr_i(op, "axis")] == 0)
    return diag_error(d, op->loc, "%s: dimension %lld has no elements", op_info[op->kind].name,
                      (long long)attr_i(op, "axis"));
  return reducing_rule(op, dims, true, d);
}

// -- Gradients ---------------------------------------------------------------------------------

// `v`, a result of `op` or its adjoint, in the shape with kept dimensions.
static Value *kept(Builder *b, const Op *op, Value *v) {
  const Type *x = op->in[0].value->type;
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < x->ndim; i++)
    dim[i] = is_axis(attr_list(op, "axes"), attr_n(op, "axes"), i) ? 1 : x->dim[i];
  return build_reshape(b, v, x->ndim, dim);
}

static Value *spread(Builder *b, const Op *op, Value *v) {
  const Type *x = op->in[0].value->type;
  return build_broadcast(b, kept(b, op, v), x->ndim, x->dim);
}

static Value *zeros_like(Builder *b, const Value *v) {
  return build_fill(b, v->type->dtype, v->type->ndim, v->type->dim, 0);
}

bool reduce_sum_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] = spread(b, op, dout[0]);
  return !b->failed;
}

// Elements equal to the maximum share its gradient, as in torch.amax.
bool reduce_max_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value;
  const int64_t *axes = attr_list(op, "axes");
  int n = attr_n(op, "axes");
  Value *equal = build_op(b, OP_equal, IN(x, spread(b, op, op->out[0])), NO_ATTRS);
  Value *count = build_reduce_sum(b, build_cast(b, equal, x->type->dtype), axes, n, true);
  // The gradient, divided by the number of equal elements.
  Value *share = build_op(b, OP_div, IN(kept(b, op, dout[0]), count), NO_ATTRS);
  share = build_broadcast(b, share, x->type->ndim, x->type->dim);
  din[0] = build_where(b, equal, share, zeros_like(b, x));
  return !b->failed;
}

// The derivative by an element is the product of the other elements.  That is 0 if one of them is
// zero.  Otherwise it is the product of all nonzero elements, divided by the element if it is not
// zero.
bool reduce_prod_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *zeros = zeros_like(b, x);
  const int64_t *axes = attr_list(op, "axes");
  int n = attr_n(op, "axes"), ndim = x->type->ndim;
  // The product of the nonzero elements.
  Value *is_zero = build_op(b, OP_equal, IN(x, zeros), NO_ATTRS);
  Value *ones = build_fill(b, x->type->dtype, ndim, x->type->dim, 1);
  Value *safe = build_where(b, is_zero, ones, x);
  Value *product =
      build_op(b, OP_reduce_prod, IN(safe), ATTRS(a_list("axes", axes, n), a_b("keep", true)));
  Value *flow = build_op(b, OP_mul, IN(kept(b, op, dout[0]), product), NO_ATTRS);
  // Divided by the element, with 1 in place of 0.
  flow = build_op(b, OP_div, IN(build_broadcast(b, flow, ndim, x->type->dim), safe), NO_ATTRS);
  // The number of zeros among the other elements must be 0.
  Value *zero = build_cast(b, is_zero, x->type->dtype);
  Value *count = build_broadcast(b, build_reduce_sum(b, zero, axes, n, true), ndim, x->type->dim);
  Value *others = build_op(b, OP_sub, IN(count, zero), NO_ATTRS);
  Value *none = build_op(b, OP_equal, IN(others, zeros), NO_ATTRS);
  din[0] = build_where(b, none, flow, zeros);
  return !b->failed;
}

// -- References --------------------------------------------------------------------------------

typedef enum Reduction { REDUCE_sum, REDUCE_max, REDUCE_min, REDUCE_prod } Reduction;

static double reduce_f(Reduction r, double so_far, double x) {
  switch (r) {
  case REDUCE_sum: return so_far + x;
  case REDUCE_prod: return so_far * x;
  case REDUCE_max: return x > so_far || isnan(x) ? x : so_far; // a NaN stays
  case REDUCE_min: return x < so_far || isnan(x) ? x : so_far;
  }
  BUG("no reduction");
}

// Sums and products wrap.  For u64 the bits are compared as unsigned.
static int64_t reduce_i(Reduction r, int64_t so_far, int64_t x, bool is_unsigned) {
  // The bits of a u64 decide as unsigned.
  bool less = is_unsigned ? (uint64_t)x < (uint64_t)so_far : x < so_far;
  switch (r) {
  case REDUCE_sum: return (int64_t)((uint64_t)so_far + (uint64_t)x);
  case REDUCE_prod: return (int64_t)((uint64_t)so_far * (uint64_t)x);
  case REDUCE_max: return less ? so_far : x;
  case REDUCE_min: return less ? x : so_far;
  }
  BUG("no reduction");
}

// Maximum and minimum start from the first element.
static bool reduce(const Op *op, const Tensor *in, Tensor *out, Reduction r) {
  const Type *x = in[0].type;
  bool floating = dtype_class[x->dtype] == 'F', is_unsigned = x->dtype == DT_u64;
  int64_t stride[MAX_NDIM], at[MAX_NDIM] = {0}, n = type_count(x), m = type_count(out->type);
  // The distance in the result between neighbours along each dimension of the operand: 0 along
  // reduced dimensions.
  int64_t count = 1;
  for (int i = x->ndim - 1; i >= 0; i--) {
    stride[i] = is_axis(attr_list(op, "axes"), attr_n(op, "axes"), i) ? 0 : count;
    if (stride[i]) count *= x->dim[i];
  }
  Arena *scratch = arena_new();
  double *sum = arena_array(scratch, double, m); // rounded once, after the last addition
  int64_t *whole = arena_array(scratch, int64_t, m);
  bool *started = arena_array(scratch, bool, m);
  // The neutral elements of sum and product.
  for (int64_t j = 0; j < m; j++)
    sum[j] = (double)(whole[j] = r == REDUCE_prod);
  // Floating types accumulate in `sum`, integers in `whole`.
  for (int64_t i = 0; i < n; i++, index_next(x, at)) {
    int64_t j = index_offset(at, stride, x->ndim);
    bool first = !started[j] && (r == REDUCE_max || r == REDUCE_min);
    if (floating)
      sum[j] = first ? tensor_f(&in[0], i) : reduce_f(r, sum[j], tensor_f(&in[0], i));
    else
      whole[j] =
          first ? tensor_i(&in[0], i) : reduce_i(r, whole[j], tensor_i(&in[0], i), is_unsigned);
    started[j] = true;
  }
  for (int64_t j = 0; j < m; j++)
    if (floating)
      tensor_set_f(out, j, sum[j]);
    else
      tensor_set_i(out, j, whole[j]);
  arena_free(scratch);
  return true;
}

bool reduce_sum_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  return reduce(op, in, out, REDUCE_sum);
}

bool reduce_max_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  return reduce(op, in, out, REDUCE_max);
}

bool reduce_min_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  return reduce(op, in, out, REDUCE_min);
}

bool reduce_prod_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  return reduce(op, in, out, REDUCE_prod);
}

bool sum_squares_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)op, (void)box, (void)d;
  double sum = 0;
  for (int64_t i = 0; i < type_count(in[0].type); i++)
    sum += tensor_f(&in[0], i) * tensor_f(&in[0], i);
  tensor_set_f(out, 0, sum);
  return true;
}

// Whether element i wins over element j: the greater, or else the smaller.  NaN wins in both cases,
// as in numpy.
static bool beats(const Tensor *t, int64_t i, int64_t j, bool greater) {
  if (dtype_class[t->type->dtype] != 'F') {
    int64_t x = tensor_i(t, i), y = tensor_i(t, j);
    // Integers are compared exactly, not as doubles.
    if (t->type->dtype == DT_u64)
      return greater ? (uint64_t)x > (uint64_t)y : (uint64_t)x < (uint64_t)y;
    return greater ? x > y : x < y;
  }
  double x = tensor_f(t, i), y = tensor_f(t, j);
  if (isnan(x) || isnan(y)) return isnan(x) && !isnan(y);
  return greater ? x > y : x < y;
}

// The index of the winner: of equal ones the first, or with `last` the last.
static bool arg(const Op *op, const Tensor *in, Tensor *out, bool greater) {
  const Type *x = in[0].type;
  int axis = (int)attr_i(op, "axis");
  int64_t inner = 1, length = x->dim[axis], n = type_count(out->type);
  for (int i = axis + 1; i < x->ndim; i++)
    inner *= x->dim[i];
  for (int64_t i = 0; i < n; i++) {
    // The line along the axis that ends in element i.
    int64_t start = i / inner * inner * length + i % inner, best = 0;
    for (int64_t k = 1; k < length; k++) {
      int64_t at = start + k * inner, best_at = start + best * inner;
      // Neither beats the other if they are equal.
      bool wins = beats(&in[0], at, best_at, greater);
      if (wins || (attr_i(op, "last") && !beats(&in[0], best_at, at, greater))) best = k;
    }
    tensor_set_i(out, i, best);
  }
  return true;
}

bool arg_max_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  return arg(op, in, out, true);
}

bool arg_min_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  return arg(op, in, out, false);
}

// -- cumsum ------------------------------------------------------------------------------------

bool cumsum_rule(const Op *op, Dims *dims, Diag *d) {
  int ndim = op->in[0].value->type->ndim;
  if (!axis_fits(op, ndim, d)) return false;
  Einsum e = {0};
  // Operand and result have the same dimensions; the axis is whole.
  for (int side = 0; side < 2; side++) {
    einsum_add(&e, side ? "->" : "");
    for (int i = 0; i < ndim; i++)
      einsum_add(&e, "%c%s ", letter_free(i), i == attr_i(op, "axis") ? "^" : "");
  }
  return dims_parse(dims, op, e.text, d);
}

// The adjoint of an element sums over the elements on its other side: a cumsum in reverse.
bool cumsum_grad(Builder *b, Op *op, Value **dout, Value **din) {
  din[0] =
      build_op(b, OP_cumsum, IN(dout[0]),
               ATTRS(a_i("axis", attr_i(op, "axis")), a_b("exclusive", attr_i(op, "exclusive")),
                     a_b("reverse", !attr_i(op, "reverse"))));
  return !b->failed;
}

bool cumsum_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  const Type *x = in[0].type;
  int axis = (int)attr_i(op, "axis");
  bool exclusive = attr_i(op, "exclusive"), reverse = attr_i(op, "reverse");
  bool floating = dtype_class[x->dtype] == 'F';
  int64_t inner = 1, length = x->dim[axis], n = type_count(x);
  for (int i = axis + 1; i < x->ndim; i++)
    inner *= x->dim[i];
  // One line along the axis for every index of the other dimensions.
  for (int64_t line = 0; length > 0 && line < n / length; line++) {
    int64_t start = line / inner * inner * length + line % inner;
    double sum = 0;
    uint64_t whole = 0;
    for (int64_t k = 0; k < length; k++) {
      // Against the order of the elements with `reverse`.
      int64_t i = start + (reverse ? length - 1 - k : k) * inner;
      // An exclusive scan stores the sum before the element.
      double before = sum;
      uint64_t whole_before = whole;
      sum += tensor_f(&in[0], i);
      whole += (uint64_t)tensor_i(&in[0], i);
      if (floating)
        tensor_set_f(out, i, exclusive ? before : sum);
      else
        tensor_set_i(out, i, (int64_t)(exclusive ? whole_before : whole));
    }
  }
  return true;
}

// -- cumprod -----------------------------------------------------------------------------------

static Value *running(Builder *b, OpKind kind, const Op *op, Value *x, bool exclusive,
                      bool reverse) {
  return build_op(
      b, kind, IN(x),
      ATTRS(*op_attr(op, "axis"), a_b("exclusive", exclusive), a_b("reverse", reverse)));
}

// The derivative of a product by its factor x is the product divided by x, and the products with x
// are those of the elements from it on.  After the first zero of a line all products are 0: only
// that zero has a derivative, which needs the products without it.
bool cumprod_grad(Builder *b, Op *op, Value **dout, Value **din) {
  Value *x = op->in[0].value, *zero = build_full_like(b, x, 0), *one = build_full_like(b, x, 1);
  bool exclusive = attr_i(op, "exclusive"), reverse = attr_i(op, "reverse");
  // The first zero: the only one counted so far.
  Value *is_zero = build_binary(b, OP_equal, x, zero);
  Value *count = running(b, OP_cumsum, op, build_cast(b, is_zero, x->type->dtype), false, reverse);
  Value *first = build_op(b, OP_and, IN(is_zero, build_binary(b, OP_equal, count, one)), NO_ATTRS);
  Value *without = running(b, OP_cumprod, op, build_where(b, first, one, x), exclusive, reverse);
  // The sum over the products with x, of each times its adjoint.
  Value *flow =
      running(b, OP_cumsum, op, build_binary(b, OP_mul, dout[0], op->out[0]), exclusive, !reverse);
  flow = build_binary(b, OP_div, flow, build_where(b, is_zero, one, x));
  Value *at_zero =
      running(b, OP_cumsum, op, build_binary(b, OP_mul, dout[0], without), exclusive, !reverse);
  Value *before = build_binary(b, OP_equal, count, zero);
  din[0] = build_where(b, before, flow, build_where(b, first, at_zero, zero));
  return !b->failed;
}

bool cumprod_ref(const Op *op, const Tensor *in, Tensor *out, const Box *box, Diag *d) {
  (void)box, (void)d;
  const Type *x = in[0].type;
  AxisView v = axis_view(x, (int)attr_i(op, "axis"));
  bool exclusive = attr_i(op, "exclusive"), reverse = attr_i(op, "reverse");
  bool floating = dtype_class[x->dtype] == 'F';
  // One line along the axis for every index of the other dimensions.
  for (int64_t line = 0; line < v.outer * v.inner; line++) {
    double product = 1;
    uint64_t whole = 1;
    for (int64_t k = 0; k < v.n; k++) {
      int64_t i = axis_at(&v, line / v.inner, reverse ? v.n - 1 - k : k, line % v.inner);
      double before = product;
      uint64_t whole_before = whole;
      product *= tensor_f(&in[0], i);
      whole *= (uint64_t)tensor_i(&in[0], i);
      if (floating)
        tensor_set_f(out, i, exclusive ? before : product);
      else
        tensor_set_i(out, i, (int64_t)(exclusive ? whole_before : whole));
    }
  }
  return true;
}
