// The part of the training step and the op of the model that an op belongs to: see Origin.

#ifndef ORIGIN_H
#define ORIGIN_H

#include "ir/graph.h"

// Gives every op of the model without a number the next one, which identifies it and its gradient.
void number_model(Graph *g);
TrainPart op_part(const Op *op);
// Whether `op` is part of the gradient of `of`, an op of the model.
bool op_is_gradient_of(const Op *op, const Op *of);
// Whether the op recomputes a forward op, because its result is not saved: recompute.c.
bool op_is_recomputed(const Op *op);
// The number of the list of ops with offloaded results that a forward op is in (Origin); a cast is
// in the list of its operand.  0: none.
int op_swap_list(const Op *op);
// By number, the first op of the model with this number: several may replace one op.
const Op *const *model_ops(const Graph *g, Arena *a);
// The op that gives a combination of these ops its origin: the last one of the latest part.
const Op *op_of_latest_part(Op *const *op, int n);

#endif
