// Which weights are trained, and through which ops no gradient goes: --freeze, --train and
// --detach.

#ifndef TRAIN_TRAINED_H
#define TRAIN_TRAINED_H

#include "ir/graph.h"

// `globs`, or NULL: separated by commas.  The last that matches the label of a weight counts: it
// freezes the weight or, after a '!', trains it.  Sets `train` and missing labels of weights; warns
// of globs that match none.
void choose_trained(Graph *g, const char *globs, Arena *scratch, Diag *d);
// By op id, whether a glob matches the node that the op is of.  Warns of globs that match none.
bool *find_detached(const Graph *g, const char *globs, Arena *scratch, Diag *d);

#endif
