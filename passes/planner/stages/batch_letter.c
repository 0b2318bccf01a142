// See batch_letter.h.
//
// One walk over the graph: an op passes on the letter of the batch of its first operand that has
// one.

#include "batch_letter.h"
#include "ir/analysis/batch_dim.h"

int batch_letter(const Sharding *s, const int *batch, const Op *op) {
  const Dims *dims = dims_of(s, op);
  for (int i = 0; i < op->n_in; i++) {
    int dim = batch[op->in[i].value->id];
    int letter = dim < 0 ? -1 : dims_splitter(dims, &dims->in[i], dim, 1);
    if (letter >= 0 && dims_leads(dims, letter)) return letter;
  }
  return -1;
}

const int *splittable_batch_dims(const Sharding *s, Arena *a) {
  const Graph *g = s->g;
  int *batch = arena_array(a, int, g->n_values);
  for (uint32_t i = 0; i < g->n_values; i++)
    batch[i] = -1;
  // Inputs have the batch in front; an op passes it on.
  for (int i = 0; i < g->n_params; i++)
    if (value_has_batch(g->params[i])) batch[g->params[i]->id] = 0;
  for_each_op(op, g) {
    int letter = batch_letter(s, batch, op);
    for (int i = 0; letter >= 0 && i < op->n_out; i++) {
      const Dims *dims = dims_of(s, op);
      int dim = dims_position(dims, &dims->out[i], letter);
      batch[op->out[i]->id] = dim >= 0 ? dim : -1;
    }
  }
  return batch;
}
