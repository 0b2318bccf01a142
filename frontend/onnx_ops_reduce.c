// Reductions and scans.  Axes are an attribute or, from opset 13 or 18 on, an operand; without any
// all axes are reduced, or none with noop_with_empty_axes.

#include <math.h>

#include "frontend/onnx_node.h"

typedef struct Axes {
  int n;
  int64_t at[MAX_NDIM]; // sorted
  bool keep;
} Axes;

static bool read_axes(Node *n, Axes *out) {
  Ints list;
  bool given, reduced[MAX_NDIM] = {false};
  int ndim = node_ndim(n, 0);
  if (!node_ints(n, 1, "axes", &list, &given)) return false;
  for (int i = 0; i < list.n; i++) {
    int axis;
    if (!node_axis(n, list.at[i], ndim, &axis)) return false;
    reduced[axis] = true;
  }
  // An empty list reduces all dimensions, unless the node says otherwise.
  bool all = list.n == 0 && node_int(n, "noop_with_empty_axes", 0) == 0;
  *out = (Axes){.keep = node_int(n, "keepdims", 1) != 0};
  for (int i = 0; i < ndim; i++)
    if (all || reduced[i]) out->at[out->n++] = i;
  return true;
}

bool node_reduced(Node *n, bool *reduces, bool *keep) {
  Axes axes;
  if (!read_axes(n, &axes)) return false;
  for (int i = 0; i < MAX_NDIM; i++)
    reduces[i] = false;
  for (int i = 0; i < axes.n; i++)
    reduces[axes.at[i]] = true;
  *keep = axes.keep;
  return true;
}

// A reduction over no axes is the identity.
static Value *reduce(Node *n, OpKind kind, Value *x, const Axes *axes) {
  if (axes->n == 0) return x;
  return build_op(n->b, kind, IN(x),
                  ATTRS(a_list("axes", axes->at, axes->n), a_b("keep", axes->keep)));
}

// Builds a reduction; `before` is applied to every element; N_OPS: none.
static bool reduction(Node *n, OpKind before, OpKind kind, OpKind after) {
  Axes axes;
  if (!read_axes(n, &axes)) return false;
  Value *x = n->in[0];
  // Squares or magnitudes, for the norms.
  if (before != N_OPS) x = node_unary(n, before, x);
  x = reduce(n, kind, x, &axes);
  n->out[0] = after != N_OPS ? node_unary(n, after, x) : x;
  return true;
}

bool import_reduce_sum(Node *n) {
  return reduction(n, N_OPS, OP_reduce_sum, N_OPS);
}

double node_extreme(DType dtype, bool high) {
  int bits = 8 * dtype_bytes[dtype];
  double most = dtype_class[dtype] == 'F'   ? INFINITY
                : dtype_class[dtype] == 'B' ? 1
                : dtype_class[dtype] == 'I' ? ldexp(1, bits - 1) - 1
                                            : ldexp(1, bits) - 1;
  if (high) return most;
  return dtype_class[dtype] == 'F' ? -INFINITY : dtype_class[dtype] == 'I' ? -most - 1 : 0;
}

// Without elements, the maximum is the lowest value of the type and the minimum the highest.
static Value *extreme_of_none(Node *n, OpKind kind, DType dtype, const Axes *axes) {
  const Type *x = n->in[0]->type;
  int64_t dim[MAX_NDIM];
  int ndim = 0;
  for (int i = 0, k = 0; i < x->ndim; i++) {
    bool reduced = k < axes->n && axes->at[k] == i;
    k += reduced;
    if (!reduced || axes->keep) dim[ndim++] = reduced ? 1 : x->dim[i];
  }
  return build_fill(n->b, dtype, ndim, dim, node_extreme(dtype, kind == OP_reduce_min));
}

static bool is_empty(const Type *t, const Axes *axes) {
  for (int i = 0; i < axes->n; i++)
    if (t->dim[axes->at[i]] == 0) return true;
  return false;
}

// The first of the largest elements gets the whole gradient, as in torch.max(x, dim); elements
// equal to the result of reduce_max share it, as in torch.amax.
static Value *first_of(Node *n, Value *x, OpKind arg, const Axes *axes) {
  int axis = (int)axes->at[0], ndim = x->type->ndim;
  Value *at =
      build_op(n->b, arg, IN(x), ATTRS(a_i("axis", axis), a_b("keep", true), a_b("last", false)));
  int64_t dim[MAX_NDIM];
  for (int i = 0; i < ndim; i++)
    dim[i] = i == axis ? x->type->dim[i] : 1;
  // The result is selected by its position, so one element gets the gradient.
  Value *place = build_reshape(n->b, node_count_up(n, x->type->dim[axis]), ndim, dim);
  Value *first = node_binary(n, OP_equal, at, place);
  if (!first) return NULL;
  Value *rest = node_like(n, x, 0);
  return build_reduce_sum(n->b, build_where(n->b, first, x, rest), axes->at, 1, axes->keep);
}

// Truth values are compared as numbers.
static bool extreme(Node *n, OpKind kind) {
  Axes axes;
  DType dtype = n->in[0]->type->dtype;
  if (!read_axes(n, &axes)) return false;
  if (is_empty(n->in[0]->type, &axes)) {
    n->out[0] = extreme_of_none(n, kind, dtype, &axes);
    return true;
  }
  // max.dim and amax differ in the gradient of equal elements.
  bool first = kind == OP_reduce_max ? node_from_torch(n, "aten.max.dim")
                                     : node_from_torch(n, "aten.min.dim");
  if (first && axes.n == 1 && dtype_class[dtype] == 'F') {
    n->out[0] = first_of(n, n->in[0], kind == OP_reduce_max ? OP_arg_max : OP_arg_min, &axes);
    return true;
  }
  Value *x = build_cast(n->b, n->in[0], dtype == DT_bool ? DT_i32 : dtype);
  n->out[0] = build_cast(n->b, reduce(n, kind, x, &axes), dtype);
  return true;
}

bool import_reduce_max(Node *n) {
  return extreme(n, OP_reduce_max);
}

bool import_reduce_min(Node *n) {
  return extreme(n, OP_reduce_min);
}

bool import_reduce_prod(Node *n) {
  return reduction(n, N_OPS, OP_reduce_prod, N_OPS);
}

bool import_reduce_sum_square(Node *n) {
  return reduction(n, OP_square, OP_reduce_sum, N_OPS);
}

bool import_reduce_l1(Node *n) {
  return reduction(n, OP_abs, OP_reduce_sum, N_OPS);
}

bool import_reduce_l2(Node *n) {
  return reduction(n, OP_square, OP_reduce_sum, OP_sqrt);
}

bool import_reduce_log_sum(Node *n) {
  return reduction(n, N_OPS, OP_reduce_sum, OP_log);
}

bool import_reduce_mean(Node *n) {
  Axes axes;
  if (!read_axes(n, &axes)) return false;
  n->out[0] = node_mean(n, n->in[0], axes.at, axes.n, axes.keep);
  return true;
}

// max + log(sum(exp(x - max))), so that nothing overflows
bool import_reduce_log_sum_exp(Node *n) {
  Axes axes, keep;
  if (!read_axes(n, &axes)) return false;
  Value *x = n->in[0];
  if (is_empty(x->type, &axes)) {
    n->out[0] = extreme_of_none(n, OP_reduce_max, x->type->dtype, &axes);
    return true;
  }
  keep = axes;
  keep.keep = true;
  // The maximum keeps its dimensions, to be subtracted from x.
  Value *max = reduce(n, OP_reduce_max, x, &keep);
  Value *sum =
      reduce(n, OP_reduce_sum, node_unary(n, OP_exp, node_binary(n, OP_sub, x, max)), &axes);
  if (!sum) return false;
  max = build_reshape(n->b, max, sum->type->ndim, sum->type->dim);
  n->out[0] = node_binary(n, OP_add, node_unary(n, OP_log, sum), max);
  return true;
}

static bool arg(Node *n, OpKind kind) {
  int axis;
  if (!node_axis(n, node_int(n, "axis", 0), node_ndim(n, 0), &axis)) return false;
  n->out[0] = build_op(n->b, kind, IN(n->in[0]),
                       ATTRS(a_i("axis", axis), a_b("keep", node_int(n, "keepdims", 1)),
                             a_b("last", node_int(n, "select_last_index", 0))));
  return true;
}

bool import_arg_max(Node *n) {
  return arg(n, OP_arg_max);
}

bool import_arg_min(Node *n) {
  return arg(n, OP_arg_min);
}

static bool scan(Node *n, OpKind kind) {
  int64_t at;
  int axis;
  // The axis is an operand, known at compile time.
  if (!node_setting_int(n, 1, "axis", 0, &at) || !node_axis(n, at, node_ndim(n, 0), &axis))
    return false;
  n->out[0] = build_op(n->b, kind, IN(n->in[0]),
                       ATTRS(a_i("axis", axis), a_b("exclusive", node_int(n, "exclusive", 0)),
                             a_b("reverse", node_int(n, "reverse", 0))));
  return true;
}

bool import_cumsum(Node *n) {
  return scan(n, OP_cumsum);
}

bool import_cumprod(Node *n) {
  return scan(n, OP_cumprod);
}

// The elements are a gather by the indices, so that each gets the gradient of its place.  They are
// sorted also if the node does not ask for it.
bool import_top_k(Node *n) {
  Value *x = n->in[0];
  int64_t k = node_int(n, "k", -1), perm[MAX_NDIM], back[MAX_NDIM];
  int axis, ndim = node_ndim(n, 0);
  if (!node_attr(n, "k") && !node_setting_int(n, 1, "k", -1, &k)) return false;
  if (!node_axis(n, node_int(n, "axis", -1), ndim, &axis)) return false;
  if (k < 0 || k > x->type->dim[axis])
    return node_fail(n, "k is %lld, of %lld elements", (long long)k, (long long)x->type->dim[axis]);
  (void)node_int(n, "sorted", 1);
  // The axis becomes the last dimension.
  for (int i = 0; i < ndim; i++) {
    perm[i] = i == ndim - 1 ? axis : i + (i >= axis);
    back[perm[i]] = i;
  }
  x = build_transpose(n->b, x, perm);
  Value *index = build_op(n->b, OP_top_k, IN(x),
                          ATTRS(a_i("k", k), a_b("smallest", !node_int(n, "largest", 1))));
  Value *y =
      build_op(n->b, OP_gather, IN(x, index), ATTRS(a_i("axis", ndim - 1), a_i("batch", ndim - 1)));
  n->out[0] = build_transpose(n->b, y, back);
  n->out[1] = build_transpose(n->b, index, back);
  return true;
}
