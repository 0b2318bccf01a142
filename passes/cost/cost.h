// The cost of an op: seconds on one device of a cluster.
//
//     max(flops / speed of its type, bytes / speed of memory, launches * dispatch) + launches * launch
//
// This is the roofline (Williams, Waterman and Patterson, CACM 2009) with the peaks that vendors
// state, or the speed that products of the size were measured to reach (device_speed), plus the
// launch latency of each kernel.  It is the cost of the op as it stands: before
// `fuse` each op of an elementwise chain goes through memory, after `fuse` none does.  `dispatch`
// and `half_efficiency`, a share of the peak in 16 bits, are those of eager systems: a host that
// issues kernels one by one bounds the small ones.  Fused attention has a share of its own.
//
//     linear of f32[4096,64] and f32[64,256] on an h100: 134 MFLOP, 5.3 MB
//       max(134e6 / 67e12, 5.3e6 / 3350e9) + 2 us = max(2.0, 1.6) us + 2 us = 4.0 us
//
// A search prepares the work of an unsharded op once.  The cost of a split is then arithmetic only:
//
//     OpWork w = op_work(op, dims_of(s, op));
//     double seconds = work_seconds(c, &w, &(Cut){1, {{letter, 4}}});
//
// It equals op_seconds of the sharded op from PHASE_local on.

#ifndef COST_H
#define COST_H

#include <math.h>

#include "cluster/cluster.h"
#include "ir/analysis/work.h"

// Whether the speed of the cluster's devices is known; without it there are no costs.
bool cost_known(const Cluster *c);
// Returns the cluster of that name, or the default; NULL if its speed is unknown or it has too few
// devices for the module.  *ok is false if no cluster has that name, which is reported.
const Cluster *cost_cluster(const char *name, const Module *m, Arena *a, Diag *d, bool *ok);
// The seconds of one shard under `cut`; NULL: of the whole op.  On a cluster: on its slowest
// device.
double work_seconds_on(const Device *d, const OpWork *w, const Cut *cut);
// The same in `runs` runs that have equal parts of the work.
double work_seconds_in(const Device *d, const OpWork *w, const Cut *cut, double runs);
// The arithmetic of it alone; narrow: in 16 bits.
double arithmetic_seconds(const Device *d, const WorkSum *sum, bool narrow, double runs);
// The seconds of `n` kernels that together move these bytes.
static inline double moving_seconds(const Cluster *c, double bytes, double n) {
  return fmax(bytes / c->memory_speed, n * c->dispatch) + n * c->launch;
}
double work_seconds(const Cluster *c, const OpWork *w, const Cut *cut);
// The bytes that the start of a copy to or from host memory moves. A sum there is read, too.
int64_t op_copy_bytes(const Op *op);
// The seconds of the op with its own types.
double op_seconds_on(const Device *d, const Op *op);
double op_seconds(const Cluster *c, const Op *op);

#endif
