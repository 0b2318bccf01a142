// Writes of decisions. Op.split and the tables of Decisions are set by these functions, by assign.h
// (ranks) and by propagate.h (the rest of an axis); a search sets its own choices.
//
//     op_trans(fc, "n", "tp")    constrain_split (constraints.h)  =>  decide_split
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
// Gives the parameters that two graphs have in common the layouts of the first graph.
void decide_as_first(Sharding *s);

#endif
