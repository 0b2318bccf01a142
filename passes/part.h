// Which part of a training step an op belongs to: the model, its gradients, or the update of the
// weights; and which piece of an op of the model it is, where one was cut (pieces.h). Where ops
// come from says so: see Loc.

#ifndef PART_H
#define PART_H

#include "ir/graph.h"

typedef enum Part { PART_forward, PART_backward, PART_update, N_PARTS } Part;

extern const char *const part_name[N_PARTS];

Part op_part(const Op *op);
// Whether `op` is part of the gradient of `of`, which is an op of the model.
bool op_is_gradient_of(const Op *op, const Op *of);
// Where the ops of the model are from that `op` is the gradient of; NULL of one that is no
// gradient.
const Loc *gradient_origin(const Op *op);
// From 1; 0 of what is none.
int op_piece(const Op *op);
const Loc *loc_of_piece(Arena *a, const Loc *loc, int piece);

#endif
