// Loops without operands and results that nothing reads.
//
//     %s1, %y, %all = loop @cell %s0, %x, %w, %one …    %y has no readers; %one is a constant
//
//   =>
//
//     %s1, %all = loop @cell.1 %s0, %x, %w …            @cell.1 does not return %yt, and makes %one itself
//
// A state is needed if its last value is, or if a needed value of the body depends on it.

#include <string.h>

#include "ir/analysis/rewrite.h"
#include "ir/loop.h"

// The dependences of the needed results of a loop.
typedef struct Needs {
  bool *value; // of the body, by id
  bool *in, *out;
} Needs;

static void need(Needs *n, const Value *v) {
  n->value[v->id] = true;
}

static void find_needs(Needs *n, const Op *op, LoopForm f, Arena *a) {
  const Graph *g = op->callee;
  n->value = arena_array(a, bool, g->n_values);
  n->in = arena_array(a, bool, op->n_in);
  n->out = arena_array(a, bool, op->n_out);
  for (int i = 0; i < op->n_out; i++)
    n->out[i] = value_used(op->out[i]);
  // A needed state needs its next value, so this is repeated until no state is added.
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < op->n_out; i++)
      if (n->out[i]) need(n, g->results[i]->use.value);
    for (const Op *inner = g->last; inner; inner = inner->prev) {
      bool needed = false;
      for (int i = 0; i < inner->n_out; i++)
        needed |= n->value[inner->out[i]->id];
      for (int i = 0; needed && i < inner->n_in; i++)
        need(n, inner->in[i].value);
    }
    for (int i = 0; i < f.carried; i++) {
      bool state = n->value[g->params[i]->id];
      more |= state && !n->out[i];
      n->out[i] |= state;
    }
  }
  for (int i = 0; i < op->n_in; i++)
    n->in[i] = i < f.carried ? n->out[i] : n->value[g->params[i]->id];
  if (f.times) n->in[f.times - 1] = true;
}

// The op that makes a constant, if the operand is one that the body can make itself.
static Op *constant_of(const Op *op, LoopForm f, int i) {
  Op *def = op->in[i].value->def;
  bool constant = def && (def->kind == OP_constant || def->kind == OP_fill);
  return i >= f.carried + f.sliced && i != f.times - 1 && constant ? def : NULL;
}

bool simplify_loop(Op *op, Diag *d, bool *changed) {
  LoopForm f = loop_form(op), to = {.count = f.count, .reverse = f.reverse};
  Arena *a = arena_new();
  Needs n;
  find_needs(&n, op, f, a);
  bool any = false;
  for (int i = 0; i < op->n_in; i++)
    any |= !n.in[i] || constant_of(op, f, i);
  for (int i = 0; i < op->n_out; i++)
    any |= !n.out[i];
  *changed |= any;
  if (!any) {
    arena_free(a);
    return true;
  }
  Graph *body = graph_clone(op->callee, graph_free_name(op->graph->module, op->callee->name));
  // Constants are made by the body.
  for (int i = 0; i < op->n_in; i++) {
    const Op *constant = constant_of(op, f, i);
    if (!constant || !n.in[i]) continue;
    const Op *made = op_copy(body, body->first, constant, NULL, d);
    if (!made) BUG("a constant cannot be copied");
    value_replace(body->params[i], made->out[0]);
    n.in[i] = false;
  }
  int *result = arena_array(a, int, op->n_out), n_in = 0, n_out = 0;
  for (int i = 0; i < op->n_out; i++) {
    result[i] = n.out[i] ? n_out++ : -1;
    if (!n.out[i])
      graph_erase_result(body, n_out);
    else if (i < f.carried)
      to.carried++;
    else if (i >= f.carried + f.stacked)
      to.summed++;
  }
  drop_dead(body);
  Value **in = arena_array(a, Value *, op->n_in);
  for (int i = 0; i < op->n_in; i++) {
    if (!n.in[i]) {
      graph_erase_param(body, n_in);
      continue;
    }
    in[n_in++] = op->in[i].value;
    if (i == f.times - 1) to.times = n_in;
    to.sliced += i >= f.carried && i < f.carried + f.sliced;
  }
  graph_renumber(body);
  bool ok = loop_replace(op, body, in, n_in, to, result, d) != NULL;
  arena_free(a);
  return ok;
}
