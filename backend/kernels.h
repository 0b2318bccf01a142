// Fused bodies as functions, and numbers as C.

#ifndef BACKEND_KERNELS_H
#define BACKEND_KERNELS_H

#include "base/table.h"
#include "base/vec.h"
#include "ir/graph.h"

// Kernels in C that call one leaf.
typedef struct LeafKernels {
  const char *leaf;          // its function; NULL: a kernel of no points, which calls none
  const char *leaf_name;     // "fused_0_loop", of the first of the kernels
  Vec(const char *) kernels; // "int fused_0(…) {…}"
} LeafKernels;

typedef struct CpuKernels {
  Arena *arena;
  Table *by_leaf; // LeafKernels by the text of the leaf after its name
  Vec(LeafKernels *) at;
} CpuKernels;

// Adds the kernel of a fused body, `int name(results…, operands…)`, in C.  Bodies that differ only
// in sizes have one leaf, which is the larger part of the compiler's work.
void kernel_emit_cpu(CpuKernels *all, const Graph *body, const char *name);
CpuKernels *cpu_kernels_new(Arena *a);
// Appends kernels of one leaf; `linkage`: "static ", or "" for calls from other files.
void leaf_kernels_text(const LeafKernels *k, const char *linkage, StrBuf *out);
void cpu_kernels_text(const CpuKernels *k, StrBuf *out);

// Appends the kernel of a fused body in CUDA C.
void kernel_emit_cuda(StrBuf *out, const Graph *body, const char *name);
// "int fused_0(float *y0, const float *x0)"
const char *kernel_declaration(Arena *a, const Graph *body, const char *name);

// A number as C of element type `t`: 0.5f, -INFINITY, 7.
const char *c_number(Arena *a, DType t, double x);
// Element `i` of `bytes`, of type `t`, as C.
const char *c_element(Arena *a, DType t, const void *bytes, int64_t i);

#endif
