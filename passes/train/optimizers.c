// The optimizers of --optimizer, with the names, defaults and arithmetic of torch.optim.
//
// A new optimizer is a row of the table below.  Its update is one op of ops.def with kernels of its
// own, or a function here that builds several, as update_lamb does.  Other passes find the update
// of a weight by value_optimizer (ir/op.c): from the new weight back to an op with trait OPTIMIZER,
// through operand 1 of ops with trait APPLIES_STEP and operand 0 of all others.  So every op in
// between has the running value as that operand.
//
// Operands of update ops stand in one order: weight, gradient, states, lr, gscale, step.  lamb has
// no lr, since lamb_apply has it, and sgd no step.

#include "optimizers.h"

#include <string.h>

// -- Updates of several ops ----------------------------------------------------------------------

// Operands in ops.def's order; *out_states are the op's results after the first.
static Value *update_by_op(Builder *b, const OptimizerSpec *spec, const UpdateOperands *u,
                           bool has_lr, Value **out_states) {
  Value *in[MAX_STATES + 5] = {u->weight, u->gradient};
  int n = 2, n_attrs;
  for (int i = 0; i < spec->n_states; i++)
    in[n++] = u->state[i];
  if (has_lr) in[n++] = u->lr;
  in[n++] = u->gscale;
  if (op_counts_steps(spec->op)) in[n++] = u->step;

  // Each attribute of the op is the setting of that name.
  const AttrSpec *attrs = op_attr_specs(spec->op, &n_attrs);
  Attr at[MAX_SETTINGS + 1];
  for (int i = 0; i < n_attrs; i++) {
    const char *name = attrs[i].name;
    double x = 0;
    for (int k = 0; spec->optimizer->settings[k].key; k++) {
      const Setting *s = &spec->optimizer->settings[k];
      if (s->kind == SETTING_betas && !strcmp(name, "beta1")) x = spec->value[k];
      if (s->kind == SETTING_betas && !strcmp(name, "beta2")) x = spec->second[k];
      if (!strcmp(name, s->kind == SETTING_variant ? "onnx" : s->key)) x = spec->value[k];
    }
    at[i] = attrs[i].kind == 'b' ? a_b(name, x != 0) : a_f(name, x);
  }
  Value *first = build_op(b, spec->op, in, n, (Attrs){at, n_attrs});
  for (int i = 0; first && i < spec->n_states; i++)
    out_states[i] = first->def->out[1 + i];
  return first;
}

// The op gives the direction; its length is the ratio of the norms of weight and direction.
static Value *update_lamb(Builder *b, const OptimizerSpec *spec, const UpdateOperands *u,
                          Value **out_states) {
  Value *direction = update_by_op(b, spec, u, false, out_states);
  Value *w2 = build_unary(b, OP_sum_squares, u->weight);
  Value *d2 = build_unary(b, OP_sum_squares, direction);
  return build_op(b, OP_lamb_apply, IN(u->weight, direction, w2, d2, u->lr), NO_ATTRS);
}

// Without momentum sgd has an op of its own, and no state.
static bool adjust_sgd(OptimizerSpec *spec, const char **why) {
  double momentum = optimizer_value(spec, "momentum");
  *why = "nesterov wants a momentum and no dampening";
  if (optimizer_value(spec, "nesterov") != 0 &&
      (momentum <= 0 || optimizer_value(spec, "dampening") != 0))
    return false;
  if (momentum != 0) return true;
  spec->op = OP_sgd;
  spec->n_states = 0;
  return true;
}

// -- The table -----------------------------------------------------------------------------------

const Optimizer optimizers[] = {
    {.name = "sgd",
     .lr = 1e-3,
     .op = OP_sgd_momentum,
     .settings = {{"momentum", SETTING_number, 0, 0},
                  {"dampening", SETTING_number, 0, -1e300},
                  {"weight_decay", SETTING_number, 0, 0},
                  {"nesterov", SETTING_boolean, 0, 0},
                  {"maximize", SETTING_fixed, 0, 0}},
     .states = {{"momentum_buffer", NULL}},
     .adjust = adjust_sgd},
    {.name = "adam",
     .lr = 1e-3,
     .op = OP_adam,
     .settings = {{"betas", SETTING_betas, 0.9, 0, 0.999},
                  {"eps", SETTING_number, 1e-8, 0},
                  {"weight_decay", SETTING_number, 0, 0},
                  {"variant", SETTING_variant, 0, 0},
                  {"amsgrad", SETTING_fixed, 0, 0},
                  {"maximize", SETTING_fixed, 0, 0},
                  {"decoupled", SETTING_constant, 0, 0}},
     .states = {{"exp_avg", NULL}, {"exp_avg_sq", NULL}}},
    {.name = "adamw",
     .lr = 1e-3,
     .op = OP_adam,
     .settings = {{"betas", SETTING_betas, 0.9, 0, 0.999},
                  {"eps", SETTING_number, 1e-8, 0},
                  {"weight_decay", SETTING_number, 1e-2, 0},
                  {"amsgrad", SETTING_fixed, 0, 0},
                  {"maximize", SETTING_fixed, 0, 0},
                  {"decoupled", SETTING_constant, 1, 0}},
     .states = {{"exp_avg", NULL}, {"exp_avg_sq", NULL}}},
    {.name = "adagrad",
     .lr = 1e-2,
     .op = OP_adagrad,
     .settings = {{"lr_decay", SETTING_number, 0, 0},
                  {"weight_decay", SETTING_number, 0, 0},
                  {"initial_accumulator_value", SETTING_number, 0, 0},
                  {"eps", SETTING_number, 1e-10, 0},
                  {"maximize", SETTING_fixed, 0, 0}},
     .states = {{"sum", "initial_accumulator_value"}}},
    {.name = "lamb",
     .lr = 1e-3,
     .op = OP_lamb,
     .settings = {{"betas", SETTING_betas, 0.9, 0, 0.999},
                  {"eps", SETTING_number, 1e-6, 0},
                  {"weight_decay", SETTING_number, 0, 0}},
     .states = {{"exp_avg", NULL}, {"exp_avg_sq", NULL}},
     .update = update_lamb},
};
const int n_optimizers = sizeof optimizers / sizeof *optimizers;

// -- Reading it ----------------------------------------------------------------------------------

double optimizer_value(const OptimizerSpec *spec, const char *key) {
  const Optimizer *o = spec->optimizer;
  int i = 0;
  while (o->settings[i].key && strcmp(o->settings[i].key, key) != 0)
    i++;
  if (!o->settings[i].key) BUG("%s has no setting '%s'", o->name, key);
  return spec->value[i];
}

double optimizer_fill(const OptimizerSpec *spec, int state) {
  const char *key = spec->optimizer->states[state].fill;
  return key ? optimizer_value(spec, key) : 0;
}

bool optimizer_counts_steps(const OptimizerSpec *spec) {
  return op_counts_steps(spec->op);
}

Value *optimizer_update(Builder *b, const OptimizerSpec *spec, const UpdateOperands *u,
                        Value **out_states) {
  UpdateFn *update = spec->optimizer->update;
  return update ? update(b, spec, u, out_states) : update_by_op(b, spec, u, true, out_states);
}

const char *optimizer_of_op(const Op *op) {
  for (int i = 0; i < n_optimizers; i++) {
    const Optimizer *o = &optimizers[i];
    bool is = o->op == op->kind || (op->kind == OP_sgd && o->op == OP_sgd_momentum);
    for (const Setting *s = o->settings; is && s->key; s++)
      if (s->kind == SETTING_constant) is = attr_i(op, s->key) == (s->value != 0);
    if (is) return o->name;
  }
  return NULL;
}
