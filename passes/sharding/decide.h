// Writes of decisions. Op.split and the tables of Decisions are set by these functions, by assign.h
// (ranks) and by propagate.h (the rest of an axis), and by no code outside of this folder.
//
//     op_trans(fc, "n", "tp")    constrain_split (constraints.h)  =>  decide_split
//     search("tp")               Chosen, of planner/search        =>  decide_chosen
//     place("pp", 4)             planner/stages                   =>  assign_op, decide_split, …
//
// A decision names the line of the program that made it, or NULL: errors of later lines cite it.

#ifndef DECIDE_H
#define DECIDE_H

#include "sharding.h"

// Decides one split: a letter, SPLIT_PARTIAL, or SPLIT_NONE or '-' for none.
void decide_split(Sharding *s, Op *op, int axis, char split, const Loc *why);
// Decides the layout of a parameter along the axis.
void decide_layout(Sharding *s, const Value *v, int axis, Sbp layout, ParamChoice how,
                   const Loc *why);
// Gives a new op, which copies its only operand, the operand's layout along the decided axes.
void decide_as_operand(Sharding *s, Op *op);
// Gives a new op a split along the decided axes: that of its first operand that is sharded along a
// dimension which the op can split, if any.
void decide_by_operands(Sharding *s, Op *op);
// Gives the parameters that two graphs have in common the layouts of the first graph.
void decide_as_first(Sharding *s);

// The choices of a search along some axes.
typedef struct Chosen {
  int axis[MAX_AXES], n_axes;
  bool (*op)[MAX_AXES];           // by op id: its split is chosen
  char (*split)[MAX_AXES];        // by op id
  ParamChoice (*param)[MAX_AXES]; // by value id of parameters; PARAM_open: no layout is chosen
  Sbp (*layout)[MAX_AXES];        // by value id
} Chosen;

// Returns choices of nothing, for that graph.
Chosen chosen_new(const Sharding *s, const int *axis, int n);
void decide_chosen(Sharding *s, const Chosen *c, const Loc *why);

// -- Alternatives ------------------------------------------------------------------------------

// Returns a copy with its own constraints on splits and layouts, and its own splits' lines and
// layouts; ranks and orders are shared, and so is Op.split, which is in the graph.
Sharding *sharding_copy(const Sharding *s);
// Assumes, in a copy, splits by op id and layouts by value id along an axis that is still open.
void decide_axis(Sharding *copy, int axis, char (*split)[MAX_AXES], Sbp (*layout)[MAX_AXES]);
// Opens a decided axis in a copy, in which every decision is fixed by `why`.
void decide_all(Sharding *copy, int axis, const Loc *why);
// Opens a decided axis in a copy. Every decision along it is fixed by `why`, except the split of
// `op`, which has no constraints.
void decide_all_but(Sharding *copy, Op *op, int axis, const Loc *why);
// Opens, in a copy, the split of an op, or the layout of a parameter, along the axis.
void reopen_split(Sharding *copy, Op *op, int axis);
void reopen_layout(Sharding *copy, const Value *v, int axis);
// Returns the sharding of a clone of the graph, with the same splits, layouts and constraints on
// them. Ops are assigned to no ranks.
Sharding sharding_of_clone(const Sharding *s, Graph *clone);

#endif
