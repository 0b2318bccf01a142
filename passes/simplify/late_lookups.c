// Large values of weights and constants alone are computed right before their first reader.
//
//     %b0 = gather %table0, %at : f32[5308416,16]       %y0 = … attention %q0, …
//     %b1 = gather %table1, %at : f32[5308416,16]       %b0 = gather %table0, %at
//     …                                            =>   … %b0
//     … attention %q0, … %b0                            %b1 = gather %table1, %at
//     … attention %q1, … %b1                            … %b1
//
// Exporters may write the lookups of all layers first, as they read no data: tables of relative
// positions, expanded masks.  A lookup at its layer is alive there only; and so is its gradient,
// since autodiff differentiates in the reverse order of the graph: the sum over rows is looked up
// backward at once, before the gradients of earlier layers.
//
// Their sources live through the step anyway.  An op that makes such a value smaller stays: its
// operand comes to it, so that the smaller one is alive.  Values of less than LEAST bytes keep
// their place.

#include "ir/analysis/rewrite.h"
#include "ir/op.h"

enum { LEAST = 1 << 16 };

// Marks, by op id, the ops to move: of weights and constants alone, with no fewer bytes than their
// operands of this kind.
static bool *find_late(const Graph *g, Arena *a) {
  bool *late = arena_array(a, bool, g->n_ops), *of_weights = arena_array(a, bool, g->n_values);
  for (int i = 0; i < g->n_params; i++)
    of_weights[g->params[i]->id] = g->params[i]->role == ROLE_weight;
  for_each_op(op, g) {
    bool all = op->n_out == 1 && !op_draws(op->kind) && !op->callee && !op->order &&
               op->part == PART_forward;
    int64_t from_late = 0;
    for (int i = 0; all && i < op->n_in; i++) {
      const Value *v = op->in[i].value;
      all &= of_weights[v->id];
      from_late += v->def && late[v->def->id] ? type_bytes(v->type) : 0;
    }
    if (!all) continue;
    int64_t bytes = type_bytes(op->out[0]->type);
    of_weights[op->out[0]->id] = true;
    late[op->id] = op->n_in > 0 && bytes >= LEAST && bytes >= from_late;
  }
  return late;
}

int late_lookups(Graph *g) {
  graph_renumber(g);
  Arena *scratch = arena_new();
  const bool *late = find_late(g, scratch);
  int *reads = arena_array(scratch, int, g->n_ops), n = 0;
  // From the last op on, so that readers of a chain are in their place before their operands.
  int mark = 0;
  for (Op *op = g->last, *prev; op; op = prev) {
    prev = op->prev;
    if (!late[op->id]) continue;
    // The first reader of forward; a result of the graph is read at its end.
    mark++;
    bool any = false;
    for_each_use(u, op->out[0])
      if (u->user && u->user->part == PART_forward) {
        reads[u->user->id] = mark;
        any = true;
      }
    if (!any) continue;
    Op *reader = op->next;
    while (reader && reads[reader->id] != mark)
      reader = reader->next;
    if (!reader || reader == op->next) continue;
    op_move_before(op, reader);
    n++;
  }
  arena_free(scratch);
  return n;
}
