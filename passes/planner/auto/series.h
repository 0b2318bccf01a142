// Products in series: each depends on all before it, and all after it depend on it.
//
//     x ─ a ─┬─ q ─┬─ c ─ d        a, c and d are in series; q, k and v are a group, between a and c
//            ├─ k ─┤
//            └─ v ─┘
//
// Ops of a stage read values of the stage or of earlier ones. So stages that have products in
// series run a micro-batch one after the other, and one without has products of one group at most.

#ifndef SERIES_H
#define SERIES_H

#include "ir/op.h"

// group[i]: 0 if op[i] is in series, else the number of its group. The ops are in the order of the
// graph.
int *series_groups(const Graph *g, const Op *const *op, int n, Arena *a);

#endif
