// Convolutions with filters of 1 x 1, channels last, as products of plain matrices: see conv_1x1.c.

#ifndef NNRT_CONV_1X1_H
#define NNRT_CONV_1X1_H

#include "conv.h"
#include "kernel.h"

// Whether the product is at least as fast as oneDNN's convolution: by the shapes and the type
// alone, so all machines have the same answer.  type: f32 or bf16.
bool conv_1x1_fits(NnrtDtype type, const Conv *c, Direction direction);

// Prepares one; NULL, with an error: out of memory, or an error of oneDNN.
NnrtPrep *conv_1x1_prep(NnrtDtype type, const Conv *c, Direction direction);

// Whether `p` comes from conv_1x1_prep.
bool conv_1x1_is(const NnrtPrep *p);

// Computes `result` from the two other tensors, in the order x, w, y.  All are of the prep's type,
// but the gradient of w is f32.
int conv_1x1_run(NnrtPrep *p, void *result, const void *first, const void *second);

#endif
