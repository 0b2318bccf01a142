// Assignment of ops to ranks of an axis: programs assign some with op_assign, and the rest follow.
//
//     op_assign(fc1, 0, "pp")        %1 = linear …  @pp0          fc1 and fc2 are assigned,
//     op_assign(fc2, 1, "pp")        %2 = relu %1   @pp0          relu runs on the ranks of its operand,
//                                    %3 = linear …  @pp1          gradients on those of their ops
//                                    %4 = linear_back_w …  @pp1
//                                    %5 = sgd …     @pp1          an update on those of its weight
//
// `Ranks` is a list of ranks of one axis, by their number along it; NULL is all of them. The mesh
// of an op has the axes of the whole mesh, each with the op's ranks only, so that axes have the
// same numbers in all meshes.
//
// Defaults: an op of the model runs on the ranks of its last operand; if no op with ranks makes an
// operand, on the ranks of its readers; or else on all. An op of a gradient runs on the ranks of
// its op of the model, which have the operands and results of that op. An op of the update runs on
// the ranks of its weight, or else like an op of the model. A parameter is on the ranks of all its
// readers in the model. "Last": ranks are stages, in the order in which the model reaches them. A
// value or op that a program split along the axis (op_trans, split) is on all of its ranks.

#ifndef ASSIGN_H
#define ASSIGN_H

#include "sharding.h"

struct Ranks {
  int n;
  int at[]; // distinct; in the order of the mesh axis that they form
};

// NULL for all ranks of the axis in their order.
const Ranks *ranks_new(const Sharding *s, int axis, const int *at, int n);
// "rank 2 of pp", "all ranks of pp"
const char *ranks_text(Arena *a, const Ranks *r, const char *axis);

// Puts an op on these ranks of the axis, by a line of the program, or NULL. Before, it is on all of
// them.
void assign_op(Sharding *s, Op *op, int axis, const Ranks *r, const Loc *why);
// Puts a parameter on these ranks, for good.
void assign_param(Sharding *s, Value *v, int axis, const Ranks *r);
// Records the stages of an axis, and the ops on them, by id; `op` NULL: no new ones.
void assign_placed(Sharding *s, int axis, const struct Placed *placed, const bool *op);
// Finds the ranks along `axis` of all other ops and parameters of the graph, and sets the meshes of
// their values. Returns whether any changed: whether a program assigned an op along the axis.
bool assign_rest(Sharding *s, int axis);

#endif
