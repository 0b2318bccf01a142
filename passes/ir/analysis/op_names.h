// Ops by what a plan calls them: the node of the model that they come from, the part of the step,
// their kind, and which of those they are that have all of this in common.
//
//     %h = linear %x, %a             # m.onnx:/fc1/MatMul       "/fc1/MatMul"  forward   linear         1
//     %2 = linear_back_w %x, %g      # … <- m.onnx:/fc1/MatMul  "/fc1/MatMul"  backward  linear_back_w  1
//     %3 = linear_back_w %y, %g                                 "/fc1/MatMul"  backward  linear_back_w  2

#ifndef OP_NAMES_H
#define OP_NAMES_H

#include "ir/graph.h"

// The node of the model; "" where it is not known.
const char *op_node(const Op *op);

typedef struct OpNames OpNames;

// Of all ops of the graph, as they are now.
OpNames *op_names_new(const Graph *g, Arena *a);
// The `which`-th, from 1, of those of this node and part, and of this kind unless it is N_OPS; NULL
// when there are fewer.  `n` becomes how many there are.
Op *op_names_find(const OpNames *names, const char *node, TrainPart part, int kind, int which,
                  int *n);
// Whether it was there when they were made.
bool op_names_has(const OpNames *names, const Op *op);
// Which one it is of those of its node, part and kind.
int op_names_which(const OpNames *names, const Op *op);

int op_names_position(const OpNames *names, const Op *op); // in the graph, from 0
// Whether `what` is %name of a result, the op's kind (linear), or a part of the node's name (/fc1/)
// that it or what it was derived from has; of an op that has a callee also of one in there.
bool op_is_meant(const Op *op, const char *what, Arena *a);

#endif
