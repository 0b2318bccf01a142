// Numbers for classes, from a file: of NumPy (.npy, one dimension of f32 or f64), or text with
// white space between them.

#ifndef CLASS_WEIGHTS_H
#define CLASS_WEIGHTS_H

#include "loss_spec.h"

// `n` numbers, of the file that the specification names; NULL after an error that names both.
const float *read_class_weights(const LossSpec *spec, int64_t n, Arena *a, Diag *d);

#endif
