// Fused bodies as functions, and numbers as C.

#ifndef BACKEND_KERNELS_H
#define BACKEND_KERNELS_H

#include "ir/graph.h"

// Appends the kernel of a fused body, `int name(results…, operands…)`, in C (kernels_cpu.c) or in
// CUDA C (kernels_cuda.c).
void kernel_emit_cpu(StrBuf *out, const Graph *body, const char *name);
void kernel_emit_cuda(StrBuf *out, const Graph *body, const char *name);
// "int fused_0(float *y0, const float *x0)"
const char *kernel_declaration(Arena *a, const Graph *body, const char *name);

// A number as C of element type `t`: 0.5f, -INFINITY, 7.
const char *c_number(Arena *a, DType t, double x);
// Element `i` of `bytes`, of type `t`, as C.
const char *c_element(Arena *a, DType t, const void *bytes, int64_t i);

#endif
