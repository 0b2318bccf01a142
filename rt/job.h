// The jobs of transports: the collectives of collectives.def, and move.
//
// A collective of p ranks is over n elements.  If its operand becomes split, x has a part for each
// rank; if it was split, y has a part from each rank; parts are in the order of the ranks:
//
//     all_reduce        x[n]       y[n] = the sum of the x of all ranks
//     all_gather        x[n]       y[p, n]: y[i] is rank i's x
//     reduce_scatter    x[p, n]    y[n] = the sum of the x[me] of all ranks
//     all_to_all        x[p, n]    y[p, n]: y[i] is rank i's x[me]
//     move              parcels, each from one rank to another (route.h)

#ifndef NNRT_JOB_H
#define NNRT_JOB_H

#include <stdbool.h>

typedef enum JobKind {
#define COLLECTIVE(op, from, to, from_dim, to_dim, nccl) JOB_##op,
#include "collectives.def"
  JOB_move,
  N_JOB_KINDS
} JobKind;

typedef struct JobShape {
  const char *name;      // of the op
  bool x_parts, y_parts; // x[p, n], y[p, n]
  bool sums;             // y is a sum over ranks
} JobShape;
extern const JobShape nnrt_job_shape[N_JOB_KINDS]; // all false for a move

#endif
