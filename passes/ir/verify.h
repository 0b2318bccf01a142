// One function for each phase of phases.def; verify.c opens with what they promise.

#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/graph.h"

#define PHASE(name, means) bool verify_##name(const Graph *g, Diag *d);
#include "ir/phases.def"
#undef PHASE

// "%x" or "%12", for messages.
const char *value_text(Arena *a, const Value *v);

#endif
