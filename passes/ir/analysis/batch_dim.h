// The batch dimension in a graph of global tensors: dimension 0 of the inputs with samples,
// propagated along the einsums of the ops.
//
//     x [n,T,5]                        batch 0
//     h [T,n,3] = …                    batch 1
//     f [n*T,3] = reshape x w          batch 0, its major factor
//     y [T*n,3] = reshape h            batch 0, its minor factor, after a factor T
//
// A letter that must not be split carries the batch too.  planner/stages/batch_letter.h, which
// needs a splittable batch, excludes such letters.

#ifndef IR_BATCH_DIM_H
#define IR_BATCH_DIM_H

#include "ir/graph.h"

bool value_has_batch(const Value *v);     // an input with samples in dimension 0
int64_t graph_batch_size(const Graph *g); // of the first input with a batch; 1 if none has
// The dimension with the batch as a factor, or -1, and the product of the factors before the batch.
typedef struct BatchDim {
  int dim;
  int64_t outer;
} BatchDim;

const BatchDim *batch_dims(const Graph *g, Arena *a); // by value id
// The dimension if the batch is its major factor, or -1.
int batch_dim(BatchDim at);

#endif
