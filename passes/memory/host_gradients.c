// Selects the sums of gradients that offload_gradients.c keeps in host memory.
//
//     graph @train entry (…, %w: f32[4,6] weight "w" train host_gradient, …
//
//       %s = accumulate %g axis="acc"                %s = accumulate %g axis="acc" offload_group=1
//       …                                      =>    …
//       %w1, … = adam %w, %s, …                      %w1, … = adam %w, %s, …
//
// The plan's program selects weights (`offload_gradient`). The sums of a weight are those that its
// update depends on, through reductions over ranks, buckets and sums of several terms. This pass
// precedes those that fuse products with their accumulation, and optimizer ops with each other:
// they leave selected sums alone, or take few at a time.

#include "base/vec.h"
#include "ir/op.h"
#include "pass.h"

enum { NO_BUCKET = -1 };

typedef struct Selection {
  Arena *scratch;
  bool *seen; // by value id; a member of a bucket is looked for each time
  int64_t n, bytes;
} Selection;

// -- Sums of a weight --------------------------------------------------------------------------

// The parameter that the value is, or is a part or a cast of; or NULL.
static Value *param_of(Value *v) {
  while (v->def && v->def->n_in > 0 && !op_has_callee(v->def->kind))
    v = v->def->in[0].value;
  return v->def ? NULL : v;
}

// Whether the value, or a view of it, is a result of the graph.
static bool is_result(const Value *v) {
  for_each_use(u, v)
    if (!u->user || (op_is_view(u->user) && is_result(u->user->out[0]))) return true;
  return false;
}

// Marks the sums that `v` depends on.  `at`: of a bucket, the element at which the member begins
// that is wanted; or NO_BUCKET.
static void mark_sums(Selection *s, const Value *v, int64_t at) {
  Op *op = v->def;
  if (!op || type_count(v->type) == 0 || (at == NO_BUCKET && s->seen[v->id])) return;
  if (at == NO_BUCKET) s->seen[v->id] = true;
  if (op->kind == OP_accumulate) {
    // A sum that leaves the step stays on the device.
    if (op->offload_group || v->type->dtype != DT_f32 || is_result(v)) return;
    op->offload_group = 1;
    s->n++;
    s->bytes += type_bytes(v->type);
  } else if (op->kind == OP_unpack) {
    mark_sums(s, op->in[0].value, attr_i(op, "offset"));
  } else if (op->kind == OP_pack) {
    int64_t start = 0;
    for (int i = 0; i < op->n_in; i++) {
      if (at == NO_BUCKET || at == start) mark_sums(s, op->in[i].value, NO_BUCKET);
      start += pack_length(op->in[i].value->type);
    }
  } else {
    // Scalars, such as the norm and the loss scale, are no part of a gradient.
    for (int i = 0; i < op->n_in; i++)
      if (op->in[i].value->type->ndim > 0) mark_sums(s, op->in[i].value, i == 0 ? at : NO_BUCKET);
  }
}

// -- The pass ----------------------------------------------------------------------------------

static const Value *first_marked(const Graph *g, bool each_slice) {
  for (int i = 0; i < g->n_params; i++)
    if (g->params[i]->host_gradient && (g->params[i]->each_slice || !each_slice))
      return g->params[i];
  return NULL;
}

static bool check(const Module *m, const Graph *g, Diag *d) {
  const Value *v = first_marked(g, true);
  if (v) {
    diag_error(
        d, v->loc,
        "offload_gradients: every micro-batch updates '%s', so its gradients are not added up",
        v->label);
    diag_hint(d,
              "leave offload_gradients out of the plan, or take another schedule than pipedream");
    return false;
  }
  v = first_marked(g, false);
  if (module_slices(m) > 1) return true;
  diag_error(d, v->loc,
             "offload_gradients: the step has one micro-batch, so there is no sum of gradients of "
             "'%s' to keep",
             v->label);
  diag_hint(d, "compile with --micro-batches or --accumulate; the gradients of one micro-batch are "
               "freed early by optimizer_in_backward");
  return false;
}

bool pass_host_gradients(Module *m, const PassOptions *o, Diag *d) {
  Graph *g = module_first_entry(m);
  const Value *first = g ? first_marked(g, false) : NULL;
  if (!first) return true;
  if (!check(m, g, d)) return false;
  Selection s = {.scratch = opt_scratch(o)};
  s.seen = arena_array(s.scratch, bool, g->n_values);
  for_each_op(op, g) {
    if (!(op_info[op->kind].traits & OPTIMIZER)) continue;
    const Value *w = param_of(op->in[0].value);
    if (w && w->host_gradient) mark_sums(&s, op->in[1].value, NO_BUCKET);
  }
  if (s.n == 0) {
    diag_error(
        d, first->loc,
        "offload_gradients: no gradient is added up over micro-batches, not even that of '%s'",
        first->label);
    diag_hint(d, "leave offload_gradients out of the plan");
    return false;
  }
  // No later pass reads the marks.
  for_each_graph(each, m)
    for (int i = 0; i < each->n_params; i++)
      each->params[i]->host_gradient = false;
  opt_stat(o, s.n, "sums of gradients for host memory");
  opt_stat(o, s.bytes, "bytes of them");
  return true;
}
