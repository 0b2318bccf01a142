// Rows of experts in slots that ranks exchange: see dispatch_experts.c.

#ifndef DISPATCH_EXPERTS_H
#define DISPATCH_EXPERTS_H

#include "ir/graph.h"

typedef struct Dispatch {
  int64_t parts;    // of the experts, as many in each
  int64_t groups;   // of the rows
  int64_t capacity; // slots of a part for each group
  double load;      // the part of the slots of the busiest rank that hold a row, for estimates
} Dispatch;

// The number of rows of a group that can go to one part, whatever their experts.
int64_t dispatch_bound(const Op *op, int64_t parts, int64_t groups);
// The number of experts, and of rows.
int64_t dispatch_experts_of(const Op *op);
int64_t dispatch_rows_of(const Op *op);
// The first grouped_linear of the mixture of `op`, which the rewrite takes as a whole.
Op *dispatch_first(Op *op);

// Puts the products of the mixture of `op`, a grouped_linear of a module before sharding, on rows
// in slots, and erases them. False after an error: numbers that do not divide, or an op between two
// products that mixes rows.
bool dispatch_experts(Op *op, const Dispatch *to, Diag *d);

#endif
