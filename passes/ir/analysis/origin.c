// The part of the step, and the op of the model, that an op belongs to: see origin.h.

#include "origin.h"

void number_model(Graph *g) {
  int n = 0;
  // New numbers come after the largest one.
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

bool op_is_recomputed(const Op *op) {
  return op->part == PART_backward && op->recompute_group;
}

int op_swap_list(const Op *op) {
  if (op->offload_group || op->kind != OP_cast || !op->in[0].value->def) return op->offload_group;
  return op->in[0].value->def->offload_group;
}

const Op *const *model_ops(const Graph *g, Arena *a) {
  int n = 0;
  for_each_op(op, g)
    if (op->of > n) n = op->of;
  const Op **model = arena_array(a, const Op *, n + 1);
  for_each_op(op, g) {
    // The first forward op of each number, but for casts of its operands: one of a weight runs
    // where any reader of the weight does.
    const Op *first = model[op->of];
    bool only_cast = first && first->kind == OP_cast && op->kind != OP_cast;
    if (op->part == PART_forward && (!first || only_cast)) model[op->of] = op;
  }
  return model;
}

const Op *op_of_latest_part(Op *const *op, int n) {
  const Op *latest = op[0];
  for (int i = 1; i < n; i++)
    if (op[i]->part >= latest->part) latest = op[i];
  return latest;
}
