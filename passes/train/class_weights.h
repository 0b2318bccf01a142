// Numbers for classes, from a file: of NumPy (.npy, one dimension of f32 or f64), or text with
// white space between them.

#ifndef CLASS_WEIGHTS_H
#define CLASS_WEIGHTS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/diag.h"

// `n` numbers; NULL after an error that names the file.
const float *read_class_weights(Arena *a, const char *path, int64_t n, Diag *d);

#endif
