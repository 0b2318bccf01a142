// See single_device.h.

#include "single_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "ir/op.h"
#include "pass.h"

static void forget(Value *v) {
  v->layout = NULL;
  value_set_name(v, NULL);
}

static void number(Value *v) {
  char name[16];
  snprintf(name, sizeof name, "v%u", v->id);
  value_set_name(v, name);
}

static void for_each_value(Graph *g, void (*visit)(Value *v)) {
  for (int i = 0; i < g->n_params; i++)
    visit(g->params[i]);
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      visit(op->out[i]);
}

// Clears all decisions.
static void forget_plan(Module *m) {
  Graph *g = m->graphs;
  m->meshes = NULL;
  for_each_value(g, forget);
  for_each_value(g, number);
  for_each_op(op, g)
    memset(op->split, 0, sizeof op->split);
}

static void keep_only(Module *m, const char *name) {
  for (Graph *g = m->graphs, *next; g; g = next) {
    next = g->next;
    if (!str_equal(g->name, name)) graph_erase(g);
  }
}

Module *graph_on_one_device(const Graph *g, int64_t slices, const char *more) {
  Arena *scratch = arena_new();
  Diag *quiet = diag_new(stderr);
  Module *copy = module_clone(g->module);
  PipelineOptions run = {.bisect_limit = -1, .unproved = true};
  diag_quiet(quiet, true);
  keep_only(copy, g->name);
  forget_plan(copy);
  const char *text = str_format(scratch, "shard(mesh=t:%" PRId64 ":time)%s", slices, more);
  if (!pipeline_run(copy, text, &run, quiet)) {
    module_free(copy);
    copy = NULL;
  }
  diag_free(quiet);
  arena_free(scratch);
  return copy;
}
