// What an op costs: seconds on one device of a cluster.
//
//     max(flops / peak of its type, bytes / speed of memory) + launches * launch
//
// This is the roofline (Williams, Waterman and Patterson, CACM 2009) with the peaks that vendors
// state, and seconds for each kernel, however small.  It is of an op as it stands: before `fuse`
// each of a chain of elementwise ops goes through memory, which afterwards none does.
//
//     linear of f32[4096,64] and f32[64,256] on an h100: 134 MFLOP, 5.3 MB
//       max(134e6 / 67e12, 5.3e6 / 3350e9) + 2 us = max(2.0, 1.6) us + 2 us = 4.0 us
//
// A search prepares the work of an op of the whole once, and asks for the cost of its cuts, which
// takes arithmetic only:
//
//     OpWork w = op_work(op, dims_of(s, op));
//     double seconds = work_seconds(c, &w, &(Cut){1, {{letter, 4}}});
//
// It is the one that the op has when it was cut so: op_seconds from PHASE_local on.

#ifndef COST_H
#define COST_H

#include "cluster/cluster.h"
#include "ir/analysis/work.h"

// Whether the cluster says how fast its devices are; without that there are no seconds.
bool cost_known(const Cluster *c);
// The cluster of that name, or an h100, where it is known how fast it is and it has the devices of
// the module; else NULL.  *ok is false where there is none of that name, and that was reported.
const Cluster *cost_cluster(const char *name, const Module *m, Arena *a, Diag *d, bool *ok);
// Of one of the parts that the cut makes; NULL: of all of it.  On a cluster: on the slowest of its
// devices.
double work_seconds_on(const Device *d, const OpWork *w, const Cut *cut);
double work_seconds(const Cluster *c, const OpWork *w, const Cut *cut);
// With the types that the op has.
double op_seconds_on(const Device *d, const Op *op);
double op_seconds(const Cluster *c, const Op *op);

#endif
