// The dimensions that time slices will split, which is decided after sharding over ranks:
//
//     %y = linear %x, %w      0 k, k n -> 0 n      along time: 0, so ranks that split 0 leave a number of
//                                                  rows that the slices divide
//
// A batch of 96 in 8 slices is sharded into at most 12 parts, and a batch in 8 shards of 12 is
// split into at most 4 slices.

#ifndef MICROBATCH_CUT_H
#define MICROBATCH_CUT_H

#include "ir/graph.h"

typedef struct Timed {
  int64_t slices;
  char *split; // by op id: the letter that time splits, or none, as in Op.split
  int *dim;    // by parameter index: the dimension that time splits, or -1
} Timed;

// NULL for a single slice, or if the graph cannot be split along time.
const Timed *timed_find(const Graph *g, int64_t slices, Arena *a);

// Whether the letter, or the dimension, can be split over time besides into `parts` over ranks.
bool timed_letter(const Timed *t, const Op *op, char letter, int64_t size, int64_t parts);
bool timed_dim(const Timed *t, const Value *v, int dim, int64_t parts);

#endif
