// The promises about updates in every time slice: 22 of verify.c.

#include "ir/analysis/place.h"
#include "ir/analysis/versions.h"
#include "ir/op.h"
#include "verify.h"

static bool wrong(const Value *v, const char *what, Arena *a, Diag *d) {
  return diag_error(d, v->loc, "'%s' changes in every slice, and %s", value_text(a, v), what);
}

static bool check_param(const Graph *g, const Value *v, const bool *once, Arena *a, Diag *d) {
  const Result *update = graph_find_update(g, v);
  Value *next = update ? update->use.value : NULL;
  int64_t skip;
  if (!value_lasts(v)) return wrong(v, "does not last from step to step", a, d);
  if (g->module->phase < PHASE_local) return wrong(v, "there are no slices before local", a, d);
  // The op that computes the next value must run in every slice.
  const Op *made = next ? view_root(next, &skip)->def : NULL;
  if (!made) return wrong(v, "no op computes its next value", a, d);
  if (once[made->id]) return wrong(v, "is updated once in a step", a, d);
  if (g->module->phase >= PHASE_planned && next->offset != v->offset)
    return wrong(v, "its next value has another offset", a, d);
  return version_is_one(g, v, NULL, a) || wrong(v, "a slice reads several versions of it", a, d);
}

bool verify_versions(const Graph *g, const Features *has, Diag *d) {
  if (!has->each_slice) return true;
  Arena *a = arena_new();
  bool *once = NULL; // by op: it runs once in a step
  bool ok = true;
  for (int i = 0; ok && i < g->n_params; i++) {
    if (!g->params[i]->each_slice) continue;
    // Computed for the first such parameter.
    if (!once) {
      const bool *late = graph_update_ops(g, a);
      once = graph_begin_ops(g, a);
      for_each_op(op, g)
        once[op->id] |= late[op->id];
    }
    ok = check_param(g, g->params[i], once, a, d);
  }
  arena_free(a);
  return ok;
}
