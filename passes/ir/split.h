// The layouts of an op's operands and results that follow from its split.
//
// For every axis of its mesh an op names the letter of its einsum that the axis splits (Op.split).
// With  linear "0 k, k n -> 0 n"  on an axis of two devices:
//
//     split=[0]   x {S(0)}, w {B}    -> y {S(0)}      data parallel
//     split=[n]   x {B},    w {S(1)} -> y {S(1)}      column parallel
//     split=[k]   x {S(1)}, w {S(0)} -> y {P}         row parallel: y is a sum of partial results
//     split=[+]   x {P},    w {B}    -> y {P}         linear in x, so a partial sum passes through
//
// The result of an op with trait ACCUMULATES is B along its `axis`, not a partial sum.
//
// This is SBP (OneFlow, Yuan et al. 2021; AutoDDL, section 3), with the rules for each op derived
// from its einsum.

#ifndef IR_SPLIT_H
#define IR_SPLIT_H

#include "ir/dims.h"

enum { SPLIT_NONE = 0, SPLIT_PARTIAL = '+' };

// The layouts along `axis` that `op` requires of operand `i` and gives to result `i`.  `have` is
// the current layout of the operand; it matters only to '+', which passes partial operands on.
Sbp split_wants(const Op *op, const Dims *dims, int i, int axis, Sbp have);
Sbp split_gives(const Op *op, const Dims *dims, int i, int axis);

// Whether `axis` can split `letter` (an index into dims) in addition to the axes in `split`: the
// letter is not marked ^, it is the first factor of its dimensions, and its length is divisible.
bool split_legal(const Op *op, const Dims *dims, int letter, int axis);

// The local type of a global type under the layout, and the reverse.  The length must be divisible.
const Type *type_local(Module *m, const Type *whole, const Layout *layout);
const Type *type_whole(Module *m, const Type *local, const Layout *layout);
const Type *value_whole(const Value *v); // the global type, in any phase
const Type *value_known(const Value *v); // the global type for users
// Whether `whole` is `known` with padding after it, along one dimension or several.
bool type_pads(const Type *known, const Type *whole);
bool value_padded(const Value *v); // whether users know it without its padding

bool sbp_equal(Sbp a, Sbp b);

#endif
