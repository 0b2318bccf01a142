// See rows.h.
//
// One walk over the graph: an op passes on the letter of the rows of its first operand that has
// rows.

#include "rows.h"
#include "ir/analysis/batch_dim.h"

int rows_letter(const Sharding *s, const int *rows, const Op *op) {
  const Dims *dims = dims_of(s, op);
  for (int i = 0; i < op->n_in; i++) {
    int dim = rows[op->in[i].value->id];
    int letter = dim < 0 ? -1 : dims_splitter(dims, &dims->in[i], dim, 1);
    if (letter >= 0 && dims_leads(dims, letter)) return letter;
  }
  return -1;
}

const int *rows_find(const Sharding *s, Arena *a) {
  const Graph *g = s->g;
  int *rows = arena_array(a, int, g->n_values);
  for (uint32_t i = 0; i < g->n_values; i++)
    rows[i] = -1;
  // Inputs have rows in front; an op passes them on.
  for (int i = 0; i < g->n_params; i++)
    if (value_has_rows(g->params[i])) rows[g->params[i]->id] = 0;
  for_each_op(op, g) {
    int letter = rows_letter(s, rows, op);
    for (int i = 0; letter >= 0 && i < op->n_out; i++) {
      const Dims *dims = dims_of(s, op);
      int dim = dims_position(dims, &dims->out[i], letter);
      rows[op->out[i]->id] = dim >= 0 ? dim : -1;
    }
  }
  return rows;
}
