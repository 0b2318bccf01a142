// Loops: a graph that runs a known number of times.
//
//     %s1, %y, %g = loop @cell %s0, %x, %w count=3 carried=1 sliced=1 summed=1 : f32[2,4], f32[3,2,4], f32[4,4]
//
//     graph @cell (%s: f32[2,4], %xt: f32[2,5], %w: f32[5,4]) { … return %t, %yt, %gt }
//
// is, with the slices of %x and %y along dimension 0,
//
//     s = s0; g = 0
//     for t in 0, 1, 2:  s, y[t], gt = cell(s, x[t], w);  g = g + gt
//     s1 = s
//
// Operands are `carried` states, `sliced` tensors, and values that all iterations read.  Results
// are the last states, slices of all iterations, and `summed` sums, from zero on.  With `reverse`
// the iterations go from the last slice to the first, in operands and results.
//
// With `times`, as many of the first `count` iterations run as that operand, an i64, says; the
// slices of the others are zero.  A loop of one iteration that runs or not is a branch:
//
//     %y = loop @then %zero, %x, %n count=1 carried=1 times=3      if n: then(x), else 0
//
// The einsum of a loop follows from its body.  Two dimensions of values of the body are in one
// class if an op gives them one letter, or if one is of a state and the other of the next state.  A
// class may be split if every op of the body may be split along its letter, or passes partial sums
// on, and the next state has the layout of the state.  In the loop above these are
//
//     s: b h   xt: b k   w: k h   yt: b h     b can be split: data parallel, and %g is a partial sum
//
// unless the body mixes rows of the batch.

#ifndef IR_LOOP_H
#define IR_LOOP_H

#include "ir/op.h"

typedef struct LoopForm {
  int64_t count, workspace;
  int carried, sliced, invariant; // operands, in this order
  int stacked, summed;            // results after the carried ones
  int times; // 1 + the index of the operand with the number of iterations that run; 0: all run
  bool reverse;
} LoopForm;

LoopForm loop_form(const Op *op);
// Result types, by the types of the operands and of the body.  False after an error.
bool loop_infer(const Op *op, const Type **types, Diag *d);
// Gives the values and ops of the body the layouts and splits that follow from those of the loop.
// The body belongs to this loop alone, and its types are global.  False after an error.
bool loop_split_body(const Op *op, Diag *d);
// The layout of a value of a loop's body, given that of the operand or result: without dimension 0,
// if it is a slice of it.
const Layout *loop_slice_layout(Module *m, const Layout *layout);
// A loop with another body in its place, under the names of the former results.  `in` are its
// operands.  result[i]: the index of the former result i, or -1 if it is left out.  NULL after an
// error.
Op *loop_replace(Op *op, Graph *body, Value *const *in, int n_in, LoopForm form, const int *result,
                 Diag *d);
// The operand of a loop that a parameter of its body stands for, if the body has one caller; or
// NULL.
Value *loop_operand(const Value *param);
// A name for a new graph: "NAME", or "NAME.1", …
const char *graph_free_name(Module *m, const char *name);

#endif
