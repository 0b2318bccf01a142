// Keeps 16-bit copies of weights across steps: weights are cast when they are updated, instead of
// at the beginning of every step.
//
//     graph @train entry (…, %w: f32[64,96] {B} weight "fc.w" train …) {
//       %0  = cast %w to=bf16       : bf16[64,96] {B}
//       %y  = linear %x, %0         : bf16[8,96] {S(0)}
//       …
//       %w1 = adam %w, %g, …        : f32[64,96] {B}
//       return … update %w %w1
//
//   =>
//
//     graph @train entry (…, %w: f32[64,96] {B} weight "fc.w" train …, %c: bf16[64,96] {B} copy "fc.w") {
//       %y  = linear %x, %c         : bf16[8,96] {S(0)}
//       …
//       %w1 = adam %w, %g, …        : f32[64,96] {B}
//       %c1 = cast %w1 to=bf16      : bf16[64,96] {B}
//       return … update %w %w1, update %c %c1
//
// The update already has the new weight, so the cast there only writes 2 bytes per element, once
// `multi_tensor` has merged both into one launch; at the beginning of the step it also read 4
// bytes. Frozen weights are no longer cast at all, nor is any weight in @eval.
//
// The runtime computes the copies of @train whenever weights are loaded: at the start, or from a
// checkpoint.  Checkpoints do not contain them.  @eval reads the copies of @train.
//
// Only weights that ops read directly from memory get a copy: a matrix product does, while
// elementwise ops cast their operands.  A weight that is updated in every slice gets none: each
// slice casts its own version.

#include "base/table.h"
#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "pass.h"

typedef struct Keeper {
  Graph *g;
  Arena *scratch;
  Diag *d;
  int64_t copies;        // of the first entry graph
  Table *params, *first; // of the graph, and of the first entry graph, by role and label
  Result **update;       // by id of a parameter of the graph: its update, or NULL
} Keeper;

// Whether any op but an elementwise one reads `v`, directly or through views.
static bool read_from_memory(const Value *v) {
  for_each_use(u, v) {
    if (!u->user) return true;
    bool seen = u->user->kind == OP_reshape || u->user->kind == OP_broadcast;
    if (seen ? read_from_memory(u->user->out[0]) : !op_info[u->user->kind].formula) return true;
  }
  return false;
}

// Replaces the 16-bit casts of the weight `w` by a copy, if one of them is worth it.
static void keep_cast(Keeper *k, Value *w) {
  // The copy has the type of the first cast that an op reads from memory.
  const Op *cast = NULL; // uses are newest first
  for_each_use(u, w)
    if (u->user && u->user->kind == OP_cast && dtype_narrow(attr_t(u->user, "to")) &&
        read_from_memory(u->user->out[0]))
      cast = u->user;
  if (!cast) return;
  // A weight has one copy, of one type.  The copies of the first entry graph are computed at the
  // start, so another graph can only share these.
  DType to = attr_t(cast, "to");
  Graph *first = module_first_entry(k->g->module);
  Value *copy = table_find(k->params, ROLE_copy, w->label);
  const Value *made = table_find(k->first, ROLE_copy, w->label);
  if (copy && copy->type->dtype != to) return;
  if (!copy && k->g != first && (!made || made->type->dtype != to)) return;
  if (!copy) {
    const Type *type = type_new(k->g->module, to, w->type->ndim, w->type->dim);
    copy = graph_param(k->g, NULL, type, ROLE_copy, w->loc);
    copy->label = w->label;
    copy->layout = w->layout;
    // The 16-bit cast of the updated weight is the update of the copy.
    table_add(k->params, ROLE_copy, copy->label, copy);
    if (k->update[w->id]) {
      Value *new = k->update[w->id]->use.value;
      Builder b = {.g = k->g, .at = new->def ? new->def->next : k->g->first, .d = k->d};
      b.origin = value_origin(new);
      graph_update(k->g, copy, local_cast(&b, new, to));
    }
    k->copies += k->g == first;
  }
  // Every cast to this type reads the copy, also those that alone are not worth one.
  value_replace_uses(cast->out[0], copy);
  for_each_use(u, w) {
    Op *op = u->user;
    if (op && op->kind == OP_cast && attr_t(op, "to") == to) value_replace_uses(op->out[0], copy);
  }
  if (!copy->name && w->name)
    value_set_name(copy, str_format(k->scratch, "%s.%s", w->name, dtype_name[to]));
}

bool pass_keep_casts(Module *m, const PassOptions *o, Diag *d) {
  Keeper k = {.scratch = opt_scratch(o), .d = d};
  for_each_graph(g, m) {
    if (!g->entry) continue;
    k.g = g;
    k.params = graph_params_by_label(g, k.scratch);
    if (!k.first) k.first = k.params;
    k.update = arena_array(k.scratch, Result *, g->n_values);
    for (int i = g->n_results - 1; i >= 0; i--)
      if (g->results[i]->target) k.update[g->results[i]->target->id] = g->results[i];
    int n = g->n_params; // copies are added after these
    for (int i = 0; i < n; i++) {
      Value *w = g->params[i];
      if (w->role != ROLE_weight || w->type->dtype != DT_f32 || w->each_slice) continue;
      // Copies are found by the label of their weight, so it must be unique.
      if (w->label && table_find(k.params, ROLE_weight, w->label) == w) keep_cast(&k, w);
    }
    drop_dead(g);
    graph_renumber(g);
  }
  opt_stat(o, k.copies, "copies of weights");
  return true;
}
