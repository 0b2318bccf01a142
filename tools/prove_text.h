// --prove=MODEL of nnaot and nnaot-opt: a module that may have been edited computes MODEL.

#ifndef TOOLS_PROVE_TEXT_H
#define TOOLS_PROVE_TEXT_H

#include "ir/graph.h"

// Proves that `m`, which messages call `name`, computes `model`, which was read from `path`; both
// are verified first.  With `values`, fills in the values of the model's program that those of `m`
// stand for, in m's arena; all but `program`.
bool prove_text(const Module *model, const char *path, const Module *m, const char *name,
                struct ModelValues *values, Diag *d);

#endif
