// Versions of weights that change from slice to slice, in a graph with a schedule.
//
//     %w: f32[6,6] @s0 {B, B} weight "w" train each_slice
//
//     %s  = stash %w            segment=F0           a copy of %w as this slice finds it
//     %h  = linear %x, %w       segment=F0
//     %g  = linear %d, %s       segment=B0           the gradient is of the same %w
//     %dw = own_share %p        update segment=B0    what this slice adds to the sum of all
//     %w1 = sgd %w, %dw …       update segment=B0    … to the newest %w
//     return update %w %w1
//
//     run devices=0 F0 F0 get %d B0 F0 get %d B0 …   F0 of slice 2 reads what B0 of slice 0 left
//
// Stages that update their weights after the backward of every slice are in several slices at once,
// so that between the forward of one and its backward the weights change (PipeDream: Narayanan et
// al. 2019, section 3.3).  What a slice reads of a weight must be one version all the same, or its
// gradients are of no function at all.  Updates alone read the newest.

#ifndef IR_VERSIONS_H
#define IR_VERSIONS_H

#include "ir/graph.h"

// Whether each slice reads one version of the parameter, which is each_slice; `also`: if the
// readers of this value read the parameter as well, or NULL.  Without a schedule slices come one by
// one, and it does.
bool version_is_one(const Graph *g, const Value *param, const Value *also, Arena *scratch);

#endif
