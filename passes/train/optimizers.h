// The optimizers: a row each, found by --optimizer, by the pass, by --describe and by --help.

#ifndef OPTIMIZERS_H
#define OPTIMIZERS_H

#include "ir/build.h"
#include "ir/op.h"

enum { MAX_STATES = 2, MAX_SETTINGS = 8 };

// A key of --optimizer, with the name and the default of torch.optim.  Its value is the attribute
// of the same name, if the op has one.
typedef struct Setting {
  const char *key;
  enum {
    SETTING_number,
    SETTING_boolean,
    SETTING_betas,   // two numbers; the attributes are beta1 and beta2
    SETTING_fixed,   // a key of torch.optim that takes its default only
    SETTING_variant, // torch or onnx; the attribute is `onnx`
    SETTING_constant // no key: an attribute of the op
  } kind;
  double value;  // the default; of SETTING_betas that of beta1
  double low;    // the least value
  double second; // of SETTING_betas: the default of beta2
} Setting;

// A tensor per weight that persists between steps.
typedef struct OptimizerState {
  const char *name; // as in torch.optim: exp_avg
  const char *fill; // the setting it begins as; NULL: 0
} OptimizerState;

typedef struct OptimizerSpec OptimizerSpec;

// Operands of one weight's update; all but `step` have the weight's element type.
typedef struct UpdateOperands {
  Value *weight, *gradient, *state[MAX_STATES];
  Value *lr;     // scalar
  Value *gscale; // scalar that multiplies each gradient; NaN: the step is skipped
  Value *step;   // i64: updates done before this one
} UpdateOperands;

// Builds the update of one weight.  Returns the new weight and sets the new states, or NULL after
// an error.
typedef Value *UpdateFn(Builder *b, const OptimizerSpec *spec, const UpdateOperands *u,
                        Value **out_states);

typedef struct Optimizer {
  const char *name;
  double lr; // the default of torch.optim
  OpKind op; // its update, or the first op of it
  Setting settings[MAX_SETTINGS + 1];
  OptimizerState states[MAX_STATES];
  bool (*adjust)(OptimizerSpec *spec, const char **why); // after its settings are read; may be NULL
  UpdateFn *update;                                      // NULL: the op alone
} Optimizer;

// An optimizer with the values of its settings.
struct OptimizerSpec {
  const Optimizer *optimizer;
  OpKind op;
  int n_states;
  double value[MAX_SETTINGS], second[MAX_SETTINGS]; // by setting; second: of SETTING_betas
  double lr;                                        // the default of --lr: given here, or torch's
};

extern const Optimizer optimizers[];
extern const int n_optimizers;

// The value of a setting that the optimizer has; of SETTING_betas the first.
double optimizer_value(const OptimizerSpec *spec, const char *key);
// The initial value of a state.
double optimizer_fill(const OptimizerSpec *spec, int state);
// Whether the op reads the number of updates.
bool optimizer_counts_steps(const OptimizerSpec *spec);
// The update of one weight, by the row's function or by its op.
Value *optimizer_update(Builder *b, const OptimizerSpec *spec, const UpdateOperands *u,
                        Value **out_states);
// The name of the optimizer that builds such an op, or NULL.
const char *optimizer_of_op(const Op *op);

#endif
