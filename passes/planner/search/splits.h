// Choices written into ops: what an op, its gradient and the update of a weight split (Op.split)
// when a node is as a choice says.

#ifndef SEARCH_SPLITS_H
#define SEARCH_SPLITS_H

#include "problem.h"

// The op as that choice has it, until the next: Op.split is set.
void choose_split(const Problem *p, const Node *n, const Choice *c);

// Finds model_op and model_letter.
void gradients_find(Problem *p);
// Sets what a gradient splits when its op of the model splits what it does now.
void choose_gradient_split(const Problem *p, Op *op, const Op *of);

// What updates the weight splits what its states do along the axis, as far as programs allow it;
// `why` is the line that wants it.
void split_update(const Problem *p, const Value *v, Sbp states, int axis, const Loc *why);

#endif
