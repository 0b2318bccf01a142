// The model's program in the ops that the proof compares, in a clone of it.
//
//     split losses   a plan may split a loss over its classes (split_classes.h): the model's is then
//                    replaced by the same loss in so many parts
//     experts        a plan may put the rows of experts in slots (dispatch_experts.h): so are the
//                    model's then
//     rings          and attentions by the rounds of a ring (ring_attention.h)
//     joined ops     are replaced by their definitions (ir/definition.h), and ops that run a graph by
//                    its ops, as the proof follows them in the distributed program

#include "ir/definition.h"
#include "ir/op.h"
#include "ir/split.h"
#include "prove_state.h"
#include "simplify/dispatch_experts.h"
#include "simplify/ring_attention.h"
#include "simplify/split_classes.h"

const Graph *entry_named(const Module *m, const char *name) {
  for_each_graph(g, m)
    if (g->entry && str_equal(g->name, name)) return g;
  return NULL;
}

// -- Losses whose classes are split ----------------------------------------------------------

// The op of `kind` in another program with the origin of `of`; by location in texts written by
// hand, which lack op numbers.
static bool is_like(const Op *op, OpKind kind, const Op *of) {
  return op->kind == kind && op->of == of->of && (of->of || loc_same(op->loc, of->loc));
}

static Op *op_like(const Graph *g, OpKind kind, const Op *of) {
  for_each_op(op, g)
    if (is_like(op, kind, of)) return op;
  return NULL;
}

// Applies split_classes to the losses that the plan splits over classes, in a clone of the model's
// program.  `m` shows the losses and the number of parts.  split_classes promises that the program
// stays equivalent to the model's.  `with` is the clone, if there are any such losses.
static bool split_losses(const Module *model, const Module *m, Module **with, Diag *d) {
  for_each_graph(g, m) {
    if (!g->entry) continue;
    for_each_op(op, g) {
      // Such a loss has two lse_parts.  The first reads all classes, maybe through collectives.
      if (op->kind != OP_lse_parts) continue;
      const Value *x = op->in[0].value;
      while (x->def && (op_info[x->def->kind].traits & COMM))
        x = x->def->in[0].value;
      if (x->def && x->def->kind == OP_lse_parts) continue;
      const Type *all = value_whole(op->in[0].value), *made = value_whole(op->out[0]);
      int64_t part = all->dim[all->ndim - 1] / made->dim[made->ndim - 1]; // classes of a part
      const Graph *is = part ? entry_named(*with ? *with : model, g->name) : NULL;
      if (!is || op_like(is, OP_lse_parts, op) || !op_like(is, OP_cross_entropy, op)) continue;
      if (!*with) *with = module_clone(model);
      Op *loss = op_like(entry_named(*with, g->name), OP_cross_entropy, op);
      const Type *logits = loss->in[0].value->type;
      if (!split_classes(loss, (int)(logits->dim[logits->ndim - 1] / part), d)) return false;
    }
  }
  for (Graph *g = *with ? (*with)->graphs : NULL; g; g = g->next)
    graph_renumber(g);
  return true;
}

// -- Rows of experts in slots ----------------------------------------------------------------

// Applies dispatch_experts to the mixtures whose rows the plan puts in slots, in a clone of the
// model's program.  Slots without `drop` lose no row, so dispatch_experts promises that the program
// stays equivalent.
static bool dispatch_all(const Module *model, const Module *m, Module **with, Diag *d) {
  for_each_graph(g, m) {
    if (!g->entry) continue;
    for_each_op(op, g) {
      if (op->kind != OP_expert_slots || attr_i(op, "drop")) continue;
      const Graph *is = entry_named(*with ? *with : model, g->name);
      if (!is || op_like(is, OP_expert_slots, op) || !op_like(is, OP_grouped_linear, op)) continue;
      if (!*with) *with = module_clone(model);
      Op *first = op_like(entry_named(*with, g->name), OP_grouped_linear, op);
      // The load of the products is for estimates: that of the plan.
      Dispatch to = {.parts = attr_i(op, "parts"), .capacity = attr_i(op, "capacity")};
      to.groups = value_whole(op->in[0].value)->dim[0];
      for_each_op(product, g)
        if (product->kind == OP_grouped_linear && op_like(first->graph, OP_grouped_linear, product))
          to.load = attr_f(product, "load");
      if (!dispatch_experts(first, &to, d)) return false;
    }
  }
  for (Graph *g = *with ? (*with)->graphs : NULL; g; g = g->next)
    graph_renumber(g);
  return true;
}

// -- Rings -----------------------------------------------------------------------------------

typedef Vec(Op *) Attentions;

static Attentions attentions_of(const Graph *g, Arena *a) {
  Attentions all = {0};
  for_each_op(op, g)
    if (op->kind == OP_attention) vec_push(a, &all, op);
  return all;
}

// Applies ring_attention to the attentions that the plan computes so, likewise.  All with the
// origin of a round are such: a recomputed one has the same origin.
static bool make_rings(const Module *model, const Module *m, Module **with, Diag *d) {
  Arena *a = arena_new();
  bool ok = true;
  for_each_graph(g, m) {
    const Graph *is = g->entry ? entry_named(*with ? *with : model, g->name) : NULL;
    if (!is) continue;
    Attentions open = attentions_of(is, a);
    for_each_op(op, g) {
      const char *why;
      int64_t blocks = op->kind == OP_attention ? attr_i(op, "blocks") : 0;
      if (!blocks || blocks > INT32_MAX) continue;
      int still = 0;
      for (int i = 0; i < open.n && ok; i++) {
        if (!is_like(open.at[i], OP_attention, op) ||
            !ring_possible(open.at[i], (int)blocks, &why)) {
          open.at[still++] = open.at[i];
          continue;
        }
        if (!*with) {
          // From here on the ops are those of the clone, in the same order.
          *with = module_clone(model);
          open = attentions_of(entry_named(*with, g->name), a);
        }
        ok = ring_attention(open.at[i], (int)blocks, a, NULL, d);
      }
      open.n = still;
    }
  }
  arena_free(a);
  for (Graph *g = *with ? (*with)->graphs : NULL; g; g = g->next)
    graph_renumber(g);
  return ok;
}

// -- Joined ops ------------------------------------------------------------------------------

// Inserts the ops of a body before `op`.  Returns the values that equal its results.
static Value **inline_body(Op *op, Arena *a, Diag *d) {
  const Graph *body = op->callee;
  Value **of = arena_array(a, Value *, body->n_values);
  Value **result = arena_array(a, Value *, body->n_results);
  for (int i = 0; i < body->n_params; i++)
    of[body->params[i]->id] = op->in[i].value;
  for_each_op(each, body) {
    Value **in = arena_array(a, Value *, each->n_in);
    for (int i = 0; i < each->n_in; i++)
      in[i] = of[each->in[i].value->id];
    const Op *copy = op_copy(op->graph, op, each, in, d);
    if (!copy) return NULL;
    for (int i = 0; i < each->n_out; i++)
      of[each->out[i]->id] = copy->out[i];
  }
  for (int i = 0; i < body->n_results; i++)
    result[i] = of[body->results[i]->use.value->id];
  return result;
}

// Replaces the joined ops of the model's program by their definitions, and ops with bodies by
// these, in a clone of it.
static bool expand_joined(const Module *model, Module **with, Diag *d) {
  bool ok = true, any = false;
  for_each_graph(g, model)
    for_each_op(op, g)
      any |= is_joined(op->kind) || op_runs_graph(op);
  if (!any) return true;
  if (!*with) *with = module_clone(model);
  Arena *a = arena_new();
  (*with)->phase = PHASE_typed;
  for (Graph *g = (*with)->graphs; g && ok; g = g->next) {
    for_each_op(op, g)
      for (int i = 0; i < op->n_out; i++)
        op->out[i]->layout = NULL;
    for (int i = 0; i < g->n_params; i++)
      g->params[i]->layout = NULL;
    for_each_op_safe(op, g) {
      if (!ok || !g->entry || !(is_joined(op->kind) || op_runs_graph(op))) continue;
      Value **result = op_runs_graph(op) ? inline_body(op, a, d) : op_expand(op, a, d);
      ok = result != NULL;
      if (!ok) break;
      for (int i = 0; i < op->n_out; i++)
        value_replace(op->out[i], result[i]);
      op_erase(op);
    }
    graph_renumber(g);
  }
  arena_free(a);
  return ok;
}

bool prove_model(const Module *model, const Module *m, Module **with, Diag *d) {
  return split_losses(model, m, with, d) && dispatch_all(*with ? *with : model, m, with, d) &&
         make_rings(*with ? *with : model, m, with, d) &&
         expand_joined(*with ? *with : model, with, d);
}
