// Fused bodies as C functions.

#ifndef BACKEND_KERNELS_H
#define BACKEND_KERNELS_H

#include "ir/graph.h"

// Appends the kernel of a fused body: `static int name(results…, operands…)`.  The body is reported
// at `loc` and nothing is written when it has types that no kernel computes in.
bool kernel_emit(StrBuf *out, const Graph *body, const char *name, const Loc *loc, Diag *d);

// A number as C of element type `t`: 0.5f, -INFINITY, 7.
const char *c_number(Arena *a, DType t, double x);
// Element `i` of `bytes`, of type `t`, as C.
const char *c_element(Arena *a, DType t, const void *bytes, int64_t i);

#endif
