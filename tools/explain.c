// See explain.h.
//
//     @train: %h1, %h = fused @fused_0 %h0, %b : f32[32,48] {} at 34944, …  # mlp.onnx:/act/Gelu
//       @fused_0: broadcast add gelu
//       %h1: f32[32,48], 6144 bytes, layout {}, at 34944 from op 3 to op 15
//       %h1: where %h0 was
//       %h1: read by %12 = fused @fused_4 %h1, %11 : f32[32,48] {} at 34944 backward of=2
//
// and of a chosen plan:
//
//     plan: search                        0.627336 ms   1179716 bytes
//     plan: dp                            1.224773 ms   4358272 bytes   +95.23 %
//     plan: dp,search=2                   1.300000 ms   4358272 bytes   +107.22 %   2 of 4 ranks share it
//     plan: zero3, 4 micro-batches        0.610000 ms   9358272 bytes   does not fit into 8000000
//     plan: tp2d                                                           all ranks do the same
//
// and on a cluster of unknown speed:
//
//     plan: dp                              not priced   4358272 bytes

#include "explain.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx.h"
#include "ir/analysis/op_names.h"
#include "ir/analysis/place.h"
#include "ir/op.h"
#include "ir/text.h"

static const char *name_of(Arena *a, const Value *v) {
  return v->name ? str_format(a, "%%%s", v->name) : str_format(a, "%%%u", v->id);
}

static void explain_value(Arena *a, const Value *v, const Life *lives, FILE *out) {
  const char *name = name_of(a, v);
  fprintf(out, "  %s: %s, %" PRId64 " bytes", name, type_text(a, v->type), type_bytes(v->type));
  if (v->layout) fprintf(out, ", layout %s", layout_text(a, v->layout));
  if (v->offset >= 0)
    fprintf(out, ", at %" PRId64 " from op %" PRId64 " to op %" PRId64, v->offset,
            lives[v->id].from, lives[v->id].to);
  fputs("\n", out);
  const Op *def = v->def;
  // An operand at the same offset: the result is computed in place.
  for (int i = 0; def && v->offset >= 0 && i < def->n_in; i++)
    if (def->in[i].value->offset == v->offset)
      fprintf(out, "  %s: where %s was\n", name, name_of(a, def->in[i].value));
  for_each_use(u, v) {
    if (u->user)
      fprintf(out, "  %s: read by %s\n", name, op_text(u->user, a));
    else if (v->graph->results[u->index]->label)
      fprintf(out, "  %s: is output '%s'\n", name,
              str_shown(a, v->graph->results[u->index]->label));
    else if (v->graph->results[u->index]->target)
      fprintf(out, "  %s: is what '%s' becomes\n", name,
              str_shown(a, v->graph->results[u->index]->target->label));
  }
}

// "mlp.onnx:/fc1/Gemm, gradient, all_reduce": the node, followed by the derivations from it.
static const char *origin_text(Arena *a, const Loc *loc) {
  if (!loc) return "";
  if (!loc->from) return loc_text(a, loc);
  const char *from = origin_text(a, loc->from);
  return !loc->why ? from : *from ? str_format(a, "%s, %s", from, loc->why) : loc->why;
}

// Compares candidates: cheapest first, those that could not be made last.
static int by_seconds(const void *x, const void *y) {
  const Candidate *a = *(Candidate *const *)x, *b = *(Candidate *const *)y;
  if (a->made != b->made) return a->made ? -1 : 1;
  return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

void explain_candidates(const Candidates *all, int chosen, const Cluster *c, FILE *out) {
  Arena *a = arena_new();
  Candidate **order = arena_array(a, Candidate *, all->n);
  for (int i = 0; i < all->n; i++)
    order[i] = &all->at[i];
  qsort(order, (size_t)all->n, sizeof *order, by_seconds);
  const Candidate *best = &all->at[chosen];
  for (int i = 0; i < all->n; i++) {
    const Candidate *x = order[i];
    const char *name = x->plan;
    if (x->micro_batches != 1)
      name = str_format(a, "%s, %" PRId64 " micro-batches", name, x->micro_batches);
    fprintf(out, "plan: %-28s ", name);
    // A candidate that could not be made has only a reason.
    if (!x->made) {
      fprintf(out, "%36s   %s\n", "", x->why);
      continue;
    }
    bool priced = isfinite(x->seconds);
    fprintf(out, "%15s %14" PRId64 " bytes",
            priced ? str_format(a, "%.6f ms", 1e3 * x->seconds) : "not priced",
            x->needs.peak_bytes);
    if (!x->fits)
      fprintf(out, "   does not fit into %.0f", c->memory);
    else if (x != best && priced)
      fprintf(out, "   %+.2f %%", 100 * (x->seconds - best->seconds) / best->seconds);
    // Less than all: the other ranks repeat work.
    if (x->sharing < x->ranks)
      fprintf(out, "   %d of %" PRId64 " ranks share it", x->sharing, x->ranks);
    fputs("\n", out);
  }
  arena_free(a);
}

bool explain_module(const Module *m, const char *what, FILE *out) {
  bool found = false;
  for_each_graph(g, m) {
    if (!g->entry) continue;
    Arena *a = arena_new();
    const Life *lives = graph_lives(g, a);
    // Parameters by name or label, then ops by kind, value or node.
    for (int i = 0; i < g->n_params; i++) {
      const Value *v = g->params[i];
      if (!str_equal(name_of(a, v), what) && !str_equal(v->label, what)) continue;
      fprintf(out, "@%s: parameter %s\n", g->name, name_of(a, v));
      explain_value(a, v, lives, out);
      found = true;
    }
    for_each_op(op, g) {
      if (!op_is_meant(op, what, a)) continue;
      fprintf(out, "@%s: ", g->name);
      // The op, the ops that it was joined from, and its results.
      const char *origin = str_shown(a, origin_text(a, op->loc));
      fprintf(out, "%s%s%s\n", op_text(op, a), *origin ? "  # " : "", origin);
      if (op->callee) {
        fprintf(out, "  @%s:", op->callee->name);
        for_each_op(inner, op->callee)
          fprintf(out, " %s", op_info[inner->kind].name);
        fputs("\n", out);
      }
      for (int i = 0; i < op->n_out; i++)
        explain_value(a, op->out[i], lives, out);
      found = true;
    }
    arena_free(a);
  }
  return found;
}

static bool is_of_node(const Op *op, const char *node) {
  if (op->callee)
    for_each_op(inner, op->callee)
      if (is_of_node(inner, node)) return true;
  for (const Loc *loc = op->loc; loc; loc = loc->from)
    if (str_equal(loc->node, node)) return true;
  return false;
}

bool explain_has_node(const void *module, const char *node) {
  for_each_graph(g, (const Module *)module)
    for_each_op(op, g)
      if (g->entry && is_of_node(op, node)) return true;
  return false;
}

static bool is_called(const Graph *g, const char *what, Arena *a) {
  for (int i = 0; i < g->n_params; i++)
    if (str_equal(g->params[i]->label, what)) return true;
  for_each_op(op, g)
    if (op_is_meant(op, what, a)) return true;
  return false;
}

bool explain_may_find(const Module *m, const char *what) {
  Arena *a = arena_new();
  // Names of values and kinds of ops may appear later.
  bool found = *what == '%';
  for (int i = 0; i < N_OPS; i++)
    found |= str_equal(op_info[i].name, what);
  for_each_graph(g, m)
    found |= is_called(g, what, a);
  arena_free(a);
  return found;
}

bool explain_failed(const char *what, Diag *d) {
  diag_error(d, NULL, "nothing is called '%s'", what);
  diag_hint(d, "--explain takes %%value, an op such as linear, or a part of a node's name");
  return false;
}

const char *explain_lasting(const Module *m, const char *what, Arena *a) {
  if (*what == '%' || !*what) return what;
  for_each_graph(g, m)
    if (is_called(g, what, a)) return what;
  for_each_graph(g, m) {
    // The result of a node with this name in the model's file or the module, or NULL.
    const Value *v = NULL;
    for (int i = 0; !v && i < g->n_results; i++)
      if (str_equal(g->results[i]->label, what)) v = g->results[i]->use.value;
    const char *name = onnx_value_name(a, what);
    for_each_op(op, g)
      for (int i = 0; !v && i < op->n_out; i++)
        if (str_equal(op->out[i]->name, name)) v = op->out[i];
    const char *node = v && v->def ? op_node(v->def) : "";
    if (*node) return node;
  }
  return what;
}
