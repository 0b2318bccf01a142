// See gradients.h.

#include "gradients.h"

#include <math.h>

static const double step = 1e-5;

bool gradients_by_row(const Op *op, int result, const Tensor *in, const Tensor *r, Tensor *din,
                      Arena *a, Diag *d) {
  Module *m = op->graph->module;
  const Type *types[MAX_TERMS];
  for (int i = 0; i < op->n_in; i++)
    types[i] = op->in[i].value->type;
  Op *forward = op_alone(m, op, types, d);
  Graph *g = forward->graph;
  Value *dout[MAX_RESULTS] = {0}, *dx[MAX_TERMS] = {0};
  dout[result] = graph_param(g, NULL, r->type, ROLE_none, op->loc);
  Builder b = {.g = g, .origin = op_origin(op), .d = d};
  if (!op_info[op->kind].grad(&b, forward, dout, dx) || b.failed) return false;

  Tensor *values = arena_array(a, Tensor, g->n_values);
  for (int i = 0; i < op->n_in; i++)
    values[forward->in[i].value->id] = in[i];
  values[dout[result]->id] = *r;
  if (!graph_run(g, values, a, d)) return false;
  for (int i = 0; i < op->n_in; i++)
    din[i] = dx[i] ? values[dx[i]->id] : (Tensor){0};
  return true;
}

static double loss(const Op *op, int result, const Tensor *in, const Tensor *r, Diag *d) {
  Arena *a = arena_new();
  Tensor *out = reference_new(op, in, NULL, a, d);
  double sum = 0;
  for (int64_t i = 0; out && i < type_count(r->type); i++)
    sum += tensor_f(&out[result], i) * tensor_f(r, i);
  arena_free(a);
  return out ? sum : NAN;
}

Tensor gradient_by_differences(const Op *op, int result, int operand, const Tensor *in,
                               const Tensor *r, Arena *a, Diag *d) {
  // By definition the gradient of detach is zero, and narrow passes it as it is.
  if (op->kind == OP_narrow) return *r;
  Tensor moved[MAX_TERMS], dx = tensor_new(a, in[operand].type);
  for (int i = 0; i < op->n_in; i++)
    moved[i] = in[i];
  moved[operand] = tensor_copy(&in[operand], a);
  for (int64_t i = 0; i < type_count(dx.type) && op->kind != OP_detach; i++) {
    double x = tensor_f(&in[operand], i);
    if (!isfinite(x)) continue; // keeps the -inf of a mask
    tensor_set_f(&moved[operand], i, x + step);
    double up = loss(op, result, moved, r, d);
    tensor_set_f(&moved[operand], i, x - step);
    double down = loss(op, result, moved, r, d);
    tensor_set_f(&moved[operand], i, x);
    tensor_set_f(&dx, i, (up - down) / (2 * step));
  }
  return dx;
}
