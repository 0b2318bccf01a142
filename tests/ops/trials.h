// Calls every kernel of a target on instances of its row, like generated code (ir/kernel.h),
// through libffi.
//
//   instances  the examples, in each element type for which the row promises a kernel
//   larger     the same with longer dimensions, odd ones too, for the ends of blocks and threads
//   in place   rows marked INPLACE or STATES once more with results on top of operands
//   part       GLOBAL_INDEX and GLOBAL_INDEX_IN rows once more as a part of something larger
//
// Memory and comparison depend on the target and are in its TryFn: kernels.c here, and in
// tests/gpu.

#ifndef TESTS_OPS_TRIALS_H
#define TESTS_OPS_TRIALS_H

#include "harness.h"
#include "ir/kernel.h"

// One call: operands, the expected results, and whether results overwrite operands.
typedef struct Trial {
  const Op *op;
  const char *how; // for messages
  const Tensor *in, *want;
  Box box;
  bool in_place;
} Trial;

// Runs the kernel by trial_call and compares.  Returns false after reporting an error by
// trial_fail.
typedef bool TryFn(const Trial *t, Arena *a);

typedef struct Trials {
  Target target;
  const DType *types; // types tried in place of f32
  int n_types;
  int n_larger_types; // the first types, tried with longer dimensions, too
  int64_t max_elements;
  TryFn *run;
  int failures, calls;
} Trials;

// Runs all trials, and checks that every kernel of the table was called.
void trials_run(Trials *t, const Examples *all, Diag *d);

bool trial_fail(const Trial *t, const char *fmt, double x); // returns false
// Returns the operand whose memory result `i` overwrites; -1: none.
int trial_place(const Trial *t, int i);
// Calls the kernel on memory that the kernel can access.  Returns 0, or the kernel's code.
int trial_call(const Trial *t, void *const *in, void *const *out, Arena *a);

#endif
