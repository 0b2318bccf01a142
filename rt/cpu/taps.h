// Convolutions on small maps and their gradients, as products of matrices per tap of the filter:
// see taps.c.

#ifndef NNRT_TAPS_H
#define NNRT_TAPS_H

#include "conv.h"
#include "kernel.h"

// Whether products per tap are faster than oneDNN: by the shapes alone, so all machines have the
// same answer.
bool taps_fit(const Conv *c, Direction direction);

// Prepares one; NULL, with an error: out of memory.
NnrtPrep *taps_prep(const char *name, const Conv *c, Direction direction);

// Whether `p` comes from taps_prep.
bool taps_is(const NnrtPrep *p);

// Computes `result` from the two other tensors, in the order x, w, y.
int taps_run(NnrtPrep *p, float *result, const float *first, const float *second);

#endif
