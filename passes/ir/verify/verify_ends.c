// The promises about parameters and results of a graph: 6 and 7 of verify.c.
//
//     graph @train entry (%w: f32[4] weight "w" train = 0, %x: f32[4]) {    %x has no role
//       %1 = add %w, %w : f32[4]
//       return update %w %1, update %w %1                                   %w is updated twice

#include "base/table.h"
#include "ir/op.h"
#include "ir/split.h"
#include "verify.h"

// Tables for the lookup of copies, created for the first copy.
typedef struct Labels {
  const Table *params, *first; // by role and label, in the graph and in the first entry graph
  const bool *updated;         // by value id
} Labels;

static bool check_copy(const Value *v, const Labels *l, Arena *a, Diag *d) {
  const Value *w = v->label ? table_find(l->params, ROLE_weight, v->label) : NULL;
  if (!v->label)
    return diag_error(d, v->loc, "'%s' is a copy without the label of a weight", value_text(a, v));
  if (!w)
    return diag_error(d, v->loc, "'%s' is a copy of no weight: none has the label '%s'",
                      value_text(a, v), v->label);
  // The copy is the weight in 16 bits, in the same layout.
  if (!dtype_narrow(v->type->dtype) || w->type->dtype != DT_f32 ||
      !type_same_dims(v->type, w->type) || v->layout != w->layout)
    return diag_error(d, v->loc, "'%s' is %s, no copy in 16 bits of '%s', which is %s",
                      value_text(a, v), type_text(a, v->type), value_text(a, w),
                      type_text(a, w->type));
  if (table_find(l->params, ROLE_copy, v->label) != v)
    return diag_error(d, v->loc, "'%s' is the second copy of '%s'", value_text(a, v),
                      value_text(a, w));
  // The runtime makes the copies of the first entry graph.
  const Graph *first = module_first_entry(v->graph->module);
  const Value *trained = table_find(l->first, ROLE_copy, v->label);
  if (!trained || trained->type != v->type)
    return diag_error(d, v->loc, "'%s' is a copy that '@%s' does not have", value_text(a, v),
                      first->name);
  return l->updated[v->id] == l->updated[w->id] ||
         diag_error(d, v->loc, "of '%s' and its copy '%s' one is updated and the other is not",
                    value_text(a, w), value_text(a, v));
}

static bool check_param(const Value *v, const Labels *l, Arena *a, Diag *d) {
  if (v->graph->entry != (v->role != ROLE_none))
    return diag_error(d, v->loc, "parameter '%s' of '@%s' must %shave a role", value_text(a, v),
                      v->graph->name, v->graph->entry ? "" : "not ");
  // Flags that only some roles may have.
  if (v->whole && v->role != ROLE_input)
    return diag_error(d, v->loc, "'%s' is no input, and only inputs are read whole",
                      value_text(a, v));
  if (v->train && v->role != ROLE_weight)
    return diag_error(d, v->loc, "'%s' is no weight and cannot be trained", value_text(a, v));
  if (v->host && v->role != ROLE_weight && v->role != ROLE_state)
    return diag_error(d, v->loc, "'%s' is no weight and no state, and cannot be in host memory",
                      value_text(a, v));
  if (v->host_gradient && v->role != ROLE_weight)
    return diag_error(d, v->loc, "'%s' is no weight, and has no gradient for host memory",
                      value_text(a, v));
  if (v->role == ROLE_scalar && v->type->ndim != 0)
    return diag_error(d, v->loc, "'%s' is a scalar and has dimensions: %s", value_text(a, v),
                      type_text(a, v->type));
  if (v->role == ROLE_copy && !check_copy(v, l, a, d)) return false;
  // The type that users know: the same elements in another shape, or without padding.
  if (v->as) {
    const Type *whole = value_whole(v);
    if (v->role != ROLE_weight && v->role != ROLE_state)
      return diag_error(d, v->loc, "'%s' is no weight and no state, and has a shape for users",
                        value_text(a, v));
    if (v->as->dtype != whole->dtype ||
        (type_count(v->as) != type_count(whole) && !type_pads(v->as, whole)))
      return diag_error(d, v->loc, "'%s' is %s, and users cannot know it as %s", value_text(a, v),
                        type_text(a, whole), type_text(a, v->as));
  }
  // Initial contents; copies start from weights.
  bool kept = v->role == ROLE_weight || v->role == ROLE_state;
  if (kept != (v->init != NULL))
    return diag_error(d, v->loc,
                      kept ? "'%s' has no initial contents" : "'%s' cannot have initial contents",
                      value_text(a, v));
  // From local on the type is local, but the contents are still global.
  if (!kept || v->graph->module->phase >= PHASE_local ||
      (v->init->kind != INIT_file && v->init->kind != INIT_bytes))
    return true;
  const Type *in_file = value_padded(v) ? v->as : v->type;
  int64_t want = type_count(in_file) * dtype_bytes[v->init->dtype];
  if (v->init->length != want)
    return diag_error(d, v->loc, "'%s' has %lld bytes of initial contents, needs %lld",
                      value_text(a, v), (long long)v->init->length, (long long)want);
  return true;
}

static bool check_results(const Graph *g, Arena *a, Diag *d) {
  bool *updated = arena_array(a, bool, g->n_values);
  Table *outputs = table_new(a);
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    // Callers refer to results of other graphs by their position.
    if (!g->entry) {
      if (r->label || r->target)
        return diag_error(d, NULL, "result %d of '@%s' has a label, and '@%s' is no entry", i,
                          g->name, g->name);
      continue;
    }
    // An output has a label of its own.
    if (!r->label == !r->target)
      return diag_error(d, NULL, "result %d of '@%s' must be an output or an update", i, g->name);
    if (r->label && table_add(outputs, 0, r->label, g->results[i]))
      return diag_error(d, NULL, "two outputs of '@%s' are called '%s'", g->name, r->label);
    if (!r->target) continue;
    // An update: the only one of persistent state, with a value of its type.
    const Value *target = r->target;
    if (target->graph != g || !value_lasts(target))
      return diag_error(d, target->loc,
                        "'%s' is no weight, state or copy of '@%s' and cannot be updated",
                        value_text(a, target), g->name);
    if (updated[target->id])
      return diag_error(d, target->loc, "'%s' is updated twice", value_text(a, target));
    updated[target->id] = true;
    if (r->use.value->type != target->type)
      return diag_error(d, target->loc, "'%s' is %s and updated with %s", value_text(a, target),
                        type_text(a, target->type), type_text(a, r->use.value->type));
  }
  return true;
}

bool verify_ends(const Graph *g, Arena *a, Diag *d) {
  Labels labels = {0};
  bool copies = false;
  for (int i = 0; i < g->n_params; i++)
    copies |= g->params[i]->role == ROLE_copy;
  // Few graphs have copies, and need the tables.
  if (copies) {
    const Graph *first = module_first_entry(g->module);
    const Table *params = graph_params_by_label(g, a);
    bool *updated = arena_array(a, bool, g->n_values);
    for (int i = 0; i < g->n_results; i++)
      if (g->results[i]->target && g->results[i]->target->graph == g)
        updated[g->results[i]->target->id] = true;
    labels = (Labels){params, first == g ? params : graph_params_by_label(first, a), updated};
  }
  for (int i = 0; i < g->n_params; i++)
    if (!check_param(g->params[i], &labels, a, d)) return false;
  return check_results(g, a, d);
}
