// Validation of the emitted program: whether program.c, as it is handed to the C compiler, runs the
// planned module.  README.md has the argument.

#ifndef BACKEND_VALIDATE_H
#define BACKEND_VALIDATE_H

#include "backend/backend.h"

// Reads the text of `dir`, program.c with its parts and for gpus kernels.cu, and compares it with
// `m`, a module of phase planned.  `o`: the options that it was made with, or NULL.  Reports the
// first mismatch.
bool program_validate(const Module *m, const char *dir, const BackendOptions *o, Diag *d);

#endif
