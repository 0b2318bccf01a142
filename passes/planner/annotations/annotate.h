// A sharded module's plan as annotations: the reverse of annotated.h.
//
//     %1 = linear %x, %w : f32[8,96] {S(1)} split=[n]   # /fc1/MatMul
//     %h = add %1, %b    : f32[8,96] {S(1)} split=[1]   # /fc1/MatMul
//
//   =>  node "/fc1/MatMul" in %x {B}, %w {S(1)}, %b {S(0)} out %h {S(1)}
//
// An operand lies as its op wants it, under every name that it has on its way there through casts,
// transposes and reshapes.  A result lies as it does, and what is a sum over ranks is whole, as its
// next reader has it; there is no word for sums.  So the results of a node that passes sums on
// are left out: to say that they are whole would be to say that the sum is taken before.
//
// Micro-batches are not written, nor how weights and states lie that are stored otherwise than they
// are used or in host memory, nor what is computed anew, swapped or in pieces, nor the order in
// which stages run: that is a warning.  A plan of which nothing is written is an error.
//
// An op on one rank of an axis is in the stage of that number.  Stages follow one another, along
// one axis, and a stage is one rank of it: other plans are an error at an op, such as those with
// stages of 1 and 3 ranks.  Constants are where their readers are.

#ifndef ANNOTATE_H
#define ANNOTATE_H

#include "ir/annotations.h"

// Of the first entry graph; m is in PHASE_sharded.  NULL, having reported what cannot be said.
Annotations *annotate(const Module *m, const char *name, Arena *a, Diag *d);

#endif
