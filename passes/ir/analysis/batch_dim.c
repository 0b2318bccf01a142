// The batch dimension in a graph of global tensors: see batch_dim.h.

#include "batch_dim.h"

#include "ir/dims.h"

bool value_has_batch(const Value *v) {
  return v->role == ROLE_input && v->type->ndim > 0 && !v->whole;
}

int64_t graph_batch_size(const Graph *g) {
  for (int i = 0; i < g->n_params; i++)
    if (value_has_batch(g->params[i])) return g->params[i]->type->dim[0];
  return 1;
}

static const BatchDim none = {-1, 1};

int batch_dim(BatchDim at) {
  return at.outer == 1 ? at.dim : -1;
}

// The letter of the batch in an operand, or -1 if no letter holds it, as in a tensor without
// elements.  `rest`: the product of the factors before the batch in the letter.
static int letter_at(const Dims *dims, const Term *t, BatchDim at, int64_t *rest) {
  int i = 0;
  // Factors before the batch are divided away.
  for (*rest = at.outer; i < t->dim[at.dim].n; i++) {
    int64_t size = dims->letter[t->dim[at.dim].letter[i]].size;
    if (*rest < size || *rest == 1) break;
    if (size <= 0 || *rest % size != 0) return -1;
    *rest /= size;
  }
  // The batch begins within the letter, which must be a multiple of the rest.
  if (i == t->dim[at.dim].n) return -1;
  int letter = t->dim[at.dim].letter[i];
  return dims->letter[letter].size % *rest == 0 ? letter : -1;
}

static BatchDim dim_of(const Dims *dims, const Term *t, int letter, int64_t rest) {
  for (int d = 0; d < t->ndim; d++) {
    // The product of the factors before the letter in its dimension.
    int64_t before = 1;
    for (int i = 0; i < t->dim[d].n; before *= dims->letter[t->dim[d].letter[i]].size, i++)
      if (t->dim[d].letter[i] == letter) return (BatchDim){d, before * rest};
  }
  return none;
}

const BatchDim *batch_dims(const Graph *g, Arena *a) {
  BatchDim *batch = arena_array(a, BatchDim, g->n_values);
  // An op without an einsum has no batch; the verifier reports it.
  Diag *d = diag_new(stderr);
  diag_quiet(d, true);
  for (uint32_t i = 0; i < g->n_values; i++)
    batch[i] = none;
  for (int i = 0; i < g->n_params; i++)
    if (value_has_batch(g->params[i])) batch[g->params[i]->id].dim = 0;
  for_each_op(op, g) {
    const Dims *dims = op_dims_kept(op, a, d);
    for (int i = 0; dims && i < op->n_out; i++) {
      BatchDim *at = &batch[op->out[i]->id];
      // The first operand that passes its batch on decides.
      for (int k = 0; k < op->n_in && at->dim < 0; k++) {
        BatchDim in = batch[op->in[k].value->id];
        int64_t rest;
        int letter = in.dim < 0 ? -1 : letter_at(dims, &dims->in[k], in, &rest);
        if (letter >= 0) *at = dim_of(dims, &dims->out[i], letter, rest);
      }
    }
  }
  diag_free(d);
  return batch;
}
