// Recomputation on the devices of its readers: see recompute_layouts.h.

#include "recompute_layouts.h"

#include "ir/analysis/origin.h"

void keep_at_borders(const Sharding *s) {
  bool any = false;
  for_each_op(op, s->g)
    for (int i = 0; i < op->n_in; i++) {
      const Value *v = op->in[i].value, *kept = kept_of(s, v);
      // A value that would be sent twice is kept instead of recomputed.
      bool sent_again =
          v->def && op_is_recomputed(v->def) && !mesh_same_devices(op_mesh(v->def), op_mesh(op));
      if (kept == v || !sent_again) continue;
      op_set_in(op, i, kept->def->out[kept->index]);
      any = true;
    }
  if (any) {
    // Erased from the end: readers come after producers.
    for (Op *op = s->g->last, *prev; op; op = prev) {
      prev = op->prev;
      if (op_is_recomputed(op) && !op_used(op)) op_erase(op);
    }
  }
}
