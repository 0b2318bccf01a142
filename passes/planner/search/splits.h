// Choices written into ops: the splits of an op, of its gradient and of a weight's update
// (Op.split) under a choice of a node.

#ifndef SEARCH_SPLITS_H
#define SEARCH_SPLITS_H

#include "problem.h"

// Sets Op.split of the op to that choice, until the next call.
void choose_split(const Problem *p, const Node *n, const Choice *c);

// Finds model_op and model_letter.
void gradients_find(Problem *p);
// Sets the split of a gradient op to follow the current split of its op of the model.
void choose_gradient_split(const Problem *p, Op *op, const Op *of);

// Sets the splits of the weight's update ops along the axis to the layout of its states, as far as
// programs allow; `why` is the line that asks for it.
void split_update(const Problem *p, const Value *v, Sbp states, int axis, const Loc *why);

#endif
