// Rows put into the places that indices name, or combined with the rows there.
//
//     ScatterElements  y[index[i,j], j] = u[i,j]        scatter, batch=1, of all transposed
//     the same, with an index that is equal for all j   scatter of rows: y[index[i]] = u[i]
//     ScatterND        y[index[i,0], index[i,1]] = u[i]  scatter of x flattened
//
// Exporters write rows for index_add, index_copy and scatter along expanded indices, as in message
// passing.  Their sum is x + gather_back, which may be split along the indices.

#include "frontend/onnx_node.h"

// -- One scatter -----------------------------------------------------------------------------

static bool read_reduction(Node *n, OpKind *out) {
  static const struct {
    const char *name;
    OpKind kind;
  } rows[] = {{"none", OP_scatter},
              {"add", OP_scatter_add},
              {"mul", OP_scatter_mul},
              {"min", OP_scatter_min},
              {"max", OP_scatter_max}};
  const char *name = node_str(n, "reduction", "none");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (str_equal(name, rows[i].name)) {
      *out = rows[i].kind;
      return true;
    }
  return node_fail(n, "reduction '%s' is none of none, add, mul, min, max", name);
}

// x with the rows of u at its indices along `axis`.
static Value *scatter(Node *n, OpKind kind, Value *x, Value *index, Value *u, int axis, int batch) {
  if (!x || !index || !u) return NULL;
  if (kind != OP_scatter_add || dtype_class[x->type->dtype] != 'F')
    return build_op(n->b, kind, IN(x, index, u), ATTRS(a_i("axis", axis), a_i("batch", batch)));
  Value *sum = build_op(
      n->b, OP_gather_back, IN(index, u),
      ATTRS(a_i("axis", axis), a_list("shape", x->type->dim, x->type->ndim), a_i("batch", batch)));
  return sum ? build_binary(n->b, OP_add, x, build_cast(n->b, sum, x->type->dtype)) : NULL;
}

// -- ScatterElements -------------------------------------------------------------------------

// The number of dimensions before the axis along which the index varies, if it is the same along
// all dimensions after the axis; and the index without these.  Such an index is an expanded one; a
// constant has lost its Expand.  -1: none.
static int expanded(Node *n, Value *index, int axis, Value **out) {
  const Type *t = index->type;
  const Op *op = index->def;
  const Tensor *known = node_known(n, index);
  int64_t inner = product(t->dim, axis + 1, t->ndim);
  if (known && type_count(t) > 0 && axis + 1 < t->ndim) {
    for (int64_t i = 0; i < type_count(t); i++)
      if (tensor_i(known, i) != tensor_i(known, i / inner * inner)) return -1;
    // Its first element along each of the dimensions after the axis.
    int64_t starts[MAX_NDIM] = {0}, steps[MAX_NDIM], dim[MAX_NDIM];
    for (int i = 0; i < t->ndim; i++) {
      steps[i] = 1;
      dim[i] = i > axis ? 1 : t->dim[i];
    }
    Value *first = build_op(n->b, OP_slice, IN(index),
                            ATTRS(a_list("starts", starts, t->ndim),
                                  a_list("steps", steps, t->ndim), a_list("shape", dim, t->ndim)));
    *out = build_reshape(n->b, first, axis + 1, t->dim);
    return axis;
  }
  if (!op || op->kind != OP_broadcast) return -1;
  // The dimensions of the operand of the broadcast, from the end.
  Value *from = op->in[0].value;
  int skip = t->ndim - from->type->ndim, before = 0;
  for (int i = axis + 1; i < t->ndim; i++)
    if (i >= skip && from->type->dim[i - skip] != 1) return -1;
  if (axis < skip || from->type->dim[axis - skip] != t->dim[axis]) return -1;
  for (int i = 0; i < axis; i++)
    before += i >= skip && from->type->dim[i - skip] == t->dim[i] && t->dim[i] != 1;
  if (before != 0 && before != axis) return -1;
  // The same along all dimensions but the axis, or along those after it.
  *out = before ? build_reshape(n->b, from, axis + 1, t->dim)
                : build_reshape(n->b, from, 1, &t->dim[axis]);
  return before;
}

// The index into x flattened, of an element at the place of each element of `index`, whose other
// dimensions may be shorter than those of x.
static Value *flattened(Node *n, const Type *x, Value *index, int axis) {
  const Type *t = index->type;
  int64_t count = type_count(t);
  if (!node_small(n, count)) return NULL;
  int64_t *rest = arena_array(n->a, int64_t, count + 1);
  for (int64_t i = 0; i < count; i++) {
    int64_t left = i;
    for (int d = t->ndim - 1; d >= 0; left /= t->dim[d--])
      if (d != axis) rest[i] += left % t->dim[d] * product(x->dim, d + 1, x->ndim);
  }
  Value *at = node_not_negative(n, build_cast(n->b, index, DT_i64), x->dim[axis]);
  if (!at) return NULL;
  Value *outside = node_outside(n, NULL, at, x->dim[axis]);
  double stride = (double)product(x->dim, axis + 1, x->ndim);
  at = node_mul(n, at, node_like(n, at, stride));
  Value *others = build_constant(n->b, type_new(n->b->g->module, DT_i64, t->ndim, t->dim), rest);
  at = node_add(n, at, others);
  // An index out of range must not reach another row: it becomes one past the end.
  return at && outside ? build_where(n->b, outside, node_like(n, at, (double)type_count(x)), at)
                       : NULL;
}

bool import_scatter_elements(Node *n) {
  Value *x = n->in[0], *index = n->in[1], *u = n->in[2], *rows;
  const Type *t = x->type, *ti = index->type;
  OpKind kind;
  int axis, ndim = t->ndim;
  if (!read_reduction(n, &kind) || !node_axis(n, node_int(n, "axis", 0), ndim, &axis)) return false;
  bool fits = ti->ndim == ndim && type_same_dims(ti, u->type), equal = true;
  for (int i = 0; fits && i < ndim; i++) {
    fits = i == axis || ti->dim[i] <= t->dim[i];
    equal = equal && (i == axis || ti->dim[i] == t->dim[i]);
  }
  if (!fits)
    return node_fail(n, "its operands are %s, %s and %s", type_text(n->a, t), type_text(n->a, ti),
                     type_text(n->a, u->type));
  // Whole rows.
  int batch = equal ? expanded(n, index, axis, &rows) : -1;
  if (batch >= 0) {
    n->out[0] = scatter(n, kind, x, rows, u, axis, batch);
    return true;
  }
  if (!equal) {
    index = flattened(n, t, index, axis);
    x = node_tables(n, x, 0, ndim);
    if (!index || !x) return false;
    Value *y = scatter(n, kind, x, index, u, 0, 0);
    n->out[0] = build_reshape(n->b, y, ndim, t->dim);
    return true;
  }
  // The axis becomes the last dimension; all others are the batch.
  int64_t perm[MAX_NDIM], back[MAX_NDIM];
  for (int i = 0; i < ndim; i++) {
    perm[i] = i == ndim - 1 ? axis : i + (i >= axis);
    back[perm[i]] = i;
  }
  x = build_transpose(n->b, x, perm);
  index = build_transpose(n->b, index, perm);
  u = build_transpose(n->b, u, perm);
  n->out[0] = build_transpose(n->b, scatter(n, kind, x, index, u, ndim - 1, ndim - 1), back);
  return true;
}

// -- ScatterND -------------------------------------------------------------------------------

bool import_scatter_nd(Node *n) {
  Value *x = n->in[0];
  const Type *t = x->type, *ti = n->in[1]->type, *tu = n->in[2]->type;
  OpKind kind;
  Tuples tuples = {0};
  if (!read_reduction(n, &kind) || !node_tuples(n, &tuples)) return false;
  // The rows have the dimensions of the indices, and of x after those that are indexed.
  int64_t depth = ti->dim[ti->ndim - 1];
  bool fits = tu->ndim == ti->ndim - 1 + t->ndim - depth;
  for (int i = 0; fits && i < tu->ndim; i++)
    fits = tu->dim[i] == (i < ti->ndim - 1 ? ti->dim[i] : t->dim[depth + i - (ti->ndim - 1)]);
  if (!fits)
    return node_fail(n, "its operands are %s, %s and %s", type_text(n->a, t), type_text(n->a, ti),
                     type_text(n->a, tu));
  int batch = (int)tuples.batch;
  Value *y =
      scatter(n, kind, node_tables(n, x, batch, tuples.end), tuples.flat, n->in[2], batch, batch);
  n->out[0] = build_reshape(n->b, y, t->ndim, t->dim);
  return true;
}
