// The price of stages with the tables of words spread over all of them (pp_interlaced; vocabulary
// parallelism, arXiv 2411.05288).
//
//     units    0 embed   1 attention  2 mlp  …  n-1 head        words: 0 and n-1
//     turn     E1   F of each stage   E2 E3   B of each stage   E4
//
// A unit of words costs every rank its part. The others are dealt to stages. In a turn each stage
// runs a forward and a backward of different micro-batches, and none begins before all have ended
// the one before, as the units of words need all. So m micro-batches on p stages take
//
//     m E + (m + p - 1) (max F + max B) + sums and updates
//
// with E the words' seconds of a rank and their four transfers. A stage that does a forward and a
// backward of each micro-batch takes  m (E + max (F + B))  in any order: without the transfers,
// that is the bound, for the deal with the least maximum. The price is of the deal with the least
// max F + max B. Stage s holds 2 (p - s) - 1 micro-batches, and recomputes as deal.h says.

#ifndef INTERLACED_H
#define INTERLACED_H

#include "blocks.h"
#include "deal.h"

// A unit's ops on tables of words.
typedef enum WordsUse { WORDS_none, WORDS_logits, WORDS_lookup } WordsUse; // a lookup: also both

// By unit. NULL: none is of words, or layers are.
const WordsUse *units_of_words(const ModelUnits *b, Arena *a);

// The costs of all units of words on a rank: seconds of a micro-batch, and after the last one;
// bytes of the whole step, and the largest others.
typedef struct WordsCost {
  double seconds, after, lasting, working;
} WordsCost;

// `units`: of a plan with the tables on the ranks of all stages, as vocabulary parallelism (vp) has
// them.
WordsCost words_cost(const WordsUse *words, const UnitCosts *units);
// A bound, by the costs on `parts` times fewer ranks.
WordsCost words_bound(const WordsUse *words, const UnitCosts *units, double parts);
// The costs of the other units.
UnitCosts units_without_words(const WordsUse *words, const UnitCosts *units, Arena *a);

typedef struct InterlacedProblem {
  DealProblem deal; // of the units without words; one chunk, 1f1b
  WordsCost words;
  double handed; // bytes per rank of a transfer of rows
} InterlacedProblem;

// False: no deal of units fits.
bool interlaced_find(const InterlacedProblem *p, Arena *a, Deal *out);
// The price of the best deal, which replaces `d`. *bytes: of the device with the most.
void interlaced_price(const InterlacedProblem *p, Deal *d, double *seconds, double *bytes);

#endif
