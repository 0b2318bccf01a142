// A fused body while it is written as a kernel: what the writers of all targets need.
//
//     kernels_cpu.c    loops around a leaf, in C
//     kernels_cuda.c   the same points by the threads of a gpu, in CUDA C
//
// Both write the same formulas of the same operands and results:
//
//     y0, y1, …   results, in the order of the body        u0, u1, …   operands as they are read
//     x0, x1, …   operands, in the order of the body       v7          what op %7 computes
//     s0, t0      sums, by the number of their result

#ifndef BACKEND_BODIES_H
#define BACKEND_BODIES_H

#include "base/vec.h"
#include "ir/analysis/loops.h"

// A parameter of the body, and how it is read: a body may read one in several ways.
typedef struct Read {
  const Value *param;
  Access access;
} Read;

typedef struct Kernel {
  StrBuf *out;
  Arena *arena;
  const Graph *g;
  const char *name;
  Body body;
  Vec(Read) read;
  int indent;
  // `u3` at the point that is written, as C: u3, or u3[j].
  const char *(*read_text)(struct Kernel *k, int i);
} Kernel;

// Writes a line of code at the kernel's indentation.
void kernel_line(Kernel *k, const char *fmt, ...) PRINTF_LIKE(2, 3);

const Value *kernel_result(const Kernel *k, int i);
bool kernel_is_sum(const Kernel *k, int i); // result i

// What elements of `t` are computed in: f32 for 16-bit floating types.
DType kernel_dtype(DType t);
// The type of what `v` is computed in, and of what it is stored in, as C.
const char *kernel_ctype(const Value *v);
const char *kernel_stored_ctype(const Value *v);
// What sums of `v` that may be long are kept in.
const char *kernel_sum_ctype(const Value *v);

// The body value as C at the point that is written.  Notes what is read.
const char *kernel_value(Kernel *k, const Value *v);
// The elementwise ops: "const float v3 = u0[i] + u1; // add".
void kernel_formulas(Kernel *k);
// What is added up to result `i` at the point that is written.
const char *kernel_addend(Kernel *k, int i);

// "float *y0, const float *x0": stored types, results first.
const char *kernel_params(Kernel *k);

#endif
