// The training step that a saved plan belongs to: see plan_fingerprint.h.

#include "plan_fingerprint.h"

#include "ir/analysis/batch_dim.h"
#include "ir/op.h"

MadeFor made_for(const Graph *g) {
  MadeFor made = {0};
  for (int i = 0; i < g->n_params && !made.batch; i++) {
    const Value *v = g->params[i];
    if (value_has_batch(v)) made.batch = v->type->dim[0];
  }
  // The optimizer is the op that makes a new weight.
  for (int i = 0; i < g->n_results && !made.update; i++) {
    const Result *r = g->results[i];
    bool trains = r->target && r->target->role == ROLE_weight && r->target->train;
    if (trains && r->use.value->def) made.update = op_info[r->use.value->def->kind].name;
  }
  return made;
}
