// Declarations shared by the files of nnaot-eval.
//
//     eval_inputs.c   operands: .npy files, initial contents, random numbers
//     eval_run.c      a graph on simulated devices, op by op, all ranks in lock-step
//     eval_place.c    shards of tensors, extracted and inserted
//     eval_kernels.c  the runtime's kernels in place of the references
//     eval_compare.c  two results that should be equal
//     eval_onnx.c     cases of the ONNX backend test suite
//     eval_npy.c      NumPy's files
//     eval_trim.c     outputs with a length that depends on data

#ifndef TOOLS_EVAL_H
#define TOOLS_EVAL_H

#include "base/vec.h"
#include "frontend/onnx.h"
#include "ir/analysis/boxes.h"
#include "ir/op.h"

// A tensor with a name: the label of a parameter, or a result such as "loss" or "update fc.w".
typedef struct Named {
  const char *name;
  Tensor t; // whole
} Named;
typedef struct Values {
  Named *at;
  int n, cap;
} Values;
const Tensor *values_find(const Values *v, const char *name); // NULL if no value has the name

typedef struct EvalOptions {
  bool kernels; // run the runtime's kernel of an op if it has one; else its reference
  int64_t seed;
  int64_t step;              // value of scalar `step`
  double lr;                 // value of scalar `lr`
  double tolerance;          // of the relative norm, in comparisons
  const char *const *inputs; // NAME=FILE.npy, n_inputs of them
  int n_inputs;
} EvalOptions;

// -- eval_inputs.c ---------------------------------------------------------------------------

const char *param_label(const Value *v, Arena *a);
// Makes values for the parameters of `g`.  Parameters without initial contents in the module are
// taken from `have` (NULL: empty) if it has them, and made otherwise.
bool eval_inputs(const Graph *g, const EvalOptions *o, const Values *have, Values *out, Arena *a,
                 Diag *d);

// -- eval_trim.c -----------------------------------------------------------------------------

// Cuts outputs with a length that depends on data to that length, and removes the outputs that
// count.
void values_trim(Values *io, const OnnxCounts *counts, Module *m, Arena *a);

// -- eval_run.c ------------------------------------------------------------------------------

// Runs `g` once.  Results are in order; the result that updates a parameter is "update LABEL".
bool eval_run(const Graph *g, const EvalOptions *o, const Values *in, Values *out, Arena *a,
              Diag *d);

// -- eval_place.c ----------------------------------------------------------------------------

// The part of a tensor of type `whole` at a place; all of it if `l` is NULL.
Box place_box(const Type *whole, const Layout *l, const Place *at);
void box_cut(const Tensor *whole, const Box *box, Tensor *part);
void box_put(Tensor *whole, const Box *box, const Tensor *part);

// -- eval_kernels.c --------------------------------------------------------------------------

// Computes `op` by its kernel.  `*done` is false if it has none.
bool kernel_run(const Op *op, const Tensor *in, Tensor *out, const Box *box, bool *done, Arena *a,
                Diag *d);

// -- eval_compare.c --------------------------------------------------------------------------

// |x - y| / |y| over all elements, or |x| if |y| = 0.  Infinite if one is NaN, or infinite and
// unequal to the other.
double tensor_difference(const Tensor *x, const Tensor *y);
// Reports results that differ by more than the tolerance, with the first element that does.
// `near`: the results `x` of operands perturbed in their last bits, or NULL.
bool values_equal(const Values *x, const Values *y, const Values *near, double tolerance, Diag *d);
// The values perturbed in their last bits.
Values values_near(const Values *values, int64_t seed, Arena *a);

// -- eval_onnx.c -----------------------------------------------------------------------------

// Runs the cases in the folders, each after `pipeline` (or NULL).  Returns the exit status.
int eval_onnx(const char *const *folders, int n, const char *pipeline, const EvalOptions *o);

// -- eval_npy.c ------------------------------------------------------------------------------

// Reads a file.  An int32 file also serves for an i64.
bool npy_read(const char *path, const Type *type, Tensor *out, Arena *a, Diag *d);
bool npy_write(const char *path, const Tensor *t, Diag *d);

#endif
