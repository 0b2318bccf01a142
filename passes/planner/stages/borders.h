// The costs of units and of their borders for chain.h, by the layouts of the axes inside of the
// stages' axis:
//
//     pp=32,dp=8,sp=4    %y {B, S(0), P} of unit 4, wanted {B, S(0), S(1)} in unit 5
//                        inside of a stage  reduce_scatter along sp
//                        over a border      the same, and a message of 1/4 to each rank's counterpart
//
// A value crosses a border in parts: along an axis where it has copies, or will have them, each
// rank sends its part over its own adapter, and the receivers gather it. Partial sums are reduced
// before.
//
// Elementwise ops that will be fused have no kernels of their own: they read and write only values
// that are in memory.

#ifndef STAGES_BORDERS_H
#define STAGES_BORDERS_H

#include "chain.h"
#include "loads.h"

// `loads`: of stages of one rank each, in their order.
Chain *borders_price(const Sharding *s, int axis, const Units *units, const Loads *loads, Arena *a);

#endif
