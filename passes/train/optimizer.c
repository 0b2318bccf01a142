// The optimizer: gradients become updates.
//
//     return output "loss" %l,                %n  = … sqrt of the sum of squares of all gradients
//            output "grad:w" %g        =>     %c  = … min(1, clip / (%n + 1e-6))
//                                             %w1, %m1, %v1 = adam %w, %g, %m, %v, %lr, %c, %step
//                                             return output "loss" %l, output "grad_norm" %n,
//                                                    update %w %w1, update %m %m1, update %v %v1
//
// The specification is NAME[:key=value,…] with the names, the defaults and the arithmetic of
// torch.optim; optimizers.c has the table.  States are parameters labelled WEIGHT.exp_avg and so
// on, with the initial value of the table (optimizer_fill), mostly 0; the learning rate and the
// step are scalars that the runtime sets.
//
// The common factor of all gradients is the operand `gscale` of the update op, instead of an op of
// its own over all the weights.  It combines the clipping coefficient, as
// torch.nn.utils.clip_grad_norm_ computes it, and the factor that autodiff left at the end of every
// gradient (see there): with the latter, gradients are summed over micro-batches before they are
// divided.
//
// grad_norm is always an output: the total L2 norm before clipping; if the loss was scaled, of the
// unscaled gradients.
//
// Frozen rows: frozen_rows.c.  The scale of the loss in f16: loss_scale.c.

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "ir/analysis/rewrite.h"
#include "ir/build.h"
#include "ir/split.h"
#include "pass.h"
#include "update.h"

// -- Gradients -------------------------------------------------------------------------------

Origin update_origin(const Update *p, const Loc *weight) {
  return (Origin){.loc = loc_from(p->g->module->arena, weight, "update"), .part = PART_update};
}

static bool is_gradient(const Result *r) {
  return r->label && str_starts(r->label, "grad:");
}

// Takes the outputs grad:NAME from the graph.
static bool take_gradients(Update *p) {
  Graph *g = p->g;
  Table *params = graph_params_by_label(g, p->scratch);
  for (int i = 0; i < g->n_results; i++) {
    const Result *r = g->results[i];
    if (!is_gradient(r)) continue;
    // Only weights count: a scalar or an input of the same name, such as `step`, has no gradient.
    Value *weight = table_find(params, ROLE_weight, r->label + strlen("grad:"));
    if (!weight || weight->type != r->use.value->type)
      return diag_error(p->b.d, NULL, "output '%s' is not the gradient of a weight", r->label);
    Gradient gradient = {weight, r->use.value, param_group_of(&p->groups, weight), NULL};
    vec_push(p->scratch, &p->gradients, gradient);
  }
  graph_erase_results(g, is_gradient);
  if (p->gradients.n) return true;
  diag_error(p->b.d, NULL, "'@%s' has no gradients", g->name);
  diag_hint(p->b.d, "run 'autodiff' before 'optimizer'");
  return false;
}

// The scalar s if the gradient is  %g = mul %h, %b  with %b a broadcast of s; *rest becomes h.
static Value *scalar_factor(Value *gradient, Value **rest) {
  const Op *op = gradient->def;
  if (!op || op->kind != OP_mul) return NULL;
  for (int i = 1; i >= 0; i--) {
    Value *s = op->in[i].value;
    if (s->def && s->def->kind == OP_broadcast) s = s->def->in[0].value;
    if (s->type->ndim != 0) continue;
    *rest = op->in[1 - i].value;
    return s;
  }
  return NULL;
}

// -- Scalars ---------------------------------------------------------------------------------

// The scalar of this label; a weight of the model may have the same name.
static Value *scalar(Update *p, const char *label, DType dtype) {
  if (!p->params) p->params = graph_params_by_label(p->g, p->scratch);
  Value *v = table_find(p->params, ROLE_scalar, label);
  if (v) return v;
  v = graph_param(p->g, label, type_scalar(p->g->module, dtype), ROLE_scalar, NULL);
  v->label = str_copy(p->g->module->arena, label);
  table_add(p->params, ROLE_scalar, v->label, v);
  return v;
}

// The L2 norm of all gradients together, in f32.
static Value *norm(Update *p) {
  Builder *b = &p->b;
  Value **squares = arena_array(p->scratch, Value *, p->gradients.n), *sum = NULL;
  for (int i = 0; i < p->gradients.n; i++) {
    const Gradient *g = &p->gradients.at[i];
    // The part is update, as for the optimizer's op, so the constraint of a plan on the layout of
    // the gradient in updates holds for both.
    b->origin = update_origin(p, g->weight->loc);
    squares[i] = build_cast(b, build_op(b, OP_sum_squares, IN(g->gradient), NO_ATTRS), DT_f32);
  }
  b->origin = p->origin;
  for (int i = 0; i < p->gradients.n; i++)
    sum = sum ? build_binary(b, OP_add, sum, squares[i]) : squares[i];
  Value *root = build_op(b, OP_sqrt, IN(sum), NO_ATTRS);
  if (!p->factor) return root;
  Value *factor = build_cast(b, p->factor, DT_f32);
  return build_binary(b, OP_mul, root, build_op(b, OP_abs, IN(factor), NO_ATTRS));
}

bool update_add_output(Update *p, Value *v, const char *label) {
  if (graph_find_output(p->g, label))
    return diag_error(p->b.d, NULL, "'@%s' has an output '%s' already", p->g->name, label);
  if (v) graph_output(p->g, v, label);
  return v;
}

// Makes the common factor of all gradients.
static bool make_gscale(Update *p, double clip, int64_t growth) {
  Builder *b = &p->b;
  Value *total = norm(p), *coefficient = NULL;
  if (!update_add_output(p, total, "grad_norm")) return false;
  if (clip > 0) {
    // min(1, clip / (norm + 1e-6))
    Value *above = build_op(b, OP_offset, IN(total), ATTRS(a_f("by", 1e-6)));
    Value *ratio = build_binary(b, OP_div, build_fill(b, DT_f32, 0, NULL, clip), above);
    coefficient = build_binary(b, OP_min, ratio, build_fill(b, DT_f32, 0, NULL, 1));
  }
  Value *factor = p->factor ? build_cast(b, p->factor, DT_f32) : NULL;
  if (factor && coefficient)
    p->gscale = build_binary(b, OP_mul, factor, coefficient);
  else if (factor || coefficient)
    p->gscale = factor ? factor : coefficient;
  else
    p->gscale = build_fill(b, DT_f32, 0, NULL, 1);
  return p->loss_scale ? update_scale_loss(p, total, growth) : !b->failed;
}

// -- Updates ---------------------------------------------------------------------------------

// Padding of a weight has gradients and states of 0, and stays 0, unless an update divides by its
// eps alone, which is 0 in f32 or a denormal number.
static bool check_padding(const Gradient *g, Diag *d) {
  const OptimizerSpec *spec = &g->group->spec;
  bool divides = false;
  for (const Setting *s = spec->optimizer->settings; s->key; s++)
    divides |= str_equal(s->key, "eps") && optimizer_value(spec, "eps") < FLT_MIN;
  if (!value_padded(g->weight) || !divides) return true;
  diag_error(d, g->weight->loc, "'%s' is padded, and with eps=%g its padding would become 0/0",
             g->weight->label, optimizer_value(spec, "eps"));
  diag_hint(d, "give --optimizer a larger eps, or take ranks that divide the vocabulary");
  return false;
}

static bool update_all(Update *p) {
  for (int i = 0; i < p->gradients.n; i++) {
    const Gradient *g = &p->gradients.at[i];
    if (!check_padding(g, p->b.d)) return false;
    p->b.origin = update_origin(p, g->weight->loc);
    // The new weight is a result; the new states are updates of the graph.
    const OptimizerSpec *spec = &g->group->spec;
    Builder *b = &p->b;
    DType t = g->weight->type->dtype;
    Value *states[MAX_STATES];
    UpdateOperands u = {.weight = g->weight, .gradient = g->gradient};
    // Each group has its learning rate.
    Value **lr = &p->lr[g->group - p->groups.at];
    if (!*lr) *lr = scalar(p, "lr", DT_f32);
    if (g->group->lr_factor != 1 && !(*lr)->def) *lr = build_scale(&p->b, *lr, g->group->lr_factor);
    u.lr = build_cast(b, *lr, t);
    u.gscale = build_cast(b, p->gscale, t);
    for (int k = 0; k < spec->n_states; k++) {
      // A state is a parameter with the type and the place of its weight.
      const Value *w = g->weight;
      const char *suffix = spec->optimizer->states[k].name;
      double fill = optimizer_fill(spec, k);
      Arena *a = p->g->module->arena;
      const char *name = w->name ? str_format(a, "%s.%s", w->name, suffix) : NULL;
      Value *s = graph_param(p->g, name, w->type, ROLE_state, w->loc);
      s->label = str_format(a, "%s.%s", w->label, suffix);
      s->init = init_fill(p->g->module, w->type->dtype, fill);
      s->as = w->as;
      s->host = w->host;
      u.state[k] = s;
    }
    if (optimizer_counts_steps(spec)) u.step = p->updates ? p->updates : scalar(p, "step", DT_i64);
    Value *updated = optimizer_update(b, spec, &u, states);
    for (int k = 0; updated && k < spec->n_states; k++)
      graph_update(p->g, u.state[k], states[k]);

    if (updated && g->frozen) updated = build_where(&p->b, g->frozen, g->weight, updated);
    if (!updated) return false;
    graph_update(p->g, g->weight, updated);
  }
  return true;
}

bool pass_optimizer(Module *m, const PassOptions *o, Diag *d) {
  Graph *g = graph_find(m, "train");
  Update p = {.g = g ? g : m->graphs, .scratch = opt_scratch(o)};
  p.origin = update_origin(&p, NULL);
  p.b = (Builder){.g = p.g, .origin = p.origin, .d = d};
  const char *name = opt_str(o, "name");
  double clip = opt_float(o, "clip", 0);
  if (!(clip >= 0)) return diag_error(d, NULL, "gradients cannot be clipped to %g", clip);
  if (!param_groups_parse(&p.groups, name ? name : "sgd", opt_float(o, "lr", 0),
                          opt_str(o, "groups"), opt_str(o, "no_decay"), m->arena, d))
    return false;
  if (!take_gradients(&p)) return false;
  param_groups_check(&p.groups, d);
  p.lr = arena_array(p.scratch, Value *, p.groups.n);
  int64_t growth = opt_int(o, "growth", 2000);
  if (growth < 1)
    return diag_error(d, NULL, "the loss's scale cannot grow every %lld steps", (long long)growth);
  // The state that autodiff has added if it scaled the loss.
  for (int i = 0; !p.loss_scale && i < p.g->n_params; i++)
    if (p.g->params[i]->role == ROLE_state && str_equal(p.g->params[i]->label, "loss_scale"))
      p.loss_scale = p.g->params[i];

  // The common factor is taken off all gradients.  The products become dead, and are dropped at the
  // end.
  Value *rest;
  bool common = true;
  for (int i = 0; common && i < p.gradients.n; i++) {
    Value *s = scalar_factor(p.gradients.at[i].gradient, &rest);
    common = s && (!p.factor || s == p.factor);
    p.factor = common ? s : NULL;
  }
  for (int i = 0; common && i < p.gradients.n; i++) {
    Gradient *product = &p.gradients.at[i];
    scalar_factor(product->gradient, &product->gradient);
  }
  if (!update_freeze_rows(&p, opt_str(o, "rows"))) return false;
  if (!make_gscale(&p, clip, growth) || !update_all(&p)) return false;
  // Running statistics that are weights of the model are updated as well.
  for_each_op(op, p.g) {
    if (op->kind != OP_batch_norm_train) continue;
    for (int i = 3; i < 5; i++) {
      Value *running = op->in[i].value;
      if (running->def || running->role != ROLE_weight) continue;
      if (!graph_find_update(p.g, running)) graph_update(p.g, running, op->out[i]);
    }
  }
  // A dead product must not wait for the factor in every micro-batch.
  drop_dead(p.g);
  return true;
}
