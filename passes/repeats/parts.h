// The parts of a layer, an occurrence of a block: attention and mlp of a transformer's.
//
//     norm linear attention linear add │ norm linear gelu linear add
//
// A layer is divided at a position that no more bytes of activations cross than its end, with a
// matrix product on both sides: after the first residual sum.  All occurrences of a block are
// divided as the second one in the model is, as its neighbours are like it.

#ifndef PARTS_H
#define PARTS_H

#include "repeats.h"

// The ops of a model in the order of its repeats, so that those of an occurrence are adjacent.
typedef struct ModelOrder {
  const Repeats *repeats;
  int n;
  Op **op;        // [n]
  int *at;        // by op id: its position
  double *across; // by position: elements of activations from there on to later ops
} ModelOrder;

// `among`, by id: the ops of the model; NULL: all.
ModelOrder model_order(const Graph *g, const Repeats *r, const bool *among, Arena *a);

// Sets the part, from 0, of each op of an occurrence of the block, in the order of
// occurrence_ops.  Returns the number of parts.
int block_parts(const ModelOrder *o, const Block *block, int *part, Arena *a);

// The ops of an occurrence in order, those of inner occurrences included.  Returns their number.
int occurrence_ops(const Occurrence *o, Op **out);

#endif
