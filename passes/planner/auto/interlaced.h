// The price of stages with the tables of words spread over all of them (pp_interlaced; vocabulary
// parallelism, arXiv 2411.05288).
//
//     units    0 embed   1 attention  2 mlp  …  n-1 head        words: 0 and n-1
//     turn     E1   F of each stage   E2 E3   B of each stage   E4
//
// A unit of words costs every stage its part. The others are dealt to stages. In a turn each stage
// runs a forward and a backward of different micro-batches, and none begins before all have ended
// the one before, as the units of words need all. So m micro-batches on p stages take
//
//     m E + (m + p - 1) (max F + max B) + sums and updates
//
// with E the words' seconds of a stage and their four transfers. A stage that does a forward and a
// backward of each micro-batch takes  m (E + max (F + B))  in any order: without the transfers,
// that is the bound, for the deal with the least maximum. Stage s holds 2 (p - s) - 1
// micro-batches.

#ifndef INTERLACED_H
#define INTERLACED_H

#include <stdint.h>

#include "base/arena.h"
#include "blocks.h"
#include "unit_cost.h"

typedef struct InterlacedProblem {
  const UnitCosts *units;
  const bool *words; // by unit
  int stages;
  int64_t micro_batches;
  double memory; // of a device, bytes; INFINITY: no limit
} InterlacedProblem;

// The units that look up words, or compute logits. NULL: there are none, or layers are among them.
const bool *units_of_words(const ModelUnits *b, Arena *a);

// *bytes: of the device with the most. False: no deal of units fits.
bool interlaced_find(const InterlacedProblem *p, double *bound, double *seconds, double *bytes);

#endif
