// For ops that run a graph: its reference and its gradient.

#ifndef IR_OPS_GRAPHS_H
#define IR_OPS_GRAPHS_H

#include "ir/op.h"

// Computes the results of the callee from the tensors of its parameters.
bool graph_evaluate(const Op *op, const Tensor *in, Tensor *out, Diag *d);

// Appends the ops of `g` on the operands `in`, and their gradient.  dout[i]: the adjoint of result
// i, or NULL.  Sets din[i] to that of parameter i, or NULL.
bool graph_gradient(Builder *b, const Graph *g, Value *const *in, Value *const *dout, Value **din);

#endif
