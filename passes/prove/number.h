// Numbers for the values of a graph, so that values with equal numbers are equal:
//
//     %x: f32[4,8] input "x"           0
//     %w: f32[8,6] weight "w"          1
//     %y = linear %x, %w               2    linear of 0 and 1
//     %a, %m, %r = layer_norm %y, …    3, 4, 5
//     %z = linear %x, %w               2    the same op of the same numbers
//
// A parameter has a number of its own.  Results of ops have the same where kind, attributes and the
// operands' numbers are the same: hash consing, in one walk.
//
// Another graph's ops can be looked up: one with whole types, or one whose types are of parts, when
// its attribute `shape`, which is of a part too, counts as that of the whole.

#ifndef NUMBER_H
#define NUMBER_H

#include "ir/graph.h"

typedef struct Numbers Numbers;

// Numbers the values of `g`, whose types are those of whole tensors.
Numbers *numbers_new(const Graph *g, Arena *a);

int n_numbers(const Numbers *n);
const Graph *numbers_graph(const Numbers *n);
int number_of(const Numbers *n, const Value *v);         // of that graph
const Value *number_value(const Numbers *n, int number); // the first that has it

// The number of result 0 of an op like `op` of operands with these numbers; its other results have
// those that follow.  -1 when the graph has none.
int number_find(const Numbers *n, const Op *op, const int *in);

// An op of the graph that differs from `op` in attribute `shape` at most, on operands with these
// numbers: the next after `after`, or the first when that is NULL.
const Op *number_like(const Numbers *n, const Op *op, const int *in, const Op *after);

// Is its result its operand: a slice of everything, a reshape that changes no length?  Both have
// the same number.
bool gives_operand(const Op *op);
// Attribute `i` of two ops of one kind, `shape` as that of the whole.
bool attr_same_whole(const Op *x, const Op *y, int i);
// Whether two graphs that are called do the same to their parameters.
bool callee_same(const Graph *x, const Graph *y);

#endif
