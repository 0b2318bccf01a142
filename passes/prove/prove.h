// The proof that a distributed program, or a model cut into pieces, computes the model's program.
// See prove.c.

#ifndef PROVE_H
#define PROVE_H

#include "number.h"

// Proves `m`, and reports errors at their ops.  `model` has whole types, so it is from before phase
// local.  `m` is of any phase, for any target, and keeps the promises of its phase.
bool prove_module(const Module *model, const Module *m, Diag *d);
// Whether weights are updated in every slice of time (stash_weights): no proof covers that.
bool module_asynchronous(const Module *m);

// -- prove_why.c -----------------------------------------------------------------------------

// Reports why `op`, on operands with the numbers `in`, is not in the model's program.  Returns the
// op that was most likely intended, or NULL.
const Op *prove_why(const Numbers *model, const Op *op, const int *in, Diag *d);

// "weight 'fc.w'", "result 1 of layer_norm '%m'".
const char *prove_name(const Value *v, Arena *a);

#endif
