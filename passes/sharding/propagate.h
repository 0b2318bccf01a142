// Propagation: the consequences of the splits that programs chose along one axis.
//
//     %x {S(0)}, as a program said       linear "0 k, k n -> 0 n"       split=[0], so %y {S(0)}
//
// An op splits the letter along which an operand is sharded. If a result lacks that letter, it is a
// partial sum; partial sums pass through linear ops. If operands are sharded along several letters,
// the one with the least communication is taken. All else is replicated. A gradient splits the
// letter of its op of the model: the chain rule.
//
// If a program named a set of letters (constraints.h), the default is chosen if it is in the set,
// else the first feasible letter of the set. The same holds for the dimensions of parameters.
//
// Weights and states get the layout that their readers want. If the model's readers that split a
// weight agree, it is sharded so, and propagation starts again, since its gradient is sharded with
// it.
//
// Values computed from unsharded operands (a broadcast bias, a filled mask) are sharded if all
// their readers want the same sharding: see `narrow`.

#ifndef PROPAGATE_H
#define PROPAGATE_H

#include "sharding.h"

// Decides everything open along the axis: the splits of ops, the layouts of weights and states.
void propagate_axis(Sharding *s, int axis);

#endif
