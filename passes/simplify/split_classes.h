// A cross entropy with splittable classes: see split_classes.c.

#ifndef SPLIT_CLASSES_H
#define SPLIT_CLASSES_H

#include "ir/graph.h"

// Replaces `op`, a cross_entropy of a module before sharding, by ops that split the classes into
// `parts`, and erases it. False after reporting that `parts` does not divide the classes.
bool split_classes(Op *op, int parts, Diag *d);

#endif
