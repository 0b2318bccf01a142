// Building ops in a local module: every value has a layout there, every op a split.
//
// An op that is made of others in place of them takes the split of one of them, and must leave its
// results as they were:
//
//     Op *op = local_op(&b, OP_linear_bias, IN(x, w, bias), ATTRS(a_b("trans", trans)),
//                       linear->split);
//     if (op && local_same(op, 0, add->out[0])) …
//
// What does not fit is taken back, and NULL.

#ifndef LOCAL_H
#define LOCAL_H

#include "ir/build.h"

// With this split.  NULL when the op could not be cut so, or its operands do not lie as it wants.
Op *local_op(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs, const char *split);
// With the split that leaves result 0 as `layout` says.
Value *local_value(Builder *b, OpKind kind, Value *const *in, int n_in, Attrs attrs,
                   const Layout *layout);
// The cast of `v` to `to`, which lies as `v` does; `v` itself if it is of that type.
Value *local_cast(Builder *b, Value *v, DType to);
// Is result `i` of `op` of the type of `v` and laid out as `v`?
bool local_same(const Op *op, int i, const Value *v);

// The one op that reads `v`, or NULL when there are others or it is a result of the graph.
Op *only_reader(const Value *v);

#endif
