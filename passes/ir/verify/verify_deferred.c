// The promises about deferred updates: 23 of verify.c.

#include "ir/analysis/deferred.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "verify.h"

static bool wrong(const Op *op, const char *what, Diag *d) {
  return diag_error(d, op->loc, "%s is deferred, and %s", op_info[op->kind].name, what);
}

static bool check_op(const Op *op, Diag *d) {
  bool waits = op_meets_others(op) && op->kind != OP_all_reduce;
  if (op->part != PART_update) return wrong(op, "is not of the update", d);
  if (waits) return wrong(op, "ranks wait for each other in it", d);
  if (op->next && !op->next->deferred) return wrong(op, "what is not deferred stands behind it", d);
  for (int i = 0; i < op->n_out; i++)
    for_each_use(u, op->out[i]) {
      // An output is reported a step later.
      const Value *target = u->user ? NULL : op->graph->results[u->index]->target;
      if (!target) continue;
      // A parameter keeps the new value for the next step, in its own memory.
      if (!value_lasts(target)) return wrong(op, "has a result that is not persistent", d);
      if (op->graph->module->phase >= PHASE_planned && op->out[i]->offset != target->offset)
        return wrong(op, "its result has another offset than the parameter that it becomes", d);
    }
  return true;
}

// Checks that the operand of a deferred op is unchanged from its own step until the op runs.
static bool check_operand(const Op *op, Value *read, int64_t due, const int64_t *order, Diag *d) {
  int64_t skip;
  const Value *v = view_root(read, &skip);
  // Persistent state is unchanged if nothing updates it.
  if (!v->def && value_lasts(v))
    return !param_changes_in_step(v) || wrong(op, "reads a value that changes before that", d);
  if (!v->def) return wrong(op, "reads a value that the next step sets", d);
  // The next step must not write the value before the deferred op has read it.
  if (v->def->kind == OP_constant || v->def->deferred || order[v->def->id] >= due) return true;
  return wrong(op, "the next step recomputes its operand before that", d);
}

bool verify_deferred(const Graph *g, const Features *has, Diag *d) {
  if (!has->deferred) return true;
  const Op *first = NULL;
  for_each_op(op, g) {
    if (!op->deferred) continue;
    if (!first) first = op;
    if (!check_op(op, d)) return false;
  }
  if (!first) return true;
  if (!g->entry || g->schedule || g->module->phase < PHASE_local)
    return wrong(first, "that is in entry graphs without a schedule only, from phase local on", d);
  // The operands, group by group: the ops of a group run before the same due op.
  Arena *a = arena_new();
  DeferredGroups groups = {0};
  const int64_t *order = step_order(g, a);
  bool ok = true;
  graph_deferred_groups(g, a, &groups);
  for (int i = 0; ok && i < groups.n; i++) {
    const Op *op = groups.at[i].first;
    for (int k = 0; ok && k < groups.at[i].n; k++, op = op->next)
      for (int x = 0; ok && x < op->n_in; x++)
        ok = check_operand(op, op->in[x].value, order[groups.at[i].due->id], order, d);
  }
  arena_free(a);
  return ok;
}
