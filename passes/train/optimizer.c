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
// If autodiff scaled the loss, the scale adapts as that of torch.amp.GradScaler:
//
//     %good   = less %norm, inf                  no gradient is infinite or not a number
//     %gscale = where %good, %c, nan             nan: the optimizers leave weights and states alone
//     scale, after `growth` good steps in a row:  2 * scale, and a new count
//     scale, after a bad one:                     scale / 2
//
// A bad step is a skipped step: adam does not count it when it corrects its averages, so the number
// of updates is a state here.  The output `loss_scale` is the next step's scale.  The runtime
// derives two things from it.  If it exists, a norm that is not finite is a skipped step and not
// the end of the job.  If it no longer decreases after such a step, at 2^-14, the range of f16 is
// not the cause, and the job ends.  A loss that is not finite always ends the job, since no scale
// can help there.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "base/vec.h"
#include "ir/analysis/rewrite.h"
#include "ir/build.h"
#include "optimizer_spec.h"
#include "param_groups.h"
#include "pass.h"

typedef struct Gradient {
  Value *weight, *gradient;
  const ParamGroup *group;
  Value *frozen; // true in frozen rows, with the shape of the weight; or NULL
} Gradient;

typedef struct Update {
  Graph *g;
  Builder b;
  Origin origin; // of ops that belong to no single weight
  Arena *scratch;
  ParamGroups groups;
  Value **lr;    // by group, or NULL: not made yet
  Table *params; // by role and label: parameters from before the pass, and all scalars
  Vec(Gradient) gradients;
  Value *factor; // common to all gradients and removed from them, or NULL
  Value *gscale;
  Value *loss_scale; // the state, or NULL
  Value *updates;    // earlier updates: the scalar `step`, or a state if steps may be skipped
} Update;

// -- Gradients -------------------------------------------------------------------------------

// The origin of an update op.  `weight`: the location of the only weight that it concerns, or NULL.
static Origin origin_of_update(const Update *p, const Loc *weight) {
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

// -- Frozen rows -----------------------------------------------------------------------------

// Freezes rows.  `rows`: as for --freeze, "emb.weight[1],*.table[0]".  Their gradients become zero,
// in the norm of all gradients as well.
static bool freeze_rows(Update *p, const char *rows) {
  for (const char *at = rows; at && *at;) {
    // Collect a mask of frozen rows for each weight.
    size_t n = strcspn(at, ",");
    const char *text = str_copy_n(p->scratch, at, n);
    bool found = false;
    for (int i = 0; i < p->gradients.n; i++) {
      Gradient *g = &p->gradients.at[i];
      const Type *t = g->weight->as ? g->weight->as : g->weight->type;
      // NAME of "NAME[ROW]" matches the weight.
      size_t name = str_row_glob(text);
      int64_t row = name ? strtoll(text + name + 1, NULL, 10) : 0;
      if (!name || !str_glob(str_copy_n(p->scratch, text, name), g->weight->label)) continue;
      found = true;
      if (t->ndim < 1 || row >= t->dim[0] || t->dim[0] != g->weight->type->dim[0])
        return diag_error(p->b.d, g->weight->loc, "--freeze '%s': %s is no table with such a row",
                          text, type_text(p->scratch, t));
      p->b.origin = origin_of_update(p, g->weight->loc);
      // A mask of the weight's shape, true in the row.
      Builder *b = &p->b;
      const Type *type = g->weight->type;
      int64_t one[MAX_NDIM], dim[MAX_NDIM], low[MAX_NDIM] = {row};
      for (int k = 0; k < type->ndim; k++)
        one[k] = dim[k] = 1;
      dim[0] = type->dim[0];
      Value *here = build_fill(b, DT_f32, type->ndim, one, 1);
      Value *padded =
          build_op(b, OP_pad, IN(here),
                   ATTRS(a_list("low", low, type->ndim), a_list("shape", dim, type->ndim),
                         a_s("mode", "constant"), a_f("value", 0)));
      Value *half = build_fill(b, DT_f32, type->ndim, dim, 0.5);
      Value *mask =
          build_broadcast(b, build_binary(b, OP_greater, padded, half), type->ndim, type->dim);
      g->frozen = g->frozen ? build_binary(&p->b, OP_or, g->frozen, mask) : mask;
    }
    if (!found) diag_warning(p->b.d, NULL, "--freeze '%s' matches no weight that is trained", text);
    at += n + (at[n] == ',');
  }
  // Zero the gradients of these rows.  update_all keeps the rows of the weight itself.
  for (int i = 0; i < p->gradients.n && !p->b.failed; i++) {
    Gradient *g = &p->gradients.at[i];
    if (!g->frozen) continue;
    const Type *t = g->gradient->type;
    p->b.origin = origin_of_update(p, g->weight->loc);
    Value *zero = build_fill(&p->b, t->dtype, t->ndim, t->dim, 0);
    g->gradient = build_where(&p->b, g->frozen, zero, g->gradient);
  }
  p->b.origin = p->origin;
  return !p->b.failed;
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
    b->origin = origin_of_update(p, g->weight->loc);
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

static bool add_output(Update *p, Value *v, const char *label) {
  if (graph_find_output(p->g, label))
    return diag_error(p->b.d, NULL, "'@%s' has an output '%s' already", p->g->name, label);
  if (v) graph_output(p->g, v, label);
  return v;
}

// -- The loss's scale --------------------------------------------------------------------------

static const double least_scale = 0x1p-14, largest_scale = 0x1p24;

static Value *number(Update *p, DType t, double x) {
  return build_fill(&p->b, t, 0, NULL, x);
}

static Value *choose(Update *p, Value *which, Value *x, Value *y) {
  return build_where(&p->b, which, x, y);
}

static Value *add_one(Update *p, Value *x) {
  return build_op(&p->b, OP_offset, IN(x), ATTRS(a_f("by", 1)));
}

static Value *scalar_state(Update *p, const char *label, DType dtype) {
  Module *m = p->g->module;
  Value *s = graph_param(p->g, label, type_scalar(m, dtype), ROLE_state, NULL);
  s->label = label;
  s->init = arena_one(m->arena, Init);
  s->init->kind = INIT_fill;
  s->init->dtype = dtype;
  return s;
}

// Skips the update if a gradient is not finite, and chooses the next scale.
static bool scale_loss(Update *p, Value *norm, int64_t growth) {
  Builder *b = &p->b;
  Value *scale = p->loss_scale, *streak = scalar_state(p, "loss_scale.good_steps", DT_f32);
  // The norm is finite only if all gradients are.
  Value *good = build_binary(b, OP_less, norm, number(p, DT_f32, INFINITY));
  p->gscale = choose(p, good, p->gscale, number(p, DT_f32, NAN));
  // The next scale: doubled after `growth` good steps in a row, halved after a bad one.
  Value *longer = add_one(p, streak);
  Value *grows = build_binary(b, OP_greater_equal, longer, number(p, DT_f32, (double)growth));
  Value *up = choose(p, grows, build_scale(b, scale, 2), scale);
  Value *next = choose(p, good, up, build_scale(b, scale, 0.5));
  next = build_op(b, OP_clip, IN(next), ATTRS(a_f("low", least_scale), a_f("high", largest_scale)));
  Value *zero = number(p, DT_f32, 0);
  Value *next_streak = choose(p, good, choose(p, grows, zero, longer), zero);
  if (!add_output(p, next, "loss_scale") || b->failed) return false;
  graph_update(p->g, scale, next);
  graph_update(p->g, streak, next_streak);
  // Skipped steps do not count in bias corrections, so the step number no longer serves.
  bool counts = false; // an optimizer reads the number of updates
  for (int i = 0; i < p->groups.n; i++)
    counts |= optimizer_counts_steps(&p->groups.at[i].spec);
  if (!counts) return true;
  p->updates = scalar_state(p, "loss_scale.updates", DT_i64);
  graph_update(p->g, p->updates, choose(p, good, add_one(p, p->updates), p->updates));
  return !b->failed;
}

// Makes the common factor of all gradients.
static bool make_gscale(Update *p, double clip, int64_t growth) {
  Builder *b = &p->b;
  Value *total = norm(p), *coefficient = NULL;
  if (!add_output(p, total, "grad_norm")) return false;
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
  return p->loss_scale ? scale_loss(p, total, growth) : !b->failed;
}

// -- Updates ---------------------------------------------------------------------------------

static bool update_all(Update *p) {
  for (int i = 0; i < p->gradients.n; i++) {
    const Gradient *g = &p->gradients.at[i];
    p->b.origin = origin_of_update(p, g->weight->loc);
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
      s->init = arena_one(a, Init);
      s->init->kind = INIT_fill;
      s->init->dtype = w->type->dtype;
      s->init->fill = fill;
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
  p.origin = origin_of_update(&p, NULL);
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
  if (!freeze_rows(&p, opt_str(o, "rows"))) return false;
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
