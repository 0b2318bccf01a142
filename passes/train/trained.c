// The choice of trained weights: see trained.h.

#include "trained.h"

#include <string.h>

#include "base/str.h"
#include "ir/analysis/op_names.h"
#include "ir/op.h"

// The globs of an option, with a mark for those that have matched.
typedef struct Globs {
  int n;
  const char **at;
  bool *matched;
} Globs;

static Globs split(const char *text, Arena *a) {
  int most = 1;
  for (const char *at = text; at && *at; at++)
    most += *at == ',';
  Globs globs = {0, arena_array(a, const char *, most), arena_array(a, bool, most)};
  for (const char *at = text; at && *at;) {
    size_t n = strcspn(at, ",");
    globs.at[globs.n++] = str_copy_n(a, at, n);
    at += n + (at[n] == ',');
  }
  return globs;
}

static void warn_unmatched(const Globs *globs, Diag *d) {
  for (int i = 0; i < globs->n; i++) {
    bool train = *globs->at[i] == '!';
    if (!globs->matched[i])
      diag_doubt(d, PROBLEM_no_match, NULL, "--%s '%s' matches no weight",
                 train ? "train" : "freeze", globs->at[i] + train);
  }
}

bool *choose_trained(Graph *g, const char *globs, Arena *scratch, Diag *d) {
  Globs list = split(globs, scratch);
  bool *asked = arena_array(scratch, bool, g->n_values);
  for (int i = 0; i < g->n_params; i++) {
    Value *w = g->params[i];
    if (w->role != ROLE_weight) continue;
    if (!w->label) w->label = w->name ? w->name : str_format(g->module->arena, "%u", w->id);
    bool can = dtype_class[w->type->dtype] == 'F' && type_count(w->type) > 0;
    w->train &= can;
    for (int k = 0; k < list.n; k++) {
      bool train = *list.at[k] == '!';
      if (!str_glob(list.at[k] + train, w->label)) continue;
      w->train = asked[w->id] = train && can;
      list.matched[k] = true;
    }
  }
  warn_unmatched(&list, d);
  return asked;
}

bool find_detached(const Graph *g, const char *globs, Arena *scratch, bool **out, Diag *d) {
  Globs list = split(globs, scratch);
  bool *detached = *out = arena_array(scratch, bool, g->n_ops), ok = true;
  for_each_op(op, g)
    for (int k = 0; k < list.n; k++)
      if (str_glob(list.at[k], op_node(op))) detached[op->id] = list.matched[k] = true;
  // Without one of its stops a model would be trained in another way than the one asked for.
  for (int k = 0; k < list.n; k++)
    if (!list.matched[k])
      ok = diag_problem(d, PROBLEM_no_match, NULL, "--detach '%s' matches no node", list.at[k]);
  return ok;
}
