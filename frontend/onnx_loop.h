// Loops of the model that stay loops: onnx_loop.c.

#ifndef FRONTEND_ONNX_LOOP_H
#define FRONTEND_ONNX_LOOP_H

#include "frontend/onnx_walk.h"

enum { MOST_ITERATIONS = 64 }; // of a loop that is put in place

// A loop over `count` iterations: operands and results as those of the op (ir/loop.h).
typedef struct Repeat {
  int64_t count;
  bool reverse;
  // Inputs of the body are the condition or nothing, states and slices; and of its results.
  int n_carried, n_sliced;
  const Binding *carried; // states before the loop
  Value *const *sliced;   // dimension 0 is that of the iterations
  bool numbered;          // the body has the number of the iteration, and a condition
  Value *begins;          // the condition before the loop, if it is not known; or NULL
} Repeat;

// Imports the body once.  Results: the states, then `n_stacked` slices.  Returns false, without a
// report, if the body does not fit a loop: `why`; false after a report, with `why` NULL.
bool onnx_loop(Node *n, const Repeat *r, Binding *out, int n_stacked, const char **why);

// Imports a branch that runs if `times` is 1 and not if it is 0, an i64[].  Results: those of the
// branch, else io_result; without these, zeros.  False after a report.
bool onnx_branch(Node *n, const char *attribute, Value *times, Binding *io_result, int n_results);

// The graph of an attribute, which sees the names around it (onnx_ops_control.c).
bool onnx_import_body(Node *n, const char *attribute, const char *part, const Binding *in, int n_in,
                      Binding *out, int n_out);

#endif
