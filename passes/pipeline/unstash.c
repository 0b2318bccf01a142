// Removes copies of weights (pipeline/stash_weights.c) that no update separates from the weight.
//
//     run devices=1 F1 B1 F1 B1 …
//
//     %s  = stash %v                        segment=F1        %h  = linear %x, %v           segment=F1
//     %h  = linear %x, %v                   segment=F1   =>   %d  = linear %e, %v  backward segment=B1
//     %v1 = sgd %v, %g, %lr, %c  update     segment=B1        %v1 = sgd %v, %g, %lr, %c  update segment=B1
//     %d  = linear %e, %s        backward   segment=B1
//
// The last stage runs the backward of a slice directly after its forward, so backward reads the
// version of the weight that forward read. It must read it before the update, which is in place.

#include "unstash.h"

#include "ir/analysis/place.h"
#include "ir/analysis/versions.h"
#include "ir/op.h"

// The last op that reads the value or a view of it.
static Op *last_reader(const Value *v) {
  Op *last = NULL;
  for_each_use(u, v) {
    Op *op = u->user && op_is_view(u->user) ? last_reader(u->user->out[0]) : u->user;
    if (!op) op = u->user;
    if (op && (!last || op->id > last->id)) last = op;
  }
  return last;
}

// The op that produces the parameter's new value, if it can be moved after others: it has no
// readers.
static Op *find_update(const Graph *g, const Value *param) {
  int64_t skip;
  for (int i = 0; i < g->n_results; i++) {
    if (g->results[i]->target != param) continue;
    Op *op = view_root(g->results[i]->use.value, &skip)->def;
    for (int k = 0; op && k < op->n_out; k++)
      for_each_use(u, op->out[k])
        if (u->user) return NULL;
    return op;
  }
  return NULL;
}

void unstash_weights(Graph *g, Arena *scratch) {
  graph_renumber(g);
  for_each_op_safe(op, g) {
    if (op->kind != OP_stash) continue;
    Value *w = op->in[0].value, *copy = op->out[0];
    Op *update = find_update(g, w), *last = last_reader(copy);
    if (!w->each_slice || !update || !last || !version_is_one(g, w, copy, scratch)) continue;
    value_replace(copy, w);
    op_erase(op);
    if (last->id > update->id) op_move_before(update, last->next);
    graph_renumber(g);
  }
}
