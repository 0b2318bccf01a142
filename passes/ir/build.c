// Short spellings: attributes, one op with its error recorded in the builder, and the common ops of
// gradients and importers.

#include "ir/build.h"

#include <math.h>
#include <string.h>

#include "base/shared_bytes.h"
#include "ir/op.h"

Attr a_i(const char *name, int64_t i) {
  return (Attr){.name = name, .kind = 'i', .i = i};
}
Attr a_f(const char *name, double f) {
  return (Attr){.name = name, .kind = 'f', .f = f};
}
Attr a_b(const char *name, bool b) {
  return (Attr){.name = name, .kind = 'b', .i = b};
}
Attr a_s(const char *name, const char *s) {
  return (Attr){.name = name, .kind = 's', .s = s};
}
Attr a_t(const char *name, DType t) {
  return (Attr){.name = name, .kind = 't', .t = t};
}
Attr a_list(const char *name, const int64_t *at, int n) {
  return (Attr){.name = name, .kind = 'I', .list = {n, at}};
}
Attr a_data(const char *name, const void *at, int64_t n) {
  return (Attr){.name = name, .kind = 'd', .data = {n, at}};
}

Value *build_op(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs) {
  if (b->failed) return NULL;
  // An absent operand gives an absent result: gradients that are zero stay NULL.
  for (int i = 0; i < n_in; i++)
    if (!in[i]) return NULL;
  Op *op = op_new(b->g, b->at, kind, in, n_in, attrs.at, attrs.n, b->origin, b->d);
  // Later calls do nothing, so callers check for errors once, at the end.
  if (!op) {
    b->failed = true;
    return NULL;
  }
  return op->out[0];
}

static bool has_shape(const Value *x, int ndim, const int64_t *dim) {
  return x->type->ndim == ndim &&
         (ndim == 0 || memcmp(x->type->dim, dim, (size_t)ndim * sizeof *dim) == 0);
}

Value *build_unary(Builder *b, OpKind kind, Value *x) {
  return build_op(b, kind, IN(x), NO_ATTRS);
}

Value *build_binary(Builder *b, OpKind kind, Value *x, Value *y) {
  return build_op(b, kind, IN(x, y), NO_ATTRS);
}

Value *build_where(Builder *b, Value *condition, Value *x, Value *y) {
  return build_op(b, OP_where, IN(condition, x, y), NO_ATTRS);
}

Value *build_add(Builder *b, Value *sum, Value *x) {
  return sum ? build_binary(b, OP_add, sum, x) : x;
}

Value *build_scale(Builder *b, Value *x, double by) {
  return by == 1 ? x : build_op(b, OP_scale, IN(x), ATTRS(a_f("by", by)));
}

Value *build_slice(Builder *b, Value *x, int dim, int64_t start, int64_t n) {
  return build_slice_step(b, x, dim, start, 1, n);
}

Value *build_slice_step(Builder *b, Value *x, int dim, int64_t start, int64_t step, int64_t n) {
  if (b->failed || !x) return NULL;
  int64_t starts[MAX_NDIM] = {0}, steps[MAX_NDIM], shape[MAX_NDIM];
  int ndim = x->type->ndim;
  for (int i = 0; i < ndim; i++) {
    steps[i] = 1;
    shape[i] = x->type->dim[i];
  }
  // The whole value, except in dimension `dim`.
  starts[dim] = start;
  steps[dim] = step;
  shape[dim] = n;
  return build_op(b, OP_slice, IN(x),
                  ATTRS(a_list("starts", starts, ndim), a_list("steps", steps, ndim),
                        a_list("shape", shape, ndim)));
}

Value *build_reshape(Builder *b, Value *x, int ndim, const int64_t *dim) {
  if (!x || has_shape(x, ndim, dim)) return x;
  return build_op(b, OP_reshape, IN(x), ATTRS(a_list("shape", dim, ndim)));
}

Value *build_scalar(Builder *b, Value *x) {
  return build_reshape(b, x, 0, NULL);
}

Value *build_transpose(Builder *b, Value *x, const int64_t *perm) {
  bool identity = true;
  for (int i = 0; x && i < x->type->ndim; i++)
    identity &= perm[i] == i;
  // The identity needs no op.
  if (!x || identity) return x;
  return build_op(b, OP_transpose, IN(x), ATTRS(a_list("perm", perm, x->type->ndim)));
}

Value *build_broadcast(Builder *b, Value *x, int ndim, const int64_t *dim) {
  if (!x || has_shape(x, ndim, dim)) return x;
  return build_op(b, OP_broadcast, IN(x), ATTRS(a_list("shape", dim, ndim)));
}

Value *build_reduce_sum(Builder *b, Value *x, const int64_t *axes, int n, bool keep) {
  if (!x || n == 0) return x;
  bool reduced[MAX_NDIM] = {false};
  // Negative axes count from the end.
  for (int i = 0; i < n; i++)
    reduced[axes[i] < 0 ? axes[i] + x->type->ndim : axes[i]] = true;
  // The op wants the axes in ascending order, without duplicates.
  int64_t sorted[MAX_NDIM];
  int n_sorted = 0;
  for (int i = 0; i < x->type->ndim; i++)
    if (reduced[i]) sorted[n_sorted++] = i;
  return build_op(b, OP_reduce_sum, IN(x),
                  ATTRS(a_list("axes", sorted, n_sorted), a_b("keep", keep)));
}

Value *build_sum(Builder *b, Value *x) {
  int64_t axes[MAX_NDIM];
  for (int i = 0; x && i < x->type->ndim; i++)
    axes[i] = i;
  return x ? build_reduce_sum(b, x, axes, x->type->ndim, false) : NULL;
}

Value *build_sum_to(Builder *b, Value *x, const Type *like) {
  if (!x) return NULL;
  int over = x->type->ndim - like->ndim, n = 0;
  int64_t axes[MAX_NDIM];
  // The inverse of a broadcast: sums over leading dimensions and those of length 1 in `like`.
  for (int i = 0; i < x->type->ndim; i++)
    if (i < over || (like->dim[i - over] == 1 && x->type->dim[i] != 1)) axes[n++] = i;
  x = build_reduce_sum(b, x, axes, n, false);
  // Restores the dimensions of length 1.
  return build_reshape(b, x, like->ndim, like->dim);
}

Value *build_cast(Builder *b, Value *x, DType to) {
  return !x || x->type->dtype == to ? x : build_op(b, OP_cast, IN(x), ATTRS(a_t("to", to)));
}

Value *build_fill(Builder *b, DType dtype, int ndim, const int64_t *dim, double value) {
  return build_op(b, OP_fill, NULL, 0,
                  ATTRS(a_f("value", value), a_list("shape", dim, ndim), a_t("to", dtype)));
}

Value *build_full_like(Builder *b, const Value *x, double value) {
  return x ? build_fill(b, x->type->dtype, x->type->ndim, x->type->dim, value) : NULL;
}

// Whether all elements are one number that the double of a fill can represent.
static bool all_equal(const Type *type, const char *at, double *value) {
  int64_t bytes = type_bytes(type), one = dtype_bytes[type->dtype];
  *value = 0;
  if (bytes == 0) return true;
  // Overlapping comparison: each element with the next one.
  if (memcmp(at, at + one, (size_t)(bytes - one)) != 0) return false;
  _Alignas(8) char element[8];
  memcpy(element, at, (size_t)one);
  *value = tensor_f(&(Tensor){type, element}, 0);
  // The double of a fill holds integers exactly up to 2^53.
  bool exact = dtype_class[type->dtype] == 'F' || fabs(*value) < 0x1p53;
  return exact && !isnan(*value);
}

static Value *build_bytes(Builder *b, const Type *type, const void *bytes, bool shared) {
  Attr value = a_data("value", bytes, type_bytes(type));
  value.shared = shared;
  return build_op(b, OP_constant, NULL, 0,
                  ATTRS(value, a_list("shape", type->dim, type->ndim), a_t("to", type->dtype)));
}

Value *build_constant(Builder *b, const Type *type, const void *bytes) {
  double value;
  // A fill needs no bytes in the program.
  if (all_equal(type, bytes, &value))
    return build_fill(b, type->dtype, type->ndim, type->dim, value);
  return build_bytes(b, type, bytes, false);
}

// The shared bytes of a constant; NULL: it has none, or is none.
static const void *shared_bytes(const Value *v) {
  if (!v->def || v->def->kind != OP_constant) return NULL;
  const Attr *value = op_attr(v->def, "value");
  return value->shared ? value->data.at : NULL;
}

Value *build_known_constant(Builder *b, const Type *type, const Value *from, const char *name) {
  const void *bytes = shared_bytes(from), *known = bytes ? shared_result(bytes, name) : NULL;
  return known ? build_bytes(b, type, known, true) : NULL;
}

void constant_set_result(const Value *from, const char *name, const Value *made) {
  const void *bytes = shared_bytes(from), *result = shared_bytes(made);
  if (bytes && result && bytes != result) shared_set_result(bytes, name, result);
}
