// One function for each phase of phases.def; verify.c opens with what they promise.

#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/graph.h"

#define PHASE(name, means) bool verify_##name(const Graph *g, Diag *d);
#include "ir/phases.def"
#undef PHASE

// Of promise 6 and 7: parameters and results.
bool verify_ends(const Graph *g, Arena *a, Diag *d);

// Of promise 8, what an op calls; and when all ops were looked at, that no graph calls itself.
typedef struct Calls Calls;
Calls *calls_new(Arena *a, const Graph *g);
bool calls_check(Calls *c, const Op *op, Diag *d);
bool calls_end(Calls *c, Diag *d);

// 21: what goes to host memory and comes back.
bool verify_swap(const Graph *g, Diag *d);

// 22: what changes in every slice of time.
bool verify_versions(const Graph *g, Diag *d);

// 23: deferred updates.
bool verify_owed(const Graph *g, Diag *d);

// "%x" or "%12", for messages.
const char *value_text(Arena *a, const Value *v);

#endif
