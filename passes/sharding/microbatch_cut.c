// See microbatch_cut.h.
//
// The splits are those of `shard` on a copy without axes but time (single_device.h). The ops of the
// copy are in the same order.

#include "microbatch_cut.h"

#include "ir/op.h"
#include "single_device.h"

const Timed *timed_find(const Graph *g, int64_t slices, Arena *a) {
  Module *copy = slices > 1 ? graph_on_one_device(g, slices, "") : NULL;
  if (!copy) return NULL;
  Timed *t = arena_one(a, Timed);
  *t = (Timed){slices, arena_array(a, char, g->n_ops), arena_array(a, int, g->n_params)};
  // The copy has the same ops, sharded along time.
  const Op *same = copy->graphs->first;
  for_each_op(op, g) {
    if (!same || same->kind != op->kind) BUG("shard alone has changed the program");
    t->split[op->id] = same->split[0];
    same = same->next;
  }
  // A parameter is sharded along the batch, or replicated.
  for (int i = 0; i < g->n_params; i++) {
    const Sbp *along = &copy->graphs->params[i]->layout->axis[0];
    t->dim[i] = along->kind == SBP_S ? along->dim : -1;
  }
  module_free(copy);
  return t;
}

bool timed_letter(const Timed *t, const Op *op, char letter, int64_t size, int64_t parts) {
  return !t || t->split[op->id] != letter || size % (parts * t->slices) == 0;
}

bool timed_dim(const Timed *t, const Value *v, int dim, int64_t parts) {
  if (!t || v->def || t->dim[v->index] != dim) return true;
  return v->type->dim[dim] % (parts * t->slices) == 0;
}
