// A fused body while it is written as a kernel: the part common to all targets.
//
//     kernels_cpu.c    loops around a leaf, in C
//     kernels_cuda.c   the same points by the threads of a gpu, in CUDA C
//
// Both write the same formulas of the same operands and results:
//
//     y0, y1, …   results, in the order of the body        u0, u1, …   operands as they are read
//     x0, x1, …   operands, in the order of the body       v7          the result of op %7
//     s0, t0      sums, by the number of their result

#ifndef BACKEND_BODIES_H
#define BACKEND_BODIES_H

#include "base/vec.h"
#include "ir/analysis/loops.h"

// A parameter of the body with an access pattern: a body may read one in several ways.
typedef struct Read {
  const Value *param;
  Access access;
} Read;

typedef struct Kernel {
  StrBuf *out;
  Arena *arena;
  const Graph *g;
  const char *name;
  const char *leaf_name; // of the innermost loop's function, in C
  Body body;
  Vec(Read) read;
  int indent;
  // `u3` at the current point, as C: u3, or u3[j].
  const char *(*read_text)(struct Kernel *k, int i);
} Kernel;

// Writes a line of code at the kernel's indentation.
void kernel_line(Kernel *k, const char *fmt, ...) PRINTF_LIKE(2, 3);

const Value *kernel_result(const Kernel *k, int i);
bool kernel_is_sum(const Kernel *k, int i); // result i

// The computation type of elements of `t`: f32 for 16-bit floating types.
DType kernel_dtype(DType t);
// The computation type of `v`, and its stored type, as C.
const char *kernel_ctype(const Value *v);
const char *kernel_stored_ctype(const Value *v);
// The accumulator type of possibly long sums of `v`.
const char *kernel_sum_ctype(const Value *v);

// The body value at the current point, as C.  Records the operand that it reads.
const char *kernel_value(Kernel *k, const Value *v);
// Whether the 16-bit value at the current point is a number of its type, and its store need not
// round it.
bool kernel_is_exact(const Kernel *k, const Value *v);
// Writes the elementwise ops: "const float v3 = u0[i] + u1; // add".
void kernel_formulas(Kernel *k);
// The term that the current point adds to result `i`, a sum.
const char *kernel_addend(Kernel *k, int i);

// "float *y0, const float *x0": stored types, results first.
const char *kernel_params(Kernel *k);

#endif
