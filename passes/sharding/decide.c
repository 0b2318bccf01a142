// See decide.h.

#include "decide.h"

#include <string.h>

#include "base/table.h"
#include "ir/op.h"

// -- One decision --------------------------------------------------------------------------------

void decide_split(Sharding *s, Op *op, int axis, char split, const Loc *why) {
  op->split[axis] = split == '-' ? SPLIT_NONE : split;
  s->decisions.fixed_by[op->id][axis] = why;
}

void decide_layout(Sharding *s, const Value *v, int axis, Sbp layout, ParamChoice how,
                   const Loc *why) {
  s->decisions.layout[v->id][axis] = layout;
  s->decisions.param[v->id][axis] = how;
  s->decisions.param_by[v->id][axis] = why;
}

void decide_as_operand(Sharding *s, Op *op) {
  const Value *v = op->in[0].value;
  for (int a = 0; a < s->mesh->n_axes; a++) {
    Sbp layout = s->decisions.layout[v->id][a];
    if (!s->decisions.final[a]) continue;
    // A partial sum passes through.
    int letter = layout.kind == SBP_S ? letter_of_operand(s, op, 0, layout.dim, a) : -1;
    if (layout.kind == SBP_P) op->split[a] = SPLIT_PARTIAL;
    if (letter >= 0) op->split[a] = dims_of(s, op)->letter[letter].name;
    s->decisions.layout[op->out[0]->id][a] = split_gives(op, dims_of(s, op), 0, a);
  }
}

void decide_as_first(Sharding *s) {
  const Sharding *first = s->first;
  const Table *params = first ? graph_params_by_label(first->g, s->scratch) : NULL;
  for (int i = 0; first && i < s->g->n_params; i++) {
    Value *v = s->g->params[i];
    const Value *known = v->label ? table_find(params, (int)v->role, v->label) : NULL;
    if (!known || known->type != v->type) continue;
    v->layout = layout_broadcast(s->g->module, known->layout->mesh);
    for (int a = 0; a < s->mesh->n_axes; a++) {
      bool stored = first->decisions.param[known->id][a] == PARAM_stored;
      decide_layout(s, v, a, first->decisions.layout[known->id][a],
                    stored ? PARAM_stored : PARAM_fixed, NULL);
    }
  }
}
