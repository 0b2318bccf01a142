#ifndef TESTS_FUZZ_PASSES_H
#define TESTS_FUZZ_PASSES_H

#include "ir/graph.h"

// Runs copies of the module through some pipelines; `m` verifies.
void fuzz_passes(const Module *m, Diag *d);

#endif
