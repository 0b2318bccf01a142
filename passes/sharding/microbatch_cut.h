// What the slices of time will cut, which is decided after the ranks have their parts:
//
//     %y = linear %x, %w      0 k, k n -> 0 n      along time: 0, so ranks that split 0 leave a number of
//                                                  rows that the slices divide
//
// A batch of 96 in 8 slices is cut in at most 12 parts, and one in 8 parts of 12 in at most 4
// slices.

#ifndef MICROBATCH_CUT_H
#define MICROBATCH_CUT_H

#include "ir/graph.h"

typedef struct Timed {
  int64_t slices;
  char *split; // by op id: the letter that time splits, or what stands for none
  int *dim;    // by value id of parameters: the dimension that it cuts, or -1
} Timed;

// NULL where time is not cut, or the graph cannot be.
const Timed *timed_find(const Graph *g, int64_t slices, Arena *a);

// Whether `parts` of that letter, or of that dimension, can be cut in slices too.
bool timed_letter(const Timed *t, const Op *op, char letter, int64_t size, int64_t parts);
bool timed_dim(const Timed *t, const Value *v, int dim, int64_t parts);

#endif
