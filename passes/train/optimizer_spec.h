// The specification of --optimizer: adamw:betas=0.9/0.95,weight_decay=0.1

#ifndef OPTIMIZER_SPEC_H
#define OPTIMIZER_SPEC_H

#include "ir/graph.h"

enum { MAX_STATES = 2, MAX_SETTINGS = 8 };

typedef struct OptimizerSpec {
  OpKind kind;
  int n_states;
  const char *state[MAX_STATES]; // as torch.optim calls them: exp_avg
  double state_fill[MAX_STATES];
  Attr attrs[MAX_SETTINGS]; // of the op
  int n_attrs;
  double lr; // the default of --lr: given here, or torch's
} OptimizerSpec;

// All optimizers with their settings and defaults, "sgd:lr=0.001,momentum=0,…", with `between` in
// between.
const char *optimizer_usage(Arena *a, const char *between);

// Parses a specification.  Reports a mistake with the list of settings.  `said`: the subject of
// messages, or NULL for "optimizer 'TEXT'".
bool optimizer_parse(const char *text, const char *said, OptimizerSpec *out, Arena *a, Diag *d);

#endif
