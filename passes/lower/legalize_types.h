// Ops in 16 bits that are computed in f32: see legalize_types.c.

#ifndef LEGALIZE_TYPES_H
#define LEGALIZE_TYPES_H

#include "ir/op.h"

// Is there a kernel for f32, but none for the 16 bits that `op` has?
bool must_widen(const Op *op, Target t);

#endif
