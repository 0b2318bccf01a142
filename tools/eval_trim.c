// Outputs with a length that depends on data: the module has them up to a bound, and their length
// as another output.

#include "eval.h"

static int find(const Values *values, const char *name) {
  for (int i = 0; i < values->n; i++)
    if (str_equal(values->at[i].name, name)) return i;
  return -1;
}

void values_trim(Values *io, const OnnxCounts *counts, Module *m, Arena *a) {
  for (int i = 0; i < counts->n; i++) {
    const OnnxCount *c = &counts->at[i];
    int output = find(io, c->output), count = find(io, c->count);
    // A pass may have removed them.
    if (output < 0 || count < 0) continue;
    Tensor *t = &io->at[output].t;
    Box box = {0};
    int64_t dim[MAX_NDIM];
    for (int k = 0; k < t->type->ndim; k++) {
      box.whole[k] = t->type->dim[k];
      dim[k] = k == c->axis ? tensor_i(&io->at[count].t, 0) : box.whole[k];
    }
    Tensor part = tensor_new(a, type_new(m, t->type->dtype, t->type->ndim, dim));
    box_cut(t, &box, &part);
    *t = part;
    for (int k = count; k + 1 < io->n; k++)
      io->at[k] = io->at[k + 1];
    io->n--;
  }
}
