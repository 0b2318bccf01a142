// Choices as splits: those of an op, of its gradient and of a weight's update under a choice of a
// node. Kernels and layouts are priced by Op.split, so each choice is tried there; the splits from
// before a search are saved, and restored at its end.

#ifndef SEARCH_SPLITS_H
#define SEARCH_SPLITS_H

#include "problem.h"

// The splits of all ops.
typedef struct SavedSplits {
  const Graph *g;
  char (*split)[MAX_AXES]; // by op id
} SavedSplits;

SavedSplits splits_save(const Sharding *s);
void splits_restore(const SavedSplits *saved);

// Sets Op.split of the op to that choice, until the next call.
void choose_split(const Problem *p, const Node *n, const Choice *c);

// Finds model_op and model_letter.
void gradients_find(Problem *p);
// Sets the split of a gradient op to follow the current split of its op of the model.
void choose_gradient_split(const Problem *p, Op *op, const Op *of);

// Sets the splits of the weight's update ops along the axis to the layout of its states, as far as
// programs allow, and marks these ops in `out`.
void split_update(const Problem *p, const Value *v, Sbp states, int axis, Chosen *out);

#endif
