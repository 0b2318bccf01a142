// Saves the states of loops for their gradients.
//
//     %s1, %y = loop @cell %s0, %x, %w              graph @cell (%s, %xt, %w) { … return %t, %yt }
//
//   =>
//
//     %s1, %y, %all = loop @cell.1 %s0, %x, %w      graph @cell.1 (%s, %xt, %w) { … return %t, %yt, %s }
//
// The new results are the states before each iteration.  The backward loop repeats an iteration
// from them (ir/ops/loop.c): of all values of the body only the states are saved.  simplify drops
// results that no gradient reads.

#include "loop_states.h"

#include "ir/loop.h"

static bool save_states(Op *op, Diag *d) {
  LoopForm f = loop_form(op);
  Module *m = op->graph->module;
  Arena *a = arena_new();
  // The body again, with its states among the results that are stacked.
  Graph *copy = graph_clone(op->callee, graph_free_name(m, op->callee->name));
  bool ok = loops_save_states(copy, d); // the loops in the body
  int *result = arena_array(a, int, op->n_out);
  Value **in = arena_array(a, Value *, op->n_in), **summed = arena_array(a, Value *, f.summed);
  for (int i = 0; i < op->n_in; i++)
    in[i] = op->in[i].value;
  for (int i = 0; i < f.summed; i++)
    summed[i] = copy->results[f.carried + f.stacked + i]->use.value;
  while (copy->n_results > f.carried + f.stacked)
    graph_erase_result(copy, copy->n_results - 1);
  for (int i = 0; i < f.carried; i++)
    graph_output(copy, copy->params[i], NULL);
  for (int i = 0; i < f.summed; i++)
    graph_output(copy, summed[i], NULL);
  for (int i = 0; i < op->n_out; i++)
    result[i] = i < f.carried + f.stacked ? i : i + f.carried;
  graph_renumber(copy);
  ok = ok && loop_replace(op, copy, in, op->n_in, f, result, d);
  arena_free(a);
  return ok;
}

bool loops_save_states(Graph *g, Diag *d) {
  for_each_op_safe(op, g)
    if (op->kind == OP_loop && !save_states(op, d)) return false;
  return true;
}
