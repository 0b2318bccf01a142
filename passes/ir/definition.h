// Joined ops, and the small graphs that define them.
//
// A joined op does the work of several others in one kernel:
//
//     %y = linear_bias %x, %w, %b                 %1 = linear %x, %w
//                                                 %2 = broadcast %b shape=[8,96]
//                                                 %y = add %2, %1
//
// The graph on the right is its meaning.  The reference evaluator runs it, the proof of a plan
// follows it, and passes that split such an op again insert it: there is no second definition.

#ifndef IR_DEFINITION_H
#define IR_DEFINITION_H

#include "ir/op.h"

// Whether the kind is a joined op.
bool is_joined(OpKind kind);

// The definition of `op` as a new graph of `m`, which has the phase of the op's module: parameters
// like the operands, results like the results.  From PHASE_local on, values have layouts and ops
// have splits.  `exact`: floating values are f64, and have no layouts.  NULL, after an error, if
// some op of the definition is not legal under the layouts of the operands.
Graph *op_definition(const Op *op, Module *m, bool exact, Diag *d);

// Inserts the ops of the definition before `op`, which is of a typed or local module.  Returns the
// values that equal its results, in the arena; NULL as above.
Value **op_expand(Op *op, Arena *a, Diag *d);

#endif
