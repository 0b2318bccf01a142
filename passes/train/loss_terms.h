// A loss as a sum of terms, each a scalar times a factor that does not depend on the weights:
//
//     %m = div %masked, %count            masked words
//     %n = scale %next by=0.125           next sentences
//     %0 = scale %m by=0.5
//     %l = add %0, %n                     {masked, 1 / count, 0.5} + {next, none, 0.125}
//
// In such a form the sums and counts of several batches or micro-batches add up.

#ifndef LOSS_TERMS_H
#define LOSS_TERMS_H

#include "base/vec.h"
#include "ir/build.h"

// The term by * factor * start.
typedef struct LossTerm {
  Value *start;  // one element, of any number of dimensions
  Value *factor; // a scalar, or NULL
  double by;
  bool of_sum; // there are other terms
} LossTerm;

typedef Vec(LossTerm) LossTerms;

// Splits the loss into terms.  `varied`: by value id, whether the value depends on the weights; a
// term that does not is not split further than its sum.  Factors are built at `b`, equal ones once.
LossTerms find_loss_terms(Builder *b, Value *loss, const bool *varied, Arena *a);

// Whether term `i` is the first with its factor, or the first without any.
bool is_first_of_factor(const LossTerms *terms, int i);

#endif
