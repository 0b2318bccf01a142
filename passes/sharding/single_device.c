// A graph on a single device, time slice by time slice: see single_device.h.

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

// Whether an op of the graph, or of a graph that it runs, runs `other`.
static bool runs(const Graph *g, const Graph *other) {
  for_each_op(op, g)
    if (op->callee && (op->callee == other || runs(op->callee, other))) return true;
  return false;
}

Module *graph_on_one_device(const Graph *g, int64_t slices, const char *more) {
  Arena *scratch = arena_new();
  Diag *quiet = diag_new(stderr);
  Module *copy = module_clone(g->module);
  PipelineOptions run = {.bisect_limit = -1, .unproved = true};
  diag_quiet(quiet, true);
  // The copy has no other graphs than those that this one runs.
  Graph *graph = graph_find(copy, g->name);
  if (!graph) BUG("a copy of a module lacks a graph");
  for (Graph *other = copy->graphs, *next; other; other = next) {
    next = other->next;
    if (other != graph && !runs(graph, other)) graph_erase(other);
  }
  // It is the first.
  if (graph != copy->graphs) {
    Graph *before = copy->graphs;
    while (before && before->next != graph)
      before = before->next;
    if (!before) BUG("a graph is not among those of its module");
    before->next = graph->next;
    graph->next = copy->graphs;
    copy->graphs = graph;
  }
  // The copy starts without any decisions.
  copy->meshes = NULL;
  for_each_value(graph, forget);
  for_each_value(graph, number);
  for_each_op(op, graph)
    memset(op->split, 0, sizeof op->split);
  const char *text = str_format(scratch, "shard(mesh=t:%" PRId64 ":time)%s", slices, more);
  if (!pipeline_run(copy, text, &run, quiet)) {
    module_free(copy);
    copy = NULL;
  }
  diag_free(quiet);
  arena_free(scratch);
  return copy;
}
