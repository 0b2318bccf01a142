// What the files of nnaot-eval share.
//
//     eval_inputs.c   what goes in: .npy files, initial contents, random numbers
//     eval_run.c      a graph on simulated devices, op by op, all ranks in step
//     eval_place.c    parts of tensors, cut out and put in
//     eval_kernels.c  the runtime's kernels in place of the references
//     eval_compare.c  two results that should be equal
//     eval_onnx.c     cases of the ONNX backend test suite
//     eval_npy.c      NumPy's files

#ifndef TOOLS_EVAL_H
#define TOOLS_EVAL_H

#include "base/vec.h"
#include "ir/analysis/boxes.h"
#include "ir/op.h"

// A tensor with a name: a parameter's label, or what a result is: "loss", "update fc.w".
typedef struct Named {
  const char *name;
  Tensor t; // whole
} Named;
typedef struct Values {
  Named *at;
  int n, cap;
} Values;
const Tensor *values_find(const Values *v, const char *name); // NULL when it is not there

typedef struct EvalOptions {
  bool kernels; // the runtime's, where there is one; otherwise the references
  int64_t seed;
  int64_t step;              // what scalar `step` is
  double lr;                 // what scalar `lr` is
  double tolerance;          // of the relative norm, in comparisons
  const char *const *inputs; // NAME=FILE.npy, n_inputs of them
  int n_inputs;
} EvalOptions;

// -- eval_inputs.c ---------------------------------------------------------------------------

const char *param_label(const Value *v, Arena *a);
// Values for the parameters of `g`.  Those that the module does not say are taken from `have`
// (NULL: it is empty) where it has them, and made otherwise.
bool eval_inputs(const Graph *g, const EvalOptions *o, const Values *have, Values *out, Arena *a,
                 Diag *d);

// -- eval_run.c ------------------------------------------------------------------------------

// Runs `g` once.  Results are in order, those that update a parameter named "update LABEL".
bool eval_run(const Graph *g, const EvalOptions *o, const Values *in, Values *out, Arena *a,
              Diag *d);

// -- eval_place.c ----------------------------------------------------------------------------

// The part of a tensor of type `whole` that is there; all of it when `l` is NULL.
Box place_box(const Type *whole, const Layout *l, const Place *at);
void box_cut(const Tensor *whole, const Box *box, Tensor *part);
void box_put(Tensor *whole, const Box *box, const Tensor *part);

// -- eval_kernels.c --------------------------------------------------------------------------

// Computes `op` by its kernel.  `*done` is false when there is none for it.
bool kernel_run(const Op *op, const Tensor *in, Tensor *out, const Box *box, bool *done, Arena *a,
                Diag *d);

// -- eval_compare.c --------------------------------------------------------------------------

// |x - y| / |y| over all elements, of |y| = 0: |x|.  Infinite where one is NaN, or infinite and the
// other is not the same.
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

// An int32 file also serves for an i64.
bool npy_read(const char *path, const Type *type, Tensor *out, Arena *a, Diag *d);
bool npy_write(const char *path, const Tensor *t, Diag *d);

#endif
