// Operators whose results are known at compile time, and If.

#include <math.h>
#include <string.h>

#include "frontend/onnx_node.h"
#include "frontend/onnx_walk.h"

bool import_shape(Node *n) {
  const Type *x = n->in[0]->type;
  int64_t from = node_int(n, "start", 0), to = node_int(n, "end", x->ndim);
  // Bounds count from the end if negative, and are clamped.
  if (from < 0) from += x->ndim;
  if (to < 0) to += x->ndim;
  from = from < 0 ? 0 : from > x->ndim ? x->ndim : from;
  to = to < from ? from : to > x->ndim ? x->ndim : to;
  n->out[0] = node_ints_value(n, x->dim + from, (int)(to - from));
  n->out_narrow[0] = 0; // of a tensor of any type
  return true;
}

bool import_size(Node *n) {
  n->out_narrow[0] = 0;
  n->out[0] =
      build_constant(n->b, type_scalar(n->im->m, DT_i64), (int64_t[]){type_count(n->in[0]->type)});
  return true;
}

static Value *tensor_constant(Node *n, const Onnx__TensorProto *proto) {
  Tensor t;
  return node_tensor(n, proto, &t) ? build_constant(n->b, t.type, t.data) : NULL;
}

bool import_constant(Node *n) {
  const Onnx__AttributeProto *a = NULL;
  static const char *const forms[] = {"value",      "value_float",  "value_floats", "value_int",
                                      "value_ints", "value_string", "value_strings"};
  int form = -1;
  // A Constant has one of these attributes, or a sparse tensor.
  for (int i = 0; i < 7 && !a; i++)
    if ((a = node_attr(n, forms[i]))) form = i;
  const Type *scalar_i = type_scalar(n->im->m, DT_i64);
  // A tensor, a number, or a list of numbers.
  switch (form) {
  case 0:
    if (!a->t) return node_fail(n, "its value is not a tensor");
    n->out[0] = tensor_constant(n, a->t);
    if (a->t->data_type == ONNX_STRING) n->out_narrow[0] = ONNX_STRING;
    return n->out[0] != NULL;
  case 1: n->out[0] = node_scalar(n, DT_f32, (double)a->f); return true;
  case 2: {
    const Type *type = type_new(n->im->m, DT_f32, 1, (int64_t[]){(int64_t)a->n_floats});
    n->out[0] = build_constant(n->b, type, a->floats);
    return true;
  }
  case 3: n->out[0] = build_constant(n->b, scalar_i, &a->i); return true;
  case 4: n->out[0] = node_ints_value(n, a->ints, (int)a->n_ints); return true;
  case 5:
  case 6: {
    Ints list = {0};
    int64_t one = 0, count = form == 6 ? (int64_t)a->n_strings : 1;
    n->out_narrow[0] = ONNX_STRING;
    if (form == 6 && count && !node_string_list(n, "value_strings", &list)) return false;
    if (form == 5 && !onnx_string(n->im->strings, a->s, n->b->origin.loc, &one, n->im->d)) {
      n->b->failed = true;
      return false;
    }
    n->out[0] = build_constant(n->b, type_new(n->im->m, DT_i64, form == 6, &count),
                               form == 6 ? list.at : &one);
    return true;
  }
  }
  return node_fail(n, "it is sparse, which is not supported");
}

bool import_constant_of_shape(Node *n) {
  Ints shape;
  Value *count;
  int place;
  DType dtype = DT_f32;
  double value = 0;
  if (!node_lengths(n, 0, "shape", &shape, &count, &place)) return false;
  const Onnx__AttributeProto *a = node_attr(n, "value");
  // A tensor of one element, by default 0 in f32.
  if (a && a->t) {
    Value *v = tensor_constant(n, a->t);
    if (!v) return false;
    if (a->t->data_type == ONNX_STRING) n->out_narrow[0] = ONNX_STRING;
    if (v->def->kind != OP_fill) return node_fail(n, "its value is not one number");
    dtype = v->type->dtype;
    value = attr_f(v->def, "value");
  }
  if (!node_shape(n, shape.n, shape.at)) return false;
  n->out[0] = build_fill(n->b, dtype, shape.n, shape.at, value);
  return !count || node_count(n, n->out[0], place, count);
}

bool import_range(Node *n) {
  DType dtype = n->in[0]->type->dtype;
  const Tensor *t[3];
  static const char *const what[] = {"start", "limit", "delta"};
  // 0, 1, 2 … up to a count.
  Length limit;
  const Tensor *first = node_known(n, n->in[0]), *delta = node_known(n, n->in[2]);
  bool scalars = type_count(n->in[0]->type) * type_count(n->in[2]->type) == 1;
  if (scalars && first && delta && tensor_f(first, 0) == 0 && tensor_f(delta, 0) == 1 &&
      node_length(n, n->in[1], 0, &limit) && limit.count) {
    Value *all = node_count_up(n, limit.number);
    n->out[0] = all ? build_cast(n->b, all, dtype) : NULL;
    return node_count(n, n->out[0], 0, limit.count);
  }
  for (int i = 0; i < 3; i++) {
    if (!node_setting(n, i, what[i], &t[i])) return false;
    if (type_count(t[i]->type) != 1) return node_fail(n, "its %s is not one number", what[i]);
  }
  bool floating = dtype_class[dtype] == 'F';
  int64_t from = tensor_i(t[0], 0), to = tensor_i(t[1], 0), by = tensor_i(t[2], 0);
  double from_f = tensor_f(t[0], 0), to_f = tensor_f(t[1], 0), by_f = tensor_f(t[2], 0);
  if (floating ? by_f == 0 : by == 0) return node_fail(n, "a delta of 0");
  // The number of elements in floating point, as ONNX defines it.
  double steps = ceil((to_f - from_f) / by_f);
  if (steps < 0) steps = 0;
  if (!node_small(n, steps < 0x1p62 ? (int64_t)steps : INT64_MAX)) return false;
  // Integers are exact beyond the precision of double.
  int64_t count =
      floating ? (int64_t)steps
      : (by > 0 ? from >= to : from <= to)
          ? 0
          : (int64_t)(((__extension__(__int128) to - from) + by - (by > 0 ? 1 : -1)) / by);
  if (count < 0) count = 0;
  const Type *type = type_new(n->im->m, dtype, 1, &count);
  Tensor out = tensor_new(n->a, type);
  for (int64_t i = 0; i < count; i++)
    if (floating)
      tensor_set_f(&out, i, from_f + (double)i * by_f);
    else
      tensor_set_i(&out, i, from + i * by);
  n->out[0] = build_constant(n->b, type, out.data);
  return true;
}

bool import_eye_like(Node *n) {
  const Type *x = n->in[0]->type;
  int64_t k = node_int(n, "k", 0);
  DType dtype = x->dtype;
  if (x->ndim != 2) return node_fail(n, "operand 0 is not a matrix");
  if (node_attr(n, "dtype") && !onnx_dtype((int)node_int(n, "dtype", 0), &dtype))
    return node_fail(n, "its type is not supported");
  dtype = onnx_compute_dtype(dtype, n->im->o->keep_f64);
  if (!node_small(n, type_count(x))) return false;
  const Type *type = type_new(n->im->m, dtype, 2, x->dim);
  Tensor out = tensor_new(n->a, type);
  // A diagonal outside of the matrix leaves it zero.
  for (int64_t i = 0; i < x->dim[0]; i++)
    if (k > -x->dim[0] && k < x->dim[1] && i + k >= 0 && i + k < x->dim[1])
      tensor_set_i(&out, i * x->dim[1] + i + k, 1);
  n->out[0] = build_constant(n->b, type, out.data);
  return true;
}
