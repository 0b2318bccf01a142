// The estimated seconds and bytes of a point, by the closed form of its schedule over equal stages:
// the order in which `--plan auto` builds plans. A built plan has its own price.
//
//     pp_zb_h1=16,zero1=16,sp=4 in 64 micro-batches     3.7 s, 110 GB
//
// Kernels are those of one rank with their share of flops and bytes. Ranks inside of layers gather
// and reduce the smaller end of each product. Schedules wait as long as their papers say (Narayanan
// et al. 2021; Qi et al. 2023, table 1). Stages with tables of words on all of them take turns, as
// interlaced.h says, with the transfers of words_transfers.h.

#ifndef ESTIMATE_H
#define ESTIMATE_H

#include "point.h"
#include "step_work.h"

typedef struct Estimate {
  double seconds, bytes;
  double saved; // of these bytes: from forward to backward
} Estimate;

Estimate estimate_find(const StepWork *w, const Cluster *c, const Point *p);

#endif
