// --explain: what was decided about a value, or about the ops of a kind or of a node of the model.

#ifndef TOOLS_EXPLAIN_H
#define TOOLS_EXPLAIN_H

#include "planner/auto/choose.h"

// The plans that were looked at, the cheapest first: by how much each lost, or why it could not
// win.
void explain_candidates(const Candidates *all, int chosen, const Cluster *c, FILE *out);

// `what` is %name, the name of an op (linear), or a part of a node's name (/fc1/).  Whether
// anything is called so.
bool explain_module(const Module *m, const char *what, FILE *out);

// Whether something may be called so in what passes make of `m`: some name of it, which they keep,
// or what they name themselves, a kind of op or %value.
bool explain_may_find(const Module *m, const char *what);

// Reports that nothing is.  Returns false.
bool explain_failed(const char *what, Diag *d);

// Whether a node of the model has an op in it.
bool explain_has_node(const void *module, const char *node);

// What the model calls so, by a name that is still there when passes have made other values of its
// own: for what a node makes (logits) that is the node.  `m` is the model as it was read.
const char *explain_lasting(const Module *m, const char *what, Arena *a);

#endif
