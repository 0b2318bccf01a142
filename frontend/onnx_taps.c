// Elements of images at computed points: see onnx_taps.h.

#include "frontend/onnx_taps.h"

DType taps_constant_type(const Type *t) {
  return t->dtype == DT_f64 ? DT_f64 : DT_f32;
}

Value *taps_index(Node *n, Value *at, int64_t length) {
  at = node_clip(n, at, 0, (double)(length - 1));
  return node_clip(n, build_cast(n->b, at, DT_i64), 0, (double)(length - 1));
}

void taps_linear(Node *n, Value *at, int64_t length, Taps *out) {
  if (!at) return;
  Value *before = node_unary(n, OP_floor, at), *ratio = node_sub(n, at, before);
  Value *weight[2] = {node_offset(n, node_unary(n, OP_neg, ratio), 1), ratio};
  for (int k = 0; k < 2 && !n->b->failed; k++) {
    Value *tap = node_offset(n, before, k);
    Value *inside = node_between(n, tap, 0, (double)(length - 1));
    out->at[k] = taps_index(n, tap, length);
    out->weight[k] = build_where(n->b, inside, weight[k], node_like(n, at, 0));
  }
  out->n = 2;
}

bool taps_combine(Node *n, const Taps *axis, const int64_t *dim, int n_axes, int place,
                  Value **index, Value **weight) {
  int total = 1;
  for (int j = 0; j < n_axes; j++)
    total *= axis[j].n;
  Value **each = arena_array(n->a, Value *, total), **by = arena_array(n->a, Value *, total);
  for (int t = 0; t < total; t++) {
    // The flattened index, major dimension first.
    for (int j = 0, rest = t; j < n_axes; j++) {
      int k = rest % axis[j].n;
      rest /= axis[j].n;
      Value *at = axis[j].at[k], *w = axis[j].weight[k];
      if (!at || !w) return false;
      each[t] = !each[t] ? at
                         : node_binary(n, OP_add,
                                       build_binary(n->b, OP_mul, each[t],
                                                    node_like(n, each[t], (double)dim[j])),
                                       at);
      by[t] = by[t] ? node_binary(n, OP_mul, by[t], w) : w;
    }
    if (!each[t] || !by[t]) return false;
    int64_t shape[MAX_NDIM];
    int ndim = 0;
    for (int i = 0; i <= each[t]->type->ndim; i++)
      shape[ndim++] = i == place ? 1 : each[t]->type->dim[i - (i > place)];
    each[t] = build_reshape(n->b, each[t], ndim, shape);
    by[t] = build_reshape(n->b, by[t], ndim, shape);
  }
  Attr along = a_i("axis", place);
  *index = total == 1 ? each[0] : build_op(n->b, OP_concat, each, total, ATTRS(along));
  *weight = total == 1 ? by[0] : build_op(n->b, OP_concat, by, total, ATTRS(along));
  return *index && *weight;
}

Value *taps_image(Node *n, Value *x) {
  const Type *t = x->type;
  Value *flat =
      build_reshape(n->b, x, 3, (int64_t[]){t->dim[0], t->dim[1], product(t->dim, 2, t->ndim)});
  return build_transpose(n->b, flat, (int64_t[]){0, 2, 1});
}

Value *taps_weighted(Node *n, Value *x, Value *weight) {
  if (!x || !weight) return NULL;
  int64_t dim[MAX_NDIM];
  int ndim = weight->type->ndim;
  for (int i = 0; i < ndim; i++)
    dim[i] = weight->type->dim[i];
  dim[ndim] = 1;
  return node_binary(n, OP_mul, x, build_reshape(n->b, weight, ndim + 1, dim));
}
