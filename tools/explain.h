// --explain: the decisions about a value, or about the ops of a kind or of a node of the model.

#ifndef TOOLS_EXPLAIN_H
#define TOOLS_EXPLAIN_H

#include "planner/auto/choose.h"

// Prints the evaluated plans, the cheapest first: how much each loses, or why it could not win.
void explain_candidates(const Candidates *all, int chosen, const Cluster *c, FILE *out);

// Explains %name, the ops of a kind (linear), or the ops of nodes with this part in their name
// (/fc1/).  Returns whether anything has the name.
bool explain_module(const Module *m, const char *what, FILE *out);

// Whether passes over `m` may leave something of this name: a name of `m`, which they keep, or a
// name that they give themselves, such as a kind of op or %value.
bool explain_may_find(const Module *m, const char *what);

// Reports that nothing has the name.  Returns false.
bool explain_failed(const char *what, Diag *d);

// Whether the module has an op of this node of the model.
bool explain_has_node(const void *module, const char *node);

// A lasting name for the same thing, one that passes keep even if they replace values: for the
// result of a node (logits) it is the node.  `m` is the model as it was read.
const char *explain_lasting(const Module *m, const char *what, Arena *a);

#endif
