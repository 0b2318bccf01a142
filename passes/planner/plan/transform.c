// Changes of the model by the programs of a plan, their functions `model`, before autodiff. The
// gradients are those of the changed model, by the chain rule.

#include <stdlib.h>
#include <string.h>

#include "pass.h"
#include "plan.h"

// Entry `i` of a list of numbers, "2,4"; 0 if there is none.
static int number_at(const char *list, int i) {
  for (; list && i > 0; i--)
    if ((list = strchr(list, ','))) list++;
  return list ? atoi(list) : 0;
}

// The ranks of program `i` of `n`.
static PlanRanks ranks_of(const char *list, int i, int n) {
  PlanRanks ranks = {number_at(list, i), 1};
  for (int k = i; k < n; k++)
    ranks.all *= number_at(list, k);
  return ranks;
}

static int64_t count_ops(const Module *m) {
  int64_t n = 0;
  for_each_graph(g, m)
    n += g->n_ops;
  return n;
}

bool pass_transform(Module *m, const PassOptions *o, Diag *d) {
  // Program by program, as the plan lists them.
  const char *plan = opt_str(o, "plan"), *ranks = opt_str(o, "ranks");
  int n = 1;
  for (const char *c = plan; c && *c; c++)
    n += *c == ',';
  int n_graphs = 0;
  for_each_graph(g, m)
    n_graphs++;
  int64_t before = count_ops(m);
  PlanLayers **layers = arena_array(opt_scratch(o), PlanLayers *, n_graphs);
  for (int i = 0; i < n_graphs; i++)
    layers[i] = plan_layers_new(opt_scratch(o));
  if (opt_layers(o)) plan_layers_set(layers[0], m->graphs, opt_layers(o));
  for (int i = 0; i < n; i++) {
    PlanProgram *p = program_open(opt_scratch(o), plan_program(opt_scratch(o), plan, i), d);
    if (!p) return false;
    // Entries only: functions that they call are repeated parts of them.
    bool ok = true;
    PlanLayers **own = layers;
    for_each_graph(g, m) {
      if (ok && g->entry) ok = program_model(p, g, *own, ranks_of(ranks, i, n), opt_record(o));
      own++;
    }
    program_close(p);
    if (!ok) return false;
  }
  // A changed model has new ops.
  if (opt_changes_model(o) && count_ops(m) == before)
    return diag_error(d, NULL, "the programs of '%s' change nothing of the model", plan);
  return true;
}
