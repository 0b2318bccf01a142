// Numbers for classes, from a file: of NumPy (.npy, one dimension of f32 or f64), or text with
// white space between them.

#ifndef CLASS_WEIGHTS_H
#define CLASS_WEIGHTS_H

#include "loss_spec.h"

// Reads `n` numbers from the file of the specification; NULL after an error that names both.
const float *read_class_weights(const LossSpec *spec, int64_t n, Arena *a, Diag *d);

#endif
