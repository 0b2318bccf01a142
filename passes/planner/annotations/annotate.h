// Writes a sharded module's plan as annotations: the reverse of annotated.h.
//
//     %1 = linear %x, %w : f32[8,96] {S(1)} split=[n]   # /fc1/MatMul
//     %h = add %1, %b    : f32[8,96] {S(1)} split=[1]   # /fc1/MatMul
//
//   =>  node "/fc1/MatMul" in %x {B}, %w {S(1)}, %b {S(0)} out %h {S(1)}
//
// An operand has the layout that its op wants, under every name on its way there through casts,
// transposes and reshapes. A result has its own layout. Annotations cannot express partial sums: a
// partial result is written as replicated, as its next reader has it. So the results of a node that
// passes sums on are left out: replicated results would mean that the sum is reduced before.
//
// Micro-batches are not written. A warning lists other losses: weights and states that are stored
// in another layout than they are used, or in host memory; ops that are recomputed, swapped or in
// pieces; the order in which stages run; updates in the next step or in backward. A plan of which
// nothing is written is an error.
//
// An op on one rank of an axis is in the stage of that number. Stages follow one another, along one
// axis, and a stage is one rank of it: other plans are an error at an op, such as those with stages
// of 1 and 3 ranks. Constants are on the ranks of their readers.

#ifndef ANNOTATE_H
#define ANNOTATE_H

#include "ir/annotations.h"

// Annotates the first entry graph; m is in PHASE_sharded. NULL, with an error reported, if
// annotations cannot express the plan.
Annotations *annotations_of_module(const Module *m, const char *name, Arena *a, Diag *d);

#endif
