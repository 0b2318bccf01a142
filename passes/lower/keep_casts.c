// Keeps weights in 16 bits from step to step: they are cast where they are updated, instead of
// where every step begins.
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
// The update has the new weight at hand, so there the cast costs 2 bytes of writing for an element,
// once `multi_tensor` has made one launch of both; at the step's beginning it cost reading 4 bytes
// more. A weight that is not trained is not cast at all any more, nor is any weight in @eval.
//
// The runtime makes the copies of @train whenever weights come from elsewhere: at the start, from a
// checkpoint.  They are in no checkpoint.  @eval reads those that @train has.
//
// Only weights that ops read as they lie in memory have a copy: a matrix product does, while
// elementwise ops cast what they read.  One that is updated in every slice is another in each, as
// is its cast, which each slice makes.

#include "ir/analysis/local.h"
#include "ir/analysis/rewrite.h"
#include "ir/op.h"
#include "pass.h"

typedef struct Keeper {
  Graph *g;
  Arena *scratch;
  Diag *d;
  int64_t copies; // of the first entry graph
} Keeper;

// Is `v` read by anything but elementwise ops, which may see it through views?
static bool read_from_memory(const Value *v) {
  for_each_use(u, v) {
    if (!u->user) return true;
    bool seen = u->user->kind == OP_reshape || u->user->kind == OP_broadcast;
    if (seen ? read_from_memory(u->user->out[0]) : !op_info[u->user->kind].formula) return true;
  }
  return false;
}

// The first cast of `w` to 16 bits that is worth keeping.
static Op *find_cast(const Value *w) {
  Op *cast = NULL; // uses are newest first
  for_each_use(u, w)
    if (u->user && u->user->kind == OP_cast && dtype_narrow(attr_t(u->user, "to")) &&
        read_from_memory(u->user->out[0]))
      cast = u->user;
  return cast;
}

// What the update leaves, in 16 bits, is what the copy is in the next step.
static void update_copy(Keeper *k, const Value *w, Value *copy) {
  for (int i = 0; i < k->g->n_results; i++) {
    Result *r = k->g->results[i];
    if (r->target != w) continue;
    Value *new = r->use.value;
    Builder b = {.g = k->g, .at = new->def ? new->def->next : k->g->first, .d = k->d};
    b.origin = value_origin(new);
    graph_update(k->g, copy, local_cast(&b, new, copy->type->dtype));
    return;
  }
}

// The copy of `w` in 16 bits of type `to`.  NULL when it has one of another type, or the first
// entry graph, whose copies are made at the start, has none.
static Value *find_copy(Keeper *k, const Value *w, DType to) {
  Graph *first = module_first_entry(k->g->module);
  Value *copy = graph_find_role(k->g, ROLE_copy, w->label);
  const Value *made = graph_find_role(first, ROLE_copy, w->label);
  if (copy) return copy->type->dtype == to ? copy : NULL;
  if (k->g != first && (!made || made->type->dtype != to)) return NULL;
  const Type *type = type_new(k->g->module, to, w->type->rank, w->type->dim);
  copy = graph_param(k->g, NULL, type, ROLE_copy, w->loc);
  copy->label = w->label;
  copy->layout = w->layout;
  update_copy(k, w, copy);
  k->copies += k->g == first;
  return copy;
}

static void keep_cast(Keeper *k, Value *w, const Op *cast) {
  DType to = attr_t(cast, "to");
  Value *copy = find_copy(k, w, to);
  if (!copy) return;
  replace(cast->out[0], copy);
  for_each_use(u, w) {
    Op *op = u->user;
    if (op && op->kind == OP_cast && attr_t(op, "to") == to) replace(op->out[0], copy);
  }
  if (!copy->name && w->name)
    value_set_name(copy, str_format(k->scratch, "%s.%s", w->name, dtype_name[to]));
}

static void keep_casts(Keeper *k) {
  int n = k->g->n_params; // copies come behind
  for (int i = 0; i < n; i++) {
    Value *w = k->g->params[i];
    if (w->role != ROLE_weight || w->type->dtype != DT_f32 || w->each_slice) continue;
    if (graph_find_role(k->g, ROLE_weight, w->label) != w) continue; // a copy is known by its label
    const Op *cast = find_cast(w);
    if (cast) keep_cast(k, w, cast);
  }
  drop_dead(k->g);
  graph_renumber(k->g);
}

bool pass_keep_casts(Module *m, const PassOptions *o, Diag *d) {
  Keeper k = {.scratch = opt_scratch(o), .d = d};
  for_each_graph(g, m) {
    k.g = g;
    if (g->entry) keep_casts(&k);
  }
  opt_stat(o, k.copies, "copies of weights");
  return true;
}
