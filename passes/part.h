// Which part of a training step an op belongs to: the model, its gradients, or the update of the
// weights. Where ops come from says so: see Loc.

#ifndef PART_H
#define PART_H

#include "ir/graph.h"

typedef enum Part { PART_forward, PART_backward, PART_update, N_PARTS } Part;

extern const char *const part_name[N_PARTS];

Part op_part(const Op *op);

#endif
