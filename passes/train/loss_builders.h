// The state and helpers of the builders of losses.def, which are in loss_classes.c and
// loss_numbers.c; the pass is loss.c.

#ifndef LOSS_BUILDERS_H
#define LOSS_BUILDERS_H

#include "base/vec.h"
#include "ir/analysis/batch_dim.h"
#include "ir/build.h"
#include "ir/op.h"
#include "loss_spec.h"

// A classification loss.
typedef struct Classified {
  const Value *labels;
  int64_t n; // classes
  const char *output;
} Classified;

typedef struct LossPass {
  Graph *g;
  Builder b;
  Arena *scratch;
  Diag *d;
  const LossSpec *spec;
  const BatchDim *batch;      // of the model's values
  Vec(Classified) classified; // so far
} LossPass;

// Builds the loss of the output `x`, as p->spec says; NULL after a reported error.
typedef Value *LossFn(LossPass *p, Value *x);
#define LOSS(name, names, options, usage) LossFn loss_##name;
#include "train/losses.def"
#undef LOSS

// The input named by the specification, else `label`; an existing one is reused.  `batch`: the
// dimension of it that corresponds to the output's batch, or -1.
Value *loss_input(LossPass *p, const char *label, DType dtype, int ndim, const int64_t *dim,
                  int batch);
// The mean over `n` elements of `x`; all others are 0.
Value *loss_mean_of(Builder *b, Value *x, double n);

#endif
