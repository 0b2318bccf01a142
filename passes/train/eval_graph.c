// The graph for --eval-every: the loss as in inference.
//
//     graph @train entry (…) {                        graph @eval entry (…) {
//       %y = dropout %x, %step, %seed ratio=0.1         %z = batch_norm %x, %g, %b, %mean, %var
//       %z, … = batch_norm_train %y, %g, …       =>     …
//       …                                               return output "loss" %l
//
// A copy of the forward pass, made before autodiff adds the backward one.  Dropout is gone, batch
// normalisation takes the running statistics, and nothing is updated.  Parameters are those of
// @train with the same label: weights are shared, inputs are fed from other files.  An op has the
// number that it has in @train.

#include "distribute/part.h"
#include "ir/build.h"
#include "pass.h"

static bool replace(Op *op, Builder *b) {
  b->at = op;
  b->origin = op_origin(op);
  if (op->kind == OP_dropout) {
    value_replace(op->out[0], op->in[0].value);
    op_erase(op);
    return true;
  }
  if (op->kind != OP_batch_norm_train) return true;
  // Only a loss that reads the statistics of the batch itself keeps the op.
  Value *in[5];
  for (int i = 0; i < 5; i++)
    in[i] = op->in[i].value;
  Value *y = build(b, OP_batch_norm, in, 5, ATTRS(*op_attr(op, "axis"), *op_attr(op, "eps")));
  if (!y) return false;
  value_replace(op->out[0], y);
  // Running statistics stay as they are.
  for (int i = 3; i < 5; i++)
    value_replace(op->out[i], in[i]);
  if (!value_used(op->out[1]) && !value_used(op->out[2])) op_erase(op);
  return true;
}

bool pass_eval_graph(Module *m, const PassOptions *o, Diag *d) {
  (void)o;
  Graph *train = graph_find(m, "train");
  if (!train || !graph_find_output(train, "loss")) {
    diag_error(d, NULL, "there is no graph '@train' with an output 'loss'");
    diag_hint(d, "run 'loss' before 'eval_graph'");
    return false;
  }
  if (graph_find(m, "eval")) return diag_error(d, NULL, "there is a graph '@eval' already");
  number_model(train);
  Graph *g = graph_clone(train, "eval");
  g->entry = true;
  for (int i = g->n_results - 1; i >= 0; i--)
    if (!str_equal(g->results[i]->label, "loss")) graph_erase_result(g, i);
  Builder b = {.g = g, .d = d};
  for_each_op_safe(op, g) {
    op->anew = op->away = 0; // nothing is kept for gradients
    op->by_piece = false;
    if (!replace(op, &b)) return false;
  }
  for (Op *op = g->last, *prev; op; op = prev) {
    prev = op->prev;
    if (!op_used(op)) op_erase(op);
  }
  for (int i = g->n_params - 1; i >= 0; i--) {
    g->params[i]->train = false;
    // Inputs are fed whether they are read or not.
    if (!value_used(g->params[i]) && g->params[i]->role != ROLE_input) graph_erase_param(g, i);
  }
  return true;
}
