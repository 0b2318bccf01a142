// A cross entropy with splittable classes: see split_classes.c.

#ifndef SPLIT_CLASSES_H
#define SPLIT_CLASSES_H

#include "ir/graph.h"

// Replaces `op`, a cross_entropy of a module before sharding, by ops that split the classes into
// `parts`, and erases it. Returns the first of these ops, the lse of each part; NULL after
// reporting that `parts` does not divide the classes.
Op *split_classes(Op *op, int parts, Diag *d);
bool is_split_loss(const Op *op); // whether it is such a first op
// Divides each part of such a loss into `times` parts, in place: decisions about the ops stay.
// False after reporting that the classes of a part cannot be divided so.
bool split_classes_again(Op *op, int times, Diag *d);

#endif
