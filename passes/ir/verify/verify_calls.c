// The promises about graphs that ops call: 8 of verify.c.
//
//     %1 = call @layer %0        depth of @main: 3
//     graph @layer               2, as it calls @norm
//     graph @norm                1; if it called @layer, that would call itself

#include "base/table.h"
#include "ir/op.h"
#include "verify.h"

static bool check_batch(const Op *batch, Diag *d) {
  const char *name = batch->callee->name;
  const Op *first = batch->callee->first, *cast = NULL;
  if (!first) return diag_error(d, batch->loc, "multi_tensor: '@%s' is empty", name);
  for_each_op(op, batch->callee) {
    const char *what = op_info[op->kind].name;
    // Casts must agree in their type, other ops in kind and attributes.
    bool casts = multi_tensor_narrows(op),
         fits = op->kind == first->kind && op_same_attrs(op, first);
    if (casts) {
      fits = !cast || attr_t(cast, "to") == attr_t(op, "to");
      cast = op;
    }
    if (!fits)
      return diag_error(d, batch->loc, "multi_tensor: '@%s' has %s next to %s that is not like it",
                        name, what, op_info[cast && casts ? OP_cast : first->kind].name);
    // Ops of one launch run in any order, so none may depend on another.
    bool only_parameters = true;
    for (int i = 0; i < op->n_in; i++)
      only_parameters &= !op->in[i].value->def;
    if (!casts && !only_parameters)
      return diag_error(d, batch->loc,
                        "multi_tensor: '@%s' has %s that reads a result of another op", name, what);
    // The results of the launch are those of all its ops.
    for (int i = 0; i < op->n_out; i++) {
      bool returned = false;
      for_each_use(u, op->out[i])
        returned |= !u->user;
      if (!returned)
        return diag_error(d, batch->loc, "multi_tensor: '@%s' does not return all that %s makes",
                          name, what);
    }
  }
  return true;
}

// The depth of calls below a graph, itself included: 1 without calls.
enum { UNKNOWN, OPEN = -1, DEEPEST = 64 };
typedef struct Called {
  const Graph *g;
  int depth; // or UNKNOWN, or OPEN
} Called;

struct Calls {
  Arena *a;
  Called first;  // the root
  Table *called; // all graphs by name; NULL before the first call
};

static Called *called_by(Calls *c, const char *name) {
  const Module *m = c->first.g->module;
  // The first call creates the table of all graphs.
  for (const Graph *g = c->called ? NULL : m->graphs; g; g = g->next) {
    if (g == m->graphs) c->called = table_new(c->a);
    Called *k = g == c->first.g ? &c->first : arena_one(c->a, Called);
    k->g = g;
    table_add(c->called, 0, g->name, k);
  }
  return table_find(c->called, 0, name);
}

bool calls_check(Calls *c, const Op *op, Diag *d) {
  const Graph *callee = op->callee;
  const char *name = op_info[op->kind].name;
  if (op_has_callee(op->kind) != (callee != NULL))
    return diag_error(d, op->loc, "%s: %s", name,
                      callee ? "cannot have a callee" : "has no callee");
  if (!callee) return true;
  // The callee must be found by its name, in the same module.
  bool other = callee->module != op->graph->module || callee->entry;
  const Called *called = other ? NULL : called_by(c, callee->name);
  if (!called || called->g != callee)
    return diag_error(d, op->loc, "%s: '@%s' cannot be called", name, callee->name);
  return op->kind != OP_multi_tensor || check_batch(op, d);
}

// Depth-first, each graph once.  A graph that is reached while it is open calls itself.  `outer`:
// the number of open graphs.
static bool check_callees(Calls *c, Called *k, int outer, Diag *d) {
  if (k->depth == OPEN) return diag_error(d, NULL, "'@%s' calls itself", k->g->name);
  // The depth is known after the first visit.
  if (outer + (k->depth ? k->depth : 1) > DEEPEST)
    return diag_error(d, NULL, "calls nest deeper than %d: '@%s'", DEEPEST, k->g->name);
  if (k->depth) return true;
  k->depth = OPEN;
  int deepest = 0;
  // Open while its callees are visited.
  for_each_op(op, k->g) {
    if (!calls_check(c, op, d)) return false;
    if (!op->callee) continue;
    Called *inner = called_by(c, op->callee->name);
    if (!check_callees(c, inner, outer + 1, d)) return false;
    if (inner->depth > deepest) deepest = inner->depth;
  }
  k->depth = 1 + deepest;
  return true;
}

Calls *calls_new(Arena *a, const Graph *g) {
  Calls *c = arena_one(a, Calls);
  *c = (Calls){.a = a, .first = {.g = g}};
  return c;
}

bool calls_end(Calls *c, Diag *d) {
  return check_callees(c, &c->first, 0, d);
}
