// The transfers of rows between a stage and the ranks of all stages, which have parts of the tables
// of words (interlaced.h).
//
//     4 stages of 2 tensor ranks, E2:    0-7 get rows of 6 and 7, which a rank has in whole then
//         broadcast to {0,2,4,6} {1,3,5,7}, all_gather {0,1} {2,3} …; or rd_scatter, all_gather 0-7
//
// Each is priced by the cheaper of two routes, of those that `comm` chooses from.

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
