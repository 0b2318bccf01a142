// What follows from the splits that programs have chosen along one axis: all others.
//
//     %x {S(0)}, as a program said       linear "0 k, k n -> 0 n"       split=[0], so %y {S(0)}
//
// An op splits the letter along which an operand comes in; where that letter is absent from a
// result, the result is a sum of partial results; partial sums pass through what is linear.  Where
// operands come in along several letters, the one is taken for which least has to be moved.  What
// nothing reaches is replicated.  A gradient splits what its op of the model did: the chain rule.
//
// If a program named a set of letters (constraints.h), the default is chosen if it is in the
// set, else the first of the set that can be.  So it is of the dimensions of parameters.
//
// Weights and states lie as their readers split them: when those of the model that split a weight
// agree, it is cut so, and propagation begins anew, as its gradient is cut with it.
//
// Values made from nothing that is split (a broadcast bias, a filled mask) are cut when all their
// readers want them cut the same way: see `narrow`.

#ifndef PROPAGATE_H
#define PROPAGATE_H

#include "sharding.h"

// Chooses what is open along the axis: the splits of ops, how weights and states lie.
void propagate_axis(Sharding *s, int axis);

#endif
