// The choice of trained weights, and of ops that stop the gradient: --freeze, --train and --detach.

#ifndef TRAIN_TRAINED_H
#define TRAIN_TRAINED_H

#include "ir/graph.h"

// Sets `train` and missing labels of weights.  `globs`: separated by commas, or NULL.  The last one
// that matches the label of a weight counts: it freezes the weight or, after a '!', trains it.
// Warns of globs that match none.  Returns by value id whether a glob asks to train the weight.
bool *choose_trained(Graph *g, const char *globs, Arena *scratch, Diag *d);
// Sets by op id whether a glob matches the node of the op; false after a report of globs that match
// none.
bool find_detached(const Graph *g, const char *globs, Arena *scratch, bool **out, Diag *d);

#endif
