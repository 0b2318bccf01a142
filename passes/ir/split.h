// What one op's split of the mesh means for the layouts of its operands and results.
//
// For every axis of its mesh an op names the letter of its einsum that the axis splits (Op.split).
// With  linear "0 k, k n -> 0 n"  on an axis of two devices:
//
//     split=[0]   x {S(0)}, w {B}    -> y {S(0)}      data parallel
//     split=[n]   x {B},    w {S(1)} -> y {S(1)}      column parallel
//     split=[k]   x {S(1)}, w {S(0)} -> y {P}         row parallel: y is a sum of partial results
//     split=[+]   x {P},    w {B}    -> y {P}         linear in x, so a partial sum passes through
//
// The result of an op of trait ACCUMULATES is no partial sum along its `axis`, but B.
//
// This is AutoDDL's SBP (section 3) with the rules for each op read off its einsum.

#ifndef IR_SPLIT_H
#define IR_SPLIT_H

#include "ir/dims.h"

enum { SPLIT_NONE = 0, SPLIT_PARTIAL = '+' };

// What `op` wants of operand `i`, and gives as result `i`, along `axis`.  `have` is what the
// operand is now; it matters only to '+', where partial operands stay so.
Sbp split_wants(const Op *op, const Dims *dims, int i, int axis, Sbp have);
Sbp split_gives(const Op *op, const Dims *dims, int i, int axis);

// Whether the mesh axes given by `split` can cut `letter` (an index into dims) and `axis` too:
// it is not whole, it stands first wherever it stands, and its length divides.
bool split_legal(const Op *op, const Dims *dims, int letter, int axis);

// The whole type cut by the layout, and the reverse.  The length must divide.
const Type *type_local(Module *m, const Type *whole, const Layout *layout);
const Type *type_whole(Module *m, const Type *local, const Layout *layout);
const Type *value_whole(const Value *v); // the type of the whole tensor, in any phase
const Type *value_known(const Value *v); // the same, as users know it

bool sbp_equal(Sbp a, Sbp b);

#endif
