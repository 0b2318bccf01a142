// Small random models with a step: about 12 ops of forward, as text in PHASE_typed.
//
//     random_model(seed, &o, a)
//
//     graph @main entry (%x: f32[16,4,64] input "x", %w0: f32[64,256] weight "w0" train …) {
//       %v0 = linear %x, %w0                     a chain of products,
//       %v1 = gelu %v0                           activations and norms
//       %v2 = linear %v1, %w1
//       %v3 = add %v2, %x                        a residual sum, a branch, or attention written out
//       …
//       %l = reduce_sum %q axes=[0,1,2]
//     }
//
// The loss is the sum of squares of the last value.  Every op serves it.

#ifndef RANDOM_MODELS_H
#define RANDOM_MODELS_H

#include "base/arena.h"

typedef struct RandomModel {
  int rows;     // of the batch
  int products; // of a forward with a weight, at most
} RandomModel;

// The same seed gives the same text.
const char *random_model(unsigned seed, const RandomModel *o, Arena *a);

// A number below n from the state, which it advances.
int random_below(unsigned *state, int n);

#endif
