// Orders between independent ops, from op_order in programs.
//
//     %a1 = linear …                                 op_order(a2, b1)
//     %b1 = linear …        both large
//     %a2 = reduce_sum %a1                  =>       %a1 = linear …
//     %b2 = reduce_sum %b1                           %a2 = reduce_sum %a1   order=1
//                                                    %b1 = linear …         order=2     over %a1
//                                                    %b2 = reduce_sum %b1
//
// The list of ops is the order in which a device runs them, so this sorts the list. Ops stay in the
// model's order, except that the predecessors of an op by an order, and their operands, are placed
// right before it unless they are placed already.
//
// Later passes must keep these orders. So of each order the last ops of the first side, and the
// first ops of the second side, get an order (Origin), numbered in the order of the list;
// dependences order the other ops. The verifier checks after every pass that these numbers ascend
// in the list. Passes that combine ops either know of orders (fuse) or are left out if they break
// them (manager/pipeline.c).
//
// Each entry graph has its own orders, as programs run for each: those of the model's ops hold in
// @eval as well.
//
// A cycle of orders is an error. The message names a smallest cycle, in which the results of each
// order's second side lead to the first side of the next.

#ifndef ORDER_H
#define ORDER_H

#include "base/diag.h"
#include "ir/graph.h"

// All of `first` run before all of `then`.
typedef struct Order {
  Op **first, **then;
  int n_first, n_then;
  const Loc *line;
} Order;

typedef struct Orders {
  Order *at;
  int n, cap;
} Orders;

// Sorts the graph and assigns orders; ids do not change. False after reporting a cycle.
bool order_ops(Graph *g, const Orders *orders, Arena *scratch, Diag *d);

#endif
