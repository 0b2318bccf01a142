// Applies the model's annotations (ir/annotations.h) along one axis to the present ops.
//
//     node "/fc1/MatMul" in %w {S(1)} out %h {S(1)}
//
//     %1 = linear %x, %w   # /fc1/MatMul       splits n, as dimension 1 of %w is n
//     %h = add %1, %b      # /fc1/MatMul       splits 1, as dimension 1 of %h is
//
// An op that took the place of another has its location, and its result the name, so both are found
// by these. From a sharded value the split is followed through the ops of the node: from an operand
// down, from a result up, and through casts, transposes and reshapes between them. Operands decide
// the split of an op. A result that is annotated with another layout than its op produces is
// resharded after it, by a reshape to the same shape:
//
//     node "/fc2/MatMul" in %x {S(1)} out %y {S(0)}
//
//     %1 = linear %x, %w : {P} split=[k]
//     %y = reshape %1    : {S(0)} split=[a]     which makes a reduce_scatter of the sum
//
// If a node's results are annotated and nothing is sharded along the axis, its ops are replicated.
// An input of the model has the layout of its annotated readers; other inputs with as many rows as
// one that is sharded by rows, such as labels, are sharded like it. Weights follow the ops that
// read them.
//
// An annotation that cannot be followed is reported at its node, all in one run. If a node has no
// op any more, the annotations of its results apply to the ops that produce them now. If these are
// gone as well, as passes put one op in the place of several, a warning names the first such node.

#ifndef ANNOTATED_H
#define ANNOTATED_H

#include "sharding/sharding.h"

// Applies the annotations; `line` asks for it. Returns the number of reported errors.
int annotated_apply(Sharding *s, int axis, const Loc *line, Diag *d);

// Whether the columns of a product's result are sliced, and a slice is annotated as sharded by
// columns: then the product is divided into several (unpack.h).
bool annotated_apart(const Op *op);
// Returns the op's node of the model, if it is one of the model's ops; or NULL.
const char *annotated_node(const Op *op);
// Whether it only changes the form of a value.
bool annotated_between(const Op *op);

#endif
