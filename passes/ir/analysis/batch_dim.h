// The batch dimension in a graph of global tensors: dimension 0 of the inputs with rows of data,
// propagated along the einsums of the ops.
//
//     x [n,T,5]                        batch 0
//     h [T,n,3] = …                    batch 1
//     f [n*T,3] = reshape x w          batch 0, its major factor
//     y [T*n,3] = reshape h            batch 0, its minor factor, after a factor T
//
// A letter that must not be split carries the batch too.  planner/stages/rows.h, which needs
// splittable rows, excludes such letters.

#ifndef IR_BATCH_DIM_H
#define IR_BATCH_DIM_H

#include "ir/graph.h"

bool value_has_rows(const Value *v); // an input with rows of data
int64_t graph_rows(const Graph *g);  // rows of the first input that has rows; 1 if none has
// The dimension with the batch as a factor, or -1, and the product of the factors before the batch.
typedef struct BatchDim {
  int dim;
  int64_t outer;
} BatchDim;

const BatchDim *batch_dims(const Graph *g, Arena *a); // by value id
// The dimension if the batch is its major factor, or -1.
int batch_dim(BatchDim at);

#endif
