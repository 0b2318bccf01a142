// Versions of weights that change from slice to slice, in a graph with a schedule.
//
//     %w: f32[6,6] @s0 {B, B} weight "w" train each_slice
//
//     %s  = stash %w            segment=F0           a copy of the version that this slice reads
//     %h  = linear %x, %w       segment=F0
//     %g  = linear %d, %s       segment=B0           the gradient is of the same %w
//     %dw = take_partial %p     update segment=B0    this slice's share of the sum
//     %w1 = sgd %w, %dw …       update segment=B0    … to the newest %w
//     return update %w %w1
//
//     run devices=0 F0 F0 get %d B0 F0 get %d B0 …   F0 of slice 2 reads the version of B0 of slice 0
//
// Stages that update their weights after the backward of every slice have several slices in flight,
// so the weights change between the forward and the backward of a slice (PipeDream: Narayanan et
// al. 2019, section 3.3).  All reads of a weight by one slice must still be of one version;
// otherwise its gradients are not the gradients of any function.  Only updates read the newest
// version.

#ifndef IR_VERSIONS_H
#define IR_VERSIONS_H

#include "ir/graph.h"

// Whether each slice reads one version of the parameter, which is each_slice.  If `also` is not
// NULL, its readers count as readers of the parameter too.  Without a schedule slices run one by
// one, so the answer is yes.
bool version_is_one(const Graph *g, const Value *param, const Value *also, Arena *scratch);

#endif
