// See lives.h.
//
// A copy is compiled for a single device (single_device.h).  Values that keep their name there are
// in memory; the others are within kernels.

#include "lives.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "manager/pipeline.h"
#include "pass.h"
#include "sharding/single_device.h"

// Options of the passes after shard: plan_memory only finds the values that share memory.
static const char *option_of(Arena *a, const char *pass, const char *option, const void *target) {
  (void)a;
  if (!strcmp(option, "target")) return target;
  return !strcmp(pass, "plan_memory") && !strcmp(option, "apart") ? "true" : NULL;
}

// -- Contents of the copy ----------------------------------------------------------------------

typedef struct Reader {
  const Graph *g; // the given graph
  const Graph *alone;
  Lives *out;
  Value **value; // of `g`, by id
  Lived **lived; // by value id of `alone`; NULL: in the place of another, or a view
  const Life *life;
  int64_t kept_end;
} Reader;

// Returns the value of the given graph with this name, or that of the operand it is derived from.
static Value *value_of(const Reader *r, const Value *v) {
  while (!v->name || v->name[0] != 'v') {
    if (!v->def || !v->def->n_in) return NULL;
    v = v->def->in[0].value;
  }
  char *end;
  unsigned long id = strtoul(v->name + 1, &end, 10);
  return *end || id >= r->g->n_values ? NULL : r->value[id];
}

static void add(Reader *r, Value *v) {
  bool kept = !v->def && param_kept(v);
  bool is_view = v->def && (op_info[v->def->kind].traits & VIEW);
  Value *named = value_of(r, v);
  if (!named || v->offset < 0 || is_view || value_on_host(v)) return;
  if (!kept && v->offset < r->kept_end) return;
  Lived l = {named->id, type_bytes(v->type), 2 * r->life[v->id].from, 2 * r->life[v->id].to, kept};
  r->lived[v->id] = &r->out->at[r->out->n];
  r->out->at[r->out->n++] = l;
}

static void read_all(Reader *r) {
  const Graph *g = r->g, *alone = r->alone;
  // The names of values are their ids.
  for (int i = 0; i < g->n_params; i++)
    r->value[g->params[i]->id] = g->params[i];
  for_each_op(op, g)
    for (int i = 0; i < op->n_out; i++)
      r->value[op->out[i]->id] = op->out[i];
  // Persistent parameters are at the start of the slab. A value below their end is in the place of
  // one of them.
  for (int i = 0; i < alone->n_params; i++) {
    const Value *v = alone->params[i];
    int64_t end = v->offset + type_bytes(v->type);
    if (param_kept(v) && !value_on_host(v) && end > r->kept_end) r->kept_end = end;
  }
  for (int i = 0; i < alone->n_params; i++)
    add(r, alone->params[i]);
  for_each_op(op, alone)
    for (int i = 0; i < op->n_out; i++)
      add(r, op->out[i]);
  // All live ranges are known now. A result in the place of an operand ends the operand's.
  for_each_op(op, alone)
    for (int k = 0; k < op->n_out; k++)
      for (int i = 0; i < op->n_in && r->lived[op->out[k]->id]; i++) {
        int64_t time = 2 * op_time(op), skip;
        const Value *in = view_root(op->in[i].value, &skip), *out = op->out[k];
        Lived *of = r->lived[in->id];
        bool overlap = in->offset < out->offset + type_bytes(out->type) &&
                       out->offset < in->offset + type_bytes(in->type);
        if (of && !of->kept && of->to >= time && overlap) of->to = time - 1;
      }
  // An op that is part of a kernel runs when one of its readers does.
  int64_t *time = r->out->time;
  for_each_op(op, r->alone)
    for (int i = 0; i < op->n_out; i++) {
      const Value *v = value_of(r, op->out[i]);
      if (!v || !v->def || !op->out[i]->name) continue;
      time[v->def->id] = 2 * op_time(op);
      r->out->there[v->id] = true;
    }
  for (const Op *op = r->g->last; op; op = op->prev)
    for (int i = 0; i < op->n_out && !time[op->id]; i++)
      for_each_use(u, op->out[i])
        if (u->user && time[u->user->id] > time[op->id]) time[op->id] = time[u->user->id];
  // Accumulated values: by a separate op, or by the product that produces them.
  for_each_op(op, r->alone) {
    const Value *v = op_traits(op) & ACCUMULATES && op->n_out ? value_of(r, op->out[0]) : NULL;
    if (!v || type_bytes(v->type) == 0) continue;
    bool separate = op->kind == OP_accumulate;
    double bytes = (double)type_bytes(op->out[0]->type);
    if (separate) bytes += bytes + (double)type_bytes(op->in[0].value->type);
    r->out->summed[v->id] = (Summed){bytes / (double)type_bytes(v->type), separate};
  }
}

Lives *lives_of(const Module *m, Target target, int64_t slices, Arena *a) {
  // The copy runs the passes after comm.
  const TargetInfo *t = &target_info[target];
  const char *list = pipeline_text(a, t->pipeline, "comm", 0, option_of, t->name);
  Module *copy = graph_on_one_device(m->graphs, slices, str_format(a, ",%s", list));
  if (!copy) return NULL;
  Arena *scratch = arena_new();
  const Graph *g = m->graphs, *alone = copy->graphs;
  const Op *update = graph_update_start(alone);
  Lives *out = arena_one(a, Lives);
  Reader r = {.g = g, .alone = alone, .out = out, .life = graph_lives(alone, scratch)};
  out->at = arena_array(a, Lived, alone->n_values);
  out->there = arena_array(a, bool, g->n_values);
  out->summed = arena_array(a, Summed, g->n_values);
  out->time = arena_array(a, int64_t, g->n_ops);
  // Two time units per op: the op, and the transfers of its results.
  out->end = 2 * graph_end(alone) + 1;
  out->update = update ? 2 * op_time(update) : out->end;
  r.value = arena_array(scratch, Value *, g->n_values);
  r.lived = arena_array(scratch, Lived *, alone->n_values);
  read_all(&r);
  module_free(copy);
  arena_free(scratch);
  return out;
}
