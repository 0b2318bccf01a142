// Layouts of values under choices: as ops produce and want them, and as nodes have them.

#ifndef SEARCH_VALUE_LAYOUTS_H
#define SEARCH_VALUE_LAYOUTS_H

#include "problem.h"

// Layouts of result `i` and of operand `i` of the op, and of the gradient of that operand as the
// op's gradient produces it, under the split of the choice.
const Layout *op_gives(const Problem *p, const Op *op, int i);
const Layout *op_wants(const Problem *p, const Op *op, int i, const Choice *c);
const Layout *op_gradient(const Problem *p, const Op *op, int i, const Choice *c);
// Returns the weight that a value is, or is cast from; NULL: none. A weight is cast to 16 bits
// once, and the gradient of the copy is the gradient of the weight, in the weight's type.
const Value *weight_of(const Value *v);
// Returns the number of shards of a layout.
double parts_of(const Layout *l);
// Layout of a value under a choice of its node; axes that are not searched have their known layout.
const Layout *layout_as(const Problem *p, const Value *v, const Sbp *layout);
const Layout *back_as(const Problem *p, const Value *v, const Sbp *back); // its gradient

#endif
