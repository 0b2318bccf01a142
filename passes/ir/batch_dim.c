// See batch_dim.h.

#include "ir/batch_dim.h"

#include "ir/dims.h"

bool value_has_rows(const Value *v) {
  return v->role == ROLE_input && v->type->rank > 0 && !v->whole;
}

int64_t graph_rows(const Graph *g) {
  for (int i = 0; i < g->n_params; i++)
    if (value_has_rows(g->params[i])) return g->params[i]->type->dim[0];
  return 1;
}

// The dimension with this letter as its major factor, or -1.
static int position(const Term *t, int letter) {
  for (int d = 0; d < t->rank; d++)
    if (t->dim[d].n > 0 && t->dim[d].letter[0] == letter) return d;
  return -1;
}

// The first operand that hands its batch on decides.
static int carried(const Op *op, const Dims *dims, const int *batch, const Term *out) {
  int at = -1;
  for (int i = 0; i < op->n_in && at < 0; i++) {
    int dim = batch[op->in[i].value->id];
    if (dim >= 0 && dims->in[i].dim[dim].n > 0) at = position(out, dims->in[i].dim[dim].letter[0]);
  }
  return at;
}

const int *batch_dims(const Graph *g, Arena *a) {
  int *batch = arena_array(a, int, g->n_values);
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  for (uint32_t i = 0; i < g->n_values; i++)
    batch[i] = -1;
  for (int i = 0; i < g->n_params; i++)
    if (value_has_rows(g->params[i])) batch[g->params[i]->id] = 0;
  for_each_op(op, g) {
    const Dims *dims = op_dims_kept(op, a, d);
    for (int i = 0; dims && i < op->n_out; i++)
      batch[op->out[i]->id] = carried(op, dims, batch, &dims->out[i]);
  }
  diag_free(d);
  return batch;
}
