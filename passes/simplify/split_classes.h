// A cross entropy whose classes can be split: see split_classes.c.

#ifndef SPLIT_CLASSES_H
#define SPLIT_CLASSES_H

#include "ir/graph.h"

// Replaces `op`, a cross_entropy of a module that is not cut yet, by ops that split the classes in
// `parts`, and erases it.  False, having reported why, when that is no number of equal parts.
bool split_classes(Op *op, int parts, Diag *d);

#endif
