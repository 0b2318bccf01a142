// Which part of a training step an op belongs to, and to which op of the model: see Origin.

#ifndef ORIGIN_H
#define ORIGIN_H

#include "ir/graph.h"

// Every op of the model without a number gets the next one, by which it and its gradient are known.
void number_model(Graph *g);
TrainPart op_part(const Op *op);
// Whether `op` is part of the gradient of `of`, which is an op of the model.
bool op_is_gradient_of(const Op *op, const Op *of);
// Whether it computes what an op of the model does again, as that is not kept: recompute.c.
bool op_is_recomputed(const Op *op);
// By number, the first op of the model that has it: of those that an op of the model became.
const Op *const *model_ops(const Graph *g, Arena *a);
// Whose origin one op has that is put together of these: the last that is of the latest part.
const Op *op_of_latest_part(Op *const *op, int n);

#endif
