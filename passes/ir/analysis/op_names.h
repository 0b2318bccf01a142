// Names of ops in plans: the node of the model, the part of the step, the kind, and an ordinal
// among the ops with the same node, part and kind.
//
//     %h = linear %x, %a             # m.onnx:/fc1/MatMul       "/fc1/MatMul"  forward   linear         1
//     %2 = linear_back_w %x, %g      # … <- m.onnx:/fc1/MatMul  "/fc1/MatMul"  backward  linear_back_w  1
//     %3 = linear_back_w %y, %g                                 "/fc1/MatMul"  backward  linear_back_w  2

#ifndef OP_NAMES_H
#define OP_NAMES_H

#include "ir/graph.h"

// The node of the model; "" if unknown.
const char *op_node(const Op *op);

typedef struct OpNames OpNames;

// The names of the current ops of the graph.
OpNames *op_names_new(const Graph *g, Arena *a);
// The `which`-th op, from 1, of this node, part and kind (any kind if N_OPS); NULL if there are
// fewer.  Sets `n` to their number.
Op *op_names_find(const OpNames *names, const char *node, TrainPart part, int kind, int which,
                  int *n);
// Whether the op existed when the names were computed.
bool op_names_has(const OpNames *names, const Op *op);
// The ordinal of the op among those of its node, part and kind.
int op_names_which(const OpNames *names, const Op *op);

int op_names_position(const OpNames *names, const Op *op); // in the graph, from 0
// Whether `what` selects the op.  `what` is the %name of a result, the kind of the op (linear), or
// a part of the name of a node (/fc1/) in the op's location or its derivation.  An op with a callee
// is also selected by any op of the callee.
bool op_is_meant(const Op *op, const char *what, Arena *a);

#endif
