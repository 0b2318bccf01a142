// Short spellings for gradients, importers and passes.
//
//     Value *wt = build_op(b, OP_transpose, IN(w), ATTRS(a_list("perm", perm, 2)));
//     Value *dx = build_op(b, OP_linear, IN(dy, wt), NO_ATTRS);
//
// An error is reported once, at the builder's origin.  From then on `failed` is set and every call
// returns NULL, so a chain needs one check at its end.  A NULL operand gives NULL.

#ifndef IR_BUILD_H
#define IR_BUILD_H

#include "ir/graph.h"

typedef struct Builder {
  Graph *g;
  Op *at;        // ops are inserted before it, or at the end if NULL
  Origin origin; // of all built ops
  Diag *d;
  bool failed;
} Builder;

typedef struct Attrs {
  const Attr *at;
  int n;
} Attrs;

#define IN(...) (Value *[]){__VA_ARGS__}, (int)(sizeof((Value *[]){__VA_ARGS__}) / sizeof(Value *))
#define ATTRS(...)                                                                                 \
  (Attrs) {                                                                                        \
    (Attr[]){__VA_ARGS__}, (int)(sizeof((Attr[]){__VA_ARGS__}) / sizeof(Attr))                     \
  }
#define NO_ATTRS                                                                                   \
  (Attrs) {                                                                                        \
    NULL, 0                                                                                        \
  }

Attr a_i(const char *name, int64_t i);
Attr a_f(const char *name, double f);
Attr a_b(const char *name, bool b);
Attr a_s(const char *name, const char *s);
Attr a_t(const char *name, DType t);
Attr a_list(const char *name, const int64_t *at, int n);
Attr a_data(const char *name, const void *at, int64_t n);

// Returns the first result; the others are result->def->out[i].
Value *build_op(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs);

Value *build_unary(Builder *b, OpKind kind, Value *x); // without attributes
Value *build_binary(Builder *b, OpKind kind, Value *x, Value *y);
Value *build_where(Builder *b, Value *condition, Value *x, Value *y);
Value *build_add(Builder *b, Value *sum, Value *x); // x itself if the sum is NULL
Value *build_scale(Builder *b, Value *x, double by);
Value *build_slice(Builder *b, Value *x, int dim, int64_t start, int64_t n); // of one dimension
// Every `step`th element along one dimension.
Value *build_slice_step(Builder *b, Value *x, int dim, int64_t start, int64_t step, int64_t n);
Value *build_reshape(Builder *b, Value *x, int ndim, const int64_t *dim); // x if unchanged
Value *build_scalar(Builder *b, Value *x); // of one element, reshaped to a scalar
Value *build_transpose(Builder *b, Value *x, const int64_t *perm);          // x itself if identity
Value *build_broadcast(Builder *b, Value *x, int ndim, const int64_t *dim); // numpy's rule
Value *build_reduce_sum(Builder *b, Value *x, const int64_t *axes, int n, bool keep);
Value *build_sum(Builder *b, Value *x);                      // over all dimensions
Value *build_sum_to(Builder *b, Value *x, const Type *like); // adjoint of a broadcast from `like`
Value *build_cast(Builder *b, Value *x, DType to);           // x itself if it has this type
Value *build_fill(Builder *b, DType dtype, int ndim, const int64_t *dim, double value);
Value *build_full_like(Builder *b, const Value *x, double value);
Value *build_constant(Builder *b, const Type *type, const void *bytes); // a fill if all are equal
// Its results by name are shared, too: shared_bytes.h. NULL: its bytes are no shared ones, or have
// no result of that name.
Value *build_known_constant(Builder *b, const Type *type, const Value *from, const char *name);
// Lets copies of the constant `from` find `made`, which was computed from nothing else.
void constant_set_result(const Value *from, const char *name, const Value *made);

#endif
