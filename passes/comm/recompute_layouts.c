// See recompute_layouts.h.

#include "recompute_layouts.h"

#include "ir/analysis/origin.h"

static bool is_sent_anew(const Op *op, const Value *v) {
  return v->def && op_is_recomputed(v->def) && !mesh_same_devices(op_mesh(v->def), op_mesh(op));
}

// Erases from the end: readers come after producers.
static void erase_unused(Graph *g) {
  for (Op *op = g->last, *prev; op; op = prev) {
    prev = op->prev;
    if (op_is_recomputed(op) && !op_used(op)) op_erase(op);
  }
}

void keep_at_borders(const Sharding *s) {
  bool any = false;
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value, *kept = kept_of(s, v);
      if (kept == v || !is_sent_anew(op, v)) continue;
      op_set_in(op, i, kept->def->out[kept->index]);
      any = true;
    }
  if (any) erase_unused(s->g);
}
