// The values and ops on the paths from trained weights to the loss.
//
//     %h = linear %x, %w        %w trained: %h and %y are varied
//     %k, %i = top_k %h         %k is useful, as %y is the loss's
//     %y = reduce_sum %k        linear, top_k and reduce_sum take part: each needs a gradient

#ifndef IR_ANALYSIS_GRADIENT_PATH_H
#define IR_ANALYSIS_GRADIENT_PATH_H

#include "base/problem.h"
#include "ir/op.h"

// A value that depends on another by way of a part of the model that the graph lacks.
typedef struct ValueLink {
  const Value *from, *to;
} ValueLink;

typedef struct GradientPath {
  // By value id.  Set by the caller: the trained weights, and the values that make the loss.
  bool *varied;         // depends on a trained weight
  bool *useful;         // the loss depends on it
  const bool *detached; // by op id: no gradient goes back through it; or NULL
  const ValueLink *links;
  int n_links;
} GradientPath;

// Marks all values.  Ids of values and ops are below those of the graph.
void gradient_path_mark(const Graph *g, const GradientPath *p);
// Whether a gradient goes through the op.
bool gradient_path_has(const GradientPath *p, const Op *op);

// The problem of an op on the path that has no gradient.
ModelProblem gradient_problem(const Op *op, Arena *a);

#endif
