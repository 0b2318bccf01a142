// Lookup by index.  What is not a plain gather along one axis becomes one in the flattened tensor:
//
//     GatherElements  y[i,j] = x[index[i,j], j]     gather(flat x, index * columns + j)
//
// so its gradient is that of gather.

#include <stdlib.h>

#include "frontend/onnx_node.h"

// The padding_idx of the torch.nn.Embedding that the node was exported from, or that the model's
// metadata has of its table: how many rows, of which there is one at most.
static int read_padding(Node *n, int64_t *row) {
  const char *text = node_from_torch(n, "aten.embedding") ? node_torch_arg(n, 2) : NULL;
  bool found = text && *text >= '0' && *text <= '9';
  if (found)
    *row = strtoll(text, NULL, 10);
  else
    found = node_padding_row(n, n->in[0], row);
  return found && *row >= 0 && *row < n->in[0]->type->dim[0];
}

bool import_gather(Node *n) {
  int axis;
  int64_t row = 0;
  if (!node_axis(n, node_int(n, "axis", 0), node_rank(n, 0), &axis)) return false;
  int n_rows = axis == 0 && node_rank(n, 0) ? read_padding(n, &row) : 0;
  n->out[0] = build(n->b, OP_gather, IN(n->in[0], n->in[1]),
                    ATTRS(a_i("axis", axis), a_list("padding", &row, n_rows)));
  return true;
}

// Indices of -n to -1 count from the end.
static Value *not_negative(Node *n, Value *index, int64_t length) {
  if (!index) return NULL;
  Value *negative = node_binary(n, OP_less, index, node_like(n, index, 0));
  Value *from_end = node_binary(n, OP_add, index, node_like(n, index, (double)length));
  return build(n->b, OP_where, IN(negative, from_end, index), NO_ATTRS);
}

// gather from x with its first `n_flat` dimensions made one
static Value *gather_flat(Node *n, Value *x, int n_flat, Value *index) {
  const Type *t = x->type;
  int64_t dim[MAX_RANK] = {product(t->dim, 0, n_flat)};
  for (int i = n_flat; i < t->rank; i++)
    dim[1 + i - n_flat] = t->dim[i];
  Value *flat = build_reshape(n->b, x, 1 + t->rank - n_flat, dim);
  return build(n->b, OP_gather, IN(flat, index), ATTRS(a_i("axis", 0)));
}

// An i64 tensor broadcast to `like`: position along `axis` times `stride`.
static Value *positions(Node *n, const Type *like, int axis, int64_t stride) {
  int64_t count = like->dim[axis], dim[MAX_RANK];
  if (!node_small(n, count)) return NULL;
  int64_t *at = arena_array(n->a, int64_t, count + 1);
  for (int64_t i = 0; i < count; i++)
    at[i] = i * stride;
  for (int i = 0; i < like->rank; i++)
    dim[i] = i == axis ? count : 1;
  Value *v = build_reshape(n->b, node_ints_value(n, at, (int)count), like->rank, dim);
  return build_broadcast(n->b, v, like->rank, like->dim);
}

bool import_gather_elements(Node *n) {
  Value *x = n->in[0];
  const Type *t = x->type, *ti = n->in[1]->type;
  int axis;
  if (!node_axis(n, node_int(n, "axis", 0), t->rank, &axis)) return false;
  if (ti->rank != t->rank)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, t), type_text(n->a, ti));
  Value *index = not_negative(n, build_cast(n->b, n->in[1], DT_i64), t->dim[axis]);
  if (!index) return false;
  Value *flat = node_binary(n, OP_mul, index,
                            node_like(n, index, (double)product(t->dim, axis + 1, t->rank)));
  for (int i = 0; i < t->rank && flat; i++) {
    if (i == axis) continue;
    if (ti->dim[i] > t->dim[i])
      return node_fail(n, "its operands are %s and %s", type_text(n->a, t), type_text(n->a, ti));
    int64_t stride = product(t->dim, i + 1, t->rank);
    flat = node_binary(n, OP_add, flat, positions(n, index->type, i, stride));
  }
  n->out[0] = gather_flat(n, x, t->rank, flat);
  return true;
}

// Component `k` of the index tuples, which lie along the last dimension.
static Value *component(Node *n, Value *index, int64_t k) {
  int rank = index->type->rank;
  int64_t start[MAX_RANK] = {0}, step[MAX_RANK], dim[MAX_RANK];
  for (int i = 0; i < rank; i++) {
    step[i] = 1;
    dim[i] = index->type->dim[i];
  }
  start[rank - 1] = k;
  dim[rank - 1] = 1;
  Value *one = build(n->b, OP_slice, IN(index),
                     ATTRS(a_list("starts", start, rank), a_list("steps", step, rank),
                           a_list("shape", dim, rank)));
  return build_reshape(n->b, one, rank - 1, dim);
}

// y[b…, i…] = x[b…, index[b…, i…, 0], index[b…, i…, 1], …]
bool import_gather_nd(Node *n) {
  Value *x = n->in[0], *index = build_cast(n->b, n->in[1], DT_i64);
  int64_t batch = node_int(n, "batch_dims", 0);
  if (!index) return false;
  const Type *t = x->type, *ti = index->type;
  if (ti->rank < 1 || t->rank < 1) return node_fail(n, "an operand is a scalar");
  int64_t depth = ti->dim[ti->rank - 1];
  if (batch < 0 || batch >= ti->rank || batch + depth > t->rank || depth < 1)
    return node_fail(n, "its operands are %s and %s", type_text(n->a, t), type_text(n->a, ti));
  Value *flat = NULL;
  int n_flat = (int)(batch + depth);
  for (int64_t k = 0; k < depth; k++) {
    int64_t stride = product(t->dim, (int)(batch + k) + 1, n_flat);
    Value *at = not_negative(n, component(n, index, k), t->dim[batch + k]);
    if (!at) return false;
    at = node_binary(n, OP_mul, at, node_like(n, at, (double)stride));
    flat = k == 0 ? at : node_binary(n, OP_add, flat, at);
  }
  for (int i = 0; i < batch && flat; i++)
    flat =
        node_binary(n, OP_add, flat, positions(n, flat->type, i, product(t->dim, i + 1, n_flat)));
  if (flat) n->out[0] = gather_flat(n, x, n_flat, flat);
  return true;
}

// on where the position along the new axis is the index, off elsewhere; also for indices from the
// end, and off for those outside
bool import_one_hot(Node *n) {
  const Type *ti = n->in[0]->type, *tv = n->in[2]->type;
  int64_t depth, dim[MAX_RANK], place[MAX_RANK];
  int axis, rank = ti->rank + 1;
  if (!node_setting_int(n, 1, "depth", 0, &depth)) return false;
  if (!node_axis(n, node_int(n, "axis", -1), rank, &axis)) return false;
  if (tv->rank != 1 || tv->dim[0] != 2) return node_fail(n, "its values are not two");
  for (int i = 0; i < rank; i++) {
    dim[i] = i == axis ? 1 : ti->dim[i - (i > axis)];
    place[i] = i == axis ? depth : 1;
  }
  if (!node_shape(n, rank, place)) return false;
  Value *index = not_negative(n, build_cast(n->b, n->in[0], DT_i64), depth);
  Value *hot = node_binary(n, OP_equal, build_reshape(n->b, index, rank, dim),
                           build_reshape(n->b, node_count_up(n, depth), rank, place));
  if (!hot) return false;
  Value *value[2];
  for (int i = 0; i < 2; i++) {
    Value *one =
        build(n->b, OP_slice, IN(n->in[2]),
              ATTRS(a_list("starts", (int64_t[]){i}, 1), a_list("steps", (int64_t[]){1}, 1),
                    a_list("shape", (int64_t[]){1}, 1)));
    value[i] = build_broadcast(n->b, build_reshape(n->b, one, 0, NULL), rank, hot->type->dim);
  }
  n->out[0] = build(n->b, OP_where, IN(hot, value[1], value[0]), NO_ATTRS);
  return true;
}
