// See cut_out.h.

#include "cut_out.h"

#include "ir/graph.h"

// The model's ops and their copies, in lists of the same order.
typedef struct Copies {
  Op **of; // by op id; NULL: left out
} Copies;

static Copies copies_of(const Graph *model, const Graph *copy, Arena *a) {
  Copies c = {arena_array(a, Op *, model->n_ops)};
  Op *to = copy->first;
  for (const Op *op = model->first; op; op = op->next, to = to->next)
    c.of[op->id] = to;
  return c;
}

static bool is_in_order(Graph *g) {
  graph_renumber(g);
  for_each_op(op, g)
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value->def && op->in[i].value->def->id >= op->id) return false;
  return true;
}

// In the order of units, every reader of an occurrence is after those before it.
static void put_in_order(const ModelUnits *b, const Copies *c) {
  for (int i = 0; i < b->n_order; i++)
    if (c->of[b->order[i]->id]) op_move_before(c->of[b->order[i]->id], NULL);
}

// Lets the readers of an occurrence read `by` instead, and erases it. Layers of both may be gone.
static void leave_out(const Copies *c, const Occurrence *o, const Occurrence *by, Arena *a) {
  int n = o->block->n_ops;
  Op **op = arena_array(a, Op *, n), **other = arena_array(a, Op *, n);
  occurrence_ops(o, op);
  occurrence_ops(by, other);
  for (int i = 0; i < n; i++)
    for (int k = 0; c->of[op[i]->id] && k < op[i]->n_out; k++)
      value_replace(c->of[op[i]->id]->out[k], c->of[other[i]->id]->out[k]);
  for (int i = 0; i < n; i++) {
    if (!c->of[op[i]->id]) continue;
    op_erase(c->of[op[i]->id]);
    c->of[op[i]->id] = NULL;
  }
}

// Leaves out the layers of a run wherever the model goes through them, first within other runs.
static void shorten(const ModelUnits *b, const Copies *c, const int *keep, Arena *a) {
  for (int r = 0; r < b->n_runs; r++) {
    const BlockRun *run = &b->run[r], *times = run->times < 0 ? NULL : &b->run[run->times];
    for (int t = 0; times && t < times->n; t++)
      for (int i = keep[r]; i < run->n; i++)
        leave_out(c, same_layer(run, times->at[t], i), same_layer(run, times->at[t], keep[r] - 1),
                  a);
  }
  for (int r = 0; r < b->n_runs; r++)
    for (int i = keep[r]; i < b->run[r].n; i++)
      leave_out(c, b->run[r].at[i], b->run[r].at[keep[r] - 1], a);
}

Module *cut_out(const ModelUnits *b, const int *keep) {
  Arena *scratch = arena_new();
  Module *m = module_clone(b->front);
  Graph *g = m->graphs;
  Copies c = copies_of(b->front->graphs, g, scratch);
  shorten(b, &c, keep, scratch);
  if (!is_in_order(g)) put_in_order(b, &c);
  // Updates of parameters that nothing reads any more, such as running statistics.
  for (int i = g->n_results; i-- > 0;)
    if (g->results[i]->target && !value_used(g->results[i]->target)) graph_erase_result(g, i);
  // Weights that nothing reads any more.  An input stays, as a loss may name it.
  for (int i = g->n_params; i-- > 0;)
    if (g->params[i]->role != ROLE_input && !value_used(g->params[i])) graph_erase_param(g, i);
  graph_renumber(g);
  arena_free(scratch);
  return m;
}
