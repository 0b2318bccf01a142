// What the model's annotations (ir/annotations.h) say along one axis, said of the ops that there
// are now.
//
//     node "/fc1/MatMul" in %w {S(1)} out %h {S(1)}
//
//     %1 = linear %x, %w   # /fc1/MatMul       splits n, as dimension 1 of %w is n
//     %h = add %1, %b      # /fc1/MatMul       splits 1, as dimension 1 of %h is
//
// An op that took the place of another has its location, and its result the name, so both are found
// by these.  From a value that is cut, the cut is followed through the ops of the node: from an
// operand down, from a result up, and through casts, transposes and reshapes between them.  What
// comes in says how an op is done.  A result that is to lie otherwise than the op makes it is cut
// anew behind it, by a reshape to the same shape:
//
//     node "/fc2/MatMul" in %x {S(1)} out %y {S(0)}
//
//     %1 = linear %x, %w : {P} split=[k]
//     %y = reshape %1    : {S(0)} split=[a]     which makes a reduce_scatter of the sum
//
// Where a node's results are annotated and nothing is cut along the axis, its ops are done whole.
// An input of the model lies as its annotated readers have it; others that have as many rows as
// one that is cut by rows, labels say, are cut as that is.  Weights follow the ops that read them.
//
// What cannot be done is reported at its node, all in one run.  Where a node has no op any more,
// what is said of its results is said of the ops that make them now.  If these are gone as well, as
// passes put one op in the place of several, a warning names the first such node.

#ifndef ANNOTATED_H
#define ANNOTATED_H

#include "sharding/sharding.h"

// `line` is what says so.  How many errors were reported.
int annotated_apply(Sharding *s, int axis, const Loc *line, Diag *d);

// Whether the columns of a product's result are cut apart, and what they become is annotated as cut
// by columns: then the product is several (unpack.h).
bool annotated_apart(const Op *op);
// The op's node of the model, if it is one of the model's ops; or NULL.
const char *annotated_node(const Op *op);
// Whether it only brings a value into another form.
bool annotated_between(const Op *op);

#endif
