// The specification of --optimizer: adamw:betas=0.9/0.95,weight_decay=0.1

#ifndef OPTIMIZER_SPEC_H
#define OPTIMIZER_SPEC_H

#include "optimizers.h"

// All optimizers with their settings and defaults, "sgd:lr=0.001,momentum=0,…", with `between` in
// between.
const char *optimizer_usage(Arena *a, const char *between);

// Parses a specification.  Reports a mistake with the list of settings.  `subject`: the subject of
// messages, or NULL for "optimizer 'TEXT'".
bool optimizer_parse(const char *text, const char *subject, OptimizerSpec *out, Arena *a, Diag *d);

#endif
