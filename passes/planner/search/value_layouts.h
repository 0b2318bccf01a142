// How values lie by what is chosen: as ops give and want them, and as nodes have them.

#ifndef SEARCH_VALUE_LAYOUTS_H
#define SEARCH_VALUE_LAYOUTS_H

#include "problem.h"

// How the op gives result `i` and wants operand `i`, and how the gradient of that operand comes out
// of its gradient; the op splits what the choice says.
const Layout *op_gives(const Problem *p, const Op *op, int i);
const Layout *op_wants(const Problem *p, const Op *op, int i, const Choice *c);
const Layout *op_gradient(const Problem *p, const Op *op, int i, const Choice *c);
// The weight that a value is, or is cast from; NULL: none.  What weights in 16 bits are read as is
// made of them once, and their gradients are those of the weights, in the type of these.
const Value *weight_of(const Value *v);
// In how many parts a value lies.
double parts_of(const Layout *l);
// A value as a node has it: along axes that are not searched as is known.
const Layout *lies_as(const Problem *p, const Value *v, const Sbp *lies);
const Layout *back_as(const Problem *p, const Value *v, const Sbp *back); // its gradient

#endif
