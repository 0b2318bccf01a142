// The proof that a distributed program, or a model cut into pieces, computes the model's program.
// See prove.c.

#ifndef PROVE_H
#define PROVE_H

#include "number.h"

// Proves `m`, and reports errors at their ops.  `model` has whole types, so it is from before phase
// local.  `m` is of any phase, for any target, and keeps the promises of its phase.
bool prove_module(const Module *model, const Module *m, Diag *d);
// The same, and fills `out`, in `a`, with the values of the model's program that those of the first
// entry of `m` stand for (ir/model_values.h); all but `program`.
bool prove_module_values(const Module *model, const Module *m, Arena *a, struct ModelValues *out,
                         Diag *d);
// Whether weights are updated in every slice of time (stash_weights): no proof covers that.
bool module_asynchronous(const Module *m);

// -- prove_values.c --------------------------------------------------------------------------

// The values of a graph in their order, parameters first; *n of them.
const Value **graph_values_in_order(const Graph *g, Arena *a, int *n);
// A hash of everything that determines the numbers and meanings of the values of a graph, and not
// of names of values, files and locations.
uint64_t graph_fingerprint(const Graph *g);
// The terms of the longest sum in the op that computes `v`, a value of whole type: 1 of a
// parameter.
int64_t value_terms(const Value *v, Diag *d);

// -- prove_why.c -----------------------------------------------------------------------------

// Reports why `op`, on operands with the numbers `in`, is not in the model's program.  Returns the
// op that was most likely intended, or NULL.
const Op *prove_why(const Numbers *model, const Op *op, const int *in, Diag *d);

// "weight 'fc.w'", "result 1 of layer_norm '%m'".
const char *prove_name(const Value *v, Arena *a);

#endif
