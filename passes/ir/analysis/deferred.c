// Deferred updates: see deferred.h.

#include "deferred.h"

#include "ir/op.h"
#include "place.h"

Op *graph_first_deferred(const Graph *g) {
  Op *first = NULL;
  for (Op *op = g->last; op && op->deferred; op = op->prev)
    first = op;
  return first;
}

static bool is_view_of(const Use *u) {
  return (op_info[u->user->kind].traits & VIEW) && u->index == 0;
}

// Whether all readers are deferred ops.  Sets `any` if there is one.
static bool only_deferred_read(const Value *v, bool *any) {
  for_each_use(u, v) {
    if (!u->user) return false;
    // A view is read by the readers of its result.
    if (!u->user->deferred && !(is_view_of(u) && only_deferred_read(u->user->out[0], any)))
      return false;
    *any |= u->user->deferred;
  }
  return true;
}

bool reduce_is_in_flight(const Op *reduce) {
  bool any = false;
  return reduce->kind == OP_all_reduce && !reduce->deferred &&
         only_deferred_read(reduce->out[0], &any) && any;
}

bool op_meets_others(const Op *op) {
  int traits = op_info[op->kind].traits;
  return (traits & COMM) && !(traits & VIEW) && op->kind != OP_local_slice;
}

bool param_changes_in_step(const Value *param) {
  for (int i = 0; i < param->graph->n_results; i++) {
    const Result *r = param->graph->results[i];
    if (r->target == param) return !r->use.value->def || !r->use.value->def->deferred;
  }
  return false;
}

// -- Due ops -----------------------------------------------------------------------------------

int64_t *step_order(const Graph *g, Arena *a) {
  const PartOps part = graph_part_ops(g, a);
  int64_t *order = arena_array(a, int64_t, g->n_ops), n = g->n_ops;
  for_each_op(op, g)
    // Ops of the loop come after those before it, then the update, then deferred ops.
    order[op->id] = op->id + (part.begin[op->id]    ? 0
                              : op->deferred        ? 3 * n
                              : part.update[op->id] ? 2 * n
                                                    : n);
  return order;
}

static Op *first_reader(const Value *param, const int64_t *order) {
  Op *first = NULL;
  for_each_use(u, param) {
    Op *op = u->user;
    if (!op || op->deferred) continue;
    // A view is read by the readers of its result.
    Op *reader = is_view_of(u) ? first_reader(op->out[0], order) : op;
    if (reader && (!first || order[reader->id] < order[first->id])) first = reader;
  }
  return first;
}

Op *first_to_want(const Op *op, const int64_t *order) {
  Op *first = NULL;
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i]) {
      // A reader of the updated parameter, in the next step.
      const Value *target = u->user ? NULL : op->graph->results[u->index]->target;
      Op *reader = target ? first_reader(target, order) : NULL;
      if (reader && (!first || order[reader->id] < order[first->id])) first = reader;
    }
  return first;
}

void graph_deferred_groups(const Graph *g, Arena *a, DeferredGroups *out) {
  const Op *first = graph_first_deferred(g);
  out->n = 0;
  if (!first) return;
  const int64_t *order = step_order(g, a);
  // All deferred ops of the previous step run before the first op of the update.
  Op *due = NULL;
  for_each_op(op, g)
    if (order[op->id] >= 2 * (int64_t)g->n_ops && (!due || order[op->id] < order[due->id]))
      due = op;
  if (!due) BUG("the deferred ops of @%s are not in its order", g->name);
  // From the last op back: a deferred op is due no later than the ones after it.
  for (Op *op = g->last; op != first->prev; op = op->prev) {
    Op *want = first_to_want(op, order);
    if (want && order[want->id] < order[due->id]) due = want;
    if (!out->n || out->at[out->n - 1].due != due) vec_push(a, out, ((DeferredGroup){op, due, 0}));
    DeferredGroup *group = &out->at[out->n - 1];
    group->first = op;
    group->n++;
  }
  // The groups, in the order of the graph.
  for (int i = 0; i < out->n / 2; i++) {
    DeferredGroup group = out->at[i];
    out->at[i] = out->at[out->n - 1 - i];
    out->at[out->n - 1 - i] = group;
  }
}

int64_t *graph_deferred_due(const Graph *g, Arena *a) {
  if (!graph_first_deferred(g)) return NULL;
  DeferredGroups groups = {0};
  int64_t *due = arena_array(a, int64_t, g->n_ops);
  graph_deferred_groups(g, a, &groups);
  for (int i = 0; i < groups.n; i++) {
    const Op *op = groups.at[i].first;
    // The ops of a group are adjacent.
    for (int k = 0; k < groups.at[i].n; k++, op = op->next)
      due[op->id] = op_time(groups.at[i].due);
  }
  return due;
}
