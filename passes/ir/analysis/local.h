// Building ops in a local module: every value has a layout, every op a split.
//
// An op that replaces others takes the split of one of them, and its results must have the same
// types and layouts:
//
//     Op *op = local_op(&b, OP_linear_bias, IN(x, w, bias), ATTRS(a_b("trans", trans)),
//                       linear->split);
//     if (op && local_same(op, 0, add->out[0])) …
//
// Ops that are not legal are erased, and the result is NULL.

#ifndef LOCAL_H
#define LOCAL_H

#include "ir/build.h"

// Builds an op with this split.  NULL if the split is not legal, or an operand has another layout
// than it needs.
Op *local_op(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs, const char *split);
// Builds an op with the split that gives result 0 the layout `layout`.
Value *local_value(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs,
                   const Layout *layout);
// Builds an op that has operands, with the first split that takes them as they are and gives result
// 0 the layout `want`; NULL: any.  NULL if there is no such split.
Op *local_op_for(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs,
                 const Layout *want);
// The cast of `v` to `to`, in the layout of `v`; `v` itself if it has that type.
Value *local_cast(Builder *b, Value *v, DType to);
// Whether result `i` of `op` has the type and the layout of `v`.
bool local_same(const Op *op, int i, const Value *v);

// The only reader of `v`, or NULL if there are several or it is a result of the graph.
Op *only_reader(const Value *v);

#endif
