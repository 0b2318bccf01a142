// Every kernel of a target on instances of its row, called the way generated code calls it
// (ir/kernel.h), through libffi.
//
//   instances  those of the examples, in each element type the row promises a kernel for
//   larger     the same with longer dimensions, odd ones too, for the ends of blocks and threads
//   in place   rows marked INPLACE or STATES once more with results on top of operands
//   part       GLOBAL_INDEX and GLOBAL_INDEX_IN rows once more as a part of something larger
//
// What is the target's own, memory and comparison, is its TryFn: kernels.c here, and in tests/gpu.

#ifndef TESTS_OPS_TRIALS_H
#define TESTS_OPS_TRIALS_H

#include "harness.h"
#include "ir/kernel.h"

// One call: operands, what the results must be, and whether they lie on top of operands.
typedef struct Trial {
  const Op *op;
  const char *how; // for messages
  const Tensor *in, *want;
  Box box;
  bool in_place;
} Trial;

// Runs the kernel by trial_call and compares; having reported by trial_fail what is wrong, false.
typedef bool TryFn(const Trial *t, Arena *a);

typedef struct Trials {
  Target target;
  const DType *types; // tried in place of f32
  int n_types;
  int n_larger_types; // the first so many also with longer dimensions
  int64_t max_elements;
  TryFn *run;
  int failures, calls;
} Trials;

// All of it; then that every kernel of the table was called.
void trials_run(Trials *t, const Examples *all, Diag *d);

bool trial_fail(const Trial *t, const char *fmt, double x); // false
// Which operand's memory result `i` is to take: -1 none.
int trial_place(const Trial *t, int i);
// Calls the kernel on memory that the kernel can use.  0, or its code.
int trial_call(const Trial *t, void *const *in, void *const *out, Arena *a);

#endif
