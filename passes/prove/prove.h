// The proof that a distributed program computes what the model's does.  See prove.c.

#ifndef PROVE_H
#define PROVE_H

#include "number.h"

// `model` has types of whole tensors, so it is from before phase local; `m` is of any phase until
// passes for a target have changed its ops, and keeps the promises of its phase.  Reports what is
// wrong where it stands in `m`.
bool prove(const Module *model, const Module *m, Diag *d);

// -- prove_why.c -----------------------------------------------------------------------------

// Says why `op`, of operands with the numbers `in`, is no op of the model's program.  Returns the
// one that it was most likely meant to be, or NULL.
const Op *prove_why(const Numbers *model, const Op *op, const int *in, Diag *d);

// "weight 'fc.w'", "result 1 of layer_norm '%m'".
const char *prove_name(const Value *v, Arena *a);

#endif
