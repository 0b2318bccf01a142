// The transfers of rows between a stage and the ranks of all stages, which have parts of the tables
// of words (interlaced.h).
//
//     8 stages of 2 tensor ranks on two nodes, E2: ranks 0-15 get the rows that 14 and 15 have
//         broadcast to {0,2,4 …} {1,3,5 …}, all_gather {0,1} {2,3} …
//         an eighth of them to each, all_gather {0-7} {8-15}
//         a sixteenth, all_gather {0-15}; or {0,8} {1,9} …, and then {0-7} {8-15}
//     E3: the reverse, reduce_scatter and messages to the stage; or an all_reduce, also in three steps
//
// Each is priced by the cheapest of these routes, of which `comm` has more. Blocks of ranks, here
// nodes, are of 1, 2 … all stages.

#ifndef WORDS_TRANSFERS_H
#define WORDS_TRANSFERS_H

#include "cluster/cluster.h"
#include "point.h"

// Seconds of one. `sum`: all ranks add up their parts of rows, or of gradients, for the stage (E1,
// E3). `spread`: they get rows of the stage, or gradients (E2, E4).
typedef struct WordsTransfers {
  double sum, spread;
} WordsTransfers;

// `bytes`: of the rows of a micro-batch that the tensor ranks of a stage have together;
// `sum_bytes`: of their parts in a sum.
WordsTransfers words_transfers(const Cluster *c, const Point *p, double bytes, double sum_bytes);

#endif
