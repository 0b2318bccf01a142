// Value numbers of a graph: values with equal numbers are equal.
//
//     %x: f32[4,8] input "x"           0
//     %w: f32[8,6] weight "w"          1
//     %y = linear %x, %w               2    linear of 0 and 1
//     %a, %m, %r = layer_norm %y, …    3, 4, 5
//     %z = linear %x, %w               2    the same op of the same numbers
//
// Each parameter has a number of its own.  Results of ops have equal numbers if kind, attributes
// and the numbers of the operands are equal: hash consing, in one walk.  The order of the operands
// of add and mul does not matter, nor do reshapes before and after reshapes, slices and concats.
//
// Ops of another graph can be looked up: a graph with whole types, or with types of shards.  In the
// latter attribute `shape`, which is also that of a shard, is compared as the shape of the whole.

#ifndef NUMBER_H
#define NUMBER_H

#include "ir/graph.h"

typedef struct Numbers Numbers;

// Numbers the values of `g`, which has whole types.
Numbers *numbers_new(const Graph *g, Arena *a);

int n_numbers(const Numbers *n);
const Graph *numbers_graph(const Numbers *n);
int number_of(const Numbers *n, const Value *v);         // `v` is of that graph
const Value *number_value(const Numbers *n, int number); // the first value with the number

// Returns the number of result 0 of an op like `op` on operands with these numbers; its other
// results follow.  -1 if the graph has none.
int number_find(const Numbers *n, const Op *op, const int *in);

// The number of the cast of a value, -1 if the graph has none.
int number_cast(const Numbers *n, int number, DType to);
// The number of the value before all reshapes: that of itself, if it is no reshape.
int number_root(const Numbers *n, int number);
// The number of the reshape of a root, which may be the root; -1 if the graph has none.
int number_reshape(const Numbers *n, int root, const Type *whole);
// The number of a value with the elements of the slice or concat `op`, in this order and perhaps in
// another shape; -1 if the graph has none, and for other ops.
int number_view(const Numbers *n, const Op *op, const int *in);

// Returns an op of the graph that equals `op` except for attributes of its part, `shape` and the
// position of a dropout, on operands with these numbers: the next after `after`, or the first if
// that is NULL.
const Op *number_like(const Numbers *n, const Op *op, const int *in, const Op *after);

// Whether the result is equal to the operand: a slice of everything, or a reshape to the same
// shape.  Both have the same number.
bool gives_operand(const Op *op);
// Whether attribute `i` of two ops of one kind is equal; `shape` as that of the whole.
bool attr_same_whole(const Op *x, const Op *y, int i);
// Whether two called graphs compute the same results from their parameters.
bool callee_same(const Graph *x, const Graph *y);
// The loop of the model's program with these operands and attributes, whatever its body is; or
// NULL.
const Op *number_loop(const Numbers *n, const Op *op, const int *in);

#endif
