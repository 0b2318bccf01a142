// 16-bit ops that are computed in f32: see legalize_types.c.

#ifndef LEGALIZE_TYPES_H
#define LEGALIZE_TYPES_H

#include "ir/op.h"

// Whether the target has an f32 kernel for `op`, but none for its 16-bit type.
bool must_widen(const Op *op, Target t);

#endif
