// On which ranks of an axis ops run: what programs said with op_assign, and what follows from it.
//
//     op_assign(fc1, 0, "pp")        %1 = linear …  @pp0          fc1 and fc2 are assigned,
//     op_assign(fc2, 1, "pp")        %2 = relu %1   @pp0          relu runs where its operand is,
//                                    %3 = linear …  @pp1          the gradients where their ops do
//                                    %4 = linear_back_w …  @pp1
//                                    %5 = sgd …     @pp1          an update where its weight is
//
// Ranks are a list of those of one axis, by their number along it; NULL is all of them.  The mesh
// of an op has the axes of the whole one, each with the op's ranks only, so that axes have the same
// numbers in all meshes.
//
// What a program leaves open: an op of the model runs where the last of its operands comes from; if
// all are parameters, wherever its result is read.  An op of the gradient runs where its op of the
// model does, so that what that read and made is there.  An op of the update runs where its weight
// is, or as the model's do.  A parameter is wherever the model reads it.
// "Last": ranks are stages, in the order in which the model comes to them.  What a program has cut
// along the axis (op_trans, split) is on all of its ranks.

#ifndef ASSIGN_H
#define ASSIGN_H

#include "sharding.h"

struct Ranks {
  int n;
  int at[]; // each once; in the order of the mesh that they become an axis of
};

// NULL when these are all ranks of the axis in their order.
const Ranks *ranks_new(const Sharding *s, int axis, const int *at, int n);
// "rank 2 of pp", "all ranks of pp"
const char *ranks_text(Arena *a, const Ranks *r, const char *axis);

// The op runs on these ranks of the axis, which it has had all of.
void assign_op(Sharding *s, Op *op, int axis, const Ranks *r);
// So does the parameter, which then stays there.
void assign_param(Sharding *s, Value *v, int axis, const Ranks *r);
// Finds for all other ops and parameters of the graph where they are along `axis`, and gives their
// values the meshes that follow.  Whether any changed: whether a program assigned an op along it.
bool assign_rest(Sharding *s, int axis);

#endif
