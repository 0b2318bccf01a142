// See part.h.

#include "part.h"

void number_model(Graph *g) {
  int n = 0;
  for_each_op(op, g)
    if (op->of > n) n = op->of;
  for_each_op(op, g)
    if (!op->of) op->of = ++n;
}

TrainPart op_part(const Op *op) {
  return op->part;
}

bool op_is_gradient_of(const Op *op, const Op *of) {
  return op->part == PART_backward && of->part == PART_forward && op->of && op->of == of->of;
}

const Op *op_of_latest_part(Op *const *op, int n) {
  const Op *latest = op[0];
  for (int i = 1; i < n; i++)
    if (op[i]->part >= latest->part) latest = op[i];
  return latest;
}
