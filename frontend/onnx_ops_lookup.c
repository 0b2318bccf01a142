// Lookup by index.  All operators but OneHot become a gather along one axis, with `batch` if tables
// have indices of their own, so that their gradients are that of gather, and rows of the batch stay
// apart:
//
//     GatherElements  y[i,j] = x[index[i,j], j]           gather, batch=1, of x and index transposed
//     GatherND        y[b] = x[b, index[b,0], index[b,1]]  gather, batch=1, of x[b] flattened
//     x[arange(B), index]                                 gather, batch=1: no row reads another
//
// TorchScript's exporter writes x[arange(B), i] as a Gather of x [B,T,rest] flattened, by i + b*T.
// That remains a gather of the flattened tensor: a module that flattens x itself exports to the
// same nodes, and its i may reach into other rows.

#include <stdlib.h>

#include "frontend/onnx_node.h"

bool import_gather(Node *n) {
  int axis;
  int64_t row = 0;
  if (!node_axis(n, node_int(n, "axis", 0), node_ndim(n, 0), &axis)) return false;
  // With scale_grad_by_freq the gradient of a row is divided by the number of its indices.
  bool from_embedding = node_from_torch(n, "aten.embedding");
  const char *scales = from_embedding ? node_torch_arg(n, 3) : NULL;
  if (scales && str_equal(scales, "True"))
    return node_fail(n, "scale_grad_by_freq is not supported");
  // The padding_idx of the torch.nn.Embedding that the node was exported from, or that the model's
  // metadata has for its table.
  int n_rows = 0;
  if (axis == 0 && node_ndim(n, 0)) {
    const char *text = from_embedding ? node_torch_arg(n, 2) : NULL;
    bool found = text && *text >= '0' && *text <= '9';
    if (found)
      row = strtoll(text, NULL, 10);
    else
      found = node_padding_row(n, n->in[0], &row);
    n_rows = found && row >= 0 && row < n->in[0]->type->dim[0];
  }
  // PyTorch refuses an index below 0 in an embedding.
  bool embedding =
      from_embedding || (axis == 0 && !node_known(n, n->in[1]) && node_of_embedding(n, n->in[0]));
  n->out[0] = build_op(
      n->b, OP_gather, IN(n->in[0], n->in[1]),
      ATTRS(a_i("axis", axis), a_list("padding", &row, n_rows), a_b("embedding", embedding)));
  return true;
}

Value *node_not_negative(Node *n, Value *index, int64_t length) {
  if (!index) return NULL;
  Value *negative = node_binary(n, OP_less, index, node_like(n, index, 0));
  Value *from_end = node_binary(n, OP_add, index, node_like(n, index, (double)length));
  return build_where(n->b, negative, from_end, index);
}

Value *node_outside(Node *n, Value *outside, Value *index, int64_t length) {
  if (!index) return NULL;
  Value *low = node_binary(n, OP_less, index, node_like(n, index, 0));
  Value *high = node_binary(n, OP_greater_equal, index, node_like(n, index, (double)length));
  Value *either = node_binary(n, OP_or, low, high);
  return outside ? node_binary(n, OP_or, outside, either) : either;
}

Value *node_tables(Node *n, Value *x, int batch, int end) {
  const Type *t = x->type;
  int64_t dim[MAX_NDIM];
  int ndim = 0;
  for (int i = 0; i < batch; i++)
    dim[ndim++] = t->dim[i];
  dim[ndim++] = product(t->dim, batch, end);
  for (int i = end; i < t->ndim; i++)
    dim[ndim++] = t->dim[i];
  return build_reshape(n->b, x, ndim, dim);
}

// Builds a gather of tables with indices of their own: x (batch, axis …, rest), index (batch,
// places); the dimensions of x between the batch and `end` are flattened.
static Value *gather_own(Node *n, Value *x, int batch, int end, Value *index) {
  // Each index of the batch selects from its own table.
  return build_op(n->b, OP_gather, IN(node_tables(n, x, batch, end), index),
                  ATTRS(a_i("axis", batch), a_i("batch", batch)));
}

bool import_gather_elements(Node *n) {
  Value *x = n->in[0], *index = n->in[1];
  const Type *t = x->type, *ti = index->type;
  int axis, ndim = t->ndim;
  if (!node_axis(n, node_int(n, "axis", 0), ndim, &axis)) return false;
  bool fits = ti->ndim == ndim;
  for (int i = 0; fits && i < ndim; i++)
    fits = i == axis || ti->dim[i] <= t->dim[i];
  if (!fits)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, t), type_text(n->a, ti));
  // The axis becomes the last dimension; all others are the batch.
  int64_t perm[MAX_NDIM], back[MAX_NDIM];
  for (int i = 0; i < ndim; i++) {
    perm[i] = i == ndim - 1 ? axis : i + (i >= axis);
    back[perm[i]] = i;
  }
  // x is sliced to the lengths of the index, in all dimensions but the axis.
  for (int i = 0; i < ndim && x; i++)
    if (i != axis && ti->dim[i] < x->type->dim[i]) x = build_slice(n->b, x, i, 0, ti->dim[i]);
  x = build_transpose(n->b, x, perm);
  index = build_transpose(n->b, index, perm);
  // All other dimensions of the index are the batch.
  Value *y = x && index ? gather_own(n, x, ndim - 1, ndim, index) : NULL;
  if (y) n->out[0] = build_transpose(n->b, y, back);
  return true;
}

// Returns component `k` of the index tuples, which are the last dimension.
static Value *component(Node *n, Value *index, int64_t k) {
  int last = index->type->ndim - 1;
  // A slice of one element, without its dimension.
  return build_reshape(n->b, build_slice(n->b, index, last, k, 1), last, index->type->dim);
}

// Whether the first component is known to be the position along dimension `dim` of the indices.
static bool counts_along(const Node *n, const Value *index, int dim) {
  const Op *op = index->def;
  int ndim = index->type->ndim;
  while (op && (op->kind == OP_cast || op->kind == OP_concat)) {
    // The first component is the first operand of a concatenation.
    if (op->kind == OP_concat && attr_i(op, "axis") != ndim - 1) return false;
    const Value *first = op->in[0].value;
    const Tensor *t = node_known(n, first);
    if (t && first->type->dim[ndim - 1] == 1) {
      // Every element must be its position along the dimension.
      int64_t inner = product(first->type->dim, dim + 1, ndim), count = type_count(first->type);
      for (int64_t i = 0; i < count; i++)
        if (tensor_i(t, i) != i / inner % first->type->dim[dim]) return false;
      return true;
    }
    op = first->def;
  }
  return false;
}

bool node_tuples(Node *n, Tuples *t) {
  const Type *x = n->in[0]->type, *ti = n->in[1]->type;
  Value *index = n->in[1];
  int64_t first = 0;
  if (ti->ndim < 1 || x->ndim < 1) return node_fail(n, "an operand is a scalar");
  int64_t depth = ti->dim[ti->ndim - 1];
  if (t->batch < 0 || t->batch >= ti->ndim || t->batch + depth > x->ndim || depth < 1)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, x), type_text(n->a, ti));
  t->end = (int)(t->batch + depth);
  // All components of NonZero of a tensor with these dimensions: it has the flattened index.
  const Selection *s = t->batch == 0 ? node_selection(n, index) : NULL;
  bool whole = s && s->x->type->ndim == depth;
  for (int i = 0; i < depth && whole; i++)
    whole = s->x->type->dim[i] == x->dim[i];
  if (whole) {
    t->flat = s->index;
    return true;
  }
  // Several components, of indices with a dimension of the same length as x.
  bool own = depth > 1 && t->batch + 1 < ti->ndim && ti->dim[t->batch] == x->dim[t->batch];
  // A component that only counts along a dimension of x makes this dimension a batch.
  if (own && counts_along(n, index, (int)t->batch)) {
    t->batch++;
    first++;
  }
  // The index into the flattened dimensions.  A component out of range must not reach another row:
  // it makes the whole index one past the end.
  Value *outside = NULL;
  t->flat = NULL;
  for (int64_t k = first; k < depth; k++) {
    int64_t axis = t->batch + k - first, stride = product(x->dim, (int)axis + 1, t->end);
    Value *at = build_cast(n->b, component(n, index, k), DT_i64);
    if (t->end - t->batch > 1) { // each component may count from the end
      at = node_not_negative(n, at, x->dim[axis]);
      outside = node_outside(n, outside, at, x->dim[axis]);
      at = at ? node_binary(n, OP_mul, at, node_like(n, at, (double)stride)) : NULL;
    }
    t->flat = t->flat ? node_binary(n, OP_add, t->flat, at) : at;
    if (!t->flat) return false;
  }
  if (!outside) return true;
  double end = (double)product(x->dim, (int)t->batch, t->end);
  t->flat = build_where(n->b, outside, node_like(n, t->flat, end), t->flat);
  return t->flat != NULL;
}

// y[b…, i…] = x[b…, index[b…, i…, 0], index[b…, i…, 1], …]
bool import_gather_nd(Node *n) {
  Tuples t = {.batch = node_int(n, "batch_dims", 0)};
  if (!node_tuples(n, &t)) return false;
  n->out[0] = gather_own(n, n->in[0], (int)t.batch, t.end, t.flat);
  return true;
}

// `on` if the position along the new axis is the index, else `off`; indices may count from the end,
// and those out of range give `off` everywhere
bool import_one_hot(Node *n) {
  const Type *ti = n->in[0]->type, *tv = n->in[2]->type;
  int64_t depth, dim[MAX_NDIM], place[MAX_NDIM];
  int axis, ndim = ti->ndim + 1;
  if (!node_setting_int(n, 1, "depth", 0, &depth)) return false;
  if (!node_axis(n, node_int(n, "axis", -1), ndim, &axis)) return false;
  if (tv->ndim != 1 || tv->dim[0] != 2) return node_fail(n, "its values are not two");
  if (ndim > MAX_NDIM) return node_fail(n, "its result has %d dimensions", ndim);
  for (int i = 0; i < ndim; i++) {
    dim[i] = i == axis ? 1 : ti->dim[i - (i > axis)];
    place[i] = i == axis ? depth : 1;
  }
  if (!node_shape(n, ndim, place)) return false;
  Value *index = node_not_negative(n, build_cast(n->b, n->in[0], DT_i64), depth);
  // The indices are compared with 0 .. depth - 1 along the new axis.
  Value *hot = node_binary(n, OP_equal, build_reshape(n->b, index, ndim, dim),
                           build_reshape(n->b, node_count_up(n, depth), ndim, place));
  if (!hot) return false;
  // The two values, off and on, broadcast to the result.
  Value *value[2];
  for (int i = 0; i < 2; i++) {
    Value *one = build_slice(n->b, n->in[2], 0, i, 1);
    value[i] = build_broadcast(n->b, build_reshape(n->b, one, 0, NULL), ndim, hot->type->dim);
  }
  n->out[0] = build_where(n->b, hot, value[1], value[0]);
  return true;
}

// The cache with the update written at the indices of each sample, along `axis`: position p has
// element p - index of the update, if that exists.
bool import_tensor_scatter(Node *n) {
  Value *past = n->in[0], *update = n->in[1], *start = node_in(n, 2);
  const Type *t = past->type, *tu = update->type;
  const char *mode = node_str(n, "mode", "linear");
  bool circular = str_equal(mode, "circular");
  int axis;
  if (!circular && !str_equal(mode, "linear")) return node_fail(n, "mode '%s'", mode);
  if (!node_axis(n, node_int(n, "axis", -2), t->ndim, &axis)) return false;
  bool fits = axis > 0 && tu->ndim == t->ndim && tu->dim[axis] <= t->dim[axis];
  for (int i = 0; i < t->ndim && fits; i++)
    fits = i == axis || tu->dim[i] == t->dim[i];
  if (!fits)
    return node_fail(n, "an update of %s for a cache of %s along axis %d", type_text(n->a, tu),
                     type_text(n->a, t), axis);
  int64_t batch = t->dim[0], length = t->dim[axis], written = tu->dim[axis];
  if (length == 0 || written == 0) {
    n->out[0] = past;
    return true;
  }
  // from[b, p]: the element of the update for position p.
  Value *at = node_count_up(n, length);
  if (!at) return false;
  at = build_reshape(n->b, at, 2, (int64_t[]){1, length});
  at = build_broadcast(n->b, at, 2, (int64_t[]){batch, length});
  if (start) {
    start = build_reshape(n->b, build_cast(n->b, start, DT_i64), 2, (int64_t[]){batch, 1});
    at = node_binary(n, OP_sub, at, start);
  }
  if (circular) at = node_binary(n, OP_mod, at, node_scalar(n, DT_i64, (double)length));
  if (!at) return false;
  Value *first = node_binary(n, OP_greater_equal, at, node_like(n, at, 0));
  Value *last = node_binary(n, OP_less, at, node_like(n, at, (double)written));
  Value *is_written = node_binary(n, OP_and, first, last);
  Value *index =
      build_op(n->b, OP_clip, IN(at), ATTRS(a_f("low", 0), a_f("high", (double)written - 1)));
  // The axis becomes the second dimension, of which each sample has a table.
  int64_t perm[MAX_NDIM], back[MAX_NDIM], dim[MAX_NDIM];
  for (int i = 0; i < t->ndim; i++) {
    perm[i] = i == 0 ? 0 : i == 1 ? axis : i - 1 < axis ? i - 1 : i;
    back[perm[i]] = i;
  }
  Value *rows = build_op(n->b, OP_gather, IN(build_transpose(n->b, update, perm), index),
                         ATTRS(a_i("axis", 1), a_i("batch", 1)));
  rows = rows ? build_transpose(n->b, rows, back) : NULL;
  for (int i = 0; i < t->ndim; i++)
    dim[i] = i == 0 ? batch : i == axis ? length : 1;
  Value *in[] = {build_reshape(n->b, is_written, t->ndim, dim), rows, past};
  if (!rows || !node_broadcast(n, in, 3)) return false;
  n->out[0] = build_op(n->b, OP_where, in, 3, NO_ATTRS);
  return true;
}

// The first elements of each sequence of the batch in reverse order: y[b, t] is x[b, length[b] - 1
// - t] for t below the length, else x[b, t].
bool import_reverse_sequence(Node *n) {
  Value *x = n->in[0], *length = n->in[1];
  int ndim = x->type->ndim;
  int64_t time = node_int(n, "time_axis", 0), batch = node_int(n, "batch_axis", 1);
  if (ndim < 2 || time < 0 || time > 1 || batch < 0 || batch > 1 || time == batch)
    return node_fail(n, "time_axis %lld and batch_axis %lld of %s", (long long)time,
                     (long long)batch, type_text(n->a, x->type));
  if (length->type->ndim != 1 || length->type->dim[0] != x->type->dim[batch])
    return node_fail(n, "its lengths are %s, of a batch of %lld", type_text(n->a, length->type),
                     (long long)x->type->dim[batch]);
  // The batch becomes dimension 0, the time dimension 1.
  int64_t perm[MAX_NDIM];
  for (int i = 0; i < ndim; i++)
    perm[i] = i < 2 ? (time == 0 ? 1 - i : i) : i;
  x = build_transpose(n->b, x, perm);
  if (!x) return false;
  int64_t steps = x->type->dim[1], rows[] = {x->type->dim[0], 1};
  Value *t = node_count_up(n, steps);
  length = build_reshape(n->b, build_cast(n->b, length, DT_i64), 2, rows);
  Value *last = build_op(n->b, OP_offset, IN(length), ATTRS(a_f("by", -1)));
  Value *in[] = {node_binary(n, OP_less, t, length), node_binary(n, OP_sub, last, t), t};
  if (n->b->failed || !node_broadcast(n, in, 3)) return false;
  Value *index = build_op(n->b, OP_where, in, 3, NO_ATTRS);
  Value *y = build_op(n->b, OP_gather, IN(x, index), ATTRS(a_i("axis", 1), a_i("batch", 1)));
  n->out[0] = build_transpose(n->b, y, perm);
  return true;
}
